"""A discipline under a stopwatch, and runs of ordinary requests under a discipline that is set up already."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from timely.core.errors import EngineFailed
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, DisciplineInfo, Speed, StepLimits, StepPlan
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTimeProfile


@dataclass(slots=True)
class Timed(Discipline):
    """Another discipline, whose decisions (``compose``) and arrivals (prediction and queueing) are timed.

    The time is the processor's, so other work on the machine does not count.
    """

    inner: Discipline
    decisions_s: list[float] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)

    info = DisciplineInfo(name="timed", summary="another discipline under a stopwatch", source="")

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        begin_s = time.thread_time()
        plan = self.inner.compose(table, limits)
        self.decisions_s.append(time.thread_time() - begin_s)
        return plan

    def check(self, spec: JobSpec) -> None:
        self.inner.check(spec)

    def arrived(self, job: Job, now: float) -> None:
        begin_s = time.thread_time()
        self.inner.arrived(job, now)
        self.arrivals_s.append(time.thread_time() - begin_s)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        self.inner.progressed(job, tokens, now)

    def accepted(self, job: Job, drafted: int, accepted: int, now: float) -> None:
        self.inner.accepted(job, drafted, accepted, now)

    def parked(self, job: Job, now: float) -> None:
        self.inner.parked(job, now)

    def due_changed(self, job: Job, now: float) -> None:
        self.inner.due_changed(job, now)

    def evicted(self, job: Job, now: float) -> None:
        self.inner.evicted(job, now)

    def finished(self, job: Job, now: float) -> None:
        self.inner.finished(job, now)

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        self.inner.maintain(table, limits)

    def lead_s(self, job: Job, speed: Speed) -> float:
        return self.inner.lead_s(job, speed)

    def state(self) -> dict[str, float | int | str]:
        return self.inner.state()


def simulate(
    tasks: Sequence[PlannedTask], discipline: Discipline, profile: StepTimeProfile, *, eviction: str = "swap"
) -> BackendRun:
    """Run ordinary requests to their end in the simulator.

    Raises:
        EngineFailed: a request was not served; an average without it would be wrong.
    """
    options = ReplayOptions(mode="whole", eviction=eviction, journal=False)  # type: ignore[arg-type]
    run = Simulator(options, profile, discipline=discipline).run(tasks)
    for record in run.records:
        if record.outcome != "complete":
            raise EngineFailed(f"job {record.task.job} was not served: {record.outcome} {record.note}")
    return run
