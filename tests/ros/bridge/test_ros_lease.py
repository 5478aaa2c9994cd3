"""One owner a robot: of two bridges one moves it, and the other takes over only when the first is gone."""

from __future__ import annotations

import pytest
from bridge_doubles import FakeServer
from ros_harness import LIMIT_S, eventually
from test_ros_bridge import SCRIPTS, World, a_fleet
from timely_bridge.node import BridgeNode
from timely_interfaces.msg import ErrorCode, RobotState
from timely_robots.ros.spinner import Spinner, isolated_ros_context

pytestmark = [pytest.mark.ros, pytest.mark.timeout(180)]


def test_two_bridges_do_not_drive_one_robot(domain_id: int) -> None:
    fleet = a_fleet(1, 0, driver_timeout_s=1.0)
    here = World(domain_id, fleet, FakeServer(SCRIPTS, ahead=0))
    context = isolated_ros_context(domain_id)
    other_server = FakeServer(SCRIPTS, ahead=0)
    other = BridgeNode(
        "other_bridge", context=context, overrides=fleet.bridge_parameters(), client_factory=other_server
    )
    spinner = Spinner(context, [other], name="other").start()
    try:
        states = here.program.listen(RobotState, "/drone1/state", latched=True)
        eventually(lambda: states and states[-1].lease_owner.startswith("timely_bridge"), "no lease")
        epoch = states[-1].lease_epoch
        first = here.task("drone1", "wait")
        eventually(lambda: first.feedback, "it never began")
        for step in ("configure", "activate"):
            spinner.call_and_wait(getattr(other, f"trigger_{step}"), LIMIT_S)
        spinner.executor.wake()
        robot = other._robots["drone1"]
        eventually(lambda: robot.port.refusal, "the second bridge was not refused")
        assert not robot.port.alive
        assert states[-1].lease_epoch == epoch
        assert first.result().outcome == "complete"
        assert here.fleet.close()
    finally:
        here.program.close()
        assert spinner.close()


def test_a_driver_that_restarts_grants_the_lease_again(domain_id: int) -> None:
    here = World(domain_id, a_fleet(1, 0), FakeServer(SCRIPTS, ahead=0))
    try:
        assert here.task("drone1", "fly").result().outcome == "complete"
        driver = here.fleet.drivers["drone1"]
        for step in ("deactivate", "cleanup", "configure", "activate"):
            here.fleet.spinner.call_and_wait(getattr(driver, f"trigger_{step}"), LIMIT_S)
        here.fleet.spinner.executor.wake()
        eventually(lambda: here.task("drone1", "fly").result().outcome == "complete", "no lease")
        assert here.task("drone1", "fly").result().error_code == ErrorCode.NONE
    finally:
        here.close()
