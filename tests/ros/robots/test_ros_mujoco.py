"""The physics robots without ROS: paths, reach, flights and grasps, and time that goes in lock step."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from timely_robots.clock import SteppedRobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.mujoco.arm import MujocoArm, mujoco_arm_joints_for
from timely_robots.mujoco.desk import MujocoDesk
from timely_robots.mujoco.models import HOME, mujoco_arm_model, mujoco_quadrotor_model
from timely_robots.mujoco.path import MujocoPathProgress
from timely_robots.mujoco.physics import MujocoPhysics, load_mjcf
from timely_robots.mujoco.quadrotor import MujocoPilot
from timely_robots.mujoco.robot import MujocoRobot
from timely_robots.segments import Motion, MotionError, SegmentOrder, SkillCall
from timely_robots.standalone import StandaloneRobot

from lrtrace.profiles import load_robot_profile
from timely.core.clock import SystemClock


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """All workers read this file, and one of them loads MuJoCo."""
    pytest.importorskip("mujoco")


@pytest.mark.parametrize(("length", "speed"), [(2.0, 1.0), (0.2, 1.0), (5.0, 0.5), (0.0, 1.0)])
def test_a_path_takes_its_time_and_keeps_its_limits(length: float, speed: float) -> None:
    path, steps = MujocoPathProgress(length, speed, 2.0), 0
    while not path.ended:
        before = path.rate
        path.step(0.002)
        steps += 1
        assert path.rate <= speed + 1e-9
        assert path.rate - before <= 2.0 * 0.002 + 1e-9
        assert steps < 10_000
    assert path.at == length
    assert 0.002 * steps == pytest.approx(path.duration_s, abs=0.05)


def test_a_brake_comes_to_rest_where_it_must() -> None:
    path = MujocoPathProgress(10.0, 1.0, 2.0)
    for _ in range(1000):
        path.step(0.002)
    at = path.at
    path.braking = True
    while not path.ended:
        path.step(0.002)
    assert path.at - at == pytest.approx(0.25, abs=0.01), "v squared over 2a"
    assert not path.reached


def test_the_home_position_is_where_the_joints_say() -> None:
    model, data = load_mjcf(mujoco_arm_model({}, {}))
    arm = MujocoArm(model, data, [])
    arm.control(0.0)
    assert mujoco_arm_joints_for(arm.tool) == pytest.approx(list(HOME), abs=0.01)
    for far in [(1.5, 0.0, 0.1), (0.05, 0.0, 0.1)]:
        with pytest.raises(MotionError) as raised:
            mujoco_arm_joints_for(far)
        assert raised.value.code == ErrorCode.OUT_OF_LIMITS


class Table:
    """A desk whose physics is stepped by whoever waits."""

    def __init__(
        self, things: dict[str, tuple[float, float]], places: dict[str, tuple[float, float]]
    ) -> None:
        self.spots = {name: (x, y, 0.02) for name, (x, y) in things.items()}
        mats = {name: (x, y, 0.001) for name, (x, y) in places.items()}
        self.model, self.data = load_mjcf(mujoco_arm_model(self.spots, mats))
        self.arm = MujocoArm(self.model, self.data, list(things))
        self.said: list[str] = []
        self.motion: Any = Motion(SegmentOrder("t", 0, "", "arm"), None, SystemClock(), 1.0)  # type: ignore[arg-type]
        self.desk = MujocoDesk(
            self.arm,
            list(things),
            mats,
            move=self.move,
            wait=lambda seconds, motion: self.run(seconds),
            check_spot=lambda spot: None,
            joint_speed=1.5,
            say=self.said.append,
        )

    def run(self, seconds: float) -> None:
        import mujoco

        for _ in range(int(seconds / self.model.opt.timestep)):
            self.arm.control(self.data.time)
            mujoco.mj_step(self.model, self.data)

    def move(self, order: Callable[[], float], motion: Motion) -> None:
        limit_s = self.data.time + 2.0 * order() + 3.0
        while not self.arm.arrived:
            self.run(0.01)
            assert self.data.time < limit_s, "the arm does not come to rest"

    def do(self, skill: str, *args: str) -> object:
        return self.desk.perform(SkillCall(skill, args, skill), self.motion)


@pytest.fixture
def table() -> Table:
    return Table({"cup": (0.45, -0.1), "box": (0.35, 0.2)}, {"plate": (0.4, 0.3), "bin": (0.3, -0.3)})


def test_things_are_taken_put_stacked_and_dropped(table: Table) -> None:
    table.do("pick", "cup")
    assert table.arm.holding == "cup"
    assert table.arm.spot("cup")[2] > 0.1
    table.do("place", "plate")
    assert table.arm.spot("cup") == pytest.approx((0.4, 0.3, 0.02), abs=0.01)
    table.do("pick", "box")
    table.do("place", "cup")
    assert table.arm.spot("box") == pytest.approx((0.4, 0.3, 0.06), abs=0.01), "on top of it"
    table.do("take", "box")
    table.do("drop", "bin")
    x, y, z = table.arm.spot("box")
    assert math.dist((x, y), (0.3, -0.3)) < 0.15
    assert z == pytest.approx(0.02, abs=0.01), "it fell"
    table.do("home")
    assert table.do("look", "table") == "bin, box, cup, plate"


def test_what_cannot_be_is_a_typed_failure(table: Table) -> None:
    for skill, name in [("pick", "apple"), ("pick", "plate"), ("place", "plate"), ("move_to", "moon")]:
        with pytest.raises(MotionError) as raised:
            table.do(skill, name)
        assert raised.value.code == ErrorCode.MOTION_FAILED
    table.do("pick", "cup")
    for skill, name in [("pick", "box"), ("place", "cup")]:
        with pytest.raises(MotionError):
            table.do(skill, name)


def test_fingers_that_close_on_nothing_say_so(table: Table) -> None:
    move = table.desk._move

    def somebody_takes_it(order: Callable[[], float], motion: Motion) -> None:
        move(order, motion)
        if table.arm.tool[2] < 0.03 and table.arm.opening_m > 0.08:
            joint = table.model.joint("thing0").qposadr[0]
            table.data.qpos[joint : joint + 3] = (-0.4, -0.4, 0.02)

    table.desk._move = somebody_takes_it
    with pytest.raises(MotionError, match=r"closed on nothing|slipped"):
        table.do("pick", "cup")
    assert table.arm.holding == ""


def fly(pilot: MujocoPilot, model: Any, data: Any, limit_s: float = 15.0) -> float:
    """Until it hovers; how long that took."""
    import mujoco

    begin_s = data.time
    while not pilot.arrived:
        pilot.control(data.time)
        mujoco.mj_step(model, data)
        assert data.time - begin_s < limit_s, "it does not come to rest"
    return float(data.time - begin_s)


def test_a_quadrotor_goes_where_it_is_told_in_gusts() -> None:
    model, data = load_mjcf(mujoco_quadrotor_model())
    pilot = MujocoPilot(data, seed=3, gust_n=0.01)
    pilot.take_off(0.8)
    assert 1.0 < fly(pilot, model, data) < 4.0
    assert pilot.where.z == pytest.approx(0.8, abs=0.1)
    expected_s = pilot.fly((2.0, -1.0, 0.5), 1.0)
    took_s = fly(pilot, model, data)
    assert expected_s < took_s < expected_s + 2.0
    where = pilot.where
    assert (where.x, where.y, where.z) == pytest.approx((2.0, -1.0, 1.3), abs=0.12)
    pilot.turn(math.radians(-150), math.radians(60))
    fly(pilot, model, data)
    assert math.degrees(pilot.where.yaw) == pytest.approx(-150, abs=3)
    assert not pilot.crashed
    times = []
    for _ in range(2):
        pilot.fly((0.5, 0.0, 0.0), 1.0)
        times.append(fly(pilot, model, data))
    assert times[0] != times[1], "wind"


def test_a_stopped_quadrotor_hovers_on_its_way() -> None:
    import mujoco

    model, data = load_mjcf(mujoco_quadrotor_model())
    pilot = MujocoPilot(data)
    pilot.take_off(0.8)
    fly(pilot, model, data)
    pilot.fly((4.0, 0.0, 0.0), 1.0)
    for _ in range(1000):
        pilot.control(data.time)
        mujoco.mj_step(model, data)
    at = pilot.where.x
    pilot.brake()
    fly(pilot, model, data)
    assert 0.0 < pilot.where.x - at < 0.5
    assert not pilot.progress.reached


def test_time_goes_in_lock_step_with_the_simulation() -> None:
    """However busy the machine, a wait of a hundredth is a hundredth of simulated time."""
    model, data = load_mjcf(mujoco_quadrotor_model())
    clock = SteppedRobotClock(50.0)
    clock.GRACE_S = 20.0  # a machine that stands still is not a thread that thinks
    physics = MujocoPhysics(model, data, MujocoPilot(data), clock, 1.0).start()
    never = threading.Event()
    try:
        waits = []
        for number in range(40):
            begin_s = clock.now()
            assert not clock.wait(never, 0.01)
            waits.append(clock.now() - begin_s)
            if number % 10 == 0:
                time.sleep(0.01)  # a thought: shorter than the time that is granted for it
        assert max(waits) < 0.03
        assert data.time == pytest.approx(clock.now(), abs=0.02)
        begin = time.monotonic()
        threading.Timer(0.05, never.set).start()
        assert clock.wait(never, 1e6), "an interruption ends any wait"
        assert time.monotonic() - begin < 2.0
    finally:
        physics.close()


def test_a_slow_machine_lengthens_no_motion() -> None:
    """What limits a motion is simulated time: here the machine stands still for a second in every lap of physics."""

    class StutteringClock(SystemClock):
        lost_s = 0.0

        def now(self) -> float:
            return super().now() + self.lost_s

        def wait(self, interrupted: threading.Event, seconds: float) -> bool:
            if threading.current_thread().name == "physics":
                self.lost_s += 1.0
            return super().wait(interrupted, seconds)

    robot = MujocoRobot({"body": "quadrotor", "speed": 8.0}, StutteringClock())
    robot.profile = load_robot_profile("mujoco-quadrotor")
    robot.connect(5.0)
    standalone = StandaloneRobot(robot, "drone", 1.0, "slow")
    try:
        execution = standalone.execute("mf(20)", 30.0)
        assert execution.outcome == "done", execution
    finally:
        standalone.close()


def test_a_simulation_that_hangs_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may hang in compiled code, where nothing raises."""
    robot = MujocoRobot({"body": "quadrotor", "speed": 100.0})
    robot.profile = load_robot_profile("mujoco-quadrotor")
    robot.connect(5.0)
    standalone = StandaloneRobot(robot, "drone", 1.0, "hung")
    monkeypatch.setattr("timely_robots.mujoco.robot.STILL_S", 0.05)
    assert robot._physics is not None
    monkeypatch.setattr(robot._physics, "advance", lambda seconds: None)
    try:
        execution = standalone.execute("mf(20)", 30.0)
        assert (execution.outcome, execution.message) == ("failed", "the simulation stands still")
    finally:
        standalone.close()


def test_a_simulation_that_fails_says_why() -> None:
    class Broken:
        def control(self, now_s: float) -> None:
            raise ValueError("no such rotor")

    model, data = load_mjcf(mujoco_quadrotor_model())
    physics = MujocoPhysics(model, data, Broken(), SystemClock(), 1.0).start()
    deadline = time.monotonic() + 5.0
    while not physics.failure and time.monotonic() < deadline:
        time.sleep(0.005)
    assert "no such rotor" in physics.failure
    physics.close()
