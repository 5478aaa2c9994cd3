"""The default discipline: every step composed from its predicted time and what each candidate gains or costs.

A step's time depends on who is in it, and whoever joins delays all others in it. So candidates are taken in the order
of an index, and each joins only if it gains at least what the others lose:

* **Index.** Apparent tardiness cost, the classic rule for weighted tardiness (Vepsalainen and Morton 1987): the
  slope of the utility over the work left, discounted while there is slack. Late jobs stand in the order of Smith's
  rule, so a task that cannot be saved does not drag down those that can.
* **What joining costs.** A prompt chunk lengthens this step, a decoding sequence the steps until its segment closes.
  Whoever is in the step and has less slack than that loses its slope times the difference.
* **What it gains.** Left out, it would wait until those it would have delayed have closed their segments; of that wait
  it loses its slope times what exceeds its own slack. If that is less, it waits: a normal task's prompt while an
  urgent first segment is being produced, a generation whose robot is busy while a late one decodes.
* **Overload.** That wait is a promise that a lasting overload breaks: others come, take the places, and the batch
  stays small. Who is late by ``PATIENCE`` times the wait is no longer held back for those who lose no more a second.
* **Chunks.** A prompt that would cost too much at once takes as much of the step as everybody's slack allows.
* **Early is better.** Before its deadline a job still counts ``EARLY`` of its slope: with slack on all sides the
  composition tends to short responses instead of leaving them to chance.
* **Riding along.** A parked generation joins a step that runs anyway if that hurts nobody: decoding it together with
  others is nearly free, decoding it alone later costs a whole step a token. It never starts a step before its
  robot is about to run dry. While less KV cache is free than held all ride, however far off that is: a plan that is
  complete gives its memory back, one that waits is evicted and computed again. Otherwise robots that report what they
  do fill the step up to ``COMPANY`` sequences, and at least one more comes along at each decision: more would close
  their segments together, and these would leave one behind the other. Of robots that report nothing all ride: far
  ahead they bear that their execution times are wrong.
* While all who can run decode together and nothing happens, nothing is reconsidered.

vLLM's own ``priority`` stands above the index. Step times and segment lengths are learned online.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder, next_wake
from timely.disciplines.timely.segment_lengths import SegmentLengths
from timely.disciplines.timely.step import Numbers, Step

FLAT_WEIGHT = 0.02
"""Weight of a job whose utility does not fall: it must not starve behind those that have lost everything."""


class Timely(KeyedDiscipline):
    """Marginal utility of every candidate, step by step."""

    pool_first = False
    heed_priority = True
    info = DisciplineInfo(
        name="timely",
        summary="composes each step by marginal utility: who joins must gain what the others lose",
        source="our own; TUF and due times of TimelyLLM, apparent tardiness cost of Vepsalainen and Morton",
        good_at="robots with deadlines beside ordinary requests, low load and high",
        starves="under lasting overload, flat utilities behind those that keep losing",
    )

    # What it is made of; the ablation turns them off one by one.
    PROTECT: ClassVar[bool] = True
    """Refuse who costs the others more than it gains."""
    CHUNK: ClassVar[bool] = True
    """Cut prompts to the slack of those in the step."""
    EARLY: ClassVar[float] = 0.1
    """Share of the slope that counts before the deadline."""
    RIDE_S: ClassVar[float] = 10.0
    """A parked generation rides along when its robot runs dry within this time, seconds; 0: never."""
    COMPANY: ClassVar[int] = 4
    """Sequences in a step beyond which only one rider of those that report joins at a decision."""
    LOOK_AHEAD: ClassVar[float] = 1.0
    """Slack that discounts the index by 1/e, in mean works."""

    def __init__(self) -> None:
        self._lengths = SegmentLengths()
        self._together: tuple[JobId, ...] = ()
        """Who decoded together in the last step, if that was everybody who could, and nothing happened since."""

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float) -> None:
        """Expect its first segment's length."""
        self._together = ()
        self._expect(job)

    def parked(self, job: Job, now: float) -> None:
        """Learn from the segment it closed, expect the next one's length."""
        self._together = ()
        if job.segments:
            self._lengths.learn(job)
        self._expect(job)

    def due_changed(self, job: Job, now: float) -> None:
        """Its slack is another."""
        self._together = ()

    def evicted(self, job: Job, now: float) -> None:
        """It has to compute its context again."""
        self._together = ()

    def finished(self, job: Job, now: float) -> None:
        """Learn from its last segment."""
        self._together = ()
        if job.segments and job.segments[-1].index == int(job.table.segment[job.row]) - 1:
            self._lengths.learn(job)

    def _expect(self, job: Job) -> None:
        job.table.rank[job.row] = self._lengths.expect(job, int(job.table.segment[job.row]))

    # ------------------------------------------------------------------ numbers

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """The index of every row, shape ``(len(table),)``."""
        return self._numbers(table, limits).index

    def _numbers(self, table: JobTable, limits: StepLimits) -> Numbers:
        speed = limits.speed
        alone = speed.step_s(1, 0, 0)
        each = max(0.0, speed.step_s(2, 0, 0) - alone)
        prompt = speed.prefill_token_s
        pool = min(int(np.count_nonzero(table.active)), limits.max_batch)
        step = alone + each * max(0, pool - 1)
        left = np.maximum(1.0, table.rank - table.segment_tokens)
        prefill = prompt * table.prefill_left
        decode = step * left
        work = prefill + decode
        weight = np.maximum(-table.alpha, FLAT_WEIGHT)
        # One step of caution: whatever comes up finds a step in flight.
        slack = table.due_s + table.ert_s * (table.segment == 0) - table.network_s - limits.now - work - step
        slack[table.alpha == 0.0] = math.inf
        # A decoding sequence shares its steps with others: a quarter of their time is what it takes from the rest.
        share = prefill + 0.25 * decode
        horizon = self.LOOK_AHEAD * max(float(share.sum()) / len(table), step)
        index = weight / share * np.exp(np.maximum(slack, 0.0) / -horizon)
        return Numbers(each, prompt, left, work, weight, slack, index)

    # ------------------------------------------------------------------ a step

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """See the module."""
        if len(table) == 0:
            return StepPlan()
        now = limits.now
        runnable: Rows = (table.resume_s <= now).nonzero()[0]
        if runnable.size == 0:
            return StepPlan(wake_s=next_wake(table, now))
        if len(self._together) == runnable.size and self._holds(table, limits):
            return StepPlan(tokens=dict.fromkeys(self._together, 1), steady=True)
        numbers = self._numbers(table, limits)
        index = numbers.index
        if runnable.size == 1:
            order = runnable
        else:
            ranks = [table.sequence[runnable], -index[runnable]]
            if table.priority.any():
                ranks.append(table.priority[runnable])
            order = runnable[np.lexsort(ranks)]
        builder = StepBuilder(table, limits, lambda: self._victims(table, limits, index, order))
        step = Step(self, builder, numbers)
        step.fill(order)
        plan = builder.plan
        if not plan.tokens:
            plan.wake_s = next_wake(table, now)
        everybody = len(plan.tokens) == runnable.size
        if not everybody:
            plan.held = step.held or ("batch" if builder.slots <= 0 else "tokens")
        if self.RIDE_S > 0.0 and plan.tokens and step.friendly:
            riders, short = self._riders(table, now, limits.free_blocks)
            step.take_along(riders, crowd=short)
        plan.steady = everybody and builder.prefill_tokens == 0 and not plan.evict
        self._together = tuple(plan.tokens) if plan.steady else ()
        return plan

    def _holds(self, table: JobTable, limits: StepLimits) -> bool:
        """Whether those who decoded together still can: as many slots, tokens and blocks as that takes."""
        members = self._together
        if len(members) > min(limits.max_batch, limits.token_budget):
            return False
        rows = [job.row for job in map(table.get, members) if job is not None]
        if len(rows) != len(members):
            return False
        reach = table.context_tokens[rows] + limits.block_tokens
        needed = np.maximum(reach // limits.block_tokens - table.blocks[rows], 0)
        return bool(
            needed.sum() <= limits.free_blocks
            and (table.resume_s[rows] <= limits.now).all()
            and not table.prefill_left[rows].any()
            and table.resident[rows].all()
        )

    def _riders(self, table: JobTable, now: float, free_blocks: int) -> tuple[list[int], bool]:
        """Parked generations that could decode at once, whose robots run dry first first; and if memory is short."""
        parked = table.resume_s > now
        if not parked.any():
            return [], False
        able = parked & table.resident & (table.resume_s < math.inf) & (table.prefill_left == 0)
        if not able.any():
            return [], False
        short = free_blocks < int(table.blocks.sum()) - int(table.shared_blocks[table.resident].sum())
        if not short:
            able &= table.due_s < now + self.RIDE_S
        rows = able.nonzero()[0]
        result: list[int] = rows[np.lexsort((table.sequence[rows], table.due_s[rows]))].tolist()
        return result, short
