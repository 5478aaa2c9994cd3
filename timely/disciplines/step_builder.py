"""Composing a step: the accounting of tokens, slots and KV blocks that all disciplines share.

A discipline orders the rows and decides which may join. The ``StepBuilder`` keeps the budgets. When KV blocks or slots
run short, it evicts rows that the discipline ranks below the one that needs them.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from timely.core.arrays import Ints
from timely.core.job import JobTable
from timely.disciplines.base import Discipline, EncoderInput, Floats, Rows, StepLimits, StepPlan


class StepBuilder:
    """Fills one step row by row.

    Args:
        victims: called at the first shortage; yields rows that may lose their KV cache, least important first.
        worth: whether a new row gains more by their memory than these victims lose; always, unless it is set.
    """

    def __init__(
        self, table: JobTable, limits: StepLimits, victims: Callable[[], Iterator[int]] | None = None
    ) -> None:
        self.table = table
        self.limits = limits
        self.rows: list[int] = []
        self.plan = StepPlan(rows=self.rows)
        self.budget = limits.token_budget
        self.slots = limits.max_batch
        self.free = limits.free_blocks
        self.prefill_tokens = self.context_tokens = 0
        """Prompt tokens of the step, and tokens that its decoding rows attend to."""
        self.worth: Callable[[int, list[int]], bool] | None = None
        self._residents = int(np.count_nonzero(table.resident))
        self._victims = victims
        self._more: Iterator[int] | None = None
        self._victim_rows: list[int] = []
        self._evicted_rows: set[int] = set()
        self._members: set[int] = set()
        self._adapters: set[int] = set()
        self.may_bar = limits.defers_prompts or limits.encoder is not None or limits.max_adapters is not None
        """Rows may be barred: only then ``is_barred`` has to be asked."""
        self._encoder_budget = limits.encoder.budget if limits.encoder is not None else 0
        self._encoder_cache = limits.encoder.cache if limits.encoder is not None else 0
        self._encoder_keys: set[str] = set()
        """Keys of encoder inputs in the prompt chunks of members."""

    @property
    def full(self) -> bool:
        """No further row can join."""
        return self.slots <= 0 or self.budget <= self.limits.drafter_tokens

    @property
    def queued_blocks(self) -> int:
        """KV blocks that the jobs without a cache would take which could run now, all together."""
        return int(self._admission_blocks(self._queued_rows).sum())

    @property
    def queue_exceeds_room(self) -> bool:
        """Tasks without a cache which could run now take more slots or KV blocks than are free before this step.

        Plain requests do not count.
        """
        limits, rows = self.limits, self._queued_rows
        rows = rows[~self.table.plain[rows]]
        if not rows.size:
            return False
        if int(np.count_nonzero(self.table.resident)) + rows.size > limits.max_resident:
            return True
        return int(self._admission_blocks(rows).sum()) + limits.headroom_blocks > limits.free_blocks

    @property
    def _queued_rows(self) -> Rows:
        table = self.table
        return ((table.resume_s <= self.limits.now) & ~table.resident).nonzero()[0]

    def decoding_room(self, rows: Rows) -> int:
        """How many of these decoding rows, from the first on, slots and tokens leave room for."""
        tokens = np.cumsum(1 + self.limits.drafter_tokens + self.table.draft_tokens[rows])
        return max(0, min(self.slots, int(np.searchsorted(tokens, self.budget, side="right"))))

    def decode_tokens(self, rows: Rows) -> int:
        """Tokens of the budget that these decoding rows take together."""
        computing = self._computing(rows)
        own_tokens = len(computing) * (1 + self.limits.drafter_tokens)
        return own_tokens + int(self.table.draft_tokens[computing].sum())

    def _computing(self, rows: Rows) -> Rows:
        """Those of the decoding rows that have a token left to compute."""
        ending = self.limits.ending_rows
        if not ending:
            return rows
        return np.array([row for row in rows.tolist() if row not in ending], dtype=np.int64)

    def is_evicted(self, row: int) -> bool:
        return row in self._evicted_rows

    def is_barred(self, row: int) -> bool:
        """The step defers prompts, may use no further LoRA adapter, or has no room in the encoder for the row."""
        if self.limits.defers_prompts and self.table.prefill_left[row] > 1:
            return True
        if self.limits.encoder is not None and self.table.prefill_left[row] and not self._encode(row, 1)[0]:
            return True
        if self.limits.max_adapters is None:
            return False
        adapter = int(self.table.adapter[row])
        return (
            adapter != 0 and adapter not in self._adapters and len(self._adapters) >= self.limits.max_adapters
        )

    def tokens_for(self, row: int) -> int:
        """Tokens the row would compute in this step: one to decode, else its prompt chunk (0: no room)."""
        left = self.table.prefill_left.item(row)
        share = self._share(left)
        return self._encode(row, share)[0] if left and self.limits.encoder is not None else share

    def _share(self, left: int) -> int:
        room = self.budget - self.limits.drafter_tokens
        return min(left, self.limits.prefill_chunk, room) if left else min(1, room)

    def _encode(self, row: int, share: int) -> tuple[int, list[EncoderInput]]:
        """The part of a prompt chunk that the encoder has room for, and the inputs in it that no member has."""
        encoder = self.limits.encoder
        new: dict[str, EncoderInput] = {}
        if encoder is None:
            return share, []
        budget, cache = self._encoder_budget, self._encoder_cache
        room = self.budget - self.limits.drafter_tokens
        for item in encoder.inputs(self.table.jobs[row]):
            if item.begin >= share:
                break
            if encoder.whole and item.end > share:
                if item.begin > 0 or (item.begin == 0 and item.end > room):
                    share = item.begin
                    break
                share = min(item.end, room)
            if item.key in self._encoder_keys or item.key in new:
                continue
            budget -= 0 if item.stored else item.embeddings
            cache -= item.embeddings
            if budget < 0 or cache < 0:
                share = max(0, item.begin)
                break
            new[item.key] = item
        return share, list(new.values())

    def add(self, row: int, tokens: int | None = None) -> bool:
        """Let the row take part; ``tokens`` caps a chunk of its prompt, if any is left. False if it does not fit."""
        table, limits = self.table, self.limits
        if self.slots <= 0 or self.budget <= limits.drafter_tokens:
            return False
        if row in self._members or row in self._evicted_rows or (self.may_bar and self.is_barred(row)):
            return False
        left = table.prefill_left.item(row)
        share = 1
        inputs: Sequence[EncoderInput] = ()
        if left:
            share = self._share(left)
            if tokens is not None and tokens < share:
                share = tokens
            if limits.encoder is not None:
                share, inputs = self._encode(row, share)
            if share <= 0:
                return False
        resident = table.resident.item(row)
        ends = row in limits.ending_rows
        new_blocks = 0 if ends else self._blocks_needed(row, share, resident)
        room = new_blocks if resident else new_blocks + limits.headroom_blocks
        short = room > self.free or (not resident and self._residents >= limits.max_resident)
        if short and not self._make_room(row, room, resident):
            return False
        self.free -= new_blocks
        if not resident:
            self._residents += 1
        self.slots -= 1
        if left:
            self.budget -= share + limits.drafter_tokens
            self.prefill_tokens += share
        elif not ends:
            self.budget -= 1 + limits.drafter_tokens + table.draft_tokens.item(row)
            self.context_tokens += table.context_tokens.item(row)
        if limits.max_adapters is not None and table.adapter[row]:
            self._adapters.add(int(table.adapter[row]))
        for item in inputs:
            self._encoder_keys.add(item.key)
            self._encoder_budget -= 0 if item.stored else item.embeddings
            self._encoder_cache -= item.embeddings
        self.rows.append(row)
        self._members.add(row)
        self.plan.tokens[table.jobs[row].job_id] = share
        return True

    def add_decoding(self, places: Rows) -> bool:
        """Let resident rows that decode take part together. False when they do not all fit: nothing changes."""
        table, block, rows = self.table, self.limits.block_tokens, places.tolist()
        tokens, computing = self.decode_tokens(places), self._computing(places)
        if len(rows) > self.slots or tokens > self.budget or self.limits.max_adapters is not None:
            return False
        if (self._evicted_rows or self._members) and not (
            self._evicted_rows.isdisjoint(rows) and self._members.isdisjoint(rows)
        ):
            return False
        contexts = table.context_tokens[computing]
        new_blocks = np.maximum(0, contexts // block + 1 - table.blocks[computing]).sum()
        if new_blocks > self.free:
            return False
        self.free -= int(new_blocks)
        self.context_tokens += int(contexts.sum())
        self.slots -= len(rows)
        self.budget -= tokens
        self.rows.extend(rows)
        self._members.update(rows)
        tokens_of = dict.fromkeys(table.ids(places), 1)
        if self.plan.tokens:
            self.plan.tokens.update(tokens_of)
        else:
            self.plan.tokens = tokens_of
        return True

    def add_prompts(self, rows: Rows) -> int:
        """Let rows without KV cache take part with their whole prompts, as many from the first on as fit without more.

        Returns:
            How many do: as many as ``add`` would take whole before it cuts a prompt, refuses a row or evicts another.
        """
        table, limits = self.table, self.limits
        room = min(len(rows), self.slots, limits.max_resident - self._residents)
        if (
            room <= 0
            or limits.defers_prompts
            or limits.encoder is not None
            or limits.max_adapters is not None
        ):
            return 0
        rows = rows[:room]
        prompt_tokens = table.prefill_left[rows]
        tokens = np.cumsum(prompt_tokens + limits.drafter_tokens)
        blocks = np.cumsum(self._admission_blocks(rows))
        fits = (prompt_tokens > 0) & (prompt_tokens <= limits.prefill_chunk) & (tokens <= self.budget)
        fits &= blocks + limits.headroom_blocks <= self.free
        count = len(rows) if fits.all() else int(fits.argmin())
        if not count:
            return 0
        row_list = rows[:count].tolist()
        self.free -= int(blocks[count - 1])
        self.budget -= int(tokens[count - 1])
        self.slots -= count
        self._residents += count
        self.prefill_tokens += int(prompt_tokens[:count].sum())
        self.rows.extend(row_list)
        self._members.update(row_list)
        self.plan.tokens.update(zip(table.ids(rows[:count]), prompt_tokens[:count].tolist(), strict=True))
        return count

    def _blocks_needed(self, row: int, share: int, resident: bool) -> int:
        table, block = self.table, self.limits.block_tokens
        if resident:
            reach = table.context_tokens.item(row) + share
            return max(0, -(-reach // block) - table.blocks.item(row))
        # As for many rows at once, which takes several times as long for one.
        reach = min(
            table.prompt_tokens.item(row) + table.output_tokens.item(row) + 1, table.end_tokens.item(row) - 1
        )
        return max(-(-reach // block) - table.shared_blocks.item(row), 0)

    def _admission_blocks(self, rows: Rows) -> Ints:
        """KV blocks that admissions of these rows take, beside those that others hold.

        An admission asks for the whole context, since half-admitted prompts would deadlock on each other's blocks.
        It also asks for room for the next token, unless that is the last one. Admitted without it, as in vLLM, the
        request may be preempted at once and compute its prompt again.
        """
        table = self.table
        context_tokens = table.prompt_tokens[rows] + table.output_tokens[rows]
        reach_tokens = np.minimum(context_tokens + 1, table.end_tokens[rows] - 1)
        blocks: Ints = np.maximum(-(-reach_tokens // self.limits.block_tokens) - table.shared_blocks[rows], 0)
        return blocks

    def _make_room(self, row: int, new_blocks: int, resident: bool) -> bool:
        """Evict until the row fits, or not at all: half an eviction costs its victims and helps no job."""
        limits, table = self.limits, self.table
        free, residents = self.free, self._residents
        evictions: list[int] = []
        victims = iter(()) if self._victims is None else self._in_turn(self._victims)
        while new_blocks > free or (not resident and residents >= limits.max_resident):
            victim = next(victims, row)
            if victim == row:
                return False  # the victims that follow rank above this row
            if victim in self._members or victim in self._evicted_rows or not table.resident[victim]:
                continue
            if victim in evictions:
                continue  # its blocks are free already
            evictions.append(victim)
            free += int(table.blocks[victim]) - int(table.shared_blocks[victim])
            residents -= 1
        if not resident and self.worth is not None and not self.worth(row, evictions):
            return False
        self.free, self._residents = free, residents
        self._evicted_rows.update(evictions)
        self.plan.evict.extend(table.jobs[victim].job_id for victim in evictions)
        return True

    def _in_turn(self, victims: Callable[[], Iterator[int]]) -> Iterator[int]:
        """The victims from the first; what the discipline yields is remembered, since each may ask again."""
        if self._more is None:
            self._more = victims()
        at = 0
        while True:
            if at == len(self._victim_rows):
                row = next(self._more, None)
                if row is None:
                    return
                self._victim_rows.append(row)
            yield self._victim_rows[at]
            at += 1


def discipline_next_wake_s(table: JobTable, now: float) -> float:
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
        """Priority of every row, shape ``(len(table),)``; larger is more important, NaN is the least important."""

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        """Whether a row that is not in the execution pool may join the step."""
        return True

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        if len(table) == 0:
            return StepPlan()
        runnable: Rows = np.flatnonzero(table.resume_s <= limits.now)
        if runnable.size == 0:
            return StepPlan(wake_s=discipline_next_wake_s(table, limits.now))
        keys = self.keys(table, limits)
        if runnable.size == 1:
            order = runnable
        else:
            ranks: list[NDArray[Any]] = [table.sequence[runnable], -keys[runnable]]
            if self.pool_first:
                ranks.append(~table.active[runnable])
            if self.heed_priority and table.priority.any():
                # vLLM's own priority classes stand above everything, the pool included: a waiting request of
                # a more important class displaces a running one.
                ranks.append(table.priority[runnable])
            order = runnable[np.lexsort(ranks)]
        builder = StepBuilder(table, limits, lambda: self._victims(table, limits, keys, order))
        limited_by = self._fill(builder, order)
        plan = builder.plan
        plan.keys = np.arange(len(table)), keys
        if not plan.tokens:
            plan.wake_s = discipline_next_wake_s(table, limits.now)
        if len(plan.tokens) < runnable.size:
            plan.limited_by = limited_by or ("batch" if builder.slots <= 0 else "tokens")
            plan.steady = self._is_settled(builder)
        else:
            # All runnable jobs run, whatever the order: only an event changes that.
            plan.steady = builder.prefill_tokens == 0 and not plan.evict
        return plan

    def _is_settled(self, builder: StepBuilder) -> bool:
        """Whether the whole pool decodes and leaves no place: then no job joins before one of them is done."""
        if not self.pool_first or builder.slots > 0 or builder.prefill_tokens or builder.plan.evict:
            return False
        table = builder.table
        if self.heed_priority and table.priority.any():
            return False
        pool = np.flatnonzero(table.active & (table.resume_s <= builder.limits.now))
        return set(pool.tolist()) <= set(builder.rows)

    def _fill(self, builder: StepBuilder, order: Rows) -> str:
        """Fill the step in this order; why rows were passed over, if not for want of slots or tokens."""
        table = builder.table
        limited_by = ""
        rows, at = order.tolist(), 0
        while at < len(rows) and not builder.full:
            row = rows[at]
            at += 1
            if builder.is_barred(row):
                continue
            later = order[at:]
            if (
                not table.active[row]
                and builder.rows
                and not self.may_join(table, builder.limits, builder, row)
            ):
                # Admission is closed; the pool goes on.
                order = later[table.active[later]]
                limited_by = limited_by or "admission"
            elif not builder.add(row) and (not table.resident[row] or builder.is_evicted(row)):
                # Nothing less important may take the room this one waits for, but those who have theirs go on:
                # they give it back when they finish.
                order = later[table.resident[later]]
                limited_by = limited_by or "memory"
            else:
                continue
            rows, at = order.tolist(), 0
        return limited_by

    def _victims(self, table: JobTable, limits: StepLimits, keys: Floats, order: Rows) -> Iterator[int]:
        """Parked generations that matter least first, then runnable ones from the end of the order."""
        parked_rows = np.flatnonzero(table.resident & (table.resume_s > limits.now))
        yield from parked_rows[self.parked_order(table, limits, keys, parked_rows)].tolist()
        yield from order[::-1].tolist()

    def parked_order(self, table: JobTable, limits: StepLimits, keys: Floats, parked_rows: Rows) -> Rows:
        """Positions within ``parked_rows``, the one that matters least first: needed last, then worth least."""
        positions: Rows = np.lexsort((keys[parked_rows], -table.resume_s[parked_rows]))
        return positions


class RankedDiscipline(KeyedDiscipline):
    """The smallest ``rank`` of the table runs first."""

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -table.rank
