"""The emulated Indy7 as a state machine, in virtual time: kinematics, limits, trapezoids, stopping."""

from __future__ import annotations

import itertools
import math

import pytest
from manual_clock import ManualClock

from timely.emulators.indy7 import Indy7Emulator
from timely.emulators.indy7_body import HOME_DEG, EmulatedArmRefusal, EmulatedIndy7Body
from timely.emulators.indy7_kinematics import emulator_forward_kinematics, emulator_inverse_kinematics


def test_upright_is_where_the_maker_says() -> None:
    assert emulator_forward_kinematics([0.0] * 6)[:3] == pytest.approx((0.0, -186.5, 1327.5))


@pytest.mark.parametrize("away", [(0, 0, 0), (60, 40, -80), (-120, 150, 60)])
def test_inverse_undoes_forward(away: tuple[float, float, float]) -> None:
    pose = list(emulator_forward_kinematics(HOME_DEG))
    pose[:3] = [a + b for a, b in zip(pose[:3], away, strict=True)]
    joints = emulator_inverse_kinematics(pose, HOME_DEG)
    assert joints is not None
    assert emulator_forward_kinematics(joints)[:3] == pytest.approx(pose[:3], abs=0.1)


def test_out_of_reach_is_known() -> None:
    assert emulator_inverse_kinematics((2000.0, 0.0, 300.0, 180.0, 0.0, 180.0), HOME_DEG) is None


def test_a_joint_motion_is_a_trapezoid() -> None:
    arm = EmulatedIndy7Body()
    way = 90.0
    arm.move_joints([way, 0, 0, 0, 0, 0], relative=True, command="turn")
    speed = math.degrees(3.0)
    expected = 2.0 * math.sqrt(way / speed) if way < speed else way / speed + 1.0
    seen = []
    for step in range(1, 400):
        ended = arm.advance(step * 0.01)
        seen.append(arm.joints[0])
        if ended:
            assert ended[0].outcome == "done"
            assert ended[0].end_s - ended[0].start_s == pytest.approx(expected)
            break
    assert seen[-1] == pytest.approx(HOME_DEG[0] + way)
    fastest = max(b - a for a, b in itertools.pairwise(seen)) / 0.01
    assert fastest <= speed * 1.001


def test_half_the_ratio_takes_longer() -> None:
    times = []
    for ratio in (100.0, 15.0):
        arm = EmulatedIndy7Body()
        arm.move_joints([60, 0, 0, 0, 0, 0], relative=True, speed_ratio=ratio)
        times.append(arm.advance(60.0)[0].end_s)
    assert times[1] > 1.5 * times[0]


@pytest.mark.parametrize(
    ("target", "options", "problem"),
    [
        ([176, 0, 0, 0, 0, 0], {}, "beyond"),
        ([0, 0, 0], {}, "6 finite"),
        ([math.nan] * 6, {}, "6 finite"),
        ([10] * 6, {"speed_ratio": 0.0}, "velocity ratio"),
        ([10] * 6, {"acceleration_ratio": 901.0}, "acceleration ratio"),
        ([170, 0, 0, 0, 0, 0], {"seconds": 0.1}, "speed limit"),
    ],
)
def test_what_the_arm_refuses(target: list[float], options: dict[str, float], problem: str) -> None:
    arm = EmulatedIndy7Body()
    with pytest.raises(EmulatedArmRefusal, match=problem):
        arm.move_joints(target, relative=False, **options)  # type: ignore[arg-type]
    assert arm.motion is None


def test_a_line_is_straight_and_at_most_as_fast_as_asked() -> None:
    arm = EmulatedIndy7Body()
    start = emulator_forward_kinematics(arm.joints)
    goal = [start[0] - 100.0, start[1] + 150.0, start[2] + 60.0, *start[3:]]
    arm.move_line(goal, relative=False, speed_ratio=25.0)
    assert arm.motion is not None
    end = arm.motion.end_s
    before = start[:3]
    for step in range(1, 51):
        arm.advance(end * step / 50)
        here = emulator_forward_kinematics(arm.joints)[:3]
        share = math.dist(start[:3], here) / math.dist(start[:3], goal[:3])
        line = [a + share * (b - a) for a, b in zip(start[:3], goal[:3], strict=True)]
        assert math.dist(line, here) < 1.0
        assert math.dist(before, here) / (end / 50) < 250.0 * 1.05
        before = here
    assert emulator_forward_kinematics(arm.joints)[:3] == pytest.approx(goal[:3], abs=0.2)


def test_a_line_that_leaves_the_reach_is_refused_before_it_begins() -> None:
    arm = EmulatedIndy7Body()
    with pytest.raises(EmulatedArmRefusal, match="cannot reach"):
        arm.move_line([1500, 0, 400, 180, 0, 180], relative=False)
    assert arm.motion is None


def test_stop_brakes_and_forgets_the_queue() -> None:
    arm = EmulatedIndy7Body()
    for angle in (90, 0):
        arm.move_joints([angle, *HOME_DEG[1:]], relative=False, speed_ratio=50.0)
    arm.advance(0.7)
    before = arm.joints[0]
    arm.stop()
    with pytest.raises(EmulatedArmRefusal, match="stopping"):
        arm.move_joints([0] * 6, relative=True)
    (ended,) = arm.advance(10.0)
    assert ended.outcome == "stopped"
    assert ended.end_s - 0.7 <= 0.5 + 1e-6
    assert before < arm.joints[0] < 90.0
    assert arm.motion is None
    assert not arm.queue


def test_motions_queue_or_override() -> None:
    arm = EmulatedIndy7Body()
    arm.move_joints([20, *HOME_DEG[1:]], relative=False, command="a")
    arm.move_joints([10, 0, 0, 0, 0, 0], relative=True, command="b")
    assert [ended.command for ended in arm.advance(10.0)] == ["a", "b"]
    assert arm.joints[0] == pytest.approx(30.0)


@pytest.mark.process  # grpc takes a second to import
def test_a_look_at_the_arm_stays_as_it_was_while_time_goes_on() -> None:
    pytest.importorskip("neuromeka")
    clock = ManualClock()
    arm = Indy7Emulator("127.0.77.1", clock=clock)
    try:
        arm.command("MoveJ", lambda body: body.move_joints([10.0, *HOME_DEG[1:]], relative=False))
        body = arm.look()
        clock.advance(10.0)
        assert arm.look().motion is None
        assert body.motion is not None, "a call that is answered meanwhile reads it twice"
    finally:
        arm.close()
