"""Semantic scheduling: the most urgent first, and within a level the request with the least time left.

Section 3.3 of the paper, with its queue (Alg. 1), stage-aware batches (Alg. 2) and eviction by priority (Alg. 3, 4).
What to save of an evicted cache is in ``cache_cost``.
Where the paper leaves something open, this is decided here:

* Waiting jobs, which hold no KV cache, stand in the heap.
  Runnable jobs with KV are the paper's ongoing requests. They are few, and their order is computed at each step.
* The buffer is merged while the accelerator computes (``maintain``).
  Without such time, at most ``MERGE_PER_STEP`` jobs are merged at a scheduling point, so a spike delays no step.
* A waiting job keeps the time left that it had on entering the heap, by the speed learned until then.
  Ongoing jobs are estimated at each step; while speed is being learned, the two are not by one measure.
  With all of them estimated at each step, mean latency was within 1.4% over nine overloaded runs.
* While the most important request computes its prompt, decoding requests share the step.
  The paper's engine computes such prompts first, in an iteration of their own.
* Alg. 2 keeps *newly selected* prefills out while the most important request decodes.
  With chunked prefill the next chunk of a half-computed prompt is held back too.
  A generation that resumes with its KV cache is decoding.
* A parked generation is not runnable; with its due time its urgency returns.
  Its remaining time is that of its next segment.
  Before it is due, it is evicted ahead of running jobs of its own level, but not of more urgent ones.
  Only when no other job could run does a less urgent job take the memory of a more urgent parked one.
* A robot's task without an urgency counts as level 1 if its expected response time is under half a second, else 3.
  Other requests without one count as 4. Level 0 is never guessed.
* Without a predicted length, the running mean of finished requests stands in.
"""

import heapq
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.output_length import LengthEstimates, LengthLearningDiscipline
from timely.disciplines.requirements import LEVELS, check_discipline_urgency
from timely.disciplines.semantic.cache_cost import SemanticCacheCostModel
from timely.disciplines.semantic.heap import Entry, Key, SemanticScheduleHeap, semantic_evictable_by_priority
from timely.disciplines.step_builder import StepBuilder, discipline_next_wake_s

MERGE_PER_STEP = 128
"""Most newcomers put into the heap at a scheduling point."""

HURRIED_ROBOT, ROBOT, PLAIN = 1, 3, 4
"""Levels of jobs that come without one."""


def discipline_urgency_levels(table: JobTable, rows: Rows) -> Rows:
    """Urgency 0 (most) to 4 of each row, guessed where it is unknown, shape ``(len(rows),)``."""
    urgency = table.urgency[rows]
    guess = np.where(table.segmented[rows], np.where(table.ert_s[rows] < 0.5, HURRIED_ROBOT, ROBOT), PLAIN)
    return np.where(urgency < LEVELS, urgency, guess)


def semantic_remaining_compute_s(table: JobTable, rows: Rows, limits: StepLimits) -> Floats:
    """``f_t``: estimated computing time left of each row, seconds: prompt left and output left."""
    speed = limits.speed
    prompt = table.prefill_left[rows] * speed.prefill_token_s
    return prompt + LengthEstimates.left(table, rows) * speed.token_s


class Semantic(LengthLearningDiscipline):
    """The paper's scheduler.

    Args:
        cost: decides what an evicted cache saves; what the engine has learned of itself unless given.
        stage_aware: Alg. 2; without it, prompts and decoding mix freely.
        one_by_one: evicted output is decoded again token by token, as Eq. 5 has it, not as part of the prompt.
    """

    clearly: ClassVar[float] = 0.5
    """A time so much shorter than another stays shorter, whatever the learned speed does between two events."""

    info = DisciplineInfo(
        name="semantic",
        summary="urgency level first, then least estimated time left; stage-aware batches; eviction by priority",
        source="Semantic Scheduling for LLM Inference, section 3.3, Alg. 1 to 5",
        needs=(
            "an urgency level, given or predicted at arrival",
            "expected_tokens, or lengths learned while serving",
        ),
        good_at="a few requests that must not wait among many that can, and spikes of them",
        starves="less urgent jobs, and long ones of a level, under a steady stream of more urgent or shorter ones",
    )

    def __init__(
        self,
        cost: SemanticCacheCostModel | None = None,
        *,
        stage_aware: bool = True,
        one_by_one: bool = False,
    ) -> None:
        super().__init__()
        self._cost = cost
        self._stage_aware = stage_aware
        self._one_by_one = one_by_one
        self._waiting = SemanticScheduleHeap()
        self._asleep: set[JobId] = set()
        """Evicted while parked: they wait again when they are runnable."""

    # ------------------------------------------------------------------ hooks

    def check(self, spec: JobSpec) -> None:
        check_discipline_urgency(spec.hints.urgency)

    def arrived(self, job: Job, now: float) -> None:
        super().arrived(job, now)
        self._place(job, now)

    def due_changed(self, job: Job, now: float) -> None:
        self._place(job, now)

    def evicted(self, job: Job, now: float) -> None:
        """Back to those that wait, with its new remaining time (Alg. 4, lines 11 and 12)."""
        self._place(job, now)

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self._waiting.discard(job.job_id)
        self._asleep.discard(job.job_id)

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        """Alg. 1: the whole buffer into the heap."""
        self._merge(table, limits, self._waiting.buffer)

    def _place(self, job: Job, now: float) -> None:
        table, row = job.table, job.row
        self._waiting.discard(job.job_id)
        self._asleep.discard(job.job_id)
        if table.resident[row]:
            return
        if table.resume_s[row] <= now:
            self._waiting.append(job.job_id)
        else:
            self._asleep.add(job.job_id)

    # ------------------------------------------------------------------ composing

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """Alg. 2, and Alg. 4 where memory is short."""
        if len(table) == 0:
            return StepPlan()
        candidates = self._candidates(table, limits)
        ongoing = self._entries(
            table, limits, np.flatnonzero(table.resident & (table.resume_s <= limits.now))
        )
        order = list(heapq.merge(candidates, sorted(ongoing)))
        if not order:
            return StepPlan(wake_s=discipline_next_wake_s(table, limits.now))
        rows = [table[job_id].row for _, job_id in order]
        if self._stage_aware and table.prefill_left[rows[0]] == 0:
            stage_rows = [row for row in rows if table.prefill_left[row] == 0]
        else:
            stage_rows = rows
        keys = {row: key for row, (key, _) in zip(rows, order, strict=True)}
        builder = StepBuilder(table, limits, lambda: self._victims(table, limits, keys, least=0))
        self._fill(builder, stage_rows)
        if not builder.rows:
            # Memory is all with parked generations of more urgent jobs: better theirs than none.
            builder = StepBuilder(table, limits, lambda: self._victims(table, limits, keys, least=LEVELS))
            self._fill(builder, rows)
        plan = builder.plan
        self._save(table, limits, plan)
        if not builder.rows:
            plan.wake_s = discipline_next_wake_s(table, limits.now)
        if len(plan.tokens) < int(np.count_nonzero(table.resume_s <= limits.now)):
            plan.limited_by = self._limit_of(builder, len(stage_rows) < len(rows))
            plan.steady = self._is_settled(builder, rows, keys)
        else:
            plan.steady = builder.prefill_tokens == 0 and not plan.evict
        return plan

    def _is_settled(self, builder: StepBuilder, rows: list[int], keys: dict[int, Key]) -> bool:
        """Whether the rows in the step, which only decode, stay the choice: as they go on they gain importance.

        Any other row must be a clear step behind, so that changes of the learned speed do not bring it in.
        """
        plan = builder.plan
        if not builder.rows or builder.prefill_tokens or plan.evict or self._waiting.buffer:
            return False
        members = set(builder.rows)
        prefill_left = builder.table.prefill_left
        if self._stage_aware:
            # All decoders are in, and the most important is one: no prompt joins while it stays so.
            outsiders = [row for row in rows if row not in members]
            if rows[0] not in members or any(prefill_left[row] == 0 for row in outsiders):
                return False
            last = rows[0]
        else:
            if builder.slots > 0 or any(row not in members for row in rows[: len(members)]):
                return False
            outsiders, last = rows[len(members) :], rows[len(members) - 1]
        if not outsiders:
            return False
        level, left, _ = keys[last]
        ahead, other, _ = keys[outsiders[0]]
        return level < ahead or (level == ahead and left < self.clearly * other)

    @staticmethod
    def _limit_of(builder: StepBuilder, stages: bool) -> str:
        if builder.slots <= 0:
            return "batch"
        if builder.budget <= 0:
            return "tokens"
        return "stage" if stages else "memory"

    @staticmethod
    def _fill(builder: StepBuilder, rows: list[int]) -> None:
        """In order; a row that waits for memory is not overtaken by another that needs memory too."""
        resident = builder.table.resident
        short = False
        for row in rows:
            if builder.full:
                return
            if short and not resident[row]:
                continue
            if builder.is_barred(row):
                continue
            if not builder.add(row) and (not resident[row] or builder.is_evicted(row)):
                short = True

    def _candidates(self, table: JobTable, limits: StepLimits) -> list[Entry]:
        """``ExtractTopB(H, U, b)``: the most important of those that wait, in order."""
        waiting, count = self._waiting, limits.max_batch
        if self._asleep:
            for job_id in [one for one in self._asleep if table.resume_s[table[one].row] <= limits.now]:
                self._asleep.discard(job_id)
                waiting.append(job_id)
        newcomers = waiting.buffer
        self._merge(table, limits, newcomers[:MERGE_PER_STEP])
        rest = self._entries(table, limits, self._rows(table, newcomers[MERGE_PER_STEP:]), count)

        def still(job_id: JobId) -> bool:
            row = table[job_id].row
            return not table.resident[row] and bool(table.resume_s[row] <= limits.now)

        entries = waiting.first(count, still)
        return list(heapq.merge(entries, sorted(rest)))[:count] if rest else entries

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        """``(f_e, f_t)`` of some rows: urgency level, and estimated time left within it, seconds; smaller first."""
        return discipline_urgency_levels(table, rows), semantic_remaining_compute_s(table, rows, limits)

    def _merge(self, table: JobTable, limits: StepLimits, job_ids: list[JobId]) -> None:
        entries = self._entries(table, limits, self._rows(table, job_ids))
        self._waiting.merge(job_ids, [key for key, _ in entries])

    @staticmethod
    def _rows(table: JobTable, job_ids: list[JobId]) -> Rows:
        return np.fromiter((table[job_id].row for job_id in job_ids), dtype=np.int64, count=len(job_ids))

    def _entries(
        self, table: JobTable, limits: StepLimits, rows: Rows, most: int | None = None
    ) -> list[Entry]:
        """Keys and names of some rows, in their order; only the ``most`` most important if there are more."""
        if rows.size == 0:
            return []
        level, left = self.order(table, rows, limits)
        sequence = table.sequence[rows]
        if most is not None and rows.size > most:
            best = np.lexsort((sequence, left, level))[:most]
            rows, level, left, sequence = rows[best], level[best], left[best], sequence[best]
        keys: Iterator[Key] = zip(level.tolist(), left.tolist(), sequence.tolist(), strict=True)
        jobs = table.jobs
        return [(key, jobs[row].job_id) for key, row in zip(keys, rows.tolist(), strict=True)]

    # ------------------------------------------------------------------ memory

    def _victims(
        self, table: JobTable, limits: StepLimits, keys: dict[int, Key], least: int
    ) -> Iterator[int]:
        """Alg. 3: which rows give way first.

        A parked row counts as ``least``, or as its own level if that is less urgent.
        The rows that ask stand among them, so that none takes memory from a more important one.
        """
        parked_rows = np.flatnonzero(table.resident & (table.resume_s > limits.now))
        urgency, time_left = self.order(table, parked_rows, limits)
        level, left = np.maximum(urgency, least).tolist(), time_left.tolist()
        sequence = table.sequence[parked_rows].tolist()
        priorities: list[tuple[tuple[float, ...], int]] = [
            ((level[i], 1, left[i], sequence[i]), row) for i, row in enumerate(parked_rows.tolist())
        ]
        priorities += [((key[0], 0, key[1], key[2]), row) for row, key in keys.items()]
        return semantic_evictable_by_priority(priorities)

    def _save(self, table: JobTable, limits: StepLimits, plan: StepPlan) -> None:
        """``ShouldRecompute`` (Alg. 4, lines 6 to 10)."""
        cost = self._cost or SemanticCacheCostModel.of(limits)
        for job_id in plan.evict:
            row = table[job_id].row
            context = int(table.context_tokens[row])
            if self._one_by_one:
                prompt = min(context, int(table.prompt_tokens[row]))
                saved_tokens = cost.keep_prompt(prompt) + cost.keep_decoded(prompt, context - prompt)
            else:
                saved_tokens = cost.keep_context(context)
            if saved_tokens:
                plan.keep[job_id] = saved_tokens


class SemanticMixed(Semantic):
    """Without Alg. 2: prompts and decoding share a step, as engines with chunked prefill let them.

    With Alg. 2 places in the batch stay empty until the most important request has finished decoding.
    """

    info = replace(
        Semantic.info,
        name="semantic-mixed",
        summary="as semantic, but prompts and decoding share a step",
        source="Semantic Scheduling for LLM Inference without its Alg. 2; our own",
        good_at="as semantic, with more throughput where prompts are cut into chunks",
    )

    def __init__(self, cost: SemanticCacheCostModel | None = None, *, one_by_one: bool = False) -> None:
        super().__init__(cost, stage_aware=False, one_by_one=one_by_one)
