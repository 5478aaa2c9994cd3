"""The cost of a decision: time of a discipline's scheduling point, by the number of jobs."""

import random
import statistics
import time
from collections.abc import Callable

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.registry import create_discipline
from timely.engines.step_time.learned import FixedSpeed

MAX_BATCH = 32
MAX_RESIDENT = 64
CONTEXT_BLOCKS = 16
BLOCK_TOKENS = 16
STEP_S = 0.02


def scheduling_point_us(
    name: str,
    jobs: int,
    *,
    points: int = 100,
    seed: int = 0,
    ordinary: bool = False,
    repetitions: int = 1,
    timer: Callable[[], float] = time.perf_counter,
) -> float:
    """Median time of a scheduling point, microseconds.

    A point is the discipline's work for one step: composing it and handling its events.
    The events are the evictions, one arrival, a closed segment for one in ten of the jobs that ran, and one end.
    A token of each job that ran is an event, too, if the discipline follows tokens: engines do not report it otherwise.
    The table always holds ``jobs`` jobs, of which up to 64 have KV cache and up to 32 run.
    Memory and slots are full, as under load.
    ``maintain`` is never called, so its work is in the figure.

    Args:
        points: measured points, after a tenth as many for warming up.
        ordinary: ordinary requests without a deadline, half of them in applications, instead of robot tasks.
        repetitions: identical runs. Each point counts as its quickest, so other work on the machine counts less.

    Raises:
        UnknownName: no such discipline.
        ValueError: ``jobs``, ``points`` or ``repetitions`` is less than one.
    """
    if jobs < 1 or points < 1 or repetitions < 1:
        raise ValueError(
            f"jobs, points and repetitions must be at least 1, got {jobs}, {points} and {repetitions}"
        )
    warm_up = max(2, points // 10)
    runs: list[list[float]] = []
    for _ in range(repetitions):
        bench = _DecisionCostBench(
            create_discipline(name), jobs, random.Random(seed), timer, ordinary=ordinary
        )
        runs.append([bench.point() for _ in range(warm_up + points)][warm_up:])
    quickest_s: list[float] = [min(times_s) for times_s in zip(*runs, strict=True)]
    return statistics.median(quickest_s) * 1e6


class _DecisionCostBench:
    def __init__(
        self,
        discipline: Discipline,
        jobs: int,
        rng: random.Random,
        timer: Callable[[], float],
        *,
        ordinary: bool,
    ) -> None:
        self.ordinary = ordinary
        self.discipline, self.rng, self.timer = discipline, rng, timer
        self.table = JobTable(capacity=2 * jobs)
        self.now = 0.0
        self.arrivals = 0
        self.speed = FixedSpeed(STEP_S, 0.0005, 0.0003)
        for _ in range(jobs):
            discipline.arrived(self._arrival(), self.now)

    def _arrival(self) -> Job:
        rng = self.rng
        self.arrivals += 1
        has_app = not self.ordinary or self.arrivals % 10 < 5
        return self.table.add(
            JobSpec(
                job_id=self.arrivals,
                arrival_s=self.now,
                prompt_tokens=CONTEXT_BLOCKS * BLOCK_TOKENS - rng.randrange(100),
                segment_tokens=12,
                hints=RequestHints(
                    utility=URGENT if rng.random() < 0.3 and not self.ordinary else NORMAL,
                    urgency=rng.randrange(5),
                    app=f"app{self.arrivals // 5}" if has_app else None,
                    app_requests=5,
                    expected_tokens=rng.uniform(10.0, 400.0),
                ),
                segmented=not self.ordinary,
                plain=self.ordinary,
                acceptance=rng.random(),
                text=f"bring object {rng.randrange(1000)} to room {rng.randrange(50)}",
            )
        )

    def _limits(self) -> StepLimits:
        return StepLimits(
            now=self.now,
            token_budget=2048,
            max_batch=MAX_BATCH,
            max_resident=MAX_RESIDENT,
            prefill_chunk=512,
            free_blocks=MAX_RESIDENT * CONTEXT_BLOCKS - int(self.table.blocks.sum()),
            cache_blocks=MAX_RESIDENT * CONTEXT_BLOCKS,
            block_tokens=BLOCK_TOKENS,
            speed=self.speed,
        )

    def point(self) -> float:
        """Do one step; returns the seconds that the discipline took of it."""
        table, discipline, timer = self.table, self.discipline, self.timer
        limits = self._limits()
        begin_s = timer()
        plan = discipline.compose(table, limits)
        spent_s = timer() - begin_s
        evicted_jobs = [table[job_id] for job_id in plan.evict]
        for job in evicted_jobs:
            self._evict(job)
        begin_s = timer()
        for job in evicted_jobs:
            discipline.evicted(job, self.now)
        spent_s += timer() - begin_s
        self.now += STEP_S
        ran = [table[job_id] for job_id in plan.tokens]
        for job, tokens in zip(ran, plan.tokens.values(), strict=True):
            self._ran(job, tokens)
        closing_jobs = [job for job in ran if self.rng.random() < 0.1 and not self.ordinary]
        for job in closing_jobs:
            self._close(job)
        begin_s = timer()
        if discipline.follows_tokens:
            for job in ran:
                discipline.progressed(job, 1, self.now)
        for job in closing_jobs:
            discipline.parked(job, self.now)
        spent_s += timer() - begin_s
        leaving = self.rng.choice(ran) if ran else table.jobs[0]
        leaving.outcome = "complete"
        begin_s = timer()
        discipline.finished(leaving, self.now)
        spent_s += timer() - begin_s
        table.remove(leaving.job_id)
        job = self._arrival()
        begin_s = timer()
        discipline.arrived(job, self.now)
        return spent_s + timer() - begin_s

    def _ran(self, job: Job, tokens: int) -> None:
        table, row = self.table, job.row
        table.active[row] = table.resident[row] = True
        table.context_tokens[row] += tokens
        table.blocks[row] = -(-int(table.context_tokens[row]) // BLOCK_TOKENS)
        table.prefill_left[row] = max(0, int(table.prefill_left[row]) - tokens)
        table.output_tokens[row] += 1
        table.segment_tokens[row] += 1
        table.attained_s[row] += STEP_S
        table.resume_s[row] = -1.0

    def _close(self, job: Job) -> None:
        table, row = self.table, job.row
        job.parked = True
        table.active[row] = False
        table.segment[row] += 1
        table.segment_tokens[row] = 0
        table.due_s[row] = self.now + self.rng.uniform(0.5, 3.0)
        table.resume_s[row] = table.due_s[row] - 0.5

    def _evict(self, job: Job) -> None:
        table, row = self.table, job.row
        table.active[row] = table.resident[row] = False
        table.prefill_left[row] = table.context_tokens[row]
        table.blocks[row] = table.context_tokens[row] = 0
