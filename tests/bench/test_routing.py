"""The search for the highest load, and the engines of a fleet."""

from __future__ import annotations

import pytest

from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.routing import (
    FIRST_PLACE,
    GRID,
    MOST_PLACES,
    UTILITY_SHARE,
    bench_fleet_profiles,
    highest_load,
    measure_routing,
    measure_routing_load,
)
from timely.engines.step_time.profile import StepTime, load_step_profile


@pytest.mark.parametrize("limit", [FIRST_PLACE - 11.3, FIRST_PLACE + 0.5, FIRST_PLACE + 17.8])
def test_the_search_finds_where_the_utility_falls_below_the_target(limit: float) -> None:
    places: list[int] = []

    def share(place: int) -> float:
        places.append(place)
        return UTILITY_SHARE + (limit - place) / 100

    load = highest_load(share, FIRST_PLACE)
    assert GRID.load(int(limit)) <= load <= GRID.load(int(limit) + 1)
    assert len(places) == len(set(places)) <= 9


def test_the_search_ends_at_the_bounds() -> None:
    assert highest_load(lambda place: 0.0, FIRST_PLACE) == 0.0
    assert highest_load(lambda place: 1.0, FIRST_PLACE) == GRID.load(FIRST_PLACE + MOST_PLACES - 1)


def test_every_second_engine_of_an_unequal_fleet_is_half_as_fast() -> None:
    profiles = bench_fleet_profiles(load_step_profile("rtx4090-llama3-8b"), 4, unequal=True)
    fast, slow, third, fourth = (StepTime(profile.step_s)(10, 1, 100, 1e4, 5000) for profile in profiles)
    assert (fast, slow) == (third, fourth)
    assert slow == pytest.approx(2.0 * fast)


def test_the_result_compares_with_the_best_other_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(workload: str, profile: str, fleet: str, count: int, router: str, seed: int) -> float:
        base = {"least-loss": 3.0, "round-robin": 2.0, "least-loaded": 2.4, "prefix-aware": 1.0}[router]
        return count * (base + (1.0 if router == "least-loss" and fleet == "unequal" else 0.0))

    monkeypatch.setattr("timely.bench.routing.measure_routing_load", load)
    result = measure_routing("wid2", [2, 4], [1, 2], "unit", BenchCheckpoints(), lambda line: None)
    assert result["engines"] == {"2": 1.25, "4": 1.25}
    assert result["fleets"]["equal"]["2"]["rival"] == "least-loaded"
    assert result["fleets"]["unequal"]["4"]["gain"] == pytest.approx(1.6667)
    assert measure_routing_load is not load
