"""Load scales robots and events alike; chats do not scale; a task is in time by its expected response time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lrtrace.errors import BadInput
from timely.bench.capacity import search, workloads
from timely.bench.capacity.forced_tokens import bench_forced_tokens
from timely.bench.capacity.lengths import MAX_ANSWER_TOKENS
from timely.bench.capacity.measure import (
    CAPACITY_SYSTEMS,
    capacity_point,
    is_bench_task_in_time,
    measure_capacity_point,
)
from timely.bench.capacity.workloads import CAPACITY_WORKLOADS, capacity_tasks, public_capacity_requests
from timely.bench.papers import plots
from timely.cli.main import run_timely_command
from timely.engines.replay_types import JobRecord


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "QUICK_POINT_TASKS", 40)
    monkeypatch.setattr(workloads, "QUICK_MIN_S", 12.0)


@pytest.mark.parametrize("name", CAPACITY_WORKLOADS)
def test_tasks_are_in_order_with_names_of_their_own(name: str) -> None:
    tasks = capacity_tasks(name, 2.0, 3, quick=True)
    assert tasks == capacity_tasks(name, 2.0, 3, quick=True)
    assert [task.arrival_s for task in tasks] == sorted(task.arrival_s for task in tasks)
    assert len({task.job for task in tasks}) == len(tasks)
    robots = {(task.robot, task.hints.agent) for task in tasks if not task.plain}
    assert len(robots) <= 2.0 * CAPACITY_WORKLOADS[name].robots + 3


@pytest.mark.parametrize("name", CAPACITY_WORKLOADS)
def test_four_times_the_load_is_four_times_the_tasks_a_second(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "QUICK_MIN_S", 60.0)
    workload = CAPACITY_WORKLOADS[name]
    tasks = [task for task in capacity_tasks(name, 4.0, 2, quick=True) if not (workload.chats and task.plain)]
    tasks_per_s = len(tasks) / workload.seconds(4.0, quick=True)
    # With few events of many tasks each the number scatters.
    assert tasks_per_s == pytest.approx(4.0 * workload.tasks_per_s, rel=0.4)


def test_chats_do_not_scale_with_the_robots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "QUICK_MIN_S", 100.0)
    low, high = (
        [task for task in capacity_tasks("robots-and-chat", load, 1, quick=True) if task.plain]
        for load in (1.0, 2.0)
    )
    assert low == high
    prompt_tokens_per_s = sum(task.prompt_tokens for task in low) / 100.0
    assert prompt_tokens_per_s == pytest.approx(workloads.CHAT_PROMPT_TOKENS_PER_S, rel=0.3)


@pytest.mark.parametrize("name", ["wid1", "wid3", "mixed-fleet", "robots-and-chat"])
def test_every_composed_plan_has_its_forced_tokens(name: str) -> None:
    tasks = capacity_tasks(name, 4.0, 1, quick=True)
    drafted = bench_forced_tokens(tasks)
    assert [replace(task, plan=()) for task in drafted] == [replace(task, plan=()) for task in tasks]
    skill_sets = set()
    for task in drafted:
        for segment in task.plan:
            if task.skill_set in ("drone", "arm"):
                assert len(segment.forced) == segment.tokens
                skill_sets.add(task.skill_set)
            else:
                assert not segment.forced
    shares = {
        skill_set: [
            sum(segment.forced) / segment.tokens
            for task in drafted
            if task.skill_set == skill_set
            for segment in task.plan
        ]
        for skill_set in skill_sets
    }
    assert all(0.2 < sum(each) / len(each) < 0.5 for each in shares.values())


@pytest.mark.process
def test_jumping_ahead_saves_steps_and_loses_no_task() -> None:
    plain, ahead = (
        measure_capacity_point("wid3", system, 512, 1, 20.0, "rtx4090-llama3-8b", 1, "")
        for system in ("timely", "timely-jump-ahead")
    )
    assert ahead["tasks"] == plain["tasks"]
    assert ahead["served"] == plain["served"] == 1.0
    assert ahead["waiting_s"] < 0.9 * plain["waiting_s"]


def test_chats_of_a_public_trace(tmp_path: Path) -> None:
    file = tmp_path / "mooncake" / "conversation_trace.jsonl"
    file.parent.mkdir()
    rows = [{"timestamp": 500 * n, "input_length": 1000, "output_length": 5000} for n in range(400)]
    rows[7]["input_length"] = 9000
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = capacity_tasks("robots-and-mooncake", 1.0, 1, quick=True, data=str(tmp_path))
    chats = [task for task in tasks if task.plain]
    assert {task.prompt_tokens for task in chats} == {1000}
    assert {task.output_tokens for task in chats} == {MAX_ANSWER_TOKENS}
    assert len(chats) == pytest.approx(CAPACITY_WORKLOADS["wid2"].seconds(1.0, quick=True) * 2, abs=2)
    with pytest.raises(BadInput, match=r"conversation_trace\.jsonl"):
        capacity_tasks("robots-and-mooncake", 1.0, 1, quick=True, data=str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("name", "prompt", "answer", "dispersion"),
    [("robots-and-azure", 1154.0, 211.1, 2.0), ("robots-and-mooncake", 3345.9, 326.4, 1.4)],
)
def test_chats_made_up_like_a_public_trace(
    name: str, prompt: float, answer: float, dispersion: float
) -> None:
    """Means of the whole trace, and the variance over the mean of its requests in 10 s, as scaled."""
    pieces = [public_capacity_requests(name, "", seed, 1200.0) for seed in range(20)]
    assert pieces[3] == public_capacity_requests(name, "", 3, 1200.0)
    assert pieces[3] != pieces[4]
    for piece in pieces:
        assert [time_s for time_s, _, _ in piece] == sorted(time_s for time_s, _, _ in piece)
        assert all(0.0 <= time_s < 1200.0 for time_s, _, _ in piece)
    requests = np.array([request for piece in pieces for request in piece])
    assert requests[:, 1].mean() == pytest.approx(prompt, rel=0.03)
    assert requests[:, 2].mean() == pytest.approx(answer, rel=0.03)
    assert requests[:, 1].sum() / 24000.0 == pytest.approx(workloads.CHAT_PROMPT_TOKENS_PER_S, rel=0.05)
    counts = np.array(
        [
            np.histogram([time_s for time_s, _, _ in piece], bins=120, range=(0.0, 1200.0))[0]
            for piece in pieces
        ]
    )
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.2)


def test_in_time_is_the_first_action_or_the_first_token_of_a_chat() -> None:
    tasks = capacity_tasks("robots-and-chat", 1.0, 1, quick=True)
    robot = JobRecord(next(task for task in tasks if task.hints.utility.urgent))
    assert not is_bench_task_in_time(robot), "a task that never began counts as late"
    robot.first_token_s = robot.arrived_s + 0.05
    robot.start_s, robot.end_s = [robot.arrived_s + 0.19], [robot.arrived_s + 1.0]
    assert is_bench_task_in_time(robot)
    late = replace(robot, start_s=[robot.arrived_s + 0.21])
    assert not is_bench_task_in_time(late)
    chat = JobRecord(next(task for task in tasks if task.plain))
    chat.first_token_s = chat.arrived_s + 0.9
    assert is_bench_task_in_time(chat)
    point = capacity_point([robot, late, chat], 10.0)
    assert (point["urgent"], point["all"], point["served"]) == (0.5, pytest.approx(2 / 3), 0.0)
    assert math.isfinite(point["waiting_s"])


@pytest.mark.parametrize("system", [*CAPACITY_SYSTEMS, "srjf"])  # any discipline is a system
def test_every_system_serves_all_of_a_low_load(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "QUICK_POINT_TASKS", 15)
    monkeypatch.setattr(workloads, "QUICK_MIN_S", 4.0)
    point = measure_capacity_point("robots-and-chat", system, 512, 1, 0.5, "rtx4090-llama3-8b", 1, "")
    assert point["served"] == 1.0
    assert 0.0 <= point["urgent"] <= 1.0


@pytest.mark.process
def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "can_plot_papers", lambda: False)
    monkeypatch.setattr(search, "HALVINGS", 1)
    monkeypatch.setattr(search, "DOUBLINGS", 1)
    monkeypatch.setattr(search, "TUNING_SEEDS", (1001,))
    target = tmp_path / "capacity.json"
    options = [
        "--quick",
        "--seeds",
        "1",
        "--systems",
        "timely,vllm",
        "--workloads",
        "wid1",
        "--profile",
        "unit",
    ]
    assert (
        run_timely_command(
            ["bench", "capacity", *options, "--json", str(target), "--out", str(tmp_path / "plots")]
        )
        == 0
    )
    result = json.loads(target.read_text())
    for row in result["workloads"]["wid1"].values():
        assert {"load_90", "load_99", "robots_99", "interval_99", "beside"} <= set(row)
    assert "no other system carries any" in capsys.readouterr().out
    assert run_timely_command(["bench", "capacity", "--workloads", "wid9"]) == 2
    assert "unknown workload 'wid9'" in capsys.readouterr().err
    assert run_timely_command(["bench", "capacity", "--systems", "fifo"]) == 2
    assert "unknown system 'fifo'" in capsys.readouterr().err
