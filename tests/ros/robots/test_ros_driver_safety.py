"""Accidents and attacks at a driver: stop, restart, lease, lost bridge, battery, obstacles, confirmation."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from ros_harness import AT_ONCE_S, LIMIT_S, Goal, Program, eventually, principals
from std_msgs.msg import Float32
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import Lease, RobotState, Task
from timely_interfaces.srv import AcquireLease, ConfirmSkill, ResetStop
from timely_robots import driver_store, safety
from timely_robots.error_codes import ErrorCode
from timely_robots.indy7.robot import Indy7Robot
from timely_robots.mujoco.robot import MujocoRobot
from timely_robots.robot import Robot
from timely_robots.ros import driver_node, lifecycle
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import TASKS
from timely_robots.ros.spinner import Spinner, isolated_ros_context
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot
from timely_robots.tello.robot import TelloRobot

pytestmark = [pytest.mark.ros, pytest.mark.timeout(120)]

FAILSAFE_PROFILE = """
name: careful
extends: sim-drone
failsafe: {hold_s: 0.3, then: land, battery_reserve: 0.2, land_while_stopped: true}
"""
CONFIRMED_SKILLS = """
name: guarded
language: calls
profile: sim-arm
skills:
  - {name: home}
  - {name: open, confirm: true}
"""


OPERATOR, PROGRAM = "token-of-an-operator-of-all", "token-of-a-program-of-none"


class TestRobot(SimRobot):
    """A simulated drone whose halt, battery and queries a test controls."""

    __test__ = False
    hang = threading.Event()
    """While it is set, ``halt`` does not return."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.battery = 1.0
        self.halts: list[float] = []
        self.performed: list[str] = []
        self.link_lost = False
        self.failures = 0
        """How many failsafe actions fail from now on."""
        self.endless = 0
        """How many failsafe actions last until they are interrupted, from now on."""

    def failsafe(self, action: str, motion: Motion) -> None:
        if self.failures:
            self.failures -= 1
            raise MotionError("the link is lost")
        if self.endless:
            self.endless -= 1
            motion.sleep(math.inf)
        super().failsafe(action, motion)

    def halt(self) -> None:
        self.halts.append(time.monotonic())
        end = time.monotonic() + LIMIT_S
        while self.hang.is_set() and time.monotonic() < end:
            time.sleep(0.01)

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        self.performed.append(call.text)
        return super().perform(call, motion)

    def status(self) -> Any:
        return replace(super().status(), battery=self.battery, link_lost=self.link_lost)


class Bench:
    """A driver over ROS 2, a program, and the driver's folder on the disk."""

    def __init__(self, domain_id: int, folder: Path, **parameters: Any) -> None:
        self.robot = TestRobot()
        overrides = {"profile": "sim-drone", "skill_set": "drone", "speed": 20.0, "times": "expected"}
        overrides |= {"state_dir": str(folder), "state_period_s": 0.05, **parameters}
        context = isolated_ros_context(domain_id)
        self.driver = DriverNode(self.robot, namespace="robot1", context=context, overrides=overrides)
        self.spinner = Spinner(context, [self.driver], name="driver").start()
        self.program = Program(domain_id)
        self.states: list[RobotState] = self.program.listen(RobotState, "/robot1/state", latched=True)
        for step in ("configure", "activate"):
            done = self.spinner.call_and_wait(getattr(self.driver, f"trigger_{step}"), LIMIT_S)
            assert done == TransitionCallbackReturn.SUCCESS
        self.spinner.executor.wake()

    def send(self, text: str, task: str = "t", index: int = 0, **fields: Any) -> Goal:
        return self.program.send(
            ExecuteSegment, "/robot1/execute_segment", task_id=task, index=index, text=text, **fields
        )

    def call(self, kind: Any, name: str, **fields: Any) -> Any:
        return self.program.call(kind, f"/robot1/driver/{name}", kind.Request(**fields))

    def until(self, what: Any, message: str = "the state never said so") -> RobotState:
        state: RobotState = eventually(lambda: next((s for s in self.states[-3:] if what(s)), None), message)
        return state

    def publish(self, kind: Any, topic: str, message: Any, qos: QoSProfile = TASKS) -> None:
        """Publish once the driver listens."""
        publisher = self.spinner.call_and_wait(
            lambda: self.driver.create_publisher(kind, topic, qos), LIMIT_S
        )
        eventually(lambda: publisher.get_subscription_count() > 0, "no subscription")
        publisher.publish(message)

    def age_lease(self, seconds: float) -> float:
        """Let the driver's lease be so much older; when it was renewed then."""
        lease = self.driver._safety.lease
        self.spinner.call_and_wait(lambda: lease.forgive(-seconds), LIMIT_S)
        return lease._renewed_s

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Hold the driver's executor up."""
        begun, end = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            end.wait(LIMIT_S)

        self.spinner.call(work)
        assert begun.wait(LIMIT_S)
        try:
            yield
        finally:
            end.set()

    def close(self) -> None:
        self.robot.hang.clear()
        self.program.close()
        assert self.spinner.close(), "the driver's executor did not end"


@contextmanager
def bench_of(domain_id: int, folder: Path, **parameters: Any) -> Iterator[Bench]:
    bench = Bench(domain_id, folder, **parameters)
    try:
        yield bench
    finally:
        bench.close()


# ---------------------------------------------------------------- a stop that is true


def test_a_stop_answers_while_the_executor_is_held_up(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, speed=1.0) as bench:
        moving = bench.send("d(60);")
        bench.until(lambda s: s.mode == RobotState.EXECUTING)
        bench.program.call(Trigger, "/robot1/driver/stop")  # finds the service
        assert moving.result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset").success
        held = threading.Event()
        bench.spinner.call(lambda: held.wait(LIMIT_S))  # a parse or a vendor call on the executor
        begin_s = time.monotonic()
        answer = bench.program.call(Trigger, "/robot1/driver/stop")
        assert answer.success, answer.message
        assert bench.robot.halts[-1] - begin_s < AT_ONCE_S
        held.set()
        # The last reading of the robot may be from before the halt.
        bench.until(lambda s: s.mode == RobotState.STOPPED and s.halted and s.at_rest)


def test_a_stop_of_a_robot_whose_halt_hangs_is_no_success(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        bench.robot.hang.set()
        begin_s = time.monotonic()
        answers = [bench.call(Trigger, "stop") for _ in range(2)]
        assert time.monotonic() - begin_s < 2 * AT_ONCE_S
        assert [answer.success for answer in answers] == [False, False]
        assert all("unknown" in answer.message for answer in answers)
        assert len(bench.robot.halts) == 2, "the second stop waited for the first"
        assert not bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.send("d(1);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_stop_of_a_robot_whose_link_is_lost_is_no_success(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        bench.robot.link_lost = True
        answer = bench.call(Trigger, "stop")
        assert (answer.success, answer.message) == (False, "unknown: the link to the robot is lost")
        assert not bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.robot.halts
        assert bench.send("d(1);").result().error_code == ErrorCode.DRIVER_STOPPED
        bench.robot.link_lost = False
        assert bench.call(Trigger, "stop").success
        bench.until(lambda s: s.halted)


def test_an_inactive_driver_keeps_a_stop_whose_halt_hangs(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        bench.spinner.call_and_wait(bench.driver.trigger_deactivate, LIMIT_S)
        bench.robot.hang.set()
        assert "unknown" in bench.call(Trigger, "stop").message
        bench.robot.hang.clear()
        bench.spinner.call_and_wait(bench.driver.trigger_activate, LIMIT_S)
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_stop_without_a_connection_to_the_robot_is_no_success_and_is_kept(
    domain_id: int, tmp_path: Path
) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        for step in ("deactivate", "cleanup"):
            bench.spinner.call_and_wait(getattr(bench.driver, f"trigger_{step}"), LIMIT_S)
        answer = bench.call(Trigger, "stop")
        assert (answer.success, answer.message) == (
            False,
            "unknown: the driver is not connected to its robot",
        )
        for step in ("configure", "activate"):
            bench.spinner.call_and_wait(getattr(bench.driver, f"trigger_{step}"), LIMIT_S)
        assert bench.robot.halts
        bench.until(lambda s: s.mode == RobotState.STOPPED and s.halted)


def test_a_stop_survives_deactivation_and_restart_until_a_reset(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        for step in ("deactivate", "activate"):
            bench.spinner.call_and_wait(getattr(bench.driver, f"trigger_{step}"), LIMIT_S)
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.robot.halts, "the new driver did not halt the robot"
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset").success
        assert bench.send("mf(20);", "t2").result().outcome == "done"
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.until(lambda s: s.mode == RobotState.READY)


def test_a_reset_of_a_busy_driver_leaves_a_later_stop(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        with bench.busy():
            assert bench.call(ResetStop, "reset").success
            assert bench.call(Trigger, "stop").success
        bench.until(lambda state: state.mode == RobotState.STOPPED and state.halted)
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_segment_that_waited_while_a_stop_was_reset_is_refused(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "before").result().outcome == "done"
        with bench.busy():
            waiting = bench.send("mf(20);", "waiting")
            assert bench.call(Trigger, "stop").success
            assert bench.call(ResetStop, "reset").success
        assert waiting.result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.send("mf(20);", "after").result().outcome == "done"


def test_only_an_operator_resets_takes_over_and_confirms(domain_id: int, tmp_path: Path) -> None:
    file = tmp_path / "principals.yaml"
    file.write_text(principals(("ann", "operator", OPERATOR), ("arm", "robot", PROGRAM)))
    with bench_of(domain_id, tmp_path / "state", principals=str(file)) as bench:
        assert bench.call(Trigger, "stop").success, "a stop needs no token"
        for token in ("", PROGRAM):
            refused = bench.call(ResetStop, "reset", token=token)
            assert not refused.success
            assert "operator" in refused.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset", token=OPERATOR).success
        assert bench.call(AcquireLease, "acquire_lease", owner="bridge").granted
        take_over = {"owner": "other", "take_over": True}
        assert not bench.call(AcquireLease, "acquire_lease", **take_over, token=PROGRAM).granted
        assert bench.call(AcquireLease, "acquire_lease", **take_over, token=OPERATOR).granted
        assert "operator" in bench.call(ConfirmSkill, "confirm", allow=True, token=PROGRAM).message
        assert "wait" in bench.call(ConfirmSkill, "confirm", allow=True, token=OPERATOR).message


def test_a_stop_that_the_disk_refuses_holds_and_says_so(domain_id: int, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with bench_of(domain_id, folder) as bench:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        answer = bench.call(Trigger, "stop")
        assert not answer.success
        assert "cannot write" in answer.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        folder.mkdir()


def test_a_stop_of_a_driver_whose_disk_hangs_is_a_success_and_says_so(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The robot is halted, and nothing moves until a reset."""
    back = threading.Event()

    def hang(*_: object) -> None:
        assert back.wait(LIMIT_S)

    with bench_of(domain_id, tmp_path) as bench:
        motion = bench.send("mf(500);")
        bench.until(lambda state: state.mode == RobotState.EXECUTING)
        with monkeypatch.context() as disk:
            disk.setattr(driver_store, "core_write_file", hang)
            try:
                answers = [bench.call(Trigger, "stop") for _ in range(10)]
                assert all(answer.success for answer in answers), (
                    "a stop that hangs must not exhaust the next"
                )
                assert "the disk does not have the stop yet" in answers[0].message
                assert motion.result().error_code == ErrorCode.DRIVER_STOPPED
                bench.until(lambda state: state.halted)
                states = len(bench.states)
                reset = bench.call(ResetStop, "reset", token=OPERATOR)
                lease = bench.call(AcquireLease, "acquire_lease", owner="a")
                assert (reset.success, lease.granted, lease.error_code) == (
                    False,
                    False,
                    ErrorCode.STORAGE_FAILED,
                )
                assert "the disk has not answered" in reset.message
                assert "the disk has not answered" in lease.message
                eventually(lambda: len(bench.states) > states + 3, "its state is silent")
            finally:
                back.set()
        eventually(lambda: not bench.driver._store.stop_unsaved, "the stop is not saved")
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.until(lambda state: state.mode == RobotState.STOPPED), "a late reset is none"
        assert bench.call(ResetStop, "reset", token=OPERATOR).success


def test_a_reset_that_the_disk_refuses_leaves_the_stop_and_says_so(domain_id: int, tmp_path: Path) -> None:
    """No task could begin after it, and a restart would bring the stop back."""
    folder = tmp_path / "gone"
    with bench_of(domain_id, folder) as bench:
        assert bench.call(Trigger, "stop").success
        folder.rename(tmp_path / "kept")
        answer = bench.call(ResetStop, "reset", token=OPERATOR)
        assert not answer.success
        assert "cannot write" in answer.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        (tmp_path / "kept").rename(folder)
        assert bench.call(ResetStop, "reset", token=OPERATOR).success
        assert bench.send("mf(20);", "later").result().outcome == "done"


def test_a_lease_and_a_task_that_the_disk_refuses_say_so(domain_id: int, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with bench_of(domain_id, folder) as bench:
        folder.rename(tmp_path / "kept")
        answer = bench.call(AcquireLease, "acquire_lease", owner="a")
        assert (answer.granted, answer.error_code) == (False, ErrorCode.STORAGE_FAILED)
        assert "cannot write" in answer.message
        result = bench.send("mf(20);").result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.STORAGE_FAILED)
        assert bench.robot.performed == []
        (tmp_path / "kept").rename(folder)
        assert bench.send("mf(20);", "later").result().outcome == "done"
        assert bench.call(AcquireLease, "acquire_lease", owner="a").error_code == ErrorCode.NONE


def test_a_driver_that_is_shut_down_in_motion_says_so_at_once(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, speed=1.0) as bench:
        motion = bench.send("d(60);")
        bench.until(lambda state: state.mode == RobotState.EXECUTING)
        bench.spinner.call_and_wait(bench.driver.trigger_shutdown, LIMIT_S)
        assert motion.result().error_code == ErrorCode.DRIVER_STOPPED
        bench.until(lambda state: state.mode == RobotState.UNCONFIGURED, "late subscribers see it in motion")


# ---------------------------------------------------------------- at most once, over restarts


def test_segment_0_does_not_run_again_after_a_restart(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().outcome == "done"
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().error_code == ErrorCode.DUPLICATE
        assert bench.send("mf(20);", "mine", 1).result().error_code == ErrorCode.DRIVER_LOST
        assert bench.robot.performed == []
        assert bench.send("mf(20);", "other").result().outcome == "done"


def test_segment_0_does_not_run_again_after_deactivation(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "mine").result().outcome == "done"
        for step in ("deactivate", "activate"):
            bench.spinner.call_and_wait(getattr(bench.driver, f"trigger_{step}"), LIMIT_S)
        assert bench.send("mf(20);", "mine").result().error_code == ErrorCode.DUPLICATE


# ---------------------------------------------------------------- no poison


@pytest.mark.parametrize("name", ["/dev/zero", "../../etc/passwd", "FIFO", "drone.yaml"])
def test_a_skill_set_of_a_goal_is_a_name_only(name: str, domain_id: int, tmp_path: Path) -> None:
    if name == "FIFO":
        name = str(tmp_path / "pipe.yaml")
        os.mkfifo(name)
    with bench_of(domain_id, tmp_path / "state") as bench:
        begin_s = time.monotonic()
        result = bench.send("mf(20);", skill_set=name).result()
        assert result.error_code == ErrorCode.UNKNOWN_NAME
        assert time.monotonic() - begin_s < AT_ONCE_S
        assert bench.send("mf(20);", "t2").result().outcome == "done"


def test_a_segment_that_is_too_long_is_refused_unparsed(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);" * 14_000).result().error_code == ErrorCode.TOO_LARGE
        assert bench.send("mf(20);", "x" * 100_000).result().error_code == ErrorCode.TOO_LARGE


# ---------------------------------------------------------------- one owner


def test_two_clients_do_not_drive_one_robot(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, lease_lapse_s=60.0) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a")
        assert (first.granted, first.owner) == (True, "a")
        second = bench.call(AcquireLease, "acquire_lease", owner="b")
        assert (second.granted, second.owner) == (False, "a")
        assert second.error_code == ErrorCode.LEASE_DENIED
        results = [
            bench.send("d(0.1);", "A", 0, owner="a", epoch=first.epoch).result(),
            bench.send("d(0.1);", "B", 0, owner="b", epoch=first.epoch).result(),
            bench.send("d(0.1);", "A", 1, owner="a", epoch=first.epoch).result(),
            bench.send("d(0.1);", "C", 0).result(),
        ]
        codes = [result.error_code for result in results]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_OWNER, ErrorCode.NONE, ErrorCode.NOT_OWNER]
        assert bench.until(lambda s: s.lease_owner == "a").lease_epoch == first.epoch


def test_an_operator_takes_over_and_the_segments_of_the_old_owner_end(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, lease_lapse_s=60.0, speed=1.0) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a")
        moving = bench.send("d(60);", "A", 0, owner="a", epoch=first.epoch)
        waiting = bench.send("d(1);", "A", 1, owner="a", epoch=first.epoch)
        bench.until(lambda s: s.mode == RobotState.EXECUTING and s.queued == 1)
        second = bench.call(AcquireLease, "acquire_lease", owner="operator", take_over=True)
        assert second.granted
        assert second.epoch > first.epoch
        for goal in (moving, waiting):
            assert goal.result().error_code == ErrorCode.NOT_OWNER
        late = bench.send("d(0.1);", "A2", 0, owner="a", epoch=first.epoch).result()
        assert late.error_code == ErrorCode.NOT_OWNER


def test_epochs_rise_over_a_restart(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a").epoch
    with bench_of(domain_id, tmp_path) as bench:
        assert (
            bench.send("d(0.1);", "A", 0, owner="a", epoch=first).result().error_code == ErrorCode.NOT_OWNER
        )
        assert bench.call(AcquireLease, "acquire_lease", owner="a").epoch > first


def test_a_lapsed_lease_ends_a_loop_between_its_rounds(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, lease_lapse_s=60.0, speed=1.0) as bench:
        lease = bench.call(AcquireLease, "acquire_lease", owner="a")
        loop = bench.send("50{d(0.2);d(0.1);}", "A", 0, owner="a", epoch=lease.epoch)
        eventually(lambda: len(bench.robot.performed) >= 2, "it never began")
        bench.age_lease(61.0)
        result = loop.result()
        assert result.error_code == ErrorCode.NOT_OWNER
        assert 2 <= len(bench.robot.performed) < 100
        assert bench.call(AcquireLease, "acquire_lease", owner="b").granted


def test_a_renewed_lease_holds(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, lease_lapse_s=600.0, speed=1.0) as bench:
        lease = bench.call(AcquireLease, "acquire_lease", owner="a")
        goal = bench.send("6{d(0.2);}", "A", 0, owner="a", epoch=lease.epoch)
        for _ in range(3):
            aged_s = bench.age_lease(400.0)
            bench.publish(Lease, "lease", Lease(owner="a", epoch=lease.epoch))
            eventually(lambda: bench.driver._safety.lease._renewed_s > aged_s)  # noqa: B023
        assert goal.result().outcome == "done"
        bench.publish(Lease, "lease", Lease(owner="a", epoch=lease.epoch, released=True))
        bench.until(lambda s: s.lease_owner == "")


def test_a_segment_renews_the_lease_of_its_owner(domain_id: int, tmp_path: Path) -> None:
    """After a network cut it may come before the owner's next renewal."""
    with bench_of(domain_id, tmp_path) as bench:
        first = bench.call(AcquireLease, "acquire_lease", owner="a").epoch
        bench.age_lease(60.0)
        assert bench.send("d(0.1);", "A", 0, owner="a", epoch=first).result().outcome == "done"
        bench.age_lease(60.0)
        assert bench.call(AcquireLease, "acquire_lease", owner="b").granted
        late = bench.send("d(0.1);", "A", 1, owner="a", epoch=first).result()
        assert late.error_code == ErrorCode.NOT_OWNER


def test_a_loop_ends_soon_after_its_bridge_died(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, task_silence_s=0.5, speed=1.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNING))
        result = bench.send("50{d(0.2);}", "mine").result()
        assert result.error_code == ErrorCode.SEGMENT_CANCELLED
        assert "no message of the task" in result.error_msg
        assert len(bench.robot.performed) < 15


# ---------------------------------------------------------------- failsafe, obstacles, operators


@pytest.fixture
def careful(tmp_path: Path) -> str:
    (tmp_path / "careful.yaml").write_text(FAILSAFE_PROFILE)
    return str(tmp_path / "careful.yaml")


def test_without_its_bridge_a_drone_holds_and_then_lands(
    domain_id: int, tmp_path: Path, careful: str
) -> None:
    with bench_of(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNED, segments=1))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        bench.driver._watchdog.silence_s = 0.0
        held = eventually(lambda: next((s for s in bench.states if s.failsafe == "hold"), None), "no hold")
        assert held.pose.position.z > 0.0
        later = bench.states.index(held)
        eventually(
            lambda: any(s.pose.position.z == 0.0 and not s.failsafe for s in bench.states[later:]),
            "it did not land",
        )


def test_a_landing_that_a_deactivation_interrupts_is_begun_again(
    domain_id: int, tmp_path: Path, careful: str
) -> None:
    with bench_of(domain_id, tmp_path / "s", profile=careful) as bench:
        bench.robot.endless = 1
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        bench.robot.battery = 0.1
        eventually(lambda: not bench.robot.endless, "it did not begin to land")
        bench.spinner.call_and_wait(bench.driver.trigger_deactivate, LIMIT_S)
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")


def test_a_drone_whose_state_cannot_be_read_lands(
    domain_id: int, tmp_path: Path, careful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status() -> None:
        raise RuntimeError("the library is broken")

    with bench_of(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="next", phase=Task.PLANNING))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it never flew")
        with monkeypatch.context() as broken:
            broken.setattr(bench.robot, "status", status)
            bench.until(lambda state: "cannot be read" in state.detail)
            eventually(lambda: not bench.robot._world.away, "it hovers until it falls")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_drone_that_hovers_lands_when_its_battery_is_low(
    stopped: bool, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with bench_of(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="next", phase=Task.PLANNING))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it does not hover")
        assert not bench.states[-1].failsafe, "its next task is being planned"
        if stopped:
            assert bench.call(Trigger, "stop").success
        bench.robot.failures = 1  # the first landing fails, and is tried again
        bench.robot.battery = 0.1
        eventually(lambda: not bench.robot.failures, "it did not try to land")
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until it falls")
        assert (bench.states[-1].mode == RobotState.STOPPED) == stopped


@pytest.mark.parametrize("announced", [True, False])
def test_a_drone_lands_when_its_task_is_over(
    announced: bool, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with bench_of(domain_id, tmp_path / "s", profile=careful, task_silence_s=600.0) as bench:
        if announced:
            bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNING))
            eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        if announced:
            bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        eventually(lambda: any(s.pose.position.z > 0.0 for s in bench.states), "it never flew")
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")


@pytest.mark.parametrize(("hold_s", "battery"), [(0.1, 1.0), (3600.0, 0.1)])
def test_a_drone_that_is_deactivated_in_the_air_lands(
    hold_s: float, battery: float, domain_id: int, tmp_path: Path
) -> None:
    profile = tmp_path / "careful.yaml"
    profile.write_text(FAILSAFE_PROFILE.replace("hold_s: 0.3", f"hold_s: {hold_s}"))
    with bench_of(domain_id, tmp_path / "s", profile=str(profile), task_silence_s=600.0) as bench:
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.PLANNED, segments=1))
        eventually(lambda: bench.driver._watchdog.any_alive(time.monotonic()))
        assert bench.send("mu(50);", "mine").result().outcome == "done"
        eventually(lambda: bench.states[-1].pose.position.z > 0.0, "it never flew")
        bench.spinner.call_and_wait(bench.driver.trigger_deactivate, LIMIT_S)
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        bench.robot.battery = battery
        eventually(lambda: bench.states[-1].pose.position.z == 0.0, "it hovers until its battery is empty")
        assert bench.states[-1].mode == RobotState.UNCONFIGURED


@pytest.mark.parametrize("battery", [0.1, math.nan])
def test_no_motion_with_a_low_or_unknown_battery(
    battery: float, domain_id: int, tmp_path: Path, careful: str
) -> None:
    with bench_of(domain_id, tmp_path / "s", profile=careful) as bench:
        bench.robot.battery = battery
        result = bench.send("mu(50);", "mine").result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.FAILSAFE)
        assert bench.robot.performed == []


def test_a_failsafe_that_the_robot_cannot_do_is_a_failed_configuration(
    domain_id: int, tmp_path: Path
) -> None:
    profile = tmp_path / "odd.yaml"
    profile.write_text("name: odd\nextends: tello\nfailsafe: {then: retract}\n")
    context = isolated_ros_context(domain_id)
    driver = DriverNode(TelloRobot(), context=context, overrides={"profile": str(profile)})
    try:
        assert driver.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert "cannot retract" in driver._fault
    finally:
        driver.destroy_node()
        context.try_shutdown()


@contextmanager
def driver_of(robot: Robot, domain_id: int, **parameters: Any) -> Iterator[DriverNode]:
    """A driver that nothing spins."""
    context = isolated_ros_context(domain_id)
    driver = DriverNode(robot, context=context, overrides={"profile": "sim-drone", **parameters})
    try:
        yield driver
    finally:
        driver.destroy_node()
        context.try_shutdown()


def test_a_profile_without_any_skill_of_the_skill_set_is_a_failed_configuration(domain_id: int) -> None:
    with driver_of(SimRobot(), domain_id, skill_set="arm") as driver:
        assert driver.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert driver._fault == "profile sim-drone has no skill of the set arm"


class FaultyRobot(SimRobot):
    """A robot whose library raises errors of its own, once for each name in ``breaks``."""

    def __init__(self, *breaks: str) -> None:
        super().__init__()
        self.breaks = list(breaks)
        self.connected = 0

    def _break(self, name: str) -> None:
        if name in self.breaks:
            self.breaks.remove(name)
            raise RuntimeError("no camera")

    def connect(self, timeout_s: float) -> None:
        self._break("connect")
        super().connect(timeout_s)
        self.connected += 1

    def disconnect(self) -> None:
        self.connected = 0
        self._break("disconnect")


def test_a_library_that_raises_at_the_start_is_a_failed_configuration(domain_id: int) -> None:
    with driver_of(FaultyRobot("connect"), domain_id) as driver:
        assert driver.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert driver._state().detail == "no camera"
        assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert driver._state().detail == ""


def test_a_configuration_that_fails_half_way_is_undone(
    domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the middleware is at its end")

    robot = FaultyRobot()
    with driver_of(robot, domain_id) as driver:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(driver_node, "SegmentServer", broken)
            assert driver.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert robot.connected == 0
        assert driver._segment_executor is None
        assert "at its end" in driver._fault
        assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert robot.connected == 1


def test_a_robot_that_cannot_be_released_keeps_nothing_else(domain_id: int) -> None:
    with driver_of(FaultyRobot("disconnect"), domain_id) as driver:
        for _ in range(2):
            assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS
            assert driver.trigger_cleanup() == TransitionCallbackReturn.SUCCESS
            assert driver._server is None
            assert not driver._timers_while_configured


def test_a_transition_that_raises_releases_everything(domain_id: int) -> None:
    class Node(DriverNode):
        def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
            raise RuntimeError("not today")

    robot, context = FaultyRobot(), isolated_ros_context(domain_id)
    driver = Node(robot, context=context, overrides={"profile": "sim-drone"})
    try:
        assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert driver.trigger_activate() == TransitionCallbackReturn.ERROR
        assert robot.connected == 0
        assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS
    finally:
        driver.destroy_node()
        context.try_shutdown()


def test_a_driver_tries_again_to_start_by_itself(domain_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "AUTOSTART_AGAIN_S", 0.05)
    robot = FaultyRobot("connect", "connect")
    with driver_of(robot, domain_id, autostart=True) as driver:
        spinner = Spinner(driver.context, [driver], name="driver", owns_context=False).start()
        try:
            eventually(lambda: driver._active)
            assert not robot.breaks
            # What a request has made of it stays.
            spinner.call_and_wait(driver.trigger_deactivate, LIMIT_S)
            spinner.call_and_wait(driver.trigger_cleanup, LIMIT_S)
            assert driver._autostart is None
        finally:
            spinner.close()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (SimRobot, ["task_silence_s", "lease_lapse_s", "proximity_stop_m", "confirm_timeout_s"]),
        (TelloRobot, ["speed_cm_s", "command_port"]),
        (Indy7Robot, ["call_timeout_s"]),
        (MujocoRobot, ["joint_rad_per_s"]),
    ],
)
def test_what_holds_from_the_start_on_is_not_changed_in_name_only(
    kind: type[Robot], names: list[str], domain_id: int
) -> None:
    with driver_of(kind(), domain_id) as driver:
        for name in names:
            (result,) = driver.set_parameters([Parameter(name, value=driver.value(name))])
            assert not result.successful, name


def test_a_motion_ends_with_its_task(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, speed=1.0) as bench:
        moving, waiting = bench.send("d(60);", "mine"), bench.send("d(60);", "mine", 1)
        bench.until(lambda s: s.mode == RobotState.EXECUTING and s.queued == 1)
        bench.publish(Task, "task", Task(task_id="another", phase=Task.ENDED))
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        for goal in (moving, waiting):
            assert goal.result().error_code == ErrorCode.SEGMENT_CANCELLED
        assert bench.robot.halts


def test_a_sensor_that_repeats_nothing_is_heard(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, proximity_stop_m=0.5) as bench:
        bench.publish(Float32, "proximity", Float32(data=5.0), qos_profile_sensor_data)
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))


@pytest.mark.parametrize("distance", [0.2, math.nan])
def test_an_obstacle_stops_a_motion_and_the_next(
    distance: float, domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "MAX_PROXIMITY_AGE_S", LIMIT_S)
    with bench_of(domain_id, tmp_path, proximity_stop_m=0.5, proximity_slow_m=2.0, speed=1.0) as bench:
        assert bench.send("d(1);", "blind").result().error_code == ErrorCode.OBSTACLE, (
            "without any measurement"
        )
        bench.publish(Float32, "proximity", Float32(data=5.0))
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.robot.speed_share == 1.0
        moving = bench.send("d(60);", "near")
        bench.until(lambda s: s.mode == RobotState.EXECUTING)
        bench.publish(Float32, "proximity", Float32(data=1.25))
        eventually(lambda: bench.robot.speed_share == pytest.approx(0.5))
        bench.publish(Float32, "proximity", Float32(data=distance))
        assert moving.result().error_code == ErrorCode.OBSTACLE
        assert bench.robot.halts


def test_a_simulated_drone_stops_before_a_thing_with_a_place(domain_id: int, tmp_path: Path) -> None:
    things = {"things": ["chair:4,0,0"], "speed": 1.0}
    with bench_of(domain_id, tmp_path, proximity_stop_m=2.5, proximity_slow_m=3.0, **things) as bench:
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.send("mf(300);", "near").result().error_code == ErrorCode.OBSTACLE
        assert 1.0 < bench.robot._world.position[0] < 3.0
        assert bench.robot.speed_share < 1.0
        assert bench.send("mf(50);", "nearer").result().error_code == ErrorCode.OBSTACLE


def test_a_gate_without_measurements_stops_a_motion(domain_id: int, tmp_path: Path) -> None:
    with bench_of(domain_id, tmp_path, proximity_stop_m=0.5, speed=1.0) as bench:
        bench.publish(Float32, "proximity", Float32(data=5.0))
        eventually(lambda: not bench.driver._safety.proximity.problem(time.monotonic()))
        assert bench.send("d(60);", "silent").result().error_code == ErrorCode.OBSTACLE


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "guarded.yaml").write_text(CONFIRMED_SKILLS)
    monkeypatch.setenv("TIMELY_SKILLS_PATH", str(tmp_path))
    return {"profile": "sim-arm", "skill_set": "guarded", "speed": 50.0}


@pytest.mark.parametrize(("allow", "skill_set"), [(True, ""), (False, ""), (False, "arm")])
def test_a_skill_waits_for_its_operator(
    allow: bool, skill_set: str, guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with bench_of(domain_id, tmp_path / "s", **guarded) as bench:
        goal = bench.send("home();open();", "mine", skill_set=skill_set)
        state = bench.until(lambda s: s.awaiting == "open()")
        other = bench.call(ConfirmSkill, "confirm", task_id="mine", segment=0, call="close()", allow=True)
        assert not other.success
        answer = bench.call(
            ConfirmSkill, "confirm", task_id=state.task_id, segment=0, call="open()", allow=allow
        )
        assert answer.success
        result = goal.result()
        assert result.error_code == (ErrorCode.NONE if allow else ErrorCode.NOT_CONFIRMED)
        assert bench.robot.performed == (["home()", "open()"] if allow else ["home()"])


def test_a_second_click_does_not_confirm_the_next_equal_call(
    guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with bench_of(domain_id, tmp_path / "s", **guarded) as bench:
        goal = bench.send("open();open();", "mine")

        def confirm(call: str) -> Any:
            return bench.call(ConfirmSkill, "confirm", task_id="mine", segment=0, call=call, allow=True)

        bench.until(lambda state: state.awaiting == "open()")
        assert confirm("open()").success
        bench.until(lambda state: state.awaiting == "open() #2")
        second_click = confirm("open()")
        assert not second_click.success
        assert "open() #2" in second_click.message
        assert bench.robot.performed == ["open()"]
        assert confirm("open() #2").success
        assert goal.result().error_code == ErrorCode.NONE
        assert bench.robot.performed == ["open()", "open()"]


def test_a_skill_without_an_answer_is_refused_in_time(
    guarded: dict[str, Any], domain_id: int, tmp_path: Path
) -> None:
    with bench_of(domain_id, tmp_path / "s", confirm_timeout_s=0.3, **guarded) as bench:
        assert bench.send("open();", "mine").result().error_code == ErrorCode.NOT_CONFIRMED
        assert bench.robot.performed == []
