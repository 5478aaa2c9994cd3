"""The bridge's life: start, deactivation, release and end; what it leaves behind is nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from bridge_doubles import FakeServer
from fleet_world import SCRIPTS, World, a_fleet, fleet_world
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.lifecycle import TransitionCallbackReturn
from ros_harness import LIMIT_S, eventually
from timely_bridge.fleet import parse_bridge_fleet
from timely_bridge.interfaces import BridgeSegment
from timely_bridge.loop_thread import BridgeLoopThread
from timely_bridge.node import BridgeNode
from timely_bridge.run_fleet import start_bridge_fleet
from timely_interfaces.msg import ErrorCode
from timely_robots.ros.spinner import isolated_ros_context

from timely.core.errors import InvalidInput

pytestmark = [pytest.mark.ros]


def test_an_inactive_bridge_refuses_and_ends_what_runs(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    state = world.program.call(GetState, "/timely_bridge/get_state")
    assert state.current_state.id == State.PRIMARY_STATE_ACTIVE
    bridge = world.fleet.bridge
    world.fleet.spinner.call_and_wait(bridge.trigger_deactivate, LIMIT_S)
    assert goal.result().error_code == ErrorCode.BRIDGE_INACTIVE
    assert world.task("drone1", "fly").result().error_code == ErrorCode.BRIDGE_INACTIVE
    world.fleet.spinner.call_and_wait(bridge.trigger_activate, LIMIT_S)
    assert world.task("drone1", "fly").result().outcome == "complete"
    for step in ("deactivate", "cleanup", "configure", "activate"):
        world.fleet.spinner.call_and_wait(getattr(bridge, f"trigger_{step}"), LIMIT_S)
    world.fleet.spinner.executor.wake()
    assert world.task("drone2", "fly").result().outcome == "complete"


def test_closing_a_fleet_in_mid_flight_ends_everything(domain_id: int, server: FakeServer) -> None:
    made = World(domain_id, a_fleet(), server)
    goal = made.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    begin = time.monotonic()
    assert made.fleet.close()
    assert time.monotonic() - begin < 5.0
    assert server.cancelled == [goal.feedback[0].segment.task_id]
    made.program.close()


@pytest.mark.parametrize(
    ("robots", "error"),
    [
        ({"drone1": {"profile": "sim-drone", "skill_set": "drone", "driver": "submarine"}}, InvalidInput),
        ({"drone1": {"profile": "no-such", "skill_set": "drone"}}, InvalidInput),
        (
            {"drone1": {"profile": "sim-drone", "skill_set": "drone", "parameters": {"speed": -1.0}}},
            InvalidInput,
        ),
        (
            {"drone1": {"profile": "sim-drone", "skill_set": "drone", "parameters": {"speed": "fast"}}},
            InvalidInput,
        ),
    ],
)
def test_a_fleet_that_cannot_start_says_so_and_leaves_nothing(
    domain_id: int, robots: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        start_bridge_fleet(
            parse_bridge_fleet({"robots": robots}), domain_id=domain_id, client_factory=FakeServer()
        )


def test_a_fleet_in_a_namespace_is_refused(domain_id: int) -> None:
    """All its drivers would have the same names."""
    with pytest.raises(InvalidInput, match="namespace"):
        start_bridge_fleet(
            a_fleet(),
            domain_id=domain_id,
            ros_args=["--ros-args", "-r", "__ns:=/hall"],
            client_factory=FakeServer(),
        )


@pytest.mark.parametrize("steps", [("deactivate", "cleanup"), ("shutdown",)])
def test_a_bridge_that_is_released_stops_its_robots_and_answers_its_goals(
    world: World, steps: tuple[str, ...]
) -> None:
    """Both steps run at once, as a lifecycle manager requests them."""
    bridge, spinner = world.fleet.bridge, world.fleet.spinner
    goal = world.task("drone1", "wait")
    task_id = eventually(lambda: goal.feedback, "it never began")[0].segment.task_id
    driver = world.fleet.drivers["drone1"]
    eventually(lambda: driver.segments.executing, "the robot never moved")
    spinner.call_and_wait(lambda: [getattr(bridge, f"trigger_{step}")() for step in steps], LIMIT_S)
    assert goal.result().error_code == ErrorCode.BRIDGE_INACTIVE
    eventually(lambda: not driver.segments.executing, "the robot moves on")
    assert world.server.cancelled == [task_id]
    if "cleanup" in steps:
        for step in ("configure", "activate"):
            done = spinner.call_and_wait(getattr(bridge, f"trigger_{step}"), LIMIT_S)
            assert done == TransitionCallbackReturn.SUCCESS
        assert world.task("drone1", "fly").result().outcome == "complete"


def test_a_segment_that_is_sent_while_a_bridge_is_released_stops_too(
    domain_id: int, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge's executor waits for the goal's end, and takes no answer of the driver."""
    with fleet_world(domain_id, a_fleet(driver_silence_s=2.5, cancel_timeout_s=600.0), server) as world:
        bridge, spinner = world.fleet.bridge, world.fleet.spinner
        port, driver = bridge._robots["drone1"].port, world.fleet.drivers["drone1"]
        send, give_up = port._send, port.give_up
        sending, given_up = threading.Event(), threading.Event()

        def send_late(sent_segment: BridgeSegment) -> None:
            sending.set()
            assert given_up.wait(LIMIT_S)
            send(sent_segment)

        def give_up_first() -> None:
            give_up()
            given_up.set()

        monkeypatch.setattr(port, "_send", send_late)
        monkeypatch.setattr(port, "give_up", give_up_first)
        goal = world.task("drone1", "wait")
        assert sending.wait(LIMIT_S)
        spinner.call_and_wait(lambda: (bridge.trigger_deactivate(), bridge.trigger_cleanup()), LIMIT_S)
        assert goal.result().error_code == ErrorCode.BRIDGE_INACTIVE
        eventually(lambda: not driver.segments.executing, "the robot moves on")


def test_a_bridge_whose_configuration_fails_half_way_is_undone(domain_id: int, tmp_path: Path) -> None:
    def no_client(url: str) -> FakeServer:
        if not attempts:
            attempts.append(url)
            raise RuntimeError("no such scheme")
        return FakeServer(SCRIPTS)

    attempts: list[str] = []
    context = isolated_ros_context(domain_id)
    overrides = {"robots": ["drone1"], "state_folder": str(tmp_path)}
    bridge = BridgeNode(context=context, overrides=overrides, client_factory=no_client)
    try:
        assert bridge.trigger_configure() == TransitionCallbackReturn.FAILURE
        assert "no such scheme" in bridge._fault
        eventually(
            lambda: "timely bridge" not in {thread.name for thread in threading.enumerate()},
            "a loop is left behind",
        )
        assert bridge.trigger_configure() == TransitionCallbackReturn.SUCCESS, "its folder is not given up"
    finally:
        bridge.destroy_node()
        context.try_shutdown()


def test_a_bridge_whose_loop_begins_late_is_configured(
    domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the loop took over 5 s, so the bridge was not configured, and its fleet ended."""
    may_begin = threading.Event()
    begin = BridgeLoopThread._run

    def begin_late(loop: BridgeLoopThread) -> None:
        assert may_begin.wait(LIMIT_S)
        begin(loop)

    monkeypatch.setattr(BridgeLoopThread, "_run", begin_late)
    context = isolated_ros_context(domain_id)
    server = FakeServer(SCRIPTS)
    bridge = BridgeNode(context=context, overrides={"robots": ["drone1"]}, client_factory=server)
    try:
        assert bridge.trigger_configure() == TransitionCallbackReturn.SUCCESS
        may_begin.set()
        health = bridge._health
        assert health is not None
        eventually(lambda: health.round_trip_s >= 0.0, "the server is not checked")
    finally:
        may_begin.set()
        bridge.destroy_node()
        context.try_shutdown()
