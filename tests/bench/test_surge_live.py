"""A live server under three times what its engine bears, and the figures of its tasks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from manual_clock import LeapingClock

from timely.bench import surge_live
from timely.bench.process_memory import resident_memory_mb
from timely.bench.surge_live import (
    LiveSurgeBench,
    SurgeBenchArrival,
    live_eta_result,
    live_surge_arrivals,
    live_surge_result,
    measure_live_surge,
    scale_utility,
)
from timely.cli.main import run_timely_command
from timely.core.errors import EngineFailed
from timely.core.utility import NORMAL, URGENT

PHASE_S = surge_live.PHASE_S


@pytest.mark.process
async def test_an_overloaded_server_refuses_with_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surge_live, "BUSY_ROBOTS", 16)
    monkeypatch.setattr(surge_live, "BUSY_S", 3.0)
    monkeypatch.setattr(surge_live, "PHASE_S", 2.0)
    # An overload also where the machine was busier while it was measured what the engine bears.
    monkeypatch.setattr(surge_live, "HIGH_SHARE", 6.0)
    # Some tasks are in time also where the machine was less busy while the server was idle.
    monkeypatch.setattr(surge_live, "ALONE_FACTOR", 8.0)
    monkeypatch.setattr(surge_live, "URGENT_ERT_S", 60.0)
    lines: list[str] = []
    result = await measure_live_surge(
        tmp_path, "scripted", 0.1, 1, lines.append, arguments=("--predictor", "none")
    )
    assert len(lines) == 1
    assert "tasks a second" in lines[0]
    assert result["tasks"] > 2.0 * result["bears_per_s"]
    assert 0.0 < result["refused"] < 1.0
    assert result["refused_with_eta"] == 1.0
    assert 0.0 <= result["violations"] < 1.0
    assert result["eta"]["tasks"] > 0.0 < result["eta"]["error_p90"]
    assert result["memory_mb"]["after"] >= 0.5 * result["memory_mb"]["before"] > 0.0


@pytest.mark.process
async def test_an_engine_too_slow_for_urgent_tasks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surge_live, "ALONE_FACTOR", 1000.0)
    with pytest.raises(EngineFailed, match="idle server"):
        await measure_live_surge(tmp_path, "scripted", 0.1, 1, arguments=("--predictor", "none"))


async def test_what_an_engine_bears_where_no_plan_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = None
    clock = LeapingClock(5.0)
    monkeypatch.setattr(surge_live, "BUSY_ROBOTS", 8)
    monkeypatch.setattr(surge_live, "BUSY_S", 10.0)
    # The clock lets one plan end after the other: so many seconds a plan.
    for plan_s, rate in ((20.0, 1 / 20.0), (3.0, 3 / 10.0)):

        async def perform(*_: object, plan_s: float = plan_s) -> None:
            await asyncio.sleep(0)
            await clock.sleep(plan_s)

        bench = LiveSurgeBench(client, 0, clock, print)
        bench._round_trips_s.append(0.01)
        monkeypatch.setattr(bench, "_perform", perform)
        assert await bench._tasks_per_s() == pytest.approx(rate)


def test_rates_change_with_the_phase() -> None:
    arrivals = list(live_surge_arrivals(10.0, 10 * PHASE_S, URGENT, 3))
    counts = [0, 0]
    for arrival in arrivals:
        counts[int(arrival.arrival_s // PHASE_S % 2)] += 1
    low, high = (count / (5 * PHASE_S) for count in counts)
    assert low == pytest.approx(7.5, rel=0.1)
    assert high == pytest.approx(30.0, rel=0.1)
    urgent = sum(arrival.utility.urgent for arrival in arrivals)
    assert urgent == pytest.approx(0.25 * len(arrivals), rel=0.1)
    assert arrivals == list(live_surge_arrivals(10.0, 10 * PHASE_S, URGENT, 3))


def test_deadlines_grow_with_the_machine() -> None:
    slow = scale_utility(NORMAL, 2.0)
    assert (slow.ert_s, slow.cutoff_s, slow.beta) == (2.0 * NORMAL.ert_s, 2.0 * NORMAL.cutoff_s, NORMAL.beta)


def test_the_figures_of_a_surge() -> None:
    arrivals = [
        SurgeBenchArrival(1.0, URGENT, response_s=URGENT.ert_s + 0.1),
        SurgeBenchArrival(2.0, URGENT, response_s=URGENT.ert_s),
        SurgeBenchArrival(3.0, NORMAL, response_s=0.5),
        SurgeBenchArrival(PHASE_S + 1.0, NORMAL, eta_s=4.0),
        SurgeBenchArrival(PHASE_S + 2.0, NORMAL, lag_s=0.25),
        SurgeBenchArrival(2.0 * PHASE_S + 5.0, NORMAL, response_s=NORMAL.ert_s + 1.0),
    ]
    assert live_surge_result(arrivals, PHASE_S) == {
        "urgent_violations": 0.5,
        "violations": 0.5,
        "refused_with_eta": 0.5,
        "refused": 0.333333,
        "tasks": 6,
        "urgent_tasks": 2,
        "recovery_s": 5.0,
        "client_lag_s": 0.25,
    }


def test_the_error_of_predictions_is_that_of_admitted_tasks() -> None:
    arrivals = [
        SurgeBenchArrival(1.0, URGENT, response_s=0.3, eta_s=0.3, ready_s=0.2),
        SurgeBenchArrival(2.0, NORMAL, response_s=1.1, eta_s=0.5, ready_s=1.0),
        SurgeBenchArrival(3.0, NORMAL, eta_s=4.0),
        SurgeBenchArrival(5.0, NORMAL, response_s=1.1, ready_s=1.0),
    ]
    result = live_eta_result(arrivals)
    assert (result["tasks"], result["error_p50"]) == (2, 0.5)
    assert (result["urgent"]["error_p90"], result["normal"]["tasks"]) == (0.5, 1)


def test_memory_of_a_process() -> None:
    assert 5.0 < resident_memory_mb(os.getpid()) < 100_000.0


def test_an_unknown_engine_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command(["bench", "surge", "--live", "steam"]) == 2
    complaint = capsys.readouterr().err
    assert "steam" in complaint
    assert "scripted" in complaint
