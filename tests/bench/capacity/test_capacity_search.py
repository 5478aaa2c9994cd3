"""The search finds the load at which a curve crosses a target, and each system gets the token budget that suits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from timely.bench.capacity import search
from timely.bench.capacity.report import best_rival_ratio, measure_capacity
from timely.bench.capacity.search import COARSE, FINE, CapacityRun, LoadGrid, search_loads
from timely.bench.checkpoints import Checkpoints


def run_search(grid: LoadGrid, share: Callable[[float], float | None]) -> tuple[dict[Any, float], int]:
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
            return end.value, count


@pytest.mark.parametrize("grid", [COARSE, FINE])
@pytest.mark.parametrize("slope", [0.3, 0.02, 0.004])
def test_the_crossing_of_a_falling_share(grid: LoadGrid, slope: float) -> None:
    loads, count = run_search(grid, lambda load: max(0.0, 1.0 - slope * load))
    assert loads["urgent", 0.99] == pytest.approx(min(64.0, max(0.01 / slope, 0.0)), rel=1e-3, abs=1e-4) or (
        0.01 / slope < 1 / 16 and loads["urgent", 0.99] == 0.0
    )
    assert loads["urgent", 0.90] == pytest.approx(0.1 / slope, rel=1e-3)
    assert count <= 6 + 2 * 12, "more points than bisection needs"


def test_loads_beyond_the_grid() -> None:
    assert run_search(COARSE, lambda load: 1.0)[0]["urgent", 0.99] == 64.0
    assert run_search(COARSE, lambda load: 0.5)[0]["urgent", 0.90] == 0.0


def test_without_urgent_tasks_all_count() -> None:
    loads, _ = run_search(COARSE, lambda load: None)
    assert set(loads) == {("all", 0.90), ("all", 0.99)}
    assert loads["all", 0.99] == pytest.approx(10.0, rel=1e-3)


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
    checkpoints = Checkpoints()

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
