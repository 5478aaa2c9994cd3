"""The speed measurement measures: its fields are there and say what they say; memory stays small, steps cost alike."""

from __future__ import annotations

import itertools
from cProfile import Profile

import pytest

from timely.bench.sim_speed import _speed_bench_curve, measure_sim_speed, sim_speed_bench_text


def test_curve_is_time_per_step_in_each_tenth() -> None:
    samples = [(100 * k, 0.01 * k) for k in range(101)]
    assert _speed_bench_curve(samples) == pytest.approx([100.0] * 10)
    assert _speed_bench_curve([(0, 0.0)]) == []


def test_the_curve_is_shown() -> None:
    page = sim_speed_bench_text(
        {
            "discipline": "timely", "wid2_s": 300.0, "wid2_wall_s": 0.25, "wid2_times_real_time": 1200.0,
            "fleet_robots": 1000, "fleet_s": 3600.0, "fleet_jobs": 60_000, "fleet_steps": 10, "fleet_wall_s": 90.0,
            "fleet_peak_mb": 500.0, "fleet_step_us": [50.0, 100.0],
        }
    )  # fmt: skip
    assert "1,200 times real time" in page
    assert page.splitlines()[-2:] == [f"   10%     50.0  {'#' * 20}", f"   20%    100.0  {'#' * 40}"]


class Calls(Profile):
    """A clock that counts the calls of Python functions, and their ends: work, whatever else the machine does."""

    def __init__(self) -> None:
        self._count = itertools.count()
        super().__init__(self._count.__next__, 1e-6, subcalls=False, builtins=False)

    def now_s(self) -> float:
        return 1e-6 * next(self._count)


@pytest.mark.process
def test_a_step_costs_at_the_end_what_it_cost_at_the_beginning() -> None:
    with Calls() as calls:
        result = measure_sim_speed(repetitions=1, robots=100, fleet_s=600.0, clock=calls.now_s)
    assert {"wid2_times_real_time", "fleet_wall_s", "fleet_peak_mb"} <= set(result)
    assert result["fleet_jobs"] > 800
    curve = result["fleet_step_us"]
    assert len(curve) == 10
    assert sum(curve[-3:]) < 1.2 * sum(curve[:3]), curve
