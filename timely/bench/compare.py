"""Systems on traces of your own, in the simulator: means over the traces, and each system beside the first one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from timely.bench.capacity.measure import find_capacity_system
from timely.bench.papers.seed_statistics import paper_interval
from timely.core.errors import InvalidInput
from timely.core.progress import Say
from timely.engines.replay_types import ReplayOptions
from timely.replay.results import Result
from timely.replay.run import replay_through_engine
from timely.replay.trace import ReplayTasks

MEASURES = {
    "urgent in time": "%",
    "all in time": "%",
    "utility, urgent": "%",
    "utility, all": "%",
    "served": "%",
    "response p50": "s",
    "response p90": "s",
}
"""Unit by measure. Utilities are shares of the maximum."""

Numbers = dict[str, float | None]


def compare_systems(
    traces: Sequence[Path], systems: Sequence[str], options: ReplayOptions, say: Say = lambda line: None
) -> dict[str, Any]:
    """Replay each trace under each system, as ``timely replay`` does.

    Returns:
        ``{"units": {measure: unit}, "systems": {system: {measure: {"values", "mean", "interval", "difference",
        "difference_interval"}}}}``. Values are in the order of the traces. A difference is from the first system,
        trace by trace. Intervals are those of the mean (95%, Student's t), null of one trace. A measure that a trace
        lacks, such as one of urgent tasks, is null.

    Raises:
        UnknownName: no such system. InvalidInput: a system that a trace is not enough for, or a trace that comes twice
            or has no job.
            BadInput: a trace is broken.
    """
    for index, trace in enumerate(traces):
        if trace.resolve() in [other.resolve() for other in traces[:index]]:
            raise InvalidInput("is named twice, so intervals would be too small", where=str(trace))
    kinds = {name: find_capacity_system(name) for name in systems}
    for name, kind in kinds.items():
        if kind.jumps_ahead:
            raise InvalidInput(f"a trace does not have what {name} needs: forced tokens", where="--systems")
    runs: dict[str, list[Numbers]] = {name: [] for name in systems}
    for trace in traces:
        tasks = ReplayTasks(trace)
        if next(iter(tasks), None) is None:
            raise InvalidInput("has no job", where=str(trace))
        for name, kind in kinds.items():
            with tasks.errors_with_lines():
                result = replay_through_engine(
                    tasks, replace(options, discipline=kind.discipline, mode=kind.mode)
                )
            runs[name].append(_comparison_numbers(result))
        say(f"{trace}: replayed")
    first = runs[systems[0]]
    rows = {
        name: {measure: _comparison_row(measure, numbers, first) for measure in MEASURES}
        for name, numbers in runs.items()
    }
    return {"units": MEASURES, "systems": rows}


def _comparison_numbers(result: Result) -> Numbers:
    summary, jobs = result["summary"], result["jobs"]
    urgent_jobs = [job for job in jobs if job["class"] == "urgent"]
    return {
        "urgent in time": _comparison_share_in_time(urgent_jobs),
        "all in time": _comparison_share_in_time(jobs),
        "utility, urgent": _comparison_utility_share(summary["by_class"]["urgent"]),
        "utility, all": _comparison_utility_share(summary),
        "served": None if not jobs else 100.0 * summary["share_served"],
        "response p50": summary["response_s"]["p50"],
        "response p90": summary["response_s"]["p90"],
    }


def _comparison_share_in_time(jobs: Sequence[Mapping[str, Any]]) -> float | None:
    """Percent of the jobs whose response came within the expected response time."""
    if not jobs:
        return None
    answered = [job for job in jobs if job["response_time_s"] is not None]
    return 100.0 * sum(1 for job in answered if job["response_time_s"] <= job["ert_s"]) / len(jobs)


def _comparison_utility_share(group: Mapping[str, Any]) -> float | None:
    return float(100.0 * group["utility_mean"] / group["utility_max_mean"]) if group["jobs"] else None


def _comparison_row(measure: str, runs: Iterable[Numbers], first: Iterable[Numbers]) -> dict[str, Any] | None:
    values, others = ([numbers[measure] for numbers in column] for column in (runs, first))
    pairs = [(a, b) for a, b in zip(values, others, strict=True) if a is not None and b is not None]
    if len(pairs) < len(values):
        return None
    mean, *interval = paper_interval([a for a, _ in pairs])
    difference, *difference_interval = paper_interval([a - b for a, b in pairs])
    has_interval = len(pairs) > 1
    return {
        "values": values,
        "mean": mean,
        "interval": interval if has_interval else None,
        "difference": difference,
        "difference_interval": difference_interval if has_interval else None,
    }
