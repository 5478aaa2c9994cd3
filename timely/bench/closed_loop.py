"""What the robots' reports are worth: waiting times when execution times are off the profile, with reports and without.

The same tasks run three times in the simulator: with a profile that is exact, with one that is wrong while robots
report when they start and end each segment (closed loop), and with one that is wrong while nobody does (open loop).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lrtrace.compose.workload import compose
from timely.engines.replay_types import ReplayOptions
from timely.replay.results import Result
from timely.replay.run import replay
from timely.replay.trace import planned

OFF = 0.3
"""How far execution times are off the profile, as a share of what it says."""
CASES: Mapping[str, Mapping[str, float]] = {
    "faster": {"estimate_factor": 1.0 / (1.0 - OFF)},
    "slower": {"estimate_factor": 1.0 / (1.0 + OFF)},
    "scattered": {"estimate_noise": OFF},
}
"""Every robot takes 30% less than its profile says, 30% more, or each segment is off by a log-normal 30%."""
ALLOWED = 0.1
"""Closed-loop waiting may exceed that of an exact profile by this share."""


def measure(
    seeds: Sequence[int],
    *,
    workload: str = "wid2",
    duration_s: float = 300.0,
    discipline: str = "timely",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Mean waiting time a task (seconds, completion minus execution), over all tasks of all seeds.

    ``waiting_s`` is of the case in which the closed loop does worst; ``cases`` has them all, with the part of the
    waiting that comes after a plan's first segment, which is what a wrong execution time changes.
    """
    sums: dict[str, _Sums] = {}
    for seed in seeds:
        composed = compose(workload, seed, duration_s=duration_s)
        tasks = [planned(job, composed.header.network_s) for job in composed.jobs]
        for name, options in _runs(discipline, seed).items():
            sums.setdefault(name, _Sums()).add(replay(tasks, options))
        say(f"seed {seed}: {len(tasks)} tasks")
    perfect = sums["perfect"]
    cases: dict[str, dict[str, Any]] = {
        case: {
            "waiting_s": _three(perfect, sums, case, "waiting"),
            "between_segments_s": _three(perfect, sums, case, "between"),
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
        "tasks": perfect.tasks,
        "off": OFF,
        "case": worst,
        "waiting_s": cases[worst]["waiting_s"],
        "within_10_percent": cases[worst]["closed_over_perfect"] <= 1.0 + ALLOWED,
        "cases": cases,
    }


def _runs(discipline: str, seed: int) -> dict[str, ReplayOptions]:
    def options(closed: bool = True, **off: float) -> ReplayOptions:
        return ReplayOptions(
            discipline=discipline,
            seed=seed,
            journal=False,
            closed_loop=closed,
            estimate_factor=off.get("estimate_factor", 1.0),
            estimate_noise=off.get("estimate_noise", 0.0),
        )

    runs = {"perfect": options()}
    for case, off in CASES.items():
        runs[f"{case} closed"] = options(True, **off)
        runs[f"{case} open"] = options(False, **off)
    return runs


def _three(perfect: _Sums, sums: Mapping[str, _Sums], case: str, what: str) -> dict[str, float]:
    of = {"perfect": perfect, "closed": sums[f"{case} closed"], "open": sums[f"{case} open"]}
    return {name: round(float(getattr(one, what)), 6) for name, one in of.items()}


class _Sums:
    """Waiting times of many runs."""

    def __init__(self) -> None:
        self.tasks = 0
        self._waiting: list[float] = []
        self._between: list[float] = []

    def add(self, result: Result) -> None:
        """One run; tasks without a single segment count in none of the means, and there are none in these."""
        for job in result["jobs"]:
            self.tasks += 1
            if job["waiting_time_s"] is not None:
                self._waiting.append(job["waiting_time_s"])
                self._between.append(job["waiting_time_s"] - job["response_time_s"])

    @property
    def waiting(self) -> float:
        """Mean, seconds."""
        return math.fsum(self._waiting) / len(self._waiting)

    @property
    def between(self) -> float:
        """Mean without the wait for the first segment, seconds."""
        return math.fsum(self._between) / len(self._between)
