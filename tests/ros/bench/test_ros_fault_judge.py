"""The verdicts of ``timely bench faults``: each broken promise is seen, and a good run is not accused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from timely_interfaces.msg import ErrorCode, RobotState
from timely_ros_bench.faults.history import FaultHistory, TaskRecord, judge_fault_history
from timely_ros_bench.faults.judge import (
    FaultObservedState,
    FaultRobotMotion,
    Violation,
    fault_bench_untyped_outcome,
    judge_ros_fault_holding,
)
from timely_ros_bench.faults.motions import (
    PLANS_APART,
    SEGMENTS_APART,
    fault_bench_log_motions,
    fault_bench_plan_motions,
    fault_round_plans,
)
from timely_ros_bench.faults.rounds import (
    KINDS,
    SEGMENTS,
    fault_schedule,
    faulty_robot_kind,
    faulty_robot_names,
)
from timely_ros_bench.planned_server import planned_bench_segments

from timely.core.errors import InvalidInput, UnknownName
from timely.emulators.command_log import EmulatorCommandLog
from timely.engines.base import GenerationRequest

SENT = ["forward 20", "cw 21", "back 22", "ccw 23"]


def counts_by_kind(violations: list[Violation]) -> dict[str, int]:
    return dict(Counter(kind for kind, _ in violations))


@pytest.mark.parametrize(
    ("motions", "wrong"),
    [
        ([], {}),
        (SENT[:2], {}),
        (SENT, {}),
        (["forward 20", "forward 20"], {"repeated": 1}),
        (["forward 20", "cw 21", "forward 20", "back 22"], {"repeated": 1}),
        (["cw 21"], {"out_of_order": 1}),
        (["cw 21", "forward 20"], {"out_of_order": 2}),
        (["forward 20", "left 40"], {"unsent": 1}),
        (["forward 20", "cw 400"], {"unsent": 1, "out_of_limits": 1}),
        (["mf(900)"], {"unsent": 1, "out_of_limits": 1}),
    ],
)
def test_motions_are_held_against_what_was_sent(motions: list[str], wrong: dict[str, int]) -> None:
    task = TaskRecord("t", "tello1", SENT, 0.0, 99.0, "failed", int(ErrorCode.DRIVER_LOST))
    log = [FaultRobotMotion(what, float(at), at + 0.5) for at, what in enumerate(motions, 1)]
    violations = judge_fault_history(FaultHistory([task], {"tello1": log}))
    assert counts_by_kind(violations) == wrong, violations


def state_reports(*modes: tuple[float, int, int]) -> list[FaultObservedState]:
    """(when, mode, segment)"""
    return [FaultObservedState(mode, 1, when, when, "t", segment) for when, mode, segment in modes]


BUSY, HOLDS, READY = int(RobotState.EXECUTING), int(RobotState.HOLDING), int(RobotState.READY)
FIRST, SECOND = FaultRobotMotion("forward 20", 10.0, 12.0), FaultRobotMotion("cw 21", 16.0, 17.0)


@pytest.mark.parametrize(
    ("states", "wrong", "held"),
    [
        # At once HOLDING, then the next segment.
        (
            [(10.0, BUSY, 0), (11.0, BUSY, 0), (12.1, HOLDS, 0), (14.0, HOLDS, 0), (16.0, BUSY, 1), (17.1, READY, 1)],
            {},
            1,
        ),
        # Never a word of waiting.
        (
            [(10.0, BUSY, 0), (11.0, BUSY, 0), (12.1, READY, 0), (14.0, READY, 0), (16.0, BUSY, 1), (17.1, READY, 1)],
            {"late_hold": 1},
            0,
        ),
        # Long after the end it still says that it executes.
        (
            [(t * 0.5, BUSY, 0) for t in range(20, 30)] + [(15.0, HOLDS, 0), (16.0, BUSY, 1), (17.0, READY, 1)],
            {"late_hold": 1},
            1,
        ),
        # Silent for two seconds in the middle.
        ([(10.0, BUSY, 0), (12.0, HOLDS, 0), (16.0, BUSY, 1), (17.1, READY, 1)], {"late_hold": 1}, 0),
        # Moves on while it says that it holds.
        (
            [(10.0, BUSY, 0), (11.0, BUSY, 0), (12.1, HOLDS, 0), (15.0, HOLDS, 0), (16.1, HOLDS, 0), (17.1, READY, 1)],
            {"late_hold": 1},
            1,
        ),
    ],
)  # fmt: skip
def test_waiting_is_said_within_a_second_and_nothing_moves_meanwhile(
    states: list[tuple[float, int, int]], wrong: dict[str, int], held: int
) -> None:
    violations = list[Violation]()
    assert (
        judge_ros_fault_holding(state_reports(*states), [FIRST, SECOND], SENT, violations, "tello1") == held
    )
    assert counts_by_kind(violations) == wrong, violations


@pytest.mark.parametrize(
    ("died_s", "wrong"), [(12.5, {}), (11.9, {"late_hold": 1}), (14.0, {"late_hold": 1})]
)
def test_the_driver_of_a_robot_that_died_cannot_know_whether_its_motion_has_ended(
    died_s: float, wrong: dict[str, int]
) -> None:
    violations = list[Violation]()
    states = state_reports(*((10.0 + 0.5 * tick, BUSY, 0) for tick in range(11)))
    judge_ros_fault_holding(states, [FIRST], SENT, violations, "tello1", died_s)
    assert counts_by_kind(violations) == wrong, violations


@pytest.mark.parametrize(
    ("outcome", "code", "typed"),
    [
        ("complete", ErrorCode.NONE, True),
        ("failed", ErrorCode.DRIVER_LOST, True),
        ("cancelled", ErrorCode.CANCELLED, True),
        ("failed", ErrorCode.NONE, False),
        ("failed", 4711, False),
        ("failed", ErrorCode.BRIDGE_INTERNAL, False),
        ("complete", ErrorCode.MOTION_FAILED, False),
        ("", ErrorCode.NONE, False),
    ],
)
def test_an_end_without_a_type_is_a_violation(outcome: str, code: int, typed: bool) -> None:
    assert (fault_bench_untyped_outcome(outcome, int(code)) == "") is typed


def test_a_schedule_is_seeded_and_has_every_kind_before_any_again() -> None:
    robots = faulty_robot_names(("tello", "indy7", "sim", "sim"))
    assert robots == ["tello1", "arm1", "sim1", "sim2"]
    assert [faulty_robot_kind(name) for name in robots] == ["tello", "indy7", "sim", "sim"]
    faults = fault_schedule(25, 5, robots)
    assert faults == fault_schedule(25, 5, robots)
    assert faults != fault_schedule(25, 6, robots)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert {fault.robot for fault in fault_schedule(200, 5, robots)} == set(robots)
    assert all(fault.robot == "tello1" for fault in faults if fault.kind == "battery")
    assert {fault.kind for fault in fault_schedule(50, 1, ["sim1"])} == set(KINDS) - {
        "battery",
        "driver_disk_hangs",
        "emulator_dies",
    }
    with pytest.raises(UnknownName, match="submarine"):
        faulty_robot_names(["submarine"])
    with pytest.raises(InvalidInput, match="names no robot"):
        faulty_robot_names([])


def test_pairs_follow_when_every_kind_has_come_alone() -> None:
    robots = faulty_robot_names(("tello", "indy7", "sim"))
    rounds = fault_schedule(len(KINDS) + 40, 2, robots)
    assert rounds[:40] == fault_schedule(40, 2, robots), "a longer run goes on after a shorter one"
    alone, later = rounds[: len(KINDS)], rounds[len(KINDS) :]
    assert all(fault.companion is None for fault in alone)
    pairs = [fault for fault in later if fault.companion is not None]
    assert len(pairs) == len(later) / 2
    assert all(len(set(fault.kinds)) == 2 for fault in pairs)
    assert not {fault.kinds[1] for fault in pairs} & {"late_segment", "unsafe_plan", "battery"}


@pytest.mark.parametrize(("robot", "skill_set"), [("tello1", "drone"), ("arm1", "arm")])
def test_the_plans_of_a_task_have_motions_of_their_own(robot: str, skill_set: str) -> None:
    plans = fault_round_plans(robot, 3, random.Random(0))
    motions = [motion for plan in plans for motion in fault_bench_plan_motions(robot, plan)]
    assert len(motions) == len(set(motions)) == SEGMENTS * len(plans)
    task = PLANS_APART.join(SEGMENTS_APART.join(plan) for plan in plans)
    for number, name in enumerate(["ros-ab", "ros-ab-r1", "ros-ab-r9"][: len(plans)]):
        request = GenerationRequest(name, "", task=task, skill_set=skill_set)
        assert [segment.text for segment in planned_bench_segments(request)] == plans[number]


def test_logs_of_several_lives_of_a_robot_are_read_as_one(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    with EmulatorCommandLog(files[0]) as journal:
        journal.write(1.0, "motion", "takeoff", "done", start_s=0.5, end_s=1.0)
        journal.write(2.0, "command", "forward 20", "ok")
        journal.write(4.0, "motion", "forward 20", "done", start_s=2.0, end_s=4.0)
    files[1].write_text(
        '{"t_s": 5.0, "event": "motion", "command": "cw 21", "outcome": "done", "start_s": 4.5, "end_s": 5.0}\n{"t_s"'
    )
    motions = fault_bench_log_motions("tello1", files, 1.5)
    assert motions == [FaultRobotMotion("forward 20", 2.0, 4.0), FaultRobotMotion("cw 21", 4.5, 5.0)]
    plan = fault_round_plans("tello1", 0, random.Random(0))[0]
    assert fault_bench_plan_motions("tello1", plan) == ["forward 20", "cw 21", "back 22", "ccw 23"]
    with EmulatorCommandLog(files[2]) as journal:
        journal.write(9.0, "motion", "MoveL(450.0,-100.0,270.0)", "done", start_s=8.0, end_s=9.0)
    assert fault_bench_log_motions("arm1", [files[2]], 0.0)[0].what == "move_to('apple')"
