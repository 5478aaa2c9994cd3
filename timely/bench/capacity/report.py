"""The result of a capacity measurement: loads with intervals, robots a machine, a comparison at one load, pictures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from timely.bench.capacity.search import FINE, TARGETS, CapacityLoadGrid, CapacityRun, CapacitySystemLoads
from timely.bench.capacity.workloads import find_capacity_workload
from timely.bench.papers import plots
from timely.bench.papers.seed_statistics import Interval, paper_mean, paper_range
from timely.core.progress import Say

HEADLINE_TARGET = 0.99

OURS = ("timely", "timely-jump-ahead", "weighted-tardiness")
"""Systems that are no rivals of each other."""

BESIDE = ("urgent", "all", "utility_urgent", "utility_all", "served", "waiting_s")
"""Measures of a point that are reported at the common load."""

Result = dict[str, Any]


def measure_capacity(
    workloads: Sequence[str], run: Callable[[str], CapacityRun], say: Say
) -> dict[str, dict[str, Result]]:
    """The capacity of each system on each workload, by workload and system.

    ``load_90`` and ``load_99`` are the highest loads with that share of the urgent tasks in time, means over the seeds.
    Where the workload has no urgent tasks, all tasks count. ``all_90`` and ``all_99`` are those of all tasks.
    ``curve`` holds (load, share in time) of that class, means over the seeds.
    ``interval_99`` is the 95% interval of ``load_99``, and ``robots_99`` its load in robots. ``beside`` holds the
    measures at ``common_load``, the highest load of the grid that the best system bears. ``token_budget`` was chosen
    for each system and workload (``CapacityRun.tune``).

    Raises:
        BenchOutOfTime: the budget of the checkpoints is used up.
    """
    results: dict[str, dict[str, Result]] = {}
    for name in workloads:
        search = run(name)
        budgets = search.tune()
        loads = search.search(budgets)
        rows = {system: _row(name, search.grid, of_system) for system, of_system in loads.items()}
        _add_common_load(search, rows, budgets)
        results[name] = rows
        best = max(rows, key=lambda system: float(rows[system]["load_99"]))
        say(f"{name}: {best} carries {rows[best]['robots_99']:.0f} robots")
    return results


def _row(workload: str, grid: CapacityLoadGrid, search: CapacitySystemLoads) -> Result:
    loads = search.loads
    robots = find_capacity_workload(workload).robots
    kind = "urgent" if any(key == "urgent" for key, _ in loads) else "all"
    row: Result = {"of": kind}
    for target in TARGETS:
        row[f"load_{target * 100:.0f}"] = round(paper_mean(loads[kind, target]), 4)
        row[f"all_{target * 100:.0f}"] = round(paper_mean(loads["all", target]), 4)
    mean, low, high = paper_range(loads[kind, HEADLINE_TARGET])
    row["interval_99"] = [round(max(0.0, low), 4), round(high, 4)]
    row["robots_99"] = round(mean * robots, 1)
    row["by_seed_99"] = [round(load, 4) for load in loads[kind, HEADLINE_TARGET]]
    row["curve"] = share_over_load(grid, [{at: p[kind] for at, p in seed.items()} for seed in search.points])
    return row


def share_over_load(
    grid: CapacityLoadGrid, shares: Sequence[Mapping[int, float]]
) -> list[tuple[float, float]]:
    """(load, mean share in time) at the places of the grid that every seed has measured on both sides.

    Args:
        grid: the loads.
        shares: of each seed, the share in time by place. Between two places it is interpolated.
    """
    first, last = max(map(min, shares)), min(map(max, shares))
    curves = [np.array(sorted(seed.items())).T for seed in shares]
    return [
        (grid.load(place), round(float(np.mean([np.interp(place, *curve) for curve in curves])), 4))
        for place in range(first, last + 1)
    ]


def _add_common_load(search: CapacityRun, rows: Mapping[str, Result], budgets: Mapping[str, int]) -> None:
    grid = search.grid
    best = max(float(row["load_99"]) for row in rows.values())
    place = grid.place(best)
    for system, row in rows.items():
        points = search.points([(system, budgets[system], seed, place) for seed in search.seeds])
        row["token_budget"] = budgets[system]
        row["common_load"] = grid.load(place)
        row["beside"] = {
            name: round(sum(point[name] for point in points) / len(points), 4)
            for name in BESIDE
            if all(point[name] is not None for point in points)
        }


def best_rival_ratio(
    rows: Mapping[str, Mapping[str, Any]], ours: str = "timely", load: str = "load_99"
) -> tuple[float, str] | None:
    """A load of ``ours`` over that of the best system of others, and its name; None if none bears the lowest load."""
    lowest = FINE.load(FINE.lowest)
    rivals = [name for name, row in rows.items() if name not in (ours, *OURS) and row[load] >= lowest]
    if ours not in rows or not rivals:
        return None
    rival = max(rivals, key=lambda name: float(rows[name][load]))
    return float(rows[ours][load]) / float(rows[rival][load]), rival


def owner_ratio(workload: str, rows: Mapping[str, Result]) -> tuple[float, str] | None:
    """``load_99`` of ``timely`` over that of the rival whose own workload it is, and its name; None without them."""
    owner = find_capacity_workload(workload).owner
    if "timely" not in rows or owner not in rows or float(rows[owner]["load_99"]) == 0.0:
        return None
    return float(rows["timely"]["load_99"]) / float(rows[owner]["load_99"]), owner


def robots_with_interval(workload: str, row: Mapping[str, Any]) -> Interval:
    """Robots at 99%, and the 95% interval over the seeds."""
    robots = find_capacity_workload(workload).robots
    low, high = row["interval_99"]
    return row["load_99"] * robots, low * robots, high * robots


def plot_capacity(results: Mapping[str, Mapping[str, Result]], folder: Path) -> None:
    """``capacity.png``: the robots that each system carries on each workload."""
    folder.mkdir(parents=True, exist_ok=True)
    systems = list(dict.fromkeys(system for rows in results.values() for system in rows))
    bars: dict[str, list[Interval | None]] = {system: [] for system in systems}
    for name, rows in results.items():
        for system in systems:
            bars[system].append(robots_with_interval(name, rows[system]) if system in rows else None)
    plots.paper_bars(
        folder / "capacity.png", "Robots a machine with 99% of the urgent tasks in time", list(results), bars,
        "robots",
    )  # fmt: skip
