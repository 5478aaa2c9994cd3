"""The worth of robots' reports: waiting times when execution times differ from the profile, with and without reports.

The same tasks run three times in the simulator.
First the profile is exact.
Then it is wrong, and robots report when they start and end each segment (closed loop).
Last it is wrong, and robots report nothing (open loop).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lrtrace.compose.composition import compose
from timely.engines.replay_types import ReplayOptions
from timely.replay.run import replay_through_engine
from timely.replay.trace import replay_task_from_job

DEVIATION = 0.3
"""Difference of execution times from the profile, as a share of the profile's."""
CASES: Mapping[str, Mapping[str, float]] = {
    "faster": {"estimate_factor": 1.0 / (1.0 - DEVIATION)},
    "slower": {"estimate_factor": 1.0 / (1.0 + DEVIATION)},
    "scattered": {"estimate_noise": DEVIATION},
}
"""Every robot takes 30% less than its profile says, 30% more, or each segment differs by a log-normal 30%."""
TOLERANCE = 0.1
"""Closed-loop waiting may exceed that of an exact profile by this share."""


def measure_closed_loop(
    seeds: Sequence[int],
    *,
    workload: str = "wid2",
    duration_s: float = 300.0,
    discipline: str = "timely",
) -> dict[str, Any]:
    """Mean waiting time a task (seconds, completion minus execution), over all tasks of all seeds.

    ``waiting_s`` is of the case in which the closed loop does worst; ``cases`` has all cases.
    ``between_segments_s`` is the waiting after a plan's first segment, the part that a wrong execution time changes.
    """
    sums: dict[str, _Waits] = {}
    for seed in seeds:
        composed = compose(workload, seed, duration_s=duration_s)
        tasks = [replay_task_from_job(job, composed.header.network_s) for job in composed.jobs]
        for name, options in _runs(discipline, seed).items():
            sums.setdefault(name, _Waits()).jobs += replay_through_engine(tasks, options)["jobs"]
    perfect = sums["perfect"]
    cases: dict[str, dict[str, Any]] = {
        case: {
            "waiting_s": _means(perfect, sums, case, "waiting"),
            "between_segments_s": _means(perfect, sums, case, "between"),
            "closed_over_perfect": round(sums[f"{case} closed"].waiting / perfect.waiting, 4),
            "open_over_perfect": round(sums[f"{case} open"].waiting / perfect.waiting, 4),
        }
        for case in CASES
    }
    worst = max(cases, key=lambda case: float(cases[case]["closed_over_perfect"]))
    return {
        "workload": workload,
        "discipline": discipline,
        "seeds": list(seeds),
        "tasks": len(perfect.jobs),
        "off": DEVIATION,
        "case": worst,
        "waiting_s": cases[worst]["waiting_s"],
        "within_10_percent": cases[worst]["closed_over_perfect"] <= 1.0 + TOLERANCE,
        "cases": cases,
    }


def _runs(discipline: str, seed: int) -> dict[str, ReplayOptions]:
    def options(closed: bool = True, **off: float) -> ReplayOptions:
        return ReplayOptions(
            discipline=discipline, seed=seed, journal=False, closed_loop=closed,
            estimate_factor=off.get("estimate_factor", 1.0), estimate_noise=off.get("estimate_noise", 0.0),
        )  # fmt: skip

    runs = {"perfect": options()}
    for case, off in CASES.items():
        runs[f"{case} closed"] = options(True, **off)
        runs[f"{case} open"] = options(False, **off)
    return runs


def _means(perfect: _Waits, sums: Mapping[str, _Waits], case: str, attribute: str) -> dict[str, float]:
    runs = {"perfect": perfect, "closed": sums[f"{case} closed"], "open": sums[f"{case} open"]}
    return {name: round(float(getattr(waits, attribute)), 6) for name, waits in runs.items()}


class _Waits:
    """Waiting times of many runs."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def _mean(self, wait_s: Callable[[Any], float]) -> float:
        """Mean over the tasks with a segment, seconds."""
        waits = [wait_s(job) for job in self.jobs if job["waiting_time_s"] is not None]
        return math.fsum(waits) / len(waits)

    @property
    def waiting(self) -> float:
        return self._mean(lambda job: float(job["waiting_time_s"]))

    @property
    def between(self) -> float:
        """Without the wait for the first segment."""
        return self._mean(lambda job: float(job["waiting_time_s"] - job["response_time_s"]))
