"""A minimal behaving engine for tests: the controller, a virtual clock, KV blocks as a number, robots that report.

It is no performance model. Each step computes what the plan says and checks the plan against the contract. Robots
execute and report. Everything random comes from the seed.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from timely.core.hints import RequestHints
from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.core.reports import ExecutionReport
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

DRAFTED = 3


def snapshot(table: JobTable) -> list[bytes]:
    """All columns of the table, copied."""
    return [store[:, : len(table)].tobytes() for store in table._stores.values()]


@dataclass(frozen=True)
class Work:
    """What a job will turn out to be: segments of (tokens, execution seconds, blocking)."""

    spec: JobSpec
    segments: Sequence[tuple[int, float, bool]]
    cancel_s: float = math.inf

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, _, _ in self.segments)


@dataclass
class Fate:
    """What became of a job."""

    work: Work
    outcome: str = ""
    end_s: float = math.nan
    first_token_s: float = math.nan
    emitted: list[int] = field(default_factory=list)
    """Tokens of each segment closed."""
    computed: int = 0


@dataclass
class Machine:
    """Size and speed of the pretended engine."""

    blocks: int = 1000
    block_tokens: int = 16
    token_budget: int = 256
    max_batch: int = 8
    max_resident: int = 16
    prefill_chunk: int = 128
    swap_s_per_token: float = math.inf
    speed: FixedSpeed = field(default_factory=lambda: FixedSpeed(0.02, 0.0005, 0.0003))


class StepDriver:
    """Runs works under a discipline to the end and holds every plan to the contract.

    Args:
        maintain: call ``EngineController.maintain`` between steps, as an engine with time to spare does.
        twice: compose every step twice and require the same plan and an untouched table.
        recorded: keep a journal of the decisions.
    """

    def __init__(
        self,
        name: str,
        works: Sequence[Work],
        machine: Machine | None = None,
        *,
        seed: int = 0,
        maintain: bool = True,
        twice: bool = True,
        recorded: bool = False,
    ) -> None:
        self.machine = machine or Machine()
        self.journal: list[Mapping[str, Any]] = []
        self.controller = EngineController(
            create_discipline(name),
            speed=self.machine.speed,
            journal=self.journal.append if recorded else None,
        )
        self.table = self.controller.table
        self.now = 0.0
        self.plans: list[tuple[float, StepPlan]] = []
        self.fates = {work.spec.job_id: Fate(work) for work in works}
        self._rng = np.random.default_rng(seed)
        self._maintain, self._twice = maintain, twice
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()
        self._left: dict[JobId, list[tuple[int, float, bool]]] = {}
        self._steady: tuple[set[JobId], int] | None = None
        """The jobs of the last step and the number of runnable ones, if its plan was steady and no event followed."""
        for work in works:
            self.at(work.spec.arrival_s, partial(self._arrive, work))
            if work.cancel_s < math.inf:
                self.at(work.cancel_s, partial(self._end, work.spec.job_id, "cancelled"))

    # ------------------------------------------------------------------ events

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (when_s, next(self._counter), what))

    def switch_at(self, when_s: float, name: str) -> None:
        """Change the discipline then."""
        self.at(when_s, lambda: self.controller.switch(name, self.now))

    def _arrive(self, work: Work) -> None:
        self._left[work.spec.job_id] = list(work.segments)
        self.controller.arrive(work.spec)

    def _end(self, job_id: JobId, outcome: str) -> None:
        if self.controller.finish(job_id, outcome, self.now) is not None:
            fate = self.fates[job_id]
            fate.outcome, fate.end_s = outcome, self.now

    def _report(self, job_id: JobId, report: ExecutionReport) -> None:
        self.controller.report(job_id, report, self.now)

    # ------------------------------------------------------------------ steps

    def run(self, until_s: float = math.inf, most_steps: int = 20_000) -> StepDriver:
        """Until every job is over or the clock passes ``until_s``; never longer than ``most_steps``."""
        for _ in range(most_steps):
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
                self._steady = None
            if self.now >= until_s or (not len(self.table) and not self._events):
                return self
            plan = self._compose()
            if plan.tokens:
                self._step(plan)
                continue
            next_event = self._events[0][0] if self._events else math.inf
            then = min(next_event, plan.wake_s)
            assert then < math.inf, f"stuck at {self.now}: {len(self.table)} jobs, nothing runs or ever will"
            assert then > self.now
            self.now = then
        raise AssertionError(f"not over after {most_steps} steps, {len(self.table)} jobs left")

    def limits(self) -> StepLimits:
        """Limits of the next step."""
        machine = self.machine
        return StepLimits(
            now=self.now,
            token_budget=machine.token_budget,
            max_batch=machine.max_batch,
            max_resident=machine.max_resident,
            prefill_chunk=machine.prefill_chunk,
            free_blocks=machine.blocks - int(self.table.blocks.sum()),
            block_tokens=machine.block_tokens,
            speed=machine.speed,
            swap_s_per_token=machine.swap_s_per_token,
        )

    def _compose(self) -> StepPlan:
        limits = self.limits()
        if not self._twice:
            plan = self.controller.compose(limits)
        else:
            before = snapshot(self.table)
            plan = self.controller.compose(limits)
            assert snapshot(self.table) == before, "compose changed the table"
            again = self.controller.discipline.compose(self.table, limits)
            assert list(again.tokens.items()) == list(plan.tokens.items())
            assert (again.evict, again.keep, again.wake_s) == (plan.evict, plan.keep, plan.wake_s)
        check_plan(self.table, limits, plan)
        runnable = int((self.table.resume_s <= self.now).sum())
        if (
            self._steady is not None
            and runnable == self._steady[1]
            and limits.free_blocks >= len(plan.tokens)
        ):
            assert set(plan.tokens) == self._steady[0], "the last plan was said to be steady"
        self._steady = (set(plan.tokens), runnable) if plan.steady else None
        self.plans.append((self.now, plan))
        return plan

    def _step(self, plan: StepPlan) -> None:
        table, machine, controller = self.table, self.machine, self.controller
        for job_id in plan.evict:
            job = table[job_id]
            context = int(table.prompt_tokens[job.row] + table.output_tokens[job.row])
            controller.evict(job, context, self.now)
        prefill = 0
        for job_id, tokens in plan.tokens.items():
            job = table[job_id]
            controller.started(job)
            row = job.row
            self.fates[job_id].computed += tokens
            table.context_tokens[row] += tokens
            table.blocks[row] = -(-int(table.context_tokens[row]) // machine.block_tokens)
            if table.prefill_left[row]:
                prefill += tokens
        assert int(table.blocks.sum()) <= machine.blocks, "more KV blocks than there are"
        duration = machine.speed.step_s(len(plan.tokens), prefill, 0.0)
        if self._maintain:
            controller.maintain()
        self.now += duration
        controller.ran(len(plan.tokens), prefill, duration)
        for job_id, tokens in plan.tokens.items():
            job = table[job_id]
            if table.prefill_left[job.row]:
                table.prefill_left[job.row] -= tokens
                if table.prefill_left[job.row]:
                    continue
            self._generate(job)

    def _generate(self, job: Job) -> None:
        new = 1
        left = self._left[job.job_id]
        if job.spec.acceptance is not None:
            right = int(self._rng.binomial(DRAFTED, job.spec.acceptance))
            self.controller.accepted(job, DRAFTED, right, self.now)
            # A blocking skill ends what can be generated; what speculation put behind it is void.
            end = next((index for index, segment in enumerate(left, 1) if segment[2]), len(left))
            room = sum(tokens for tokens, _, _ in left[:end])
            new = min(1 + right, room - self._generated(job))
        fate = self.fates[job.job_id]
        if math.isnan(fate.first_token_s):
            fate.first_token_s = self.now
        self.controller.progress(job, new, self.now)
        while left and self._generated(job) >= left[0][0]:
            tokens, execution_s, blocking = left.pop(0)
            surplus = self._generated(job) - tokens
            last = not left
            segment = self.controller.close_segment(
                job, "s", execution_s, self.now, blocking=blocking, surplus_tokens=surplus, last=last
            )
            fate.emitted.append(segment.tokens)
            self._steady = None
            self._execute(job.job_id, segment.index, segment.start_s, execution_s, blocking and not last)
            if last:
                self._end(job.job_id, "complete")
                return

    def _generated(self, job: Job) -> int:
        return int(self.table.segment_tokens[job.row])

    def _execute(self, job_id: JobId, index: int, start_s: float, execution_s: float, blocking: bool) -> None:
        """The robot takes a little more or less than expected and says so; some reports come twice or late."""
        actual = execution_s * float(self._rng.uniform(0.7, 1.4))
        end = start_s + actual
        self.at(start_s, lambda: self._report(job_id, ExecutionReport(index, "started")))
        delay = float(self._rng.choice([0.0, 0.0, 0.3]))
        done = ExecutionReport(index, "done", elapsed_s=actual, age_s=delay)
        self.at(end + delay, lambda: self._report(job_id, done))
        if self._rng.random() < 0.2:
            self.at(end + delay, lambda: self._report(job_id, replace(done)))
        if blocking:
            self.at(end + 0.05, lambda: self._report(job_id, ExecutionReport(index, "value", value="True")))


def check_plan(table: JobTable, limits: StepLimits, plan: StepPlan) -> None:
    """Every clause of the contract that a single plan can break."""
    assert len(plan.tokens) <= limits.max_batch
    assert sum(plan.tokens.values()) <= limits.token_budget
    assert len(set(plan.evict)) == len(plan.evict)
    assert not set(plan.evict) & set(plan.tokens), "evicted and run in one step"
    resident, blocks, context = table.resident.tolist(), table.blocks.tolist(), table.context_tokens.tolist()
    resume_s, prefill_left = table.resume_s.tolist(), table.prefill_left.tolist()
    free, residents = limits.free_blocks, sum(resident)
    for job_id in plan.evict:
        row = table[job_id].row
        assert resident[row], "evicted what holds nothing"
        free += blocks[row]
        residents -= 1
    assert set(plan.keep) <= set(plan.evict)
    for job_id, tokens in plan.keep.items():
        assert 0 < tokens <= context[table[job_id].row]
    rows = [table[job_id].row for job_id in plan.tokens]
    assert not rows or any(resume_s[row] <= limits.now for row in rows), "a step for riders only"
    for row, tokens in zip(rows, plan.tokens.values(), strict=True):
        if resume_s[row] > limits.now:
            assert resident[row], "ran a job that is not runnable"
            assert resume_s[row] < math.inf, "ran a job that waits for a value"
        left = prefill_left[row]
        assert 1 <= tokens <= (min(left, limits.prefill_chunk) if left else 1)
        if resident[row]:
            free -= max(0, -(-(context[row] + tokens) // limits.block_tokens) - blocks[row])
        else:
            residents += 1
            free -= -(-tokens // limits.block_tokens)
    assert free >= 0, "blocks overdrawn"
    assert residents <= limits.max_resident, "slots overdrawn"
    if plan.steady:
        assert not any(prefill_left[row] for row in rows)
    if any(when_s <= limits.now for when_s in resume_s):
        waits = plan.limited_by == "memory" and limits.now < plan.wake_s < math.inf
        assert plan.tokens or waits, "a job can run, none does, and none gives its memory back"
    else:
        assert not plan.tokens
        assert not plan.evict
        assert plan.wake_s == min(resume_s, default=math.inf)


UTILITIES = (NORMAL, URGENT, TimeUtility(3.0, -0.5, 1.0), TimeUtility(1.0, 0.0, 1.0))


@cache
def random_works(seed: int, jobs: int, *, span_s: float = 8.0, most_prompt: int = 300) -> tuple[Work, ...]:
    """Robots' plans and ordinary requests, with everything any discipline may ask to know."""
    rng = np.random.default_rng(seed)
    apps = [f"app{index}" for index in range(1 + jobs // 4)]
    members = [apps[int(rng.integers(len(apps)))] for _ in range(jobs)]
    works = []
    for index in range(jobs):
        plain = rng.random() < 0.3
        if plain:
            segments = [(int(rng.integers(1, 60)), 0.0, False)]
        else:
            segments = [
                (int(rng.integers(3, 13)), float(rng.uniform(0.0, 3.0)), bool(rng.random() < 0.15))
                for _ in range(int(rng.integers(1, 6)))
            ]
        arrival = float(rng.uniform(0.0, span_s))
        total = sum(tokens for tokens, _, _ in segments)
        utility = UTILITIES[int(rng.integers(len(UTILITIES)))]
        prompt_tokens = int(rng.integers(1, most_prompt))
        hints = RequestHints(
            utility=utility,
            network_s=0.008,
            agent=f"robot{index % 5}",
            priority=float(rng.choice([0.0, 0.0, 0.0, 1.0, -0.5])),
            urgency=int(rng.integers(5)),
            app=members[index],
            app_requests=members.count(members[index]),
            expected_tokens=float(max(1, round(total * rng.uniform(0.6, 1.5)))),
        )
        spec = JobSpec(
            job_id=f"j{index}",
            arrival_s=arrival,
            hints=hints,
            prompt_tokens=prompt_tokens,
            max_tokens=total + 20,
            segment_tokens=12,
            segmented=not plain,
            acceptance=float(rng.uniform(0.2, 0.95)),
            text=f"please look for object number {index % 7}",
        )
        cancel = arrival + float(rng.uniform(0.1, 5.0)) if rng.random() < 0.1 else math.inf
        works.append(Work(spec, segments, cancel))
    return tuple(works)


@cache
def random_chats(seed: int, jobs: int, *, span_s: float = 8.0) -> tuple[Work, ...]:
    """Ordinary requests that say nothing of themselves; the answers to similar questions are of similar length."""
    rng = np.random.default_rng(seed)
    works = []
    for index, arrival_s in enumerate(np.sort(rng.uniform(0.0, span_s, jobs)).tolist()):
        topic = int(rng.integers(5))
        tokens = int(rng.integers(1, 12)) + 12 * topic
        spec = JobSpec(
            job_id=f"c{index}",
            arrival_s=arrival_s,
            prompt_tokens=int(rng.integers(1, 100)),
            max_tokens=200,
            segmented=False,
            plain=True,
            text=f"tell me about subject number {topic} in the words of person {index % 11}",
        )
        works.append(Work(spec, [(tokens, 0.0, False)]))
    return tuple(works)
