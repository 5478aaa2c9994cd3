"""The judge of whole runs: a good history has no violation, and each kind that is planted in one is seen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from timely_interfaces.msg import ErrorCode
from timely_ros_bench.faults.history import (
    FaultHistory,
    LeaseRecord,
    Silence,
    StopRecord,
    TaskRecord,
    judge_fault_history,
)
from timely_ros_bench.faults.judge import VIOLATIONS, FaultRobotMotion
from timely_ros_bench.faults.server_log import FaultServerLog
from timely_ros_bench.faults.tally import fault_bench_upper_bound

from examples import examples
from timely.core.record_log import RecordFile, record_log_line

SEEDS = range(examples(40))
ENDS = {"complete": 0, "failed": int(ErrorCode.DRIVER_LOST), "cancelled": int(ErrorCode.FLEET_STOPPED)}
STOPPED = "cancelled"


def good_history(rng: random.Random) -> FaultHistory:
    """Two robots with tasks one after the other: some complete, some fail, some are stopped, some lose their bridge."""
    history = FaultHistory()
    for robot in ("tello1", "sim1"):
        now_s, epoch, motions = rng.uniform(0.0, 10.0), 1, list[FaultRobotMotion]()
        history.leases.append(LeaseRecord(robot, now_s, "a-1"))
        for number in range(rng.randint(2, 6)):
            amount = 20 + 4 * number
            plan = [f"forward {amount}", f"cw {amount + 1}", f"back {amount + 2}", f"ccw {amount + 3}"]
            outcome = rng.choice(sorted(ENDS))
            whole = outcome == "complete"
            accepted_s = now_s
            moved = plan if whole else plan[: rng.randint(0, len(plan))]
            for what in moved:
                begin_s = now_s + rng.uniform(0.0, 1.0)
                now_s = begin_s + rng.uniform(0.5, 2.0)
                motions.append(FaultRobotMotion(what, begin_s, now_s))
            if moved and not whole:
                motions[-1] = replace(motions[-1], done=False)
            task = TaskRecord(
                f"{robot}-{number}", robot, plan, accepted_s, now_s, outcome, ENDS[outcome], bridge="a"
            )
            if rng.random() < 0.5:
                released_s = dict.fromkeys(range(len(plan)), accepted_s)
                task = replace(task, released_s=released_s, reported_segments=range(len(moved) - (not whole)))
            history.tasks.append(task)
            if outcome == STOPPED:
                history.stops.append(StopRecord(robot, now_s - 0.1, "halted", now_s + 2.0))
                now_s += 3.0
            elif outcome == "failed":
                silence_s = rng.uniform(1.0, 20.0)
                history.silences.append(Silence(robot, now_s, now_s + silence_s))
                now_s += silence_s
                epoch += 1
                history.leases.append(LeaseRecord(robot, now_s, f"a-{epoch}"))
            now_s += rng.uniform(1.0, 3.0)
        history.motions[robot] = motions
    return history


def moving_task(history: FaultHistory) -> TaskRecord:
    """A task whose first two motions began, with its robot's motions."""
    history.tasks.insert(
        0, TaskRecord("x", "arm1", ["move_to('cup')", "cw 90"], 1.0, 9.0, "complete", bridge="a")
    )
    history.leases.append(LeaseRecord("arm1", 0.0, "a-1"))
    history.motions["arm1"] = [
        FaultRobotMotion("move_to('cup')", 2.0, 3.0),
        FaultRobotMotion("cw 90", 4.0, 5.0),
    ]
    return history.tasks[0]


def arm_motions(history: FaultHistory) -> list[FaultRobotMotion]:
    motions = history.motions["arm1"]
    assert isinstance(motions, list)
    return motions


def plant_motion(history: FaultHistory, what: str, begin_s: float, seconds: float = 1.0) -> None:
    history.motions["arm1"] = [*history.motions["arm1"], FaultRobotMotion(what, begin_s, begin_s + seconds)]


def plant_end(history: FaultHistory, **changes: Any) -> None:
    history.tasks[0] = replace(history.tasks[0], **changes)


def fail_after_first_motion(history: FaultHistory) -> None:
    plant_end(history, outcome="failed", code=int(ErrorCode.DRIVER_LOST))
    arm_motions(history).pop()


def repeat_a_stopped_motion(history: FaultHistory) -> None:
    arm_motions(history).append(replace(arm_motions(history).pop(), done=False))
    plant_motion(history, "cw 90", 7.0)


def fail_after_false_report(history: FaultHistory) -> None:
    fail_after_first_motion(history)
    plant_end(history, reported_segments=[0, 1])


def move_through_a_stop(history: FaultHistory) -> None:
    history.stops.append(StopRecord("arm1", 6.0, "halted"))
    plant_motion(history, "cw 90", 5.5, 30.0)


PLANTS: dict[str, list[Callable[[FaultHistory], object]]] = {
    "lost": [lambda history: plant_end(history, outcome="", end_s=math.inf)],
    "untyped": [
        lambda history: plant_end(history, outcome="failed", code=0),
        lambda history: plant_end(history, outcome="lunch"),
        lambda history: plant_end(history, outcome="failed", code=int(ErrorCode.BRIDGE_INTERNAL)),
    ],
    "false_complete": [
        lambda history: arm_motions(history).pop(),
        lambda history: history.motions.update(arm1=[]),
        lambda history: arm_motions(history).append(replace(arm_motions(history).pop(), done=False)),
        fail_after_false_report,
    ],
    "repeated": [
        lambda history: plant_motion(history, "move_to('cup')", 6.0),
        lambda history: plant_motion(history, "cw 90", 7.0),
        repeat_a_stopped_motion,
    ],
    "out_of_order": [lambda history: arm_motions(history).pop(0)],
    "unsent": [
        lambda history: plant_motion(history, "cw 91", 6.0),
        lambda history: plant_motion(history, "cw 90", 0.5),
        lambda history: plant_end(history, released_s={0: 1.5}),
        lambda history: plant_end(history, released_s={0: 1.5, 1: 4.5}),
    ],
    "out_of_limits": [lambda history: plant_motion(history, "forward 900", 6.0)],
    "after_end": [
        lambda history: plant_end(history, end_s=3.2),
        lambda history: plant_motion(history, "cw 90", 9.6),
    ],
    "after_orphan": [lambda history: history.silences.append(Silence("arm1", 0.0, 8.0))],
    "after_stop": [
        lambda history: history.stops.append(StopRecord("arm1", 3.5, "halted")),
        lambda history: history.stops.append(StopRecord("arm1", 3.9, "at_rest", 4.1)),
        lambda history: history.stops.append(StopRecord("arm1", 2.2, "halted", 3.5)),
        move_through_a_stop,
    ],
    "wrong_owner": [
        lambda history: history.leases.append(LeaseRecord("arm1", 1.5, "b-1")),
        lambda history: history.leases.append(LeaseRecord("arm1", 3.2, "a-2")),
        lambda history: history.leases.append(LeaseRecord("arm1", 3.2, "")),
    ],
    "unreadable": [lambda history: history.log_problems.append("arm1's log has damaged lines")],
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_good_history_has_no_violation(seed: int) -> None:
    assert judge_fault_history(good_history(random.Random(seed))) == []


def test_each_kind_is_planted() -> None:
    assert {"late_hold", *PLANTS} == set(VIOLATIONS)


@pytest.mark.parametrize(
    ("kind", "plant"), [(kind, plant) for kind, plants in PLANTS.items() for plant in plants]
)
def test_a_planted_violation_is_seen_among_good_tasks(
    kind: str, plant: Callable[[FaultHistory], object]
) -> None:
    for seed in SEEDS:
        history = good_history(random.Random(seed))
        moving_task(history)
        assert judge_fault_history(history) == []
        plant(history)
        violations = judge_fault_history(history)
        assert kind in {violation for violation, _ in violations}, violations
        assert all(case.startswith("arm1") for _, case in violations), violations


def test_a_claim_of_an_unknown_state_and_a_change_of_the_lease_accuse_no_robot() -> None:
    history = FaultHistory()
    moving_task(history)
    history.stops.append(StopRecord("arm1", 3.5, "unknown"))
    history.leases.append(LeaseRecord("arm1", 3.9, "a-1"))
    history.silences.append(Silence("arm1", 0.8, 3.9))
    assert judge_fault_history(history) == []


def test_a_robot_may_take_a_while_to_rest_and_a_lease_to_be_seen() -> None:
    history = FaultHistory()
    moving_task(history)
    fail_after_first_motion(history)
    arm_motions(history).append(FaultRobotMotion("cw 90", 4.0, 7.0, done=False))
    history.stops.append(StopRecord("arm1", 4.2, "halted"))
    history.leases[:] = [LeaseRecord("arm1", 0.0, "b-1"), LeaseRecord("arm1", 2.3, "a-1")]
    assert judge_fault_history(history) == []


@pytest.mark.parametrize(
    ("first_fails", "plan", "accepted_s", "turn_s"),
    [
        (True, ["cw 90"], 10.0, 11.0),
        (False, ["cw 90"], 9.1, 9.3),
        (True, ["move_to('cup')", "cw 90"], 9.1, 9.3),
    ],
    ids=["the first is over", "the second alone expects it", "the first has just ended"],
)
def test_a_motion_is_of_the_task_that_expects_it(
    first_fails: bool, plan: list[str], accepted_s: float, turn_s: float
) -> None:
    history = FaultHistory()
    moving_task(history)
    if first_fails:
        fail_after_first_motion(history)
    lost = ("failed", int(ErrorCode.DRIVER_LOST))
    history.tasks.append(TaskRecord("y", "arm1", plan, accepted_s, 15.0, *lost, bridge="a"))
    plant_motion(history, "cw 90", turn_s)
    assert judge_fault_history(history) == []
    plant_motion(history, "cw 90", 20.0)
    assert ("after_end", "arm1: cw 90 at 20.00 s, 5.0 s after y") in judge_fault_history(history)


def test_the_servers_log_is_read_over_its_files_and_those_that_it_has_deleted(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    reader = FaultServerLog(tmp_path)
    assert reader.read() == {}
    lines: list[dict[str, object]] = [
        {"timely_tasks": 1},
        {"kind": "segment", "task": "t", "data": {"index": 0}, "ready_s": 5.0},
        {"kind": "report", "task": "t", "report": {"segment": 0, "kind": "started"}},
        {"kind": "report", "task": "t", "report": {"segment": 0, "kind": "done"}},
    ]
    path = tmp_path / "tasks" / "00000001.log"
    file = RecordFile(path)
    for line in lines:
        file.append(line)
    file.close()
    for _ in range(2):
        assert (reader.read()["t"].released_s, reader.read()["t"].reported_segments) == ({0: 5.0}, {0})
        path.unlink(missing_ok=True)


def test_a_servers_log_that_cannot_be_read_is_a_problem_and_a_torn_tail_is_none(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    reader = FaultServerLog(tmp_path)
    lines = [record_log_line({"timely_tasks": 1})]
    lines += [
        record_log_line({"kind": "segment", "task": task, "data": {"index": 0}, "ready_s": 5.0})
        for task in "ab"
    ]
    path = tmp_path / "tasks" / "00000001.log"
    path.write_bytes(b"".join(lines)[:-3])
    assert (set(reader.read()), reader.problems) == ({"a"}, {})
    path.write_bytes(lines[0] + lines[1][:-3] + b"\n" + lines[2])
    assert (set(reader.read()), reader.problems) == ({"a", "b"}, {path.name: "has damaged lines"})
    (tmp_path / "tasks" / "00000002.log").mkdir()
    reader.read()
    assert reader.problems["00000002.log"] == "cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("failed", "rounds", "bound"),
    [(0, 1, 0.95), (0, 100, 0.029513), (1, 100, 0.046560), (3, 3, 1.0), (0, 0, 1.0)],
)
def test_the_bound_is_what_so_few_failures_leave(failed: int, rounds: int, bound: float) -> None:
    assert fault_bench_upper_bound(failed, rounds) == pytest.approx(bound, abs=2e-6)


def test_many_rounds_have_a_bound() -> None:
    assert fault_bench_upper_bound(1500, 3000) == pytest.approx(0.515, abs=1e-3)
