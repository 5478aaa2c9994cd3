"""What bridge and driver say of a robot on ``/diagnostics``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from timely_bridge.diagnostics import bridge_robot_status, bridge_server_status
from timely_bridge.goals import RobotEntry
from timely_bridge.robot_server import BridgeRobotServer
from timely_bridge.server_health import BridgeServerHealth
from timely_interfaces.msg import RobotState
from timely_robots.robot import RobotStatus
from timely_robots.ros.state_messages import (
    RosDriverState,
    ros_driver_diagnostic_status,
    ros_driver_state_message,
)
from timely_robots.segments import ExecutorState

from timely.client import AsyncTimelyClient

LOST = "the link to the robot is lost"


def status(state: RobotState, entry_profile: str = "") -> Any:
    robot = SimpleNamespace(
        entry=RobotEntry("drone1", entry_profile, "drone"),
        port=SimpleNamespace(state=state, present=True, refusal=None),
        runs=[],
        lock=SimpleNamespace(queue_length=0),
        outcomes={},
        last_error="",
    )
    return bridge_robot_status("bridge", cast(BridgeRobotServer, robot))


def test_a_server_that_refuses_the_bridge_its_stop_is_an_error() -> None:
    """Health needs no token, so a server that knows the bridge's token no more answered well."""
    health = BridgeServerHealth(cast(AsyncTimelyClient, None), 1.0, 3, round_trip_s=0.01)
    assert bridge_server_status("bridge", health, "").level == DiagnosticStatus.OK
    words = "its stop does not reach the robots: no principal has this program's token"
    refused = bridge_server_status("bridge", health, "", words)
    assert (refused.level, refused.message) == (DiagnosticStatus.ERROR, words)
    health.misses, health.reason = 3, "no answer within 1 s"
    assert bridge_server_status("bridge", health, "", "refused").message == "no answer within 1 s"


@pytest.mark.parametrize("driver_profile", ["tello", ""])
def test_a_driver_with_the_profile_of_the_fleet_file_is_well(driver_profile: str) -> None:
    driver = RobotState(robot=driver_profile, mode=RobotState.READY)
    assert status(driver, "tello").level == DiagnosticStatus.OK
    assert status(driver).level == DiagnosticStatus.OK


def test_a_driver_with_another_profile_is_a_warning() -> None:
    other = status(RobotState(robot="sim-drone", mode=RobotState.READY), "tello")
    assert other.level == DiagnosticStatus.WARN
    assert other.message == "plans are for tello, the driver has profile sim-drone"
    assert status(RobotState(robot="sim-drone", mode=RobotState.STOPPED), "tello").message == "stopped"


def test_an_inactive_driver_is_a_warning() -> None:
    inactive = status(RobotState(mode=RobotState.UNCONFIGURED))
    assert (inactive.level, inactive.message) == (DiagnosticStatus.WARN, "the driver is inactive")


@pytest.mark.parametrize("state", [{}, {"stop_id": "s1"}, {"segment_wait_s": 2.0}])
def test_a_bridge_says_that_the_link_to_the_robot_is_lost(state: dict[str, Any]) -> None:
    robot = RobotStatus(link_lost=True, detail="no answer")
    lost = status(ros_driver_state_message(RosDriverState("tello", active=True, robot=robot, **state)))
    assert lost.level == DiagnosticStatus.ERROR
    assert f"{LOST}: no answer" in lost.message


@pytest.mark.parametrize(
    ("robot", "words"),
    [
        (RobotStatus(detail="nothing heard for 5 s", link_lost=True), f"{LOST}: nothing heard for 5 s"),
        (
            RobotStatus(detail="no answer", link_lost=True, fault="not observed at rest 9 s after the stop"),
            f"{LOST}: not observed at rest 9 s after the stop; no answer",
        ),
        (RobotStatus(link_lost=True), LOST),
        (RobotStatus(detail="flying", fault="the motors are hot"), "the motors are hot"),
    ],
)
def test_a_driver_that_cannot_command_its_robot_says_why(robot: RobotStatus, words: str) -> None:
    state = RosDriverState("tello", active=True, robot=robot)
    status = ros_driver_diagnostic_status(state, "drone1/driver", "drone1")
    assert (status.level, status.message) == (DiagnosticStatus.ERROR, words)
    assert ros_driver_state_message(state).detail == words


def test_a_driver_that_is_stopped_names_its_reset() -> None:
    state = RosDriverState("tello", active=True, executor=ExecutorState(stopped=True), stop_id="stop-1")
    status = ros_driver_diagnostic_status(state, "drone1/driver", "drone1")
    assert status.message == "stopped; call /drone1/driver/reset to go on"
