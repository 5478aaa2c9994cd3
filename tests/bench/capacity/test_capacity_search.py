"""The search finds the load at which a curve crosses a target, and each system gets the token budget that suits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from timely.bench.capacity import search
from timely.bench.capacity.report import best_rival_ratio, measure_capacity
from timely.bench.capacity.search import (
    COARSE,
    FINE,
    CapacityLoadGrid,
    CapacityRun,
    search_budget,
    search_loads,
)
from timely.bench.checkpoints import BenchCheckpoints


def run_search(
    grid: CapacityLoadGrid, share: Callable[[float], float | None]
) -> tuple[dict[Any, float], int]:
    """The loads found, and how many points that took."""
    searching = search_loads(grid)
    place, count = next(searching), 0
    while True:
        count += 1
        load = grid.load(place)
        point = {"urgent": share(load), "all": max(0.0, 1.0 - 0.001 * load)}
        try:
            place = searching.send(point)
        except StopIteration as end:
            return end.value[0], count


@pytest.mark.parametrize("grid", [COARSE, FINE])
@pytest.mark.parametrize("slope", [0.3, 0.02, 0.004])
def test_the_crossing_of_a_falling_share(grid: CapacityLoadGrid, slope: float) -> None:
    loads, count = run_search(grid, lambda load: max(0.0, 1.0 - slope * load))
    assert loads["urgent", 0.99] == pytest.approx(min(64.0, max(0.01 / slope, 0.0)), rel=1e-3, abs=1e-4) or (
        0.01 / slope < 1 / 16 and loads["urgent", 0.99] == 0.0
    )
    assert loads["urgent", 0.90] == pytest.approx(0.1 / slope, rel=1e-3)
    assert count <= 6 + 2 * 12, "more points than bisection needs"


def test_loads_beyond_the_grid() -> None:
    assert run_search(COARSE, lambda load: 1.0)[0]["urgent", 0.99] == COARSE.load(COARSE.highest)
    assert run_search(COARSE, lambda load: 0.5)[0]["urgent", 0.90] == 0.0


def test_without_urgent_tasks_all_count() -> None:
    loads, _ = run_search(COARSE, lambda load: None)
    assert set(loads) == {("all", 0.90), ("all", 0.99)}
    assert loads["all", 0.99] == pytest.approx(10.0, rel=1e-3)


Shares = Callable[[int, int, float], "tuple[float | None, float]"]
"""The shares of urgent and of all tasks in time, by token budget, seed and load."""


def run_budget_search(shares: Shares, seeds: list[int]) -> tuple[int, dict[int, int]]:
    """The budget that is chosen, and how many points each one took."""
    searching = search_budget(COARSE, seeds)
    variant, counts = next(searching), dict.fromkeys(search.TOKEN_BUDGETS, 0)
    while True:
        budget, seed, place = variant
        counts[budget] += 1
        urgent, every = shares(budget, seed, COARSE.load(place))
        try:
            variant = searching.send({"urgent": urgent, "all": every})
        except StopIteration as end:
            return end.value, counts


def test_the_budget_that_bears_the_highest_load_at_99_percent() -> None:
    def shares(budget: int, seed: int, load: float) -> tuple[float, float]:
        """256 is the last to fall below 99%, and falls furthest: at load 8 it has fewer in time than 512."""
        if budget == 256:
            return (0.995 if load < 6.0 else 0.5), 0.5
        return max(0.0, 1.0 - 0.005 * load), 0.9

    assert run_budget_search(shares, [1, 2])[0] == 256


def test_the_mean_over_the_seeds_decides() -> None:
    def shares(budget: int, seed: int, load: float) -> tuple[float, float]:
        """512 is best on seed 1; 2,048 on seed 2, by more."""
        slope = {(512, 1): 0.004, (2048, 2): 0.001}.get((budget, seed), 0.005)
        return 1.0 - slope * load, 1.0 - slope * load

    assert run_budget_search(shares, [1, 2])[0] == 2048
    assert run_budget_search(shares, [1])[0] == 512


def test_a_budget_that_cannot_win_takes_one_point_a_seed() -> None:
    def shares(budget: int, seed: int, load: float) -> tuple[float, float]:
        slope = 0.002 if budget == 256 else 0.2
        return max(0.0, 1.0 - slope * load), 1.0

    best, counts = run_budget_search(shares, [1, 2, 3])
    assert best == 256
    assert counts[512] == counts[2048] == 3


@pytest.mark.parametrize("urgent", [True, False])
def test_equal_budgets_are_decided_by_the_next_reported_load(urgent: bool) -> None:
    def by_90(budget: int, seed: int, load: float) -> tuple[float | None, float]:
        """No budget keeps 99% at any load, and 512 keeps 90% for longest."""
        share = max(0.0, 0.98 - (0.01 if budget == 512 else 0.02) * load)
        return (share if urgent else None), share

    assert run_budget_search(by_90, [1, 2])[0] == 512


def test_equal_budgets_of_urgent_tasks_are_decided_by_all_and_then_by_size() -> None:
    assert run_budget_search(lambda budget, seed, load: (0.0, 1.0 - 1e-6 * budget * load), [1])[0] == 256
    assert run_budget_search(lambda budget, seed, load: (0.0, 0.0), [1])[0] == 2048


def pretended_point(
    workload: str, system: str, token_budget: int, seed: int, load: float, profile: str, quick: int, data: str
) -> dict[str, Any]:
    """``timely`` bears more than ``vllm``, most with 512 tokens."""
    slope = {"timely": 0.002, "vllm": 0.004}[system] * (1.0 if token_budget == 512 else 2.0)
    share = max(0.0, 1.0 - slope * load * (1.0 + 0.1 * (seed % 10)))
    others = {"utility_urgent": share, "utility_all": share, "served": 1.0, "waiting_s": 0.1}
    return {"tasks": 100, "urgent": share, "all": share, **others}


def test_systems_are_tuned_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "measure_capacity_point", pretended_point)
    checkpoints = BenchCheckpoints()

    def run(workload: str) -> CapacityRun:
        return CapacityRun(workload, ["timely", "vllm"], [1, 2], "any", checkpoints, quick=True)

    lines: list[str] = []
    rows = measure_capacity(["wid2"], run, lines.append)["wid2"]
    assert {row["token_budget"] for row in rows.values()} == {512}
    assert rows["timely"]["load_99"] == pytest.approx(2.0 * rows["vllm"]["load_99"], rel=0.01)
    assert rows["timely"]["robots_99"] == pytest.approx(42 * rows["timely"]["load_99"], abs=0.1)
    low, high = rows["timely"]["interval_99"]
    assert low <= rows["timely"]["load_99"] <= high
    assert rows["timely"]["common_load"] <= rows["timely"]["load_99"]
    assert rows["vllm"]["beside"]["urgent"] < rows["timely"]["beside"]["urgent"]
    (first, most), *_, (last, least) = rows["vllm"]["curve"]
    assert first < rows["vllm"]["load_99"] < rows["vllm"]["load_90"] < last
    assert least < 0.9 < most
    assert most > 0.99
    best = best_rival_ratio(rows)
    assert best is not None
    ratio, rival = best
    assert ratio == pytest.approx(2.0, rel=0.01)
    assert rival == "vllm"
    assert lines == [f"wid2: timely carries {rows['timely']['robots_99']:.0f} robots"]


def test_a_rival_is_another_projects_system_and_bears_the_lowest_load() -> None:
    loads = {"timely": 6.0, "timely-jump-ahead": 9.0, "weighted-tardiness": 7.0, "vllm": 0.01}
    rows = {name: {"load_99": load, "all_90": 8.0} for name, load in loads.items()}
    assert best_rival_ratio(rows) is None
    assert best_rival_ratio({**rows, "jitserve": {"load_99": 2.0}}) == (3.0, "jitserve")
    assert best_rival_ratio(rows, load="all_90") == (1.0, "vllm")
