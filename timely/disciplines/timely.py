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
  robot is about to run dry. While less KV cache is free than held it rides however far off that is: a plan that is
  complete gives its memory back, one that waits is evicted and computed again. Robots that report what they do
  fill the step up to ``COMPANY`` sequences, and at least one more comes along at each decision: more would close
  their segments together, and these would leave one behind the other. Of robots that report nothing all ride: far
  ahead they bear that their execution times are wrong.
* While all who can run decode together and nothing happens, nothing is reconsidered.

vLLM's own ``priority`` stands above the index. Step times and segment lengths are learned online.
"""

from __future__ import annotations

import math
from bisect import insort
from typing import ClassVar

import numpy as np

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.composition import KeyedDiscipline, StepBuilder, next_wake
from timely.disciplines.segment_lengths import SegmentLengths

FLAT_WEIGHT = 0.02
"""Weight of a job whose utility does not fall: it must not starve behind those that have lost everything."""

LEAST_CHUNK = 32
"""Prompt tokens below which a part of a prompt is not worth a place in a step."""

MOST_REFUSALS = 8
"""After so many refusals in a row no further candidate is looked at: they rank lower still."""

SILENCE_S = 0.25
"""A robot that has not reported its first segment so long after a report could have come reports nothing."""

PATIENCE = 10.0
"""Lateness after which a candidate is not held back for its equals, in times of what they still have to do."""


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

    def _numbers(self, table: JobTable, limits: StepLimits) -> _Numbers:
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
        horizon = self.LOOK_AHEAD * max(float(share.mean()), step)
        index = weight / share * np.exp(np.maximum(slack, 0.0) / -horizon)
        return _Numbers(each, prompt, left, work, weight, slack, index)

    # ------------------------------------------------------------------ a step

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """See the module."""
        if len(table) == 0:
            return StepPlan()
        now = limits.now
        runnable: Rows = np.flatnonzero(table.resume_s <= now)
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
        step = _Step(self, builder, numbers)
        step.fill(order)
        plan = builder.plan
        if not plan.tokens:
            plan.wake_s = next_wake(table, now)
        everybody = len(plan.tokens) == runnable.size
        if not everybody:
            plan.held = step.held or ("batch" if builder.slots <= 0 else "tokens")
        if self.RIDE_S > 0.0 and plan.tokens and step.friendly:
            step.take_along(self._riders(table, now, limits.free_blocks))
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

    def _riders(self, table: JobTable, now: float, free_blocks: int) -> list[int]:
        """Parked generations that could decode at once, whose robots run dry first first."""
        able = (
            table.resident & (table.resume_s > now) & (table.resume_s < math.inf) & (table.prefill_left == 0)
        )
        if not able.any():
            return []
        if free_blocks >= int(table.blocks.sum()) - int(table.shared_blocks[table.resident].sum()):
            able &= table.due_s < now + self.RIDE_S
        rows = np.flatnonzero(able)
        result: list[int] = rows[np.lexsort((table.sequence[rows], table.due_s[rows]))].tolist()
        return result


class _Numbers:
    """What a step's composition reads of every row; arrays of shape ``(jobs,)``, times in seconds.

    ``each`` is what one more decoding sequence adds to a step, ``prompt`` what one more prompt token does.
    """

    __slots__ = ("each", "index", "left", "prompt", "slack", "weight", "work")

    def __init__(
        self,
        each: float,
        prompt: float,
        left: Floats,
        work: Floats,
        weight: Floats,
        slack: Floats,
        index: Floats,
    ) -> None:
        self.each = each
        self.prompt = prompt
        self.left = left
        """Tokens until the segment closes."""
        self.work = work
        """Time until then."""
        self.weight = weight
        """Utility lost per second of lateness."""
        self.slack = slack
        self.index = index


class _Step:
    """A step in composition: who is in it, and what a delay would cost them.

    Delays so far are kept in one number, ``_delay``, instead of being taken off everybody's slack.
    """

    __slots__ = (
        "_builder", "_delay", "_discipline", "_late", "_late_weight", "_late_work", "_numbers", "_timely",
        "_timely_weight", "_timely_work", "held",
    )  # fmt: skip

    def __init__(self, discipline: Timely, builder: StepBuilder, numbers: _Numbers) -> None:
        self._discipline = discipline
        self._builder = builder
        self._numbers = numbers
        self._delay = 0.0
        self._timely: list[tuple[float, float, float]] = []
        """Members in time: (slack plus the delay when they joined, weight, work), least slack first."""
        self._timely_weight = self._timely_work = 0.0
        """Sums of their weights and of weight times work; members that lose nothing by a delay are not counted."""
        self._late: dict[float, tuple[float, float]] = {}
        """Members that are late, the same two sums by weight."""
        self._late_weight = self._late_work = 0.0
        self.held = ""

    @property
    def friendly(self) -> bool:
        """Nobody in the step is late."""
        return self._late_weight == 0.0

    @property
    def room_s(self) -> float:
        """Delay that makes nobody late."""
        return self._timely[0][0] - self._delay if self._timely else math.inf

    def fill(self, order: Rows) -> None:
        """Candidates in this order."""
        builder, numbers, discipline = self._builder, self._numbers, self._discipline
        table = builder.table
        prompts = table.prefill_left[order].tolist()
        lefts, works = numbers.left[order].tolist(), numbers.work[order].tolist()
        weights, slacks = numbers.weight[order].tolist(), numbers.slack[order].tolist()
        protect = discipline.PROTECT
        refusals = 0
        residents_only = False
        for row, prompt, left, work, weight, slack in zip(
            order.tolist(), prompts, lefts, works, weights, slacks, strict=True
        ):
            if builder.full or refusals >= MOST_REFUSALS:
                break
            if residents_only and not table.resident[row]:
                continue
            tokens = min(prompt, builder.tokens_for(row)) if prompt else 1
            delay = numbers.prompt * tokens if prompt else numbers.each * left
            if (
                protect
                and builder.rows
                and not self._worth(delay, weight, slack - self._delay, -slack - work)
            ):
                tokens = self._fitting(tokens) if prompt and discipline.CHUNK else 0
                delay = numbers.prompt * tokens
                if not tokens or not self._worth(
                    delay, weight * tokens / prompt, slack - self._delay, -slack - work
                ):
                    self.held = self.held or "suspended"
                    refusals += 1
                    continue
            if builder.add(row, tokens):
                refusals = 0
                self._join(delay, weight, slack, work)
            elif not table.resident[row] or builder.lost(row):
                # Nothing less important may take the room it waits for; those who have theirs go on.
                residents_only = True
                self.held = self.held or "memory"

    def _worth(self, delay: float, weight: float, slack: float, late_s: float) -> bool:
        """Whether a candidate, late by ``late_s`` already, gains by joining at least what the members lose."""
        if self._gains(delay, weight, slack, self._late_weight, self._late_work):
            return True
        if late_s * self._late_weight < PATIENCE * self._late_work:
            return False
        hurt = wait = 0.0
        for member, (total, work) in self._late.items():
            if member > weight:
                hurt += total
                wait += work
        return self._gains(delay, weight, slack, hurt, wait)

    def _gains(self, delay: float, weight: float, slack: float, hurt: float, wait: float) -> bool:
        """The same with those late members only that have the weight ``hurt`` and the weighted work ``wait``."""
        if not self._timely and hurt == 0.0:
            return True
        loss = hurt * delay
        all_weight, all_work = self._timely_weight + hurt, self._timely_work + wait
        already = self._delay
        for due, member, work in self._timely:
            over = delay - (due - already)
            if over <= 0.0:
                break
            loss += member * over
            hurt += member
            wait += member * work
        early = self._discipline.EARLY
        cost = (1.0 - early) * loss + early * all_weight * delay
        # Left out it would wait until those it hurts are done; before its deadline that costs little.
        until = wait / hurt if hurt > 0.0 else 0.0
        gain = (1.0 - early) * max(0.0, until - max(0.0, slack)) + early * all_work / all_weight
        return weight * gain >= cost

    def _fitting(self, tokens: int) -> int:
        """Prompt tokens that make nobody late; 0 when it is hardly any, or when somebody is late already."""
        if self._late_weight > 0.0:
            return 0
        room = self.room_s / self._numbers.prompt
        return int(min(float(tokens), room)) if room >= LEAST_CHUNK else 0

    def _join(self, delay: float, weight: float, slack: float, work: float) -> None:
        # The newcomer's own slack counts its own work already.
        before = self._delay
        self._delay += delay
        if slack == math.inf:
            pass  # no delay costs it anything, so it is not counted
        elif slack - before > 0.0:
            insort(self._timely, (slack - before + self._delay, weight, work))
            self._timely_weight += weight
            self._timely_work += weight * work
        else:
            self._now_late(weight, work)
        while self._timely and self._timely[0][0] <= self._delay:
            _, weight, work = self._timely.pop(0)
            self._timely_weight -= weight
            self._timely_work -= weight * work
            self._now_late(weight, work)

    def _now_late(self, weight: float, work: float) -> None:
        total, works = self._late.get(weight, (0.0, 0.0))
        self._late[weight] = (total + weight, works + weight * work)
        self._late_weight += weight
        self._late_work += weight * work

    def take_along(self, riders: list[int]) -> None:
        """Let parked generations ride along while nobody is made late and no room has to be made for them."""
        builder, numbers = self._builder, self._numbers
        table, block = builder.table, builder.limits.block_tokens
        jobs, places = table.jobs, max(1, self._discipline.COMPANY - len(builder.rows))
        for row in riders:
            if builder.full:
                break
            reports = _reports(jobs[row], builder.limits.now)
            if reports and not places:
                continue
            delay = numbers.each * float(numbers.left[row])
            if delay > self.room_s:
                break
            if (int(table.context_tokens[row]) + block) // block - int(table.blocks[row]) > builder.free:
                continue
            if builder.add(row):
                places -= reports
                self._join(delay, float(numbers.weight[row]), math.inf, float(numbers.work[row]))


def _reports(job: Job, now: float) -> bool:
    """Whether its robot says when it starts a segment, or may still be about to say so for the first time."""
    if not job.segments:
        return True
    first = job.segments[0]
    return first.started or now < first.start_s + job.spec.network_s + SILENCE_S
