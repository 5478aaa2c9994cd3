"""The fleet's stop says only what is known, stays latched, and needs neither the bridge's executor nor its drivers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bridge_doubles import FakeServer
from fleet_world import SCRIPTS, World, a_fleet
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.task import Future
from ros_harness import LIMIT_S, Program, eventually, principals
from std_srvs.srv import Trigger
from timely_bridge import fleet_stop, goal_journal, stop_latch
from timely_bridge import node as bridge_node
from timely_bridge.diagnostics import bridge_own_status
from timely_bridge.driver_processes import BridgeDriverProcesses
from timely_bridge.fleet_stop import NOTE_S, TOKEN_VARIABLE
from timely_bridge.node import BridgeNode
from timely_bridge.stop_latch import BridgeStopLatch
from timely_interfaces.msg import ErrorCode, RobotState, Task
from timely_interfaces.srv import ResetStop, StopFleet
from timely_robots.disk_thread import DriverDiskThread
from timely_robots.operators import PRINCIPALS_VARIABLE
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.sim.robot import SimRobot

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

pytestmark = [pytest.mark.ros]

STOP, RESET, STOP_FLEET = "/timely_bridge/stop", "/timely_bridge/reset", "/timely_bridge/stop_fleet"


@pytest.fixture
def world(domain_id: int, tmp_path: Path) -> Iterator[World]:
    here = World(domain_id, a_fleet(1, 1, state_folder=str(tmp_path)), FakeServer(SCRIPTS, ahead=0))
    yield here
    here.close()


def test_a_stop_holds_its_thread_no_longer_than_the_longest_deadline() -> None:
    deadlines_s: list[float] = []

    def stop(deadline_s: float, **_: object) -> dict[str, str]:
        deadlines_s.append(deadline_s)
        return {}

    stopped: Any = SimpleNamespace(stop=stop, latch=SimpleNamespace(unsaved=False), reset_service=RESET)
    for asked_s in (2.0, 1e9):
        request, response = StopFleet.Request(deadline_s=asked_s), StopFleet.Response()
        fleet_stop.BridgeFleetStop._on_stop_fleet(stopped, request, response)
    assert deadlines_s == [2.0, fleet_stop.MAX_DEADLINE_S]


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, fleet_stop.AT_REST),
        ({"acknowledged": False}, fleet_stop.UNKNOWN),
        ({"mode": RobotState.FAULT}, fleet_stop.UNKNOWN),
        ({"state": None}, fleet_stop.HALTED),
        ({"halted": False}, fleet_stop.HALTED),
        ({"at_rest": False}, fleet_stop.HALTED),
        ({"named": False}, fleet_stop.HALTED),
        ({"received_s": time.monotonic() - LIMIT_S}, fleet_stop.HALTED),
    ],
)
def test_a_robot_rests_only_if_a_new_state_of_it_says_so(change: dict[str, Any], outcome: str) -> None:
    parts = {"mode": RobotState.STOPPED, "halted": True, "at_rest": True}
    state = RobotState(**{name: change.get(name, value) for name, value in parts.items()})
    change = {name: value for name, value in change.items() if name not in parts}
    fields = {"acknowledged": True, "state": state, "received_s": time.monotonic(), **change}
    robot = fleet_stop._BridgeRobotStop("drone1", None, None, None, **fields)
    assert robot.outcome(LIMIT_S / 2) == outcome


def test_a_robot_whose_driver_never_answered_is_unknown() -> None:
    """As those of a bridge that starts with a latched stop."""
    assert fleet_stop._BridgeRobotStop("drone1", None, None, None).outcome(LIMIT_S) == fleet_stop.UNKNOWN


@pytest.mark.parametrize(
    ("change", "is_ready"),
    [({}, True), ({"stop_request": Future()}, False), ({"named": False}, False), ({"state": None}, False)],
)
def test_a_reset_waits_for_the_answer_to_the_stop_and_for_a_state_after_it(
    change: dict[str, Any], is_ready: bool
) -> None:
    """Else it would release an earlier stop of the driver, and a stop on its way would hold the robot again."""
    fields = {"state": RobotState(stop_id="driver-1"), **change}
    robots = {"drone1": fleet_stop._BridgeRobotStop("drone1", None, None, None, **fields)}
    stop_ids: dict[str, str] = {}
    assert fleet_stop.BridgeFleetStop._collect_stop_ids(robots, stop_ids) is is_ready
    assert stop_ids == ({"drone1": "driver-1"} if is_ready else {})


def test_a_bridge_that_is_not_configured_answers_and_leaves_its_context(domain_id: int) -> None:
    context = isolated_ros_context(domain_id)
    bridge = BridgeNode(context=context, client_factory=FakeServer())
    stopped = bridge.fleet_stop
    try:
        answer = stopped._on_stop(Trigger.Request(), Trigger.Response())
        assert (answer.success, answer.message) == (False, "the bridge has no robots; the stop is latched")
        assert stopped._latched_stop_id == stopped.stop_id, "the log names it"
        reset = stopped._on_reset(ResetStop.Request(), ResetStop.Response())
        assert reset.message == "the bridge has no robots"
        assert (stopped.latch.set, stopped._latched_stop_id) == (False, "")
        stopped._on_state("drone1", RobotState())  # a late one of a robot that was released
    finally:
        bridge.destroy_node()
        assert context.ok(), "other nodes need it"
        assert stopped.close()
        context.try_shutdown()


def mode_of(states: list[RobotState]) -> int:
    return states[-1].mode if states else -1


def test_every_robot_acknowledges(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    response = world.program.call(StopFleet, STOP_FLEET, StopFleet.Request(deadline_s=2.0))
    assert response.success, response.message
    assert list(response.robots) == ["drone1", "arm1"]
    assert set(response.states) <= {StopFleet.Response.HALTED, StopFleet.Response.AT_REST}
    assert response.message.endswith(f"; call {RESET} to go on")
    assert goal.result().error_code == ErrorCode.FLEET_STOPPED
    assert world.program.call(ResetStop, RESET).success
    eventually(lambda: world.task("drone1", "fly").result().outcome == "complete")


@pytest.mark.parametrize(
    "rules", [("__node:=chief", "__ns:=/hall"), ("timely_bridge:__node:=chief", "chief:__ns:=/hall")]
)
def test_the_stop_reaches_the_drivers_of_a_bridge_in_a_namespace(
    domain_id: int, tmp_path: Path, rules: tuple[str, str]
) -> None:
    """An operator's list has the robot's own name, for the driver too."""
    file = tmp_path / "principals.yaml"
    file.write_text(principals(("ann", "operator", "a" * 20, "drone1")))
    of_ann = {"principals": str(file)}
    remapping = ["--ros-args", "-r", rules[0], "-r", rules[1]]
    bridge_context, driver_context = (
        isolated_ros_context(domain_id, remapping),
        isolated_ros_context(domain_id),
    )
    bridge = BridgeNode(
        context=bridge_context, overrides={"robots": ["drone1"], **of_ann}, client_factory=FakeServer()
    )
    driver = DriverNode(
        SimRobot(),
        namespace="/hall/drone1",
        context=driver_context,
        overrides={"profile": "sim-drone", **of_ann},
    )
    nodes = ((bridge_context, bridge), (driver_context, driver))
    for _, node in nodes:
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
    spinners = [RosSpinner(context, [node]).start() for context, node in nodes]
    program = Program(domain_id)
    try:
        response = program.call(StopFleet, "/hall/chief/stop_fleet", StopFleet.Request(deadline_s=LIMIT_S))
        assert response.success, response.message
        assert driver._store.stop_reason is not None
        response = program.call(ResetStop, "/hall/chief/reset", ResetStop.Request(token="a" * 20))
        assert response.success, response.message
        assert program.node.count_services("/hall/chief/set_parameters") == 1, "it would be answered twice"
        nodes_here = bridge.get_node_names_and_namespaces()
        names = sorted(name for name, namespace in nodes_here if namespace == "/hall")
        assert names == ["chief", "chief_stop", "chief_stop_drivers"]
    finally:
        program.close()
        assert all(spinner.close() for spinner in spinners)


def test_the_drivers_answer_before_the_goals_are_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_stop, "DRIVERS_FIRST_S", LIMIT_S)
    stopped, outcomes = world.fleet.bridge.fleet_stop, list[dict[str, str]]()
    monkeypatch.setattr(stopped, "_on_stop_call", lambda: outcomes.append(stopped.outcomes()))
    assert world.program.call(StopFleet, STOP_FLEET, StopFleet.Request(deadline_s=LIMIT_S)).success
    assert StopFleet.Response.UNKNOWN not in outcomes[0].values()


def test_a_stop_during_a_reset_wins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = world.fleet.bridge.fleet_stop
    assert "unknown" not in stopped.stop(LIMIT_S).values()
    put = stopped.latch.put

    def put_and_stop(latched: bool, **options: Any) -> Any:
        saving = put(latched, **options)
        if not latched:
            stopped.stop(LIMIT_S)
        return saving

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(stopped.latch, "put", put_and_stop)
        assert stopped.reset() == dict.fromkeys(("drone1", "arm1"), "the fleet was stopped again")
    assert stopped.latch.set
    assert world.fleet.drivers["drone1"]._store.stop_reason is not None
    assert stopped.reset() == {}
    assert not stopped.latch.set


@pytest.mark.parametrize("named", [False, True])
def test_a_reset_beside_a_stop_that_is_not_answered_must_name_it(
    world: World, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Its sender means an earlier stop, and the latch is what repeats this one to a driver that did not hear it."""
    stopped, complaints = world.fleet.bridge.fleet_stop, list[dict[str, str]]()

    def reset() -> None:
        complaints.append(stopped.reset(stop_id=stopped.stop_id if named else ""))

    monkeypatch.setattr(stopped, "_on_stop_call", reset)
    stopped.stop(3600.0)  # it returns when it is released
    message = f"the fleet is being stopped; a reset of this stop must name it: {stopped.stop_id!r}"
    assert complaints == [{} if named else dict.fromkeys(("drone1", "arm1"), message)]
    assert stopped.latch.set is not named
    if not named:
        assert stopped.reset() == {}


def test_a_reset_of_the_server_that_a_stop_here_overtakes_changes_nothing(world: World) -> None:
    """The bridge looked at the latch before the stop, and its thread resets after it."""
    stopped = world.fleet.bridge.fleet_stop
    stopped.stop(LIMIT_S, by_server=True)
    assert "unknown" not in stopped.stop(LIMIT_S).values()
    assert set(stopped.reset(by_server=True)) == {"drone1", "arm1"}
    assert stopped.latch.own
    assert world.fleet.drivers["drone1"]._store.stop_reason is not None
    assert stopped.reset() == {}
    assert not stopped.latch.set
    assert set(stopped.outcomes().values()) == {"unknown"}, "they may move"
    stopped.server_stop = "stop-1"
    stopped.stop(LIMIT_S, by_server=True)
    assert stopped.reset(by_server=True) == {}
    assert stopped.server_stop == ""


def test_a_stop_of_the_server_that_comes_during_a_reset_is_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = world.fleet.bridge.fleet_stop
    collect = stopped._collect_stop_ids

    def follow(*arguments: Any) -> bool:
        stopped.server_stop = "stop-2"
        return collect(*arguments)

    stopped.server_stop = "stop-1"
    stopped.stop(LIMIT_S, by_server=True)
    monkeypatch.setattr(stopped, "_collect_stop_ids", follow)
    stopped.reset()
    assert stopped.server_stop == "stop-2"


@pytest.mark.parametrize(
    ("is_answered", "age_s", "requests"), [(True, 1e3, 0), (False, 0.0, 0), (False, 1e3, 1)]
)
def test_a_reset_repeats_a_stop_whose_answer_is_overdue_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, is_answered: bool, age_s: float, requests: int
) -> None:
    """The driver would be stopped once more for nothing."""
    stopped, sent_robots = world.fleet.bridge.fleet_stop, list[str]()
    robot = stopped._robots["drone1"]
    assert "unknown" not in stopped.stop(LIMIT_S).values()
    monkeypatch.setattr(stopped, "_send_stop", lambda one: sent_robots.append(one.name))
    robot.sent_s = time.monotonic() - age_s
    if not is_answered:
        robot.stop_request = Future()
    stopped.reset(deadline_s=0.0)
    assert sent_robots == ["drone1"] * requests


def test_a_goal_that_is_taken_while_the_fleet_is_stopped_does_not_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, robot = world.fleet.bridge.fleet_stop, world.fleet.bridge._robots["drone1"]
    begin = robot._begin

    def stop_and_begin(*goal: Any) -> None:
        assert "unknown" not in stopped.stop(LIMIT_S).values()
        begin(*goal)

    monkeypatch.setattr(robot, "_begin", stop_and_begin)
    result = world.task("drone1", "fly").result()
    assert (result.outcome, result.error_code) == ("refused", ErrorCode.FLEET_STOPPED)
    assert world.server.submitted == []
    assert stopped.reset() == {}


def test_no_reset_overtakes_a_stop_on_its_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, resets = world.fleet.bridge.fleet_stop, list[object]()
    robot, store = stopped._robots["drone1"], world.fleet.drivers["drone1"]._store
    reset = robot.reset.call_async

    def record(request: object) -> Future:
        resets.append(request)
        return reset(request)

    monkeypatch.setattr(robot.reset, "call_async", record)
    with monkeypatch.context() as cut:
        cut.setattr(robot.stop, "call_async", lambda request: Future())
        stopped.stop(0.0)
        assert "drone1" in stopped.reset(deadline_s=1.0)
    assert resets == []
    eventually(lambda: stopped.reset() == {}, "the lost stop was not sent again")
    assert store.stop_reason is None
    assert len(resets) == 1


def test_a_reset_that_the_network_delays_leaves_a_later_stop_of_the_driver(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later stop was sent straight to the driver, so the bridge would not repeat it."""
    stopped, robot = world.fleet.bridge.fleet_stop, world.fleet.bridge.fleet_stop._robots["drone1"]
    store, reset = world.fleet.drivers["drone1"]._store, robot.reset.call_async
    stopped.stop(LIMIT_S)

    def overtake(request: object) -> Future:
        assert world.program.call(Trigger, "/drone1/driver/stop").success
        return reset(request)

    with monkeypatch.context() as network:
        network.setattr(robot.reset, "call_async", overtake)
        complaints = stopped.reset(deadline_s=3.0)
    assert list(complaints) == ["drone1"]
    assert "stopped again" in complaints["drone1"]
    assert store.stop_reason is not None
    eventually(lambda: stopped.reset() == {}, "the stop of the driver cannot be released")
    assert store.stop_reason is None


def test_an_answer_that_comes_while_the_next_stop_is_sent_does_not_acknowledge_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, robot = world.fleet.bridge.fleet_stop, world.fleet.bridge.fleet_stop._robots["drone1"]
    earlier = Future()
    earlier.set_result(Trigger.Response(success=True))
    send = stopped._send_stop

    def answer_and_send(one: Any) -> None:
        if one is robot:
            answering = threading.Thread(target=stopped._on_stop_answer, args=(robot, earlier))
            answering.start()
            answering.join(0.1)
        send(one)

    with monkeypatch.context() as cut:
        cut.setattr(robot.stop, "call_async", lambda request: Future())
        cut.setattr(stopped, "_send_stop", answer_and_send)
        robot.stop_request = earlier
        assert stopped.stop(0.2)["drone1"] == StopFleet.Response.UNKNOWN
    eventually(lambda: stopped.outcomes()["drone1"] != StopFleet.Response.UNKNOWN)


def test_a_state_from_before_a_stop_does_not_say_that_the_robot_rests_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped and reset in between, and moved, and its executor was busy all the time."""
    stopped, driver = world.fleet.bridge.fleet_stop, world.fleet.drivers["drone1"]
    assert stopped.stop(LIMIT_S, until_at_rest=True)["drone1"] == StopFleet.Response.AT_REST
    with monkeypatch.context() as busy:
        busy.setattr(driver, "publish_state", lambda: None)
        busy.setattr(driver._safety_services, "_on_change", lambda: None)
        assert stopped.stop(0.5, until_at_rest=True)["drone1"] == StopFleet.Response.HALTED
    eventually(lambda: stopped.outcomes()["drone1"] == StopFleet.Response.AT_REST)


@pytest.mark.parametrize("session", [None, 1])
def test_the_first_state_of_a_driver_that_was_sent_before_the_stop_does_not_name_it(
    world: World, monkeypatch: pytest.MonkeyPatch, session: int | None
) -> None:
    """A reset would release the stop of that state, and the driver would refuse it. ``session``: of an earlier life."""
    stopped, driver = world.fleet.bridge.fleet_stop, world.fleet.drivers["arm1"]
    robot, call = stopped._robots["arm1"], stopped._robots["arm1"].stop.call_async
    first = eventually(lambda: robot.state)

    def overtake(request: object) -> Future:
        stopped._on_state("arm1", first)
        return call(request)

    with monkeypatch.context() as network:
        for where, name in ((driver, "publish_state"), (driver._safety_services, "_on_change")):
            network.setattr(where, name, lambda: None)
        network.setattr(robot.stop, "call_async", overtake)
        earlier = RobotState(session=session) if session else None
        network.setattr(robot, "state", earlier)
        assert "unknown" not in stopped.stop(LIMIT_S).values()
        assert stopped.reset(deadline_s=0.1)["arm1"] == "its last stop is not answered yet"
    eventually(lambda: stopped.reset() == {}, "the stop cannot be released")


@pytest.mark.parametrize(
    ("before", "named", "stop_ids"),
    [
        (None, True, ("", "driver-1")),
        (RobotState(session=7), False, ("driver-1",)),
        (RobotState(session=1, stop_id="driver-0"), True, ("driver-1",)),
    ],
)
def test_no_state_right_after_a_stop_counts_as_from_after_it_where_it_may_name_an_earlier_one(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    before: RobotState | None,
    named: bool,
    stop_ids: Sequence[str],
) -> None:
    """No state has come yet, or none since the stop before, or the driver was started again."""
    stopped, driver = world.fleet.bridge.fleet_stop, world.fleet.drivers["arm1"]
    robot = stopped._robots["arm1"]
    for where, name in ((driver, "publish_state"), (driver._safety_services, "_on_change")):
        monkeypatch.setattr(where, name, lambda: None)
    for name in ("REPEAT_S", "UNANSWERED_S"):
        monkeypatch.setattr(fleet_stop, name, LIMIT_S)
    monkeypatch.setattr(robot.stop, "call_async", lambda request: Future())
    robot.state, robot.named = before, named
    stopped._send_stop(robot)
    for stop_id in stop_ids:
        stopped._on_state("arm1", RobotState(session=7, stop_id=stop_id))
    assert not robot.named


def test_a_reset_during_a_reset_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stop, and its reset, come while the first reset waits for a driver."""
    stopped = world.fleet.bridge.fleet_stop
    collect = stopped._collect_stop_ids
    stopped.stop(LIMIT_S)

    def stop_and_reset(*arguments: Any) -> bool:
        monkeypatch.setattr(stopped, "_collect_stop_ids", collect)
        stopped.stop(LIMIT_S)
        assert stopped.reset() == {}
        return collect(*arguments)

    monkeypatch.setattr(stopped, "_collect_stop_ids", stop_and_reset)
    assert set(stopped.reset().values()) == {"the fleet was stopped again"}
    assert not stopped.latch.set


def test_a_goal_of_before_a_stop_is_marked_before_the_loop_ends_it(world: World) -> None:
    """Otherwise it could send a segment after the reset, if the loop hung through both."""
    bridge, held = world.fleet.bridge, threading.Event()
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    (run,) = bridge._robots["drone1"].runs.values()
    assert bridge._loop is not None
    bridge._loop.call(held.wait, LIMIT_S)
    try:
        bridge.fleet_stop.stop(LIMIT_S)
        assert run.claim.end is not None
    finally:
        held.set()
    assert goal.result().error_code == ErrorCode.FLEET_STOPPED


def test_a_reset_of_the_fleet_that_names_an_earlier_stop_changes_nothing(world: World) -> None:
    def stop() -> Any:
        return world.program.call(StopFleet, STOP_FLEET, StopFleet.Request(deadline_s=LIMIT_S))

    def reset(stop_id: str) -> Any:
        return world.program.call(ResetStop, RESET, ResetStop.Request(stop_id=stop_id))

    earlier, later = stop(), stop()
    late = reset(earlier.stop_id)
    assert not late.success
    assert f"the latched stop, which is '{later.stop_id}'" in late.message
    assert world.fleet.bridge.fleet_stop.latch.set
    assert reset(later.stop_id).success
    late = reset(earlier.stop_id)
    assert not late.success
    assert "no stop of the fleet is latched" in late.message


def test_a_driver_that_the_middleware_cannot_reach_keeps_no_stop_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped, requests = world.fleet.bridge.fleet_stop, list[object]()

    def refuse(request: object) -> None:
        requests.append(request)
        raise RuntimeError("the client's handle is invalid")

    with monkeypatch.context() as broken:
        broken.setattr(stopped._robots["drone1"].stop, "call_async", refuse)
        assert stopped.stop(0.5) == {"drone1": "unknown", "arm1": stopped.outcomes()["arm1"]}
        assert stopped.outcomes()["arm1"] in (StopFleet.Response.HALTED, StopFleet.Response.AT_REST)
        eventually(lambda: len(requests) >= 4, "the stop was not repeated")
        assert caplog.text.count("RuntimeError: the client's handle is invalid") == 1, "one for each stop"
        assert stopped.stop(0.0)["drone1"] == "unknown"
    eventually(lambda: stopped.outcomes()["drone1"] != "unknown", "the stop was not repeated")
    assert caplog.text.count("RuntimeError: the client's handle is invalid") == 2, "one for each stop"


def test_a_driver_that_the_middleware_cannot_reach_keeps_no_reset_from_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = world.fleet.bridge.fleet_stop

    def refuse(request: object) -> None:
        raise RuntimeError("the client's handle is invalid")

    assert "unknown" not in stopped.stop(LIMIT_S).values()
    with monkeypatch.context() as broken:
        broken.setattr(stopped._robots["drone1"].reset, "call_async", refuse)
        answer = world.program.call(ResetStop, RESET)
    assert (answer.success, answer.message) == (False, "drone1: the client's handle is invalid")
    assert world.fleet.drivers["arm1"]._store.stop_reason is None
    assert world.fleet.drivers["drone1"]._store.stop_reason is not None
    assert stopped.reset() == {}


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("a fault of ours")


def test_goals_that_cannot_be_ended_keep_no_answer_of_the_drivers_back(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(world.fleet.bridge.fleet_stop, "_on_stop_call", fail)
    assert world.program.call(Trigger, STOP).success
    assert "a call at the stop failed" in caplog.text


def test_a_stop_that_fails_leaves_the_next_one_served(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = world.program
    assert program.call(Trigger, STOP).success
    client = program.spinner.call_and_wait(lambda: program.node.create_client(Trigger, STOP), LIMIT_S)
    eventually(client.service_is_ready)
    with monkeypatch.context() as broken:
        broken.setattr(world.fleet.bridge.fleet_stop, "stop", fail)
        program.spinner.call(partial(client.call_async, Trigger.Request()))
        eventually(lambda: "a callback of the fleet's stop failed" in caplog.text, "it is not in the log")
    assert program.call(Trigger, STOP).success


def test_an_answer_to_an_earlier_stop_acknowledges_no_later_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, requests, removals = world.fleet.bridge.fleet_stop, list[Future](), list[Future]()
    client = stopped._robots["drone1"].stop

    def call(request: object) -> Future:
        requests.append(Future())
        return requests[-1]

    monkeypatch.setattr(client, "call_async", call)
    monkeypatch.setattr(client, "remove_pending_request", removals.append)
    for _ in range(2):
        assert stopped.stop(0.0)["drone1"] == "unknown"
        assert removals == requests[:-1], "requests would pile up"
    requests[0].set_result(Trigger.Response(success=True))
    assert stopped.outcomes()["drone1"] == "unknown"


def test_a_robot_whose_link_is_lost_is_unknown_until_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, robot = world.fleet.bridge.fleet_stop, world.fleet.drivers["drone1"].robot
    status = robot.status
    with monkeypatch.context() as lost:
        lost.setattr(robot, "status", lambda: replace(status(), link_lost=True))
        outcomes = stopped.stop(0.5)
        assert outcomes["drone1"] == "unknown"
        assert outcomes["arm1"] != "unknown"
    eventually(lambda: stopped.outcomes()["drone1"] != "unknown", "the stop was not repeated")


def test_a_driver_whose_stop_changes_for_ever_is_a_line_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drivers of one name take turns, and each repetition of the stop is another one of a driver."""
    lines: list[tuple[str, str]] = []
    stopped = world.fleet.bridge.fleet_stop
    monkeypatch.setattr(
        stopped, "_on_driver_stop", lambda robot, *ids: lines.append(ids) if robot == "drone1" else None
    )
    robot = stopped._robots["drone1"]

    def hear(stop_id: str) -> None:
        with stopped._changed:
            robot.named = robot.acknowledged = True
            assert robot.state is not None
            state = RobotState(session=robot.state.session, mode=RobotState.STOPPED, stop_id=stop_id)
            stopped._on_state("drone1", state)

    stopped.stop(0.5)
    eventually(lambda: lines, "no line at all")
    for number in range(5):
        hear(f"driver-{number}")
    assert len(lines) == 1
    robot.noted_s -= NOTE_S
    hear("driver-5")
    assert len(lines) == 2
    stopped.stop(0.5)
    eventually(lambda: len(lines) == 3, "the next stop has no line")
    assert len({fleet_stop_id for fleet_stop_id, _ in lines}) == 2


@pytest.mark.process
def test_a_hung_driver_is_unknown_and_is_stopped_when_it_is_back(domain_id: int, tmp_path: Path) -> None:
    fleet = a_fleet(2, 0)
    processes = BridgeDriverProcesses(fleet, tmp_path, domain_id=domain_id)
    here = World(domain_id, fleet, FakeServer(SCRIPTS, ahead=0), processes=processes)
    try:
        states = here.program.listen(RobotState, "/drone1/state", latched=True)
        eventually(lambda: mode_of(states) == RobotState.READY, "it never became ready")
        os.kill(processes.pid("drone1"), signal.SIGSTOP)
        try:
            begin_s = time.monotonic()
            response = here.program.call(Trigger, STOP)
            assert not response.success
            assert "drone1: unknown" in response.message
            assert "drone2: unknown" not in response.message
            assert time.monotonic() - begin_s < LIMIT_S / 2, "it waited for the driver that hangs"
        finally:
            os.kill(processes.pid("drone1"), signal.SIGCONT)
        eventually(lambda: mode_of(states) == RobotState.STOPPED, "the latched stop was not sent again")
        eventually(lambda: here.program.call(Trigger, STOP).success)
    finally:
        here.close()


def test_only_an_operator_resets_the_fleet(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "token-of-an-operator-of-all"
    (tmp_path / "principals.yaml").write_text(principals(("ann", "operator", token)))
    monkeypatch.setenv(PRINCIPALS_VARIABLE, str(tmp_path / "principals.yaml"))
    here = World(domain_id, a_fleet(1, 0), FakeServer(SCRIPTS, ahead=0))
    try:
        assert here.program.call(Trigger, STOP).success
        refused = here.program.call(ResetStop, RESET, ResetStop.Request(token="guess"))
        assert not refused.success
        assert "operator" in refused.message
        assert here.task("drone1", "fly").result().error_code == ErrorCode.FLEET_STOPPED
        assert here.program.call(ResetStop, RESET, ResetStop.Request(token=token)).success
        eventually(lambda: here.task("drone1", "fly").result().outcome == "complete")
        # A reset over HTTP was authorised by the server; the drivers want a token from the bridge all the same.
        stopped = here.fleet.bridge.fleet_stop
        stopped.stop(LIMIT_S)
        assert list(stopped.reset()) == ["drone1"]
        stopped.stop(LIMIT_S)
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        assert stopped.reset() == {}
    finally:
        here.close()


def test_a_stop_passes_executors_that_are_held_up(world: World) -> None:
    assert world.program.call(Trigger, STOP).success
    held = threading.Event()
    world.fleet.spinner.call(lambda: held.wait(LIMIT_S))  # of bridge and drivers
    try:
        assert world.program.call(Trigger, STOP).success, "the drivers acknowledge each stop anew"
    finally:
        held.set()


def test_a_stop_without_robots_is_no_success(world: World) -> None:
    spinner, bridge = world.fleet.spinner, world.fleet.bridge
    for step in ("deactivate", "cleanup"):
        spinner.call_and_wait(getattr(bridge, f"trigger_{step}"), LIMIT_S)
    drivers = bridge.fleet_stop._drivers
    assert not list(drivers.clients)
    assert not [one for one in drivers.subscriptions if one.topic_name.endswith("/state")]
    response = world.program.call(Trigger, STOP)
    assert not response.success
    assert "no robots" in response.message
    for step in ("configure", "activate"):
        spinner.call_and_wait(getattr(bridge, f"trigger_{step}"), LIMIT_S)
    spinner.executor.wake()
    refusal = world.task("drone1", "fly").result()
    assert refusal.error_code == ErrorCode.FLEET_STOPPED
    assert f"call {RESET} to go on" in refusal.error_msg
    bridge.fleet_stop.server_stop = "stop-1"
    assert f"call {RESET} to go on" in world.task("drone1", "fly").result().error_msg, (
        "it was also stopped here"
    )
    assert world.program.call(ResetStop, RESET).success
    bridge.fleet_stop.stop(LIMIT_S, by_server=True)
    bridge.fleet_stop.server_stop = "stop-2"
    assert "POST http://fake/v1/stop/reset to go on" in world.task("drone1", "fly").result().error_msg
    assert world.program.call(ResetStop, RESET).success


def test_a_driver_that_returns_is_stopped_again(world: World) -> None:
    states = world.program.listen(RobotState, "/drone1/state", latched=True)
    assert world.program.call(Trigger, STOP).success
    driver = world.fleet.drivers["drone1"]
    world.fleet.spinner.call_and_wait(driver.trigger_deactivate, LIMIT_S)
    driver._store._stop_reason = None  # as a new driver without the memory of the old one
    world.fleet.spinner.call_and_wait(driver.trigger_activate, LIMIT_S)
    session = states[0].session
    eventually(
        lambda: states[-1].session != session and mode_of(states) == RobotState.STOPPED,
        "the driver that returned was not stopped",
    )


def test_the_latch_survives_deactivation_and_a_restart(world: World, domain_id: int, tmp_path: Path) -> None:
    assert world.program.call(Trigger, STOP).success
    for step in ("deactivate", "activate"):
        world.fleet.spinner.call_and_wait(getattr(world.fleet.bridge, f"trigger_{step}"), LIMIT_S)
    assert world.task("drone1", "fly").result().error_code == ErrorCode.FLEET_STOPPED
    assert saved_latch(tmp_path).set
    assert world.fleet.close()
    again = World(domain_id, a_fleet(1, 0, state_folder=str(tmp_path)), FakeServer(SCRIPTS, ahead=0))
    try:
        assert again.task("drone1", "fly").result().error_code == ErrorCode.FLEET_STOPPED
        assert again.program.call(ResetStop, RESET).success
        eventually(lambda: again.task("drone1", "fly").result().outcome == "complete")
        assert not saved_latch(tmp_path).set
    finally:
        again.close()


def saved_latch(folder: Path) -> BridgeStopLatch:
    return BridgeStopLatch(DriverDiskThread("test"), folder)


def test_a_latch_that_cannot_be_read_is_set(tmp_path: Path) -> None:
    assert not saved_latch(tmp_path).set
    (tmp_path / "stop.json").write_text('{"stop')
    latch = saved_latch(tmp_path)
    assert latch.set
    latch.put(False).result(LIMIT_S)
    assert not saved_latch(tmp_path).set
    full = saved_latch(Path("/proc/no-such-folder"))
    full.put(True).result(LIMIT_S)
    assert full.set
    assert full.problem


def test_a_latch_says_after_a_restart_whether_the_server_may_clear_it(tmp_path: Path) -> None:
    latch = saved_latch(tmp_path)
    latch.put(True).result(LIMIT_S)
    assert (saved_latch(tmp_path).set, saved_latch(tmp_path).own) == (True, False)
    for own in (True, False):
        latch.put(True, own=own).result(LIMIT_S)
        assert (saved_latch(tmp_path).set, saved_latch(tmp_path).own) == (True, True)
    latch.put(False).result(LIMIT_S)
    assert (saved_latch(tmp_path).set, saved_latch(tmp_path).own) == (False, False)
    (tmp_path / "stop.json").write_text('{"stopped": true}')  # of an earlier release
    assert (saved_latch(tmp_path).set, saved_latch(tmp_path).own) == (True, True)


def test_a_stop_while_the_bridge_is_configured_is_in_its_new_latch(world: World, tmp_path: Path) -> None:
    stopped, new = world.fleet.bridge.fleet_stop, BridgeStopLatch(DriverDiskThread("test"), tmp_path / "new")
    put = stopped.latch.put

    def put_slowly(*arguments: Any, **options: Any) -> Any:
        configuring.start()
        configuring.join(0.2)  # the other thread goes as far as it can
        return put(*arguments, **options)

    configuring = threading.Thread(target=stopped.set_robots, args=((), 1.0, new))
    stopped.latch.put = put_slowly  # type: ignore[method-assign]
    stopped.stop(0.0)
    configuring.join(LIMIT_S)
    assert stopped.latch is new
    assert new.set, "the stop was answered, and is lost"
    stopped.reset()


def test_an_operator_of_other_robots_resets_no_bridge_that_has_released_its_own(
    domain_id: int, tmp_path: Path
) -> None:
    file = tmp_path / "principals.yaml"
    file.write_text(principals(("ann", "operator", "a" * 20, "arm*"), ("bob", "operator", "b" * 20)))
    here = World(domain_id, a_fleet(1, 0, principals=str(file)), FakeServer(SCRIPTS, ahead=0))
    try:
        assert here.program.call(Trigger, STOP).success
        for step in ("deactivate", "cleanup"):
            here.fleet.spinner.call_and_wait(getattr(here.fleet.bridge, f"trigger_{step}"), LIMIT_S)
        assert not here.program.call(ResetStop, RESET, ResetStop.Request(token="a" * 20)).success
        assert here.fleet.bridge.fleet_stop.latch.set
        here.program.call(ResetStop, RESET, ResetStop.Request(token="b" * 20))
        assert not here.fleet.bridge.fleet_stop.latch.set
    finally:
        here.close()


def test_a_latch_that_a_full_disk_refused_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise InvalidInput("No space left on device", where="stop.json")

    latch = saved_latch(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(stop_latch, "core_write_file", full)
        latch.put(True).result(LIMIT_S)
        assert latch.problem
    assert not saved_latch(tmp_path).set
    latch.catch_up()
    eventually(lambda: saved_latch(tmp_path).set and not latch.problem, "it was not written")


def test_a_latch_whose_disk_hangs_waits_for_one_call_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called once a second, perhaps for days."""
    disk, answered = DriverDiskThread("test"), threading.Event()
    latch = BridgeStopLatch(disk, tmp_path)
    latch.problem = "No space left on device"
    writes: list[object] = []

    def hang(_: Path, text: str) -> None:
        writes.append(text)
        assert answered.wait(LIMIT_S)
        raise InvalidInput("No space left on device", where="stop.json")

    monkeypatch.setattr(stop_latch, "core_write_file", hang)
    for _ in range(3):
        latch.catch_up()
    answered.set()
    assert disk.close(LIMIT_S)
    assert writes == ['{"stopped": false}']


def bridge_message(world: World) -> str:
    """What ``/diagnostics`` says of the bridge itself."""
    bridge = world.fleet.bridge
    problems = world.fleet.spinner.call_and_wait(bridge._problems, LIMIT_S)
    return str(bridge_own_status("bridge", problems).message)


def test_two_bridges_of_one_name_are_a_warning(
    world: World, domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop is answered by one of them, which knows nothing of the other's robots."""
    monkeypatch.setattr(bridge_node, "NAMESAKE_S", 0.0)
    assert bridge_message(world) == "keeps stop and goals"
    context = isolated_ros_context(domain_id)
    other = BridgeNode(context=context, overrides={"robots": ["drone9"]}, client_factory=FakeServer())
    try:
        eventually(lambda: "another bridge has the same name" in bridge_message(world), "it is unseen")
    finally:
        other.destroy_node()
        context.try_shutdown()
    eventually(lambda: bridge_message(world) == "keeps stop and goals", "it is seen for ever")


def test_a_disk_that_hangs_delays_neither_stop_nor_heartbeats(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()

    def hang(*_: object, **__: object) -> int:
        assert back.wait(LIMIT_S)
        return 0

    tasks = world.program.listen(Task, "/drone1/task", latched=True)
    goal = world.task("drone1", "wait")
    task_id = eventually(lambda: goal.feedback, "it never began")[0].segment.task_id
    with monkeypatch.context() as disk:
        disk.setattr(stop_latch, "core_write_file", hang)
        disk.setattr(goal_journal, "append_file_line", hang)
        disk.setattr(goal_journal, "core_write_file", hang)
        disk.setattr(os, "pwrite", hang)
        try:
            before = len(tasks)
            eventually(lambda: len(tasks) >= before + 3, "the drivers hear no more of the task")
            assert tasks[-1].task_id == task_id
            assert tasks[-1].phase != Task.ENDED
            response = world.program.call(Trigger, STOP)
            assert response.success
            assert "the disk does not have the stop yet" in response.message
            eventually(lambda: tasks[-1].phase == Task.ENDED, "its task does not end")
            assert tasks[-1].error_code == ErrorCode.FLEET_STOPPED
            assert world.fleet.bridge.fleet_stop.latch.set
            eventually(
                lambda: "the disk has not answered" in bridge_message(world), "its operator is not told"
            )
        finally:
            back.set()
    assert goal.result().error_code == ErrorCode.FLEET_STOPPED


def test_a_stop_waits_a_moment_for_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer says that a restart would know of it."""
    monkeypatch.setattr(fleet_stop, "SAVE_S", LIMIT_S)
    stopped = world.fleet.bridge.fleet_stop

    def write_late(*content: Any) -> None:
        threading.Event().wait(0.2)  # far longer than the drivers' answers take
        core_write_file(*content)

    monkeypatch.setattr(stop_latch, "core_write_file", write_late)
    assert stopped._on_stop(Trigger.Request(), Trigger.Response()).message.count("the disk") == 0
    assert not stopped.latch.unsaved
    assert stopped.reset() == {}


def test_the_task_in_execution_has_its_heartbeat_however_many_are_queued(domain_id: int) -> None:
    here = World(domain_id, a_fleet(1, 0, speed=8.0), FakeServer(SCRIPTS))
    try:
        tasks = here.program.listen(Task, "/drone1/task", latched=True)
        first = here.task("drone1", "wait")
        task_id = eventually(lambda: first.feedback, "it never began")[0].segment.task_id
        queued = []
        for _ in range(30):
            queued.append(here.task("drone1", "fly"))
            eventually(lambda: len(here.server.submitted) == 1 + len(queued), "it was not submitted")
        assert first.result().outcome == "complete"
        heartbeats = [task for task in tasks if task.task_id == task_id and task.phase != Task.ENDED]
        assert len(heartbeats) >= 4
        for goal in queued:
            goal.cancel()
    finally:
        here.close()
