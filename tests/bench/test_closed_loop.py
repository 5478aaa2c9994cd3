"""What reports are worth: the comparison adds up, reports help, and the command writes what automation reads."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from lrtrace.compose.composition import compose_workload
from timely.bench.closed_loop import CASES, _closed_loop_runs, measure_closed_loop
from timely.cli.main import run_timely_command
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.robot_pace import EngineRobotPaces
from timely.replay.results import replay_result_hash
from timely.replay.run import replay_through_engine
from timely.replay.trace import replay_task_from_job


@pytest.mark.process
def test_reports_make_up_for_a_wrong_profile() -> None:
    result = measure_closed_loop([1], duration_s=60.0)
    assert result["tasks"] > 50
    faster = result["cases"]["faster"]
    assert faster["open_over_perfect"] > 1.05, (
        "a profile that is 30% too long must cost something in open loop"
    )
    assert faster["closed_over_perfect"] < 0.5 * (1.0 + faster["open_over_perfect"])
    assert result["within_10_percent"]
    for case in CASES:
        for kind in ("perfect", "closed", "open"):
            waiting, between = (
                result["cases"][case][name][kind] for name in ("waiting_s", "between_segments_s")
            )
            assert 0.0 <= between <= waiting
    worst = max(result["cases"].values(), key=lambda case: case["closed_over_perfect"])
    assert result["waiting_s"] == worst["waiting_s"]


def test_robots_are_faster_slower_and_scattered_by_the_share_that_is_named() -> None:
    task = PlannedTask(1, 0.0, (PlannedSegment("mf(100);", 5, 3.0),) * 1000, 10)
    for name, options in _closed_loop_runs("timely", 1).items():
        estimates = ReplayEstimates(options)
        shares = [part.execution_s / estimates.estimate_s(task, k) for k, part in enumerate(task.plan)]
        case, _, loop = name.partition(" ")
        assert options.closed_loop == (loop != "open")
        mean, spread = {"faster": (0.7, 0.0), "slower": (1.3, 0.0), "scattered": (1.0, 0.3)}.get(
            case, (1.0, 0.0)
        )
        assert statistics.median(shares) == pytest.approx(mean, rel=0.05)
        assert statistics.pstdev(map(math.log, shares)) == pytest.approx(spread, rel=0.1, abs=1e-9)


@pytest.mark.process
def test_what_robots_taught_helps_their_next_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """On WID 1 each plan is short, and begins with the wrong estimate again unless the robot's pace is kept."""
    kept = measure_closed_loop([1], workload="wid1", duration_s=120.0)
    monkeypatch.setattr(EngineRobotPaces, "of", lambda self, agent, text: 1.0)
    forgotten = measure_closed_loop([1], workload="wid1", duration_s=120.0)
    assert kept["cases"]["faster"]["closed_over_perfect"] < 1.05
    assert forgotten["cases"]["faster"]["closed_over_perfect"] > 1.05
    for case in CASES:
        assert kept["cases"][case]["waiting_s"]["open"] == forgotten["cases"][case]["waiting_s"]["open"]


@pytest.mark.parametrize("workload", ["wid1", "wid2", "wid3"])
@pytest.mark.parametrize("discipline", ["timely", "pud"])
def test_exact_profiles_give_what_they_gave_without_paces_to_the_bit(
    workload: str, discipline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a skill's time is drawn: schedulers plan with its minimum, and a branch not taken teaches nothing."""
    composed = compose_workload(workload, 3, duration_s=15.0)
    tasks = [replay_task_from_job(job, composed.header.network_s) for job in composed.jobs]
    options = ReplayOptions(discipline=discipline, seed=3)
    assert any(
        segment.estimate_s not in (None, segment.execution_s) for task in tasks for segment in task.plan
    )
    paced = replay_result_hash(replay_through_engine(tasks, options))
    monkeypatch.setattr(EngineRobotPaces, "of", lambda self, agent, text: 1.0)
    assert paced == replay_result_hash(replay_through_engine(tasks, options))


def test_a_discipline_that_does_not_park_does_not_care() -> None:
    result = measure_closed_loop([1], duration_s=30.0, discipline="fcfs")
    assert all(
        case["closed_over_perfect"] == case["open_over_perfect"] == 1.0 for case in result["cases"].values()
    )


def test_the_command_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert (
        run_timely_command(["bench", "closed-loop", "--seeds", "1", "--seconds", "20", "--json", str(file)])
        == 0
    )
    result = json.loads(file.read_text())
    assert set(result["waiting_s"]) == {"perfect", "closed", "open"}
    assert "faster" in capsys.readouterr().out
