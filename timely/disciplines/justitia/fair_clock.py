"""Virtual time at the pace of the machine: what it works off in a step, as observed."""

from timely.core.job import JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.justitia.virtual_time import FairVirtualTime

CONTEXT_SMOOTHING = 0.05
"""Weight of the newest batch in the mean context of a running request."""


class FairClock:
    """Virtual time whose rate follows the KV cache and the step times.

    Args:
        capacity_tokens: KV tokens worked off in a step; observed when left out.
    """

    def __init__(self, capacity_tokens: float | None = None) -> None:
        self.time = FairVirtualTime()
        self._fixed_tokens = capacity_tokens
        self._context_tokens = 0.0
        """Mean context of a running request."""
        self._batch = (-1, -1, -1)
        self.rate_tokens = 0.0
        """Cost worked off in a step, at the last ``advance``."""

    def advance(self, table: JobTable, limits: StepLimits) -> None:
        """Let virtual time pass until ``limits.now`` if other requests run than at the last call."""
        active = (table.active & table.resident).nonzero()[0]
        running = active.size
        batch = (len(table), running, int(table.sequence[active].sum()))
        if batch == self._batch:
            # Only the running requests change the pace, so extra calls in between change nothing.
            return
        self._batch = batch
        self.time.advance(limits.now)
        if running:
            mean = float((table.context_tokens[active] + table.prefill_left[active]).sum()) / running
            smoothing = CONTEXT_SMOOTHING if self._context_tokens else 1.0
            self._context_tokens += (mean - self._context_tokens) * smoothing
        self.rate_tokens = self.capacity(table, limits)
        self.time.rate = self.rate_tokens / max(1e-6, limits.speed.token_s)

    @staticmethod
    def cache_tokens(table: JobTable, limits: StepLimits) -> float:
        blocks = limits.cache_blocks or limits.free_blocks + int(table.blocks.sum())
        return float(blocks * limits.block_tokens)

    def capacity(self, table: JobTable, limits: StepLimits) -> float:
        """Cost the machine works off in a step: tokens its KV cache can hold in use."""
        if self._fixed_tokens is not None:
            return self._fixed_tokens
        cache = self.cache_tokens(table, limits)
        return max(
            1.0, min(cache, limits.max_batch * self._context_tokens) if self._context_tokens else cache
        )


class WeightedClock(FairClock):
    """The same for VTC's cost ``p + 2 d``."""

    def capacity(self, table: JobTable, limits: StepLimits) -> float:
        tokens = super().capacity(table, limits)
        if self._fixed_tokens is not None or not self._context_tokens:
            return tokens
        return max(1.0, 2.0 * tokens / self._context_tokens)
