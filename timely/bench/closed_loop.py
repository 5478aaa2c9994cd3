"""The worth of robots' reports: waiting times when execution times differ from the profile, with and without reports.

The same tasks run three times in the simulator.
First the profile is exact.
Then it is wrong, and robots report when they start and end each segment (closed loop).
Last it is wrong, and robots report nothing (open loop).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lrtrace.compose.composition import compose_workload
from timely.engines.replay_types import ReplayOptions
from timely.replay.run import replay_through_engine
from timely.replay.trace import replay_task_from_job

DEVIATION = 0.3
"""Difference of execution times from the profile, as a share of the profile's."""
CASES = {
    "faster": (1.0 / (1.0 - DEVIATION), 0.0),
    "slower": (1.0 / (1.0 + DEVIATION), 0.0),
    "scattered": (1.0, DEVIATION),
}
"""Factor and noise of estimates: robots take 30% less than their profile says, 30% more, or scatter by 30%."""
TOLERANCE = 0.1
"""Closed-loop waiting may exceed that of an exact profile by this share."""


def measure_closed_loop(
    seeds: Sequence[int], *, workload: str = "wid2", duration_s: float = 300.0, discipline: str = "timely"
) -> dict[str, Any]:
    """Mean waiting time a task (seconds, completion minus execution), over all tasks of all seeds.

    ``waiting_s`` is of the case in which the closed loop does worst; ``cases`` has all cases.
    ``between_segments_s`` is the waiting after a plan's first segment, the part that a wrong execution time changes.
    """
    jobs: dict[str, list[Any]] = {}
    for seed in seeds:
        trace = compose_workload(workload, seed, duration_s=duration_s)
        tasks = [replay_task_from_job(job, trace.header.network_s) for job in trace.jobs]
        for name, options in _closed_loop_runs(discipline, seed).items():
            jobs.setdefault(name, []).extend(replay_through_engine(tasks, options)["jobs"])
    waiting_s = {
        name: _mean_closed_loop_wait_s(rows, lambda job: job["waiting_time_s"]) for name, rows in jobs.items()
    }
    between_s = {
        name: _mean_closed_loop_wait_s(rows, lambda job: job["waiting_time_s"] - job["response_time_s"])
        for name, rows in jobs.items()
    }
    cases: dict[str, dict[str, Any]] = {}
    for case in CASES:
        names = {"perfect": "perfect", "closed": f"{case} closed", "open": f"{case} open"}
        cases[case] = {
            "waiting_s": {loop: round(waiting_s[name], 6) for loop, name in names.items()},
            "between_segments_s": {loop: round(between_s[name], 6) for loop, name in names.items()},
            "closed_over_perfect": round(waiting_s[f"{case} closed"] / waiting_s["perfect"], 4),
            "open_over_perfect": round(waiting_s[f"{case} open"] / waiting_s["perfect"], 4),
        }
    worst = max(cases, key=lambda case: float(cases[case]["closed_over_perfect"]))
    return {
        "workload": workload,
        "discipline": discipline,
        "seeds": list(seeds),
        "tasks": len(jobs["perfect"]),
        "off": DEVIATION,
        "case": worst,
        "waiting_s": cases[worst]["waiting_s"],
        "within_10_percent": cases[worst]["closed_over_perfect"] <= 1.0 + TOLERANCE,
        "cases": cases,
    }


def _closed_loop_runs(discipline: str, seed: int) -> dict[str, ReplayOptions]:
    exact = ReplayOptions(discipline=discipline, seed=seed, journal=False)
    runs = {"perfect": exact}
    for case, (factor, noise) in CASES.items():
        wrong = replace(exact, estimate_factor=factor, estimate_noise=noise)
        runs |= {f"{case} closed": wrong, f"{case} open": replace(wrong, closed_loop=False)}
    return runs


def _mean_closed_loop_wait_s(
    jobs: Sequence[Mapping[str, Any]], wait_s: Callable[[Mapping[str, Any]], float]
) -> float:
    """Mean over the tasks with a segment, seconds."""
    waits_s = [wait_s(job) for job in jobs if job["waiting_time_s"] is not None]
    return math.fsum(waits_s) / len(waits_s)
