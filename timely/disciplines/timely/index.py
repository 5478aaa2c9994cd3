"""The arithmetic of the index: how much of the machine a request uses, and the least it uses per completion.

The unit of use is the whole machine for one round, a decoding step. A decoding request uses one of ``slots`` places and
its share of the KV cache; the scarcer of the two counts: ``max(1 / slots, kv / cache)``.
"""

from dataclasses import dataclass

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import Floats, StepLimits

OUTLIVED_SHARE = 0.94
"""Use left of an answer longer than its whole distribution, as a share of its length so far.

It is the Gittins index of lengths 1.25, 1.5, 2 and 3 times as long, equally likely.
"""


@dataclass(frozen=True, slots=True)
class TimelyMachine:
    """What a step holds.

    Attributes:
        slots: most sequences in a step.
        cache_tokens: tokens of its KV cache.
    """

    slots: float
    cache_tokens: float

    def use(self, begin_tokens: Floats, end_tokens: Floats, context_tokens: Floats) -> Floats:
        """Rounds of the whole machine that decoding from one output token to another takes, one token a round.

        Args:
            context_tokens: KV tokens at the first output token.
        """
        # Up to here the slot is scarcer than the cache.
        even = np.maximum(self.cache_tokens / self.slots - context_tokens, 0.0)
        context = context_tokens + even
        return self._use(end_tokens, even, context) - self._use(begin_tokens, even, context)

    def _use(self, tokens: Floats, even: Floats, context_tokens: Floats) -> Floats:
        above = np.maximum(tokens - even, 0.0)
        cache_area = above * (context_tokens + 0.5 * above)
        return np.minimum(tokens, even) / self.slots + cache_area / self.cache_tokens


def timely_gittins_use(
    lengths: Floats, output_tokens: Floats, context_tokens: Floats, before: Floats, machine: TimelyMachine
) -> Floats:
    """Least expected use per completion: ``min over x of E[use until min(end, x)] / P(end <= x)``, shape ``(n,)``.

    Args:
        lengths: output tokens, equally likely, ascending in each row, shape ``(n, k)``.
        output_tokens: generated so far, shape ``(n,)``.
        context_tokens: KV tokens at the first output token, shape ``(n,)``.
        before: use before the next token, in rounds of the machine: a prompt to compute, shape ``(n,)``.
    """
    begin, context = output_tokens[:, None], context_tokens[:, None]
    alive = lengths > begin
    use_left = np.where(alive, machine.use(begin, lengths, context), 0.0)
    end_count = np.cumsum(alive, axis=1)
    count = end_count[:, -1]
    longer = np.arange(lengths.shape[1] - 1, -1, -1)
    total_use = np.cumsum(use_left, axis=1) + use_left * longer + (before * count)[:, None]
    least: Floats = np.where(alive, total_use / np.maximum(end_count, 1), np.inf).min(axis=1)
    is_outlived = count == 0
    if np.count_nonzero(is_outlived):
        tokens = np.maximum(output_tokens[is_outlived], 1.0)
        again = machine.use(tokens, (1.0 + OUTLIVED_SHARE) * tokens, context_tokens[is_outlived])
        least[is_outlived] = before[is_outlived] + again
    return least


def timely_mean_left(lengths: Floats, output_tokens: Floats) -> Floats:
    """Expected output tokens still to come, at least one each, shape ``(n,)``."""
    over = np.maximum(lengths - output_tokens[:, None], 0.0)
    count = (over > 0.0).sum(axis=1)
    mean = over.sum(axis=1) / np.maximum(count, 1)
    tokens: Floats = np.maximum(np.where(count > 0, mean, OUTLIVED_SHARE * output_tokens), 1.0)
    return tokens


def timely_step_slots(table: JobTable, limits: StepLimits) -> float:
    """Places of a step that decode, if all have as many drafts as those that decode now."""
    tokens_a_place = 1.0 + limits.drafter_tokens
    if np.count_nonzero(table.draft_tokens):
        drafts = table.draft_tokens[table.prefill_left == 0]
        tokens_a_place += int(drafts.sum()) / max(1, drafts.size)
    tokens = limits.token_budget / tokens_a_place
    return float(max(1, min(limits.max_batch, limits.max_resident, tokens)))


def timely_first_context(table: JobTable, rows: np.ndarray, block_tokens: int) -> Floats:
    """KV tokens of each row's prompt that no other job holds anyway."""
    own = table.prompt_tokens[rows] - table.shared_blocks[rows] * block_tokens
    tokens: Floats = np.maximum(own, 0).astype(np.float64)
    return tokens
