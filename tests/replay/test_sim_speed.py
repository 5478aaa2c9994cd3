"""The speed measurement measures: its fields are there and say what they say; memory stays small, steps cost alike."""

from __future__ import annotations

import pytest

from timely.replay.speed import _curve, measure, text


def test_curve_is_time_per_step_in_each_tenth() -> None:
    samples = [(100 * k, 0.01 * k) for k in range(101)]
    assert _curve(samples) == pytest.approx([100.0] * 10)
    assert _curve([(0, 0.0)]) == []


def test_the_curve_is_shown() -> None:
    told = text(
        {
            "discipline": "timely", "wid2_s": 300.0, "wid2_wall_s": 0.25, "wid2_times_real_time": 1200.0,
            "fleet_robots": 1000, "fleet_s": 3600.0, "fleet_jobs": 60_000, "fleet_steps": 10, "fleet_wall_s": 90.0,
            "fleet_peak_mb": 500.0, "fleet_step_us": [50.0, 100.0],
        }
    )  # fmt: skip
    assert "1,200 times real time" in told
    assert told.splitlines()[-2:] == [f"   10%     50.0  {'#' * 20}", f"   20%    100.0  {'#' * 40}"]


@pytest.mark.slow
def test_a_small_fleet() -> None:
    result = measure(repetitions=1, robots=100, fleet_s=600.0)
    assert {"wid2_times_real_time", "fleet_wall_s", "fleet_peak_mb"} <= set(result)
    assert result["wid2_times_real_time"] > 100.0
    assert result["fleet_jobs"] > 800
    assert len(result["fleet_step_us"]) >= 5
    # Flat: the end of the run costs a step no more than its beginning, noise of a shared machine allowed for.
    assert result["fleet_step_us"][-1] < 4.0 * result["fleet_step_us"][0]
