"""A process for each driver: one that ends takes one robot with it, and is started again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ros_harness import eventually
from test_ros_bridge import SCRIPTS, World, a_fleet
from timely_bridge.driver_processes import DriverProcesses
from timely_bridge.testing import FakeServer
from timely_interfaces.msg import ErrorCode

pytestmark = [pytest.mark.ros, pytest.mark.process, pytest.mark.timeout(180)]

START_S = 60.0


def test_a_driver_that_is_killed_is_started_again_and_the_others_fly_on(
    domain_id: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fleet = a_fleet(2, 0, driver_silence_s=2.5)
    processes = DriverProcesses(fleet, tmp_path, domain_id=domain_id)
    here = World(domain_id, fleet, FakeServer(SCRIPTS, ahead=0), processes=processes)
    try:
        goals = [here.task(robot, "wait") for robot in ("drone1", "drone2")]
        for goal in goals:
            eventually(lambda goal=goal: goal.feedback, "it never began")
        killed = processes.pid("drone1")
        os.kill(killed, signal.SIGKILL)
        assert goals[0].result().error_code == ErrorCode.DRIVER_LOST
        assert goals[1].result().outcome == "complete"
        eventually(lambda: processes.restarts["drone1"] == 1, "it was not started again", START_S)
        eventually(
            lambda: here.task("drone1", "fly").result().outcome == "complete", "it takes nothing", START_S
        )
        assert processes.pid("drone1") not in (0, killed)
        assert processes.restarts["drone2"] == 0
        assert "ended with signal SIGKILL; it starts again in 0.5 s" in capfd.readouterr().err
    finally:
        here.close()
    assert processes.pid("drone2") == 0
