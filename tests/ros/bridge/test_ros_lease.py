"""One owner a robot: of two bridges one moves it, and the other takes over only when the first is gone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from bridge_doubles import FakeServer
from fleet_world import SCRIPTS, World, a_fleet
from rclpy.node import Node
from rclpy.task import Future
from ros_harness import LIMIT_S, eventually
from timely_bridge.node import BridgeNode
from timely_bridge.robot_lease import BridgeRobotLease
from timely_interfaces.msg import ErrorCode, RobotState
from timely_interfaces.srv import AcquireLease
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

pytestmark = [pytest.mark.ros]


def test_two_bridges_do_not_drive_one_robot(domain_id: int) -> None:
    fleet = a_fleet(1, 0, driver_timeout_s=5.0)
    here = World(domain_id, fleet, FakeServer(SCRIPTS, ahead=0))
    context = isolated_ros_context(domain_id)
    other_server = FakeServer(SCRIPTS, ahead=0)
    other = BridgeNode(
        "other_bridge", context=context, overrides=fleet.bridge_parameters(), client_factory=other_server
    )
    spinner = RosSpinner(context, [other], name="other").start()
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


def test_a_lease_that_a_driver_granted_before_its_restart_is_worth_nothing(domain_id: int) -> None:
    """Its answer may come after the new driver's first state."""
    context = isolated_ros_context(domain_id)
    node = Node("bridge", context=context)
    lease = BridgeRobotLease(node, "drone1", "driver", "bridge")
    requests: list[Future] = []

    def send(request: AcquireLease.Request) -> Future:
        requests.append(Future())
        return requests[-1]

    client = SimpleNamespace(
        service_is_ready=lambda: True, call_async=send, remove_pending_request=lambda request: None
    )
    node.destroy_client(lease._client)
    lease._client = client
    try:
        lease.observe(RobotState(session=1))
        lease.check()
        lease.observe(RobotState(session=2))
        requests[0].set_result(AcquireLease.Response(granted=True, epoch=7))
        assert lease.epoch == 0
        lease._requested_s = -1e9
        lease.check()
        requests[1].set_result(AcquireLease.Response(granted=True, epoch=8))
        assert lease.epoch == 8
        lease.observe(RobotState(session=2, lease_epoch=8))
        assert lease.epoch == 8
    finally:
        node.destroy_node()
        context.try_shutdown()


def test_a_state_that_comes_after_the_end_of_a_lease_requests_no_other(domain_id: int) -> None:
    """The executor may have received it before, and a destroyed client raises."""
    context = isolated_ros_context(domain_id)
    node = Node("bridge", context=context)
    lease = BridgeRobotLease(node, "drone1", "driver", "bridge")
    try:
        lease.destroy()
        lease.observe(RobotState(session=1))
        lease.check()
        assert lease._request is None
    finally:
        node.destroy_node()
        context.try_shutdown()
