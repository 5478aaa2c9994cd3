"""What reproductions of papers share: claims as plain data, statistics over seeds, runs of set-up disciplines."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timely.bench.papers.plots import Interval
from timely.core.errors import EngineFailed
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, DisciplineInfo, Speed, StepLimits, StepPlan
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTimeProfile

Claim = dict[str, Any]
"""``{"id", "what", "paper", "ours", "unit", "holds", "note"}`` of ``timely bench paper --json``."""


def claim(
    name: str,
    what: str,
    paper: float | None,
    ours: float | None,
    unit: str,
    holds: bool | None,
    note: str = "",
) -> Claim:
    """One claim of a paper beside what was measured here; numbers that are not finite become None."""
    return {
        "id": name,
        "what": what,
        "paper": _finite(paper),
        "ours": _finite(ours),
        "unit": unit,
        "holds": holds,
        "interval": None,
        "verdict": {True: "met", False: "not met", None: None}[holds],
        "subject": "literal",
        "note": note,
    }


def _finite(value: float | None) -> float | None:
    return round(float(value), 6) if value is not None and math.isfinite(value) else None


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; ``nan`` of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def half_width(values: Sequence[float]) -> float:
    """Half of the 95% confidence interval of the mean over seeds (Student's t); ``nan`` of fewer than two."""
    if len(values) < 2:
        return math.nan
    table = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
    t = table[len(values) - 2] if len(values) - 2 < len(table) else 2.0
    return t * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95% confidence interval over seeds, for a plot."""
    middle, width = mean(values), half_width(values)
    return (middle, middle, middle) if math.isnan(width) else (middle, middle - width, middle + width)


def over_seeds(values: Sequence[float], digits: int = 1) -> str:
    """``mean +- half width over n seeds`` for a note."""
    width = half_width(values)
    spread = "" if math.isnan(width) else f" +- {width:.{digits}f}"
    return f"{mean(values):.{digits}f}{spread} over {len(values)} seeds"


# ---------------------------------------------------------------------- runs


@dataclass(slots=True)
class Timed(Discipline):
    """A discipline with a stopwatch around it: decisions (``compose``) and arrivals (prediction and queueing).

    It counts the processor's time, so that what else the machine does is not in it.
    """

    inner: Discipline
    decisions_s: list[float] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)

    info = DisciplineInfo(name="timed", summary="another discipline under a stopwatch", source="")

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """See ``Discipline``."""
        begun = time.thread_time()
        plan = self.inner.compose(table, limits)
        self.decisions_s.append(time.thread_time() - begun)
        return plan

    def check(self, spec: JobSpec) -> None:
        """See ``Discipline``."""
        self.inner.check(spec)

    def arrived(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        begun = time.thread_time()
        self.inner.arrived(job, now)
        self.arrivals_s.append(time.thread_time() - begun)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        """See ``Discipline``."""
        self.inner.progressed(job, tokens, now)

    def accepted(self, job: Job, drafted: int, accepted: int, now: float) -> None:
        """See ``Discipline``."""
        self.inner.accepted(job, drafted, accepted, now)

    def parked(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        self.inner.parked(job, now)

    def due_changed(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        self.inner.due_changed(job, now)

    def evicted(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        self.inner.evicted(job, now)

    def finished(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        self.inner.finished(job, now)

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        """See ``Discipline``."""
        self.inner.maintain(table, limits)

    def lead_s(self, job: Job, speed: Speed) -> float:
        """See ``Discipline``."""
        return self.inner.lead_s(job, speed)

    def state(self) -> dict[str, float | int | str]:
        """See ``Discipline``."""
        return self.inner.state()


def simulate(
    tasks: Sequence[PlannedTask], discipline: Discipline, profile: StepTimeProfile, *, eviction: str = "swap"
) -> BackendRun:
    """Run ordinary requests to their end in the simulator under a discipline that is set up already.

    Raises:
        EngineFailed: a request was not served: an average without it would lie.
    """
    options = ReplayOptions(mode="whole", eviction=eviction, journal=False)  # type: ignore[arg-type]
    run = Simulator(options, profile, discipline=discipline).run(tasks)
    for record in run.records:
        if record.outcome != "complete":
            raise EngineFailed(f"job {record.task.job} was not served: {record.outcome} {record.note}")
    return run
