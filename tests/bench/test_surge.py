"""Overload with admission by predicted response times, in the simulator."""

from __future__ import annotations

import pytest

from timely.bench import surge

PROFILE = "rtx4090-llama3-8b"
HOURS = 6.0 / 3600.0


@pytest.fixture(autouse=True)
def short_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases of a few seconds."""
    monkeypatch.setattr(surge, "PHASE_S", 2.0)


def test_every_refusal_names_a_time_and_admitted_tasks_are_late_less_often() -> None:
    result = surge.measure_surge(HOURS, 1, PROFILE)
    assert result["refused_with_eta"] == 1.0
    assert 0.0 < result["refused"] < 0.5
    assert result["violations"] < 0.5
    assert result["recovery_s"] <= surge.PHASE_S
    assert surge.measure_surge(HOURS / 2.0, 1, PROFILE)["recovery_s"] is None
    assert result == surge.measure_surge(HOURS, 1, PROFILE)


def test_the_error_of_predictions_is_that_of_the_tasks_that_were_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surge, "PROBE_EVERY", 3)
    result = surge.measure_eta(HOURS, 1, PROFILE)
    assert result["tasks"] == result["urgent"]["tasks"] + result["normal"]["tasks"]
    assert result["refusing"]["tasks"] < result["tasks"]
    assert result["refused"]["tasks"] == 0 < result["refusing"]["refused"]["tasks"]
    assert 0.0 < result["error_p50"] < result["error_p90"]
    assert result["urgent"]["error_p50"] < 0.5


def test_the_load_is_high_in_every_second_phase() -> None:
    arrivals = [task.arrival_s for task in surge.surge_tasks(60.0, 2)]
    high = sum(time_s // surge.PHASE_S % 2 for time_s in arrivals)
    assert high / (len(arrivals) - high) == pytest.approx(surge.HIGH_LOAD / surge.LOW_LOAD, rel=0.5)
