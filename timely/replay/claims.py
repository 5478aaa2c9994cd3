"""What the reproductions of papers share: claims as plain data, statistics over seeds, set-up disciplines, plots."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.plots import new_figure, save
from timely.core.errors import EngineFailed
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, DisciplineInfo, Speed, StepLimits, StepPlan
from timely.engines.replaying import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.profile import StepTimeProfile
from timely.engines.sim.simulator import Simulator

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


def over_seeds(values: Sequence[float], digits: int = 1) -> str:
    """``mean +- half width over n seeds`` for a note."""
    width = half_width(values)
    spread = "" if math.isnan(width) else f" +- {width:.{digits}f}"
    return f"{mean(values):.{digits}f}{spread} over {len(values)} seeds"


# ---------------------------------------------------------------------- runs


@dataclass(slots=True)
class Timed(Discipline):
    """A discipline with a stopwatch around it: decisions (``compose``) and arrivals (prediction and queueing)."""

    inner: Discipline
    decisions_s: list[float] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)

    info = DisciplineInfo(name="timed", summary="another discipline under a stopwatch", source="")

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """See ``Discipline``."""
        begun = time.perf_counter()
        plan = self.inner.compose(table, limits)
        self.decisions_s.append(time.perf_counter() - begun)
        return plan

    def check(self, spec: JobSpec) -> None:
        """See ``Discipline``."""
        self.inner.check(spec)

    def arrived(self, job: Job, now: float) -> None:
        """See ``Discipline``."""
        begun = time.perf_counter()
        self.inner.arrived(job, now)
        self.arrivals_s.append(time.perf_counter() - begun)

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


# ---------------------------------------------------------------------- plots

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6b4e9b", "#8d6b4f", "#5c6b73", "#b07aa1", "#2e8b8b")


def colour(names: Sequence[str], name: str) -> str:
    """The same colour for a name in all plots of a paper."""
    return COLOURS[list(names).index(name) % len(COLOURS)]


def bars(
    path: Path,
    panels: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
    *,
    y_label: str,
    names: Sequence[str],
) -> None:
    """Grouped bars with error bars: panel title -> group label -> name -> values over seeds."""
    figure = new_figure(5.2 * len(panels), 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            values = [groups[group].get(name, ()) for group in groups]
            at = [x + (place - (len(names) - 1) / 2) * width for x in range(len(groups))]
            spread = [half_width(v) for v in values]
            axis.bar(
                at,
                [mean(v) for v in values],
                width,
                yerr=[0.0 if math.isnan(s) else s for s in spread],
                label=name,
                color=colour(names, name),
                error_kw={"linewidth": 0.8},
            )
        axis.set_xticks(range(len(groups)), list(groups))
        axis.set_title(title, fontsize=10)
        axis.set_ylabel(y_label)
    axes[0].legend(fontsize=7)
    save(figure, path)


def lines(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]]],
    *,
    x_label: str,
    y_label: str,
    names: Sequence[str],
    log_y: bool = False,
) -> None:
    """Curves with a band: panel title -> name -> (x, values over seeds at each x)."""
    figure = new_figure(5.2 * len(panels), 3.4)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, (x, values) in curves.items():
            middle = np.array([mean(v) for v in values])
            spread = np.nan_to_num(np.array([half_width(v) for v in values]))
            axis.plot(x, middle, marker="o", markersize=3, label=name, color=colour(names, name))
            axis.fill_between(
                x, middle - spread, middle + spread, alpha=0.15, color=colour(names, name), linewidth=0
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        if log_y:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    save(figure, path)


def cdf(
    path: Path, curves: Mapping[str, Sequence[float]], *, x_label: str, names: Sequence[str], x_max: float
) -> None:
    """Cumulative distributions."""
    figure = new_figure(5.2, 3.4)
    axis = figure.subplots()
    for name, values in curves.items():
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        share = np.arange(1, ordered.size + 1) / ordered.size
        axis.step(ordered, share, where="post", label=name, color=colour(names, name))
    axis.set_xlim(0, x_max)
    axis.set_xlabel(x_label)
    axis.set_ylabel("share")
    axis.legend(fontsize=7)
    save(figure, path)
