"""The simulator's speed: WID 2 against real time, a thousand robots for an hour, the cost of a step."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from lrtrace.compose.composition import compose_workload
from lrtrace.trace import write_trace
from timely.disciplines.registry import DEFAULT
from timely.engines.replay_types import ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.replay.results import build_replay_result
from timely.replay.trace import ReplayTasks

FLEET_ROBOTS = 1000
FLEET_S = 3600.0
FLEET_EPS = 3.7
"""Events a second, of 1 to 8 tasks each: a task a minute for each of the thousand robots, some 60,000 in all."""

REPETITIONS, SEED = 5, 1
CURVE_POINTS = 10


def measure_sim_speed(
    *,
    repetitions: int = REPETITIONS,
    robots: int = FLEET_ROBOTS,
    fleet_s: float = FLEET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Measure on this machine, one core; takes a minute or two.

    ``wid2_times_real_time`` is 300 s over the best time to read WID 2 from a file, simulate it and sum it up.
    ``fleet_wall_s`` is the time of one such run with ``robots`` robots for ``fleet_s`` seconds.
    ``fleet_peak_mb`` is the process's peak memory, MB.
    ``fleet_step_us`` is the wall time of a step in each tenth of that run, microseconds.

    Args:
        clock: seconds, rising; another measure of work, such as function calls, gives the curve without noise.
    """
    with tempfile.TemporaryDirectory() as folder:
        wid2 = Path(folder) / "wid2.lrtrace.jsonl"
        trace = compose_workload("wid2", SEED)
        write_trace(wid2, trace.header, trace.jobs)
        best = min(_replay_for_speed_bench(wid2, clock)[0] for _ in range(repetitions))
        fleet = Path(folder) / "fleet.lrtrace.jsonl"
        eps = FLEET_EPS * robots / FLEET_ROBOTS
        trace = compose_workload("wid1", SEED, agents=robots, eps=eps, duration_s=fleet_s)
        write_trace(fleet, trace.header, trace.jobs)
        wall_s, counters, curve = _replay_for_speed_bench(fleet, clock)
    return {
        "discipline": DEFAULT,
        "wid2_s": 300.0,
        "wid2_wall_s": round(best, 4),
        "wid2_times_real_time": round(300.0 / best, 1),
        "fleet_robots": robots,
        "fleet_s": fleet_s,
        "fleet_jobs": counters["jobs"],
        "fleet_steps": counters["steps"],
        "fleet_wall_s": round(wall_s, 2),
        "fleet_peak_mb": round(_speed_bench_peak_mb(), 1),
        "fleet_step_us": [round(value, 1) for value in curve],
    }


def sim_speed_bench_text(result: Mapping[str, Any]) -> str:
    """The measurement as text, with the cost of a step as a curve over the run."""
    curve = result["fleet_step_us"]
    most = max(curve, default=1.0)
    lines = [
        f"WID 2, {result['wid2_s']:.0f} s: {result['wid2_wall_s']:.3f} s,"
        f" {result['wid2_times_real_time']:,.0f} times real time ({result['discipline']})",
        f"{result['fleet_robots']:,} robots, {result['fleet_s']:,.0f} s, {result['fleet_jobs']:,} tasks,"
        f" {result['fleet_steps']:,} steps: {result['fleet_wall_s']:.1f} s, at most {result['fleet_peak_mb']:,.0f} MB",
        "cost of a step in each tenth of that run, microseconds:",
    ]
    lines += [
        f"  {tenth * 10:3d}%  {cost:7.1f}  {'#' * round(40 * cost / most)}"
        for tenth, cost in enumerate(curve, 1)
    ]
    return "\n".join(lines)


def _replay_for_speed_bench(
    path: Path, clock: Callable[[], float]
) -> tuple[float, dict[str, Any], list[float]]:
    options = ReplayOptions(discipline=DEFAULT)
    begin_s = clock()
    simulator = Simulator(options)
    samples = [(0, 0.0)]

    def progress(now: float, arrived_tasks: int, finished_tasks: int) -> None:
        samples.append((simulator.controller.steps, clock() - begin_s))

    run = simulator.run(ReplayTasks(path), progress)
    build_replay_result(run, options, engine="sim", trace=path.name, wall_s=0.0)
    wall_s = clock() - begin_s
    return wall_s, {"jobs": len(run.records), "steps": run.counters["steps"]}, _speed_bench_curve(samples)


def _speed_bench_curve(samples: list[tuple[int, float]]) -> list[float]:
    """Microseconds a step in each tenth of the steps."""
    total = samples[-1][0]
    if total == 0:
        return []

    def nearest(steps: float) -> tuple[int, float]:
        return min(samples, key=lambda sample: abs(sample[0] - steps))

    marks = [nearest(total * tenth / CURVE_POINTS) for tenth in range(CURVE_POINTS + 1)]
    return [
        1e6 * (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in pairwise(marks)
        if later[0] > earlier[0]
    ]


def _speed_bench_peak_mb() -> float:
    """Peak memory of this process, MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0 * 1024.0) if sys.platform == "darwin" else peak / 1024.0
