"""Composing a step: the accounting of tokens, slots and KV blocks that every discipline shares.

A discipline orders the rows and says whether each may join; the ``StepBuilder`` keeps the budgets and, when
KV blocks or slots run short, evicts rows that the discipline ranks below the one that needs them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import Discipline, Floats, Rows, StepLimits, StepPlan


class StepBuilder:
    """Fills one step row by row.

    Args:
        victims: called at the first shortage; yields rows that may lose their KV cache, least important first.
    """

    __slots__ = (
        "_gone", "_members", "_residents", "_victim_rows", "_victims", "budget", "free", "limits",
        "plan", "prefill_tokens", "rows", "slots", "table",
    )  # fmt: skip

    def __init__(
        self, table: JobTable, limits: StepLimits, victims: Callable[[], Iterator[int]] | None = None
    ) -> None:
        self.table = table
        self.limits = limits
        self.plan = StepPlan()
        self.rows: list[int] = []
        self.budget = limits.token_budget
        self.slots = limits.max_batch
        self.free = limits.free_blocks
        self.prefill_tokens = 0
        self._residents = int(np.count_nonzero(table.resident))
        self._victims = victims
        self._victim_rows: Iterator[int] | None = None
        self._gone: set[int] = set()
        self._members: set[int] = set()

    @property
    def full(self) -> bool:
        """No further row can join."""
        return self.slots <= 0 or self.budget <= 0

    def tokens_for(self, row: int) -> int:
        """Tokens the row would compute in this step: one to decode, else its prompt chunk (0: no budget)."""
        left = int(self.table.prefill_left[row])
        if left == 0:
            return 1 if self.budget >= 1 else 0
        return min(left, self.limits.prefill_chunk, self.budget)

    def add(self, row: int, tokens: int | None = None) -> bool:
        """Let the row take part; ``tokens`` caps its prompt chunk. False when it does not fit (nothing changes,
        except that evictions already decided stay decided)."""
        if self.full or row in self._gone or row in self._members:
            return False
        share = self.tokens_for(row)
        if tokens is not None:
            share = min(share, tokens)
        if share <= 0:
            return False
        table = self.table
        resident = bool(table.resident[row])
        needed = self._blocks_needed(row, share, resident)
        while needed > self.free or (not resident and self._residents >= self.limits.max_resident):
            if not self._evict(row):
                return False
        self.free -= needed
        if not resident:
            self._residents += 1
        self.slots -= 1
        self.budget -= share
        if int(table.prefill_left[row]) > 0:
            self.prefill_tokens += share
        self.rows.append(row)
        self._members.add(row)
        self.plan.tokens[table.jobs[row].job_id] = share
        return True

    def _blocks_needed(self, row: int, share: int, resident: bool) -> int:
        table, block = self.table, self.limits.block_tokens
        if resident:
            reach = int(table.context_tokens[row]) + share
            return max(0, -(-reach // block) - int(table.blocks[row]))
        # Admission asks for the whole context: half-admitted prompts would deadlock on each other's blocks.
        whole = int(table.prompt_tokens[row]) + int(table.output_tokens[row]) + 1
        return -(-whole // block)

    def _evict(self, beneficiary: int) -> bool:
        if self._victims is None:
            return False
        if self._victim_rows is None:
            self._victim_rows = self._victims()
        for row in self._victim_rows:
            if row == beneficiary:
                # Everything further ranks above the one that asks.
                return False
            if row in self._members or row in self._gone or not bool(self.table.resident[row]):
                continue
            self._gone.add(row)
            self.free += int(self.table.blocks[row])
            self._residents -= 1
            self.plan.evict.append(self.table.jobs[row].job_id)
            return True
        return False


def next_wake(table: JobTable, now: float) -> float:
    """The earliest ``resume_s`` after ``now``; ``inf`` when there is none."""
    later = table.resume_s[table.resume_s > now]
    return float(later.min()) if later.size else float("inf")


class KeyedDiscipline(Discipline):
    """A discipline that is a number for each job: larger runs first.

    Keys of all jobs are evaluated at once at every scheduling point. Ties go to the earlier arrival.
    Subclasses give ``keys`` and may refuse admission with ``may_join``.
    """

    pool_first: ClassVar[bool] = True
    """Generations in the execution pool stay in it until their segment closes (TimelyLLM section 4.4)."""

    heed_priority: ClassVar[bool] = False
    """vLLM's ``priority`` stands above the keys; smaller is more important."""

    @abstractmethod
    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Priority of every row, shape ``(len(table),)``; larger is more important."""

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        """Whether a row that is not in the execution pool may join the step."""
        return True

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """Runnable rows by key, the pool first; stops when the step is full or admission says no."""
        if len(table) == 0:
            return StepPlan()
        runnable: Rows = np.flatnonzero(table.resume_s <= limits.now)
        if runnable.size == 0:
            return StepPlan(wake_s=next_wake(table, limits.now))
        keys = self.keys(table, limits)
        if runnable.size == 1:
            order = runnable
        else:
            ranks = [table.sequence[runnable], -keys[runnable]]
            if self.pool_first:
                ranks.append(~table.active[runnable])
            if self.heed_priority and table.priority.any():
                # vLLM's own priority classes stand above everything, the pool included: a waiting request of
                # a more important class displaces a running one.
                ranks.append(table.priority[runnable])
            order = runnable[np.lexsort(ranks)]
        builder = StepBuilder(table, limits, lambda: self._victims(table, limits, keys, order))
        active = table.active
        for row in order.tolist():
            if builder.full:
                break
            if not active[row] and builder.rows and not self.may_join(table, limits, builder, row):
                break
            if not builder.add(row) and not table.resident[row]:
                # Nothing less important may take the blocks this one is waiting for.
                break
        if not builder.plan.tokens:
            builder.plan.wake_s = next_wake(table, limits.now)
        return builder.plan

    def _victims(self, table: JobTable, limits: StepLimits, keys: Floats, order: Rows) -> Iterator[int]:
        """Parked generations that matter least first, then runnable ones from the end of the order."""
        parked = np.flatnonzero(table.resident & (table.resume_s > limits.now))
        yield from parked[self.parked_order(table, limits, keys, parked)].tolist()
        yield from order[::-1].tolist()

    def parked_order(self, table: JobTable, limits: StepLimits, keys: Floats, parked: Rows) -> Rows:
        """Positions within ``parked``, the one that matters least first: needed last, then worth least."""
        result: Rows = np.lexsort((keys[parked], -table.resume_s[parked]))
        return result
