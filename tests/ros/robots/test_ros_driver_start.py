"""The transitions of a driver: a configuration that fails is undone, and the driver tries again."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver_bench import driver_of
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_harness import LIMIT_S, eventually
from timely_robots.indy7.robot import Indy7Robot
from timely_robots.mujoco.robot import MujocoRobot
from timely_robots.robot import Robot
from timely_robots.ros import driver_node, lifecycle
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.sim.robot import SimRobot
from timely_robots.tello.robot import TelloRobot

pytestmark = [pytest.mark.ros]


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
            meanwhile.setattr(driver_node, "RosSegmentServer", broken)
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
        spinner = RosSpinner(driver.context, [driver], name="driver", owns_context=False).start()
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
