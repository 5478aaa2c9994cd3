"""What bridge and driver say of a robot on ``/diagnostics``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from timely_bridge.diagnostics import bridge_robot_status
from timely_bridge.goals import RobotEntry
from timely_bridge.robot_server import BridgeRobotServer
from timely_interfaces.msg import RobotState
from timely_robots.robot import RobotStatus
from timely_robots.ros.state_messages import (
    RosDriverState,
    ros_driver_diagnostic_status,
    ros_driver_state_message,
)


def status(entry_profile: str, driver_profile: str, mode: int = RobotState.READY) -> Any:
    robot = SimpleNamespace(
        entry=RobotEntry("drone1", entry_profile, "drone"),
        port=SimpleNamespace(state=RobotState(robot=driver_profile, mode=mode), present=True, refusal=None),
        runs=[],
        lock=SimpleNamespace(queue_length=0),
        outcomes={},
        last_error="",
    )
    return bridge_robot_status("bridge", cast(BridgeRobotServer, robot))


@pytest.mark.parametrize("driver_profile", ["tello", ""])
def test_a_driver_with_the_profile_of_the_fleet_file_is_well(driver_profile: str) -> None:
    assert status("tello", driver_profile).level == DiagnosticStatus.OK
    assert status("", "tello").level == DiagnosticStatus.OK


def test_a_driver_with_another_profile_is_a_warning() -> None:
    other = status("tello", "sim-drone")
    assert other.level == DiagnosticStatus.WARN
    assert other.message == "plans are for tello, the driver has profile sim-drone"
    assert status("tello", "sim-drone", RobotState.STOPPED).message == "stopped"


LOST = "the link to the robot is lost"


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
