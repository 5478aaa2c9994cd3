"""The bridge end to end over ROS 2: actions in, segments to simulated drivers, reports to a server that behaves."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from bridge_doubles import FakeSegment, FakeServer
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.task import Future
from ros_harness import AT_ONCE_S, LIMIT_S, Goal, Program, eventually
from std_msgs.msg import String
from std_srvs.srv import Trigger
from timely_bridge import driver_port
from timely_bridge.fleet import Fleet, parse_bridge_fleet
from timely_bridge.interfaces import BridgeSegment
from timely_bridge.node import BridgeNode
from timely_bridge.run_fleet import RunningFleet, start_bridge_fleet
from timely_bridge.task_player import play_bridge_tasks
from timely_interfaces.action import ExecuteSegment, ExecuteTask
from timely_interfaces.msg import ErrorCode, RobotState, Segment, SegmentReport
from timely_interfaces.msg import Task as TaskNews
from timely_interfaces.msg import TimeUtility as Tuf
from timely_interfaces.srv import ResetStop
from timely_robots.ros import actions
from timely_robots.ros.actions import send_ros_goal
from timely_robots.ros.spinner import isolated_ros_context

from timely.core.errors import EngineFailed, InvalidInput, TimelyError, UnknownName, UnsafeSegment
from timely.core.utility import NORMAL

pytestmark = [pytest.mark.ros, pytest.mark.timeout(180)]

PLAN = (FakeSegment("mf(100);", 2.5), FakeSegment("?s('dog')==True{", 1.5), FakeSegment("g('dog')}", 2.5))
LONG = (FakeSegment("d(60);", 60.0), FakeSegment("mf(100);", 2.5))
PICK = (FakeSegment("pick('cup');", 3.0), FakeSegment("place('table');", 3.0))
SCRIPTS = {
    "fly": PLAN,
    "wait": LONG,
    "stay": LONG[:1] * 20,
    "tidy": PICK,
    "blocked": (FakeSegment("rp();", 0.5, blocking=True), *PLAN[:1]),
}


def a_fleet(robots: int = 2, arms: int = 1, speed: float = 20.0, **bridge: Any) -> Fleet:
    parameters = {"speed": speed, "times": "expected", "seed": 1}
    drones = {
        f"drone{index}": {"profile": "sim-drone", "skill_set": "drone", "parameters": parameters}
        for index in range(1, robots + 1)
    }
    others = {
        f"arm{index}": {"profile": "sim-arm", "skill_set": "arm", "parameters": parameters}
        for index in range(1, arms + 1)
    }
    return parse_bridge_fleet({"server_url": "http://fake", "robots": {**drones, **others}, "bridge": bridge})


class World:
    """A fleet, a server and a robot program."""

    def __init__(self, domain_id: int, fleet: Fleet, server: FakeServer, **options: Any) -> None:
        self.server = server
        self.fleet: RunningFleet = start_bridge_fleet(
            fleet, domain_id=domain_id, client_factory=server, **options
        )
        self.program = Program(domain_id)

    def task(self, robot: str, task: str, **fields: Any) -> Goal:
        return self.program.send(ExecuteTask, f"/{robot}/execute_task", task=task, **fields)

    def close(self) -> None:
        self.program.close()
        assert self.fleet.close(), "the fleet did not end in time"
        assert self.fleet.spinner.errors == 0, "a callback raised"
        assert self.server.closed


def lease_of(world: World) -> dict[str, Any]:
    """The bridge's lease on the first drone, as fields of a segment."""
    lease = world.fleet.bridge._robots["drone1"].port.lease
    eventually(lambda: lease.is_held, "the bridge has no lease")
    return {"owner": lease.owner, "epoch": lease.epoch}


@pytest.fixture
def server() -> FakeServer:
    return FakeServer(SCRIPTS, ahead=0)


@pytest.fixture
def world(domain_id: int, server: FakeServer) -> Iterator[World]:
    made = World(domain_id, a_fleet(driver_silence_s=2.5), server)
    yield made
    made.close()


def test_a_task_comes_back_as_a_plan_that_was_executed(world: World) -> None:
    reports = world.program.listen(SegmentReport, "/drone1/segment_reports")
    eventually(lambda: world.program.node.count_publishers("/drone1/segment_reports"))
    goal = world.task("drone1", "fly", scene="a room")
    result = goal.result()
    assert (result.outcome, result.error_code, result.error_msg) == ("complete", 0, "")
    assert goal.status == GoalStatus.STATUS_SUCCEEDED
    assert result.plan == "mf(100);?s('dog')==True{g('dog')}"
    segments = eventually(lambda: goal.feedback if len(goal.feedback) == 3 else None)
    assert [(part.segment.index, part.segment.text) for part in segments] == [
        (index, part.text) for index, part in enumerate(PLAN)
    ]
    assert segments[1].segment.execution_s == pytest.approx(1.5)
    assert 0.0 < result.response < AT_ONCE_S
    assert 0.0 <= result.waiting < AT_ONCE_S
    assert result.utility == pytest.approx(NORMAL.value(result.response))
    task_id = segments[0].segment.task_id
    assert world.server.kinds(task_id) == [
        (what, index) for index in range(3) for what in ("started", "done")
    ]
    assert world.server.submitted[0] == {
        **world.server.submitted[0],
        "task": "fly",
        "scene": "a room",
        "robot": "sim-drone",
        "skill_set": "drone",
        "agent": "drone1",
        "id": task_id,
        "traceparent": f"00-{task_id[4:]}-{task_id[4:20]}-01",
    }
    eventually(lambda: [report.kind for report in reports].count(SegmentReport.DONE) == 3)
    elapsed = [report.fields["elapsed_s"] for report in world.server.reports if report.kind == "done"]
    # The drone takes what its profile says, twenty times faster.
    assert elapsed[0] == pytest.approx((1.8144 + 0.72) / 20.0, abs=0.05)


def test_tasks_of_all_robots_run_at_once(world: World) -> None:
    goals = {
        robot: world.task(robot, task)
        for robot, task in (("drone1", "stay"), ("drone2", "fly"), ("arm1", "tidy"))
    }
    assert goals["drone2"].result().outcome == "complete"
    assert goals["arm1"].result().plan == "pick('cup');place('table');"
    assert not goals["drone1"].ended, "the long one is still flying"


def test_cancel_is_answered_at_once_while_the_robot_moves(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(
        lambda: (
            ("started", 0) in world.server.kinds(goal.feedback[0].segment.task_id) if goal.feedback else False
        )
    )
    cancelled_s = goal.cancel()
    result = goal.result()
    assert (result.outcome, result.error_code) == ("cancelled", ErrorCode.CANCELLED)
    assert goal.status == GoalStatus.STATUS_CANCELED
    assert goal.ended_s - cancelled_s < AT_ONCE_S
    assert result.plan == "d(60);"
    assert not world.fleet.drivers["drone1"].segments.executing
    assert world.server.cancelled == [goal.feedback[0].segment.task_id]
    assert world.task("drone1", "fly").result().outcome == "complete"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"task": ""}, ErrorCode.INVALID_INPUT),
        ({"task": "x" * 5000}, ErrorCode.TOO_LARGE),
        ({"task": "fly", "scene": "x" * 30_000}, ErrorCode.TOO_LARGE),
        ({"task": "fly", "skill_set": "juggling"}, ErrorCode.UNKNOWN_NAME),
        ({"task": "fly", "skill_set": "../etc"}, ErrorCode.INVALID_INPUT),
        ({"task": "fly", "tuf": Tuf(alpha=1.0)}, ErrorCode.INVALID_INPUT),
        ({"task": "fly", "tuf": Tuf(ert_s=math.nan)}, ErrorCode.INVALID_INPUT),
        ({"task": "fly", "urgency": 9}, ErrorCode.INVALID_INPUT),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value),
)
def test_bad_goals_end_at_once_with_a_code_and_the_bridge_serves_on(
    world: World, fields: dict[str, Any], code: int
) -> None:
    goal = world.task("drone1", **fields)
    result = goal.result()
    assert (result.outcome, result.error_code) == ("refused", code)
    assert result.error_msg
    assert goal.status == GoalStatus.STATUS_ABORTED
    assert world.task("drone1", "fly").result().outcome == "complete"


def test_a_robot_that_is_not_of_the_fleet_has_no_action(world: World) -> None:
    world.task("drone1", "fly").result()
    names = [name for name, _ in world.program.node.get_topic_names_and_types()]
    assert "/drone1/segment_reports" in names
    assert not any(name.startswith("/drone9/") for name in names)


def test_the_value_of_a_blocking_skill_goes_back(world: World) -> None:
    goal = world.task("drone1", "blocked")
    assert goal.result().outcome == "complete"
    value = next(report for report in world.server.reports if report.kind == "value")
    assert value.fields["value"] == "nothing new"


def test_a_failed_segment_has_the_drivers_code(domain_id: int) -> None:
    data = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "parameters": {"speed": 20.0, "failing_skills": ["goto"]},
    }
    server = FakeServer(SCRIPTS, ahead=0)
    made = World(domain_id, parse_bridge_fleet({"robots": {"drone1": data}}), server)
    try:
        goal = made.task("drone1", "fly")
        result = goal.result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.MOTION_FAILED)
        assert "g('dog')" in result.error_msg
        assert goal.status == GoalStatus.STATUS_ABORTED
        assert server.kinds(goal.feedback[0].segment.task_id)[-1] == ("failed", 2)
    finally:
        made.close()


def test_a_failed_segment_leads_to_another_plan_of_the_same_goal(domain_id: int) -> None:
    data = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "parameters": {"speed": 20.0, "failing_skills": ["goto"]},
    }
    server = FakeServer(SCRIPTS | {"replan": (FakeSegment("mu(50);", 1.0),)}, ahead=0)
    made = World(domain_id, parse_bridge_fleet({"robots": {"drone1": data}}), server)
    try:
        goal = made.task("drone1", "fly")
        result = goal.result()
        assert (result.outcome, result.error_code) == ("complete", 0)
        assert result.plan.endswith("g('dog')}mu(50);")
        (request,) = server.replans
        assert request["executed"] == "mf(100);?s('dog')==True{"
        assert "g('dog')" in request["reason"]
        segments = [feedback.segment for feedback in goal.feedback]
        assert [(segment.task_id, segment.index) for segment in segments[-2:]] == [
            (request["task_id"], 2),
            (request["id"], 0),
        ]
    finally:
        made.close()


def test_a_new_scene_has_the_running_task_planned_anew(world: World) -> None:
    world.server.scripts["replan"] = (FakeSegment("mu(50);", 1.0),)
    publisher = world.program.node.create_publisher(String, "/drone1/new_scene", 1)
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback and publisher.get_subscription_count(), "the first segment, a listener")
    publisher.publish(String(data="a dog"))
    result = goal.result()
    assert (result.outcome, result.plan.removesuffix("mu(50);")) == ("complete", "d(60);")
    assert world.server.replans[0]["scene"] == "a dog"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineFailed("it died", where="engine"), ErrorCode.ENGINE_FAILED),
        (UnsafeSegment("mf(9999): too far"), ErrorCode.UNSAFE_SEGMENT),
    ],
    ids=["engine", "unsafe"],
)
def test_a_plan_that_breaks_off_has_the_servers_code(world: World, error: TimelyError, code: int) -> None:
    world.server.scripts["break"] = (PLAN[0], error)
    result = world.task("drone1", "break").result()
    assert (result.outcome, result.error_code, result.plan) == ("failed", code, "mf(100);")


def test_a_server_that_is_gone_is_noticed_and_found_again(domain_id: int, server: FakeServer) -> None:
    made = World(domain_id, a_fleet(heartbeat_period_s=0.1, heartbeat_misses=2), server)
    try:
        heard = made.program.listen(DiagnosticArray, "/diagnostics")
        server.down = True

        def level() -> bytes | None:
            return heard[-1].status[0].level if heard else None

        eventually(lambda: level() == DiagnosticStatus.ERROR, "nobody noticed")
        begin = time.monotonic()
        result = made.task("drone1", "fly").result()
        assert (result.outcome, result.error_code) == ("refused", ErrorCode.SERVER_UNREACHABLE)
        assert time.monotonic() - begin < 5.0
        server.down = False
        eventually(lambda: level() == DiagnosticStatus.OK, "nobody noticed that it is back")
        # With a heartbeat of a tenth of a second a machine that stands still for two loses the server once more.
        eventually(lambda: made.task("drone1", "fly").result().outcome == "complete")
    finally:
        made.close()


def test_diagnostics_name_server_and_robots(world: World) -> None:
    heard = world.program.listen(DiagnosticArray, "/diagnostics")
    world.task("drone1", "fly").result()

    def counted() -> Any:
        return next(
            (
                array
                for array in heard
                if any(
                    ("tasks complete", "1") in [(v.key, v.value) for v in part.values]
                    for part in array.status
                )
            ),
            None,
        )

    array = eventually(counted)
    assert [part.hardware_id for part in array.status] == ["server", "drone1", "drone2", "arm1", "bridge"]
    assert {part.level for part in array.status} == {DiagnosticStatus.OK}


def test_a_driver_that_vanishes_ends_the_task(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    driver = world.fleet.drivers["drone1"]

    def vanish() -> None:
        # As a killed process: no word to anyone.
        while driver._timers_while_configured:
            driver.destroy_timer(driver._timers_while_configured.pop())
        driver._state_publisher.publish = lambda message: None
        driver._finish = lambda *args: None

    world.fleet.spinner.call_and_wait(vanish, LIMIT_S)
    begin = time.monotonic()
    result = goal.result()
    assert (result.outcome, result.error_code) == ("failed", ErrorCode.DRIVER_LOST)
    assert time.monotonic() - begin < 5.0
    assert world.task("drone2", "fly").result().outcome == "complete"


def test_tasks_segments_and_reports_can_be_recorded(world: World) -> None:
    tasks = world.program.listen(TaskNews, "/drone1/task", latched=True)
    segments = world.program.listen(Segment, "/drone1/segments")
    eventually(lambda: world.program.node.count_publishers("/drone1/segments"))
    goal = world.task("drone1", "fly", scene="a room")
    assert goal.result().outcome == "complete"
    last = eventually(lambda: next((news for news in tasks if news.phase == TaskNews.ENDED), None))
    assert [news.phase for news in tasks] == sorted(news.phase for news in tasks)
    assert {news.phase for news in tasks} == {TaskNews.PLANNING, TaskNews.PLANNED, TaskNews.ENDED}
    assert (last.task, last.scene, last.robot, last.segments) == ("fly", "a room", "drone1", 3)
    utility = NORMAL.value(goal.result().response)
    assert (last.outcome, last.error_code, last.utility) == ("complete", 0, pytest.approx(utility))
    assert [(part.index, part.text) for part in segments] == [
        (index, part.text) for index, part in enumerate(PLAN)
    ]
    assert {part.task_id for part in segments} == {news.task_id for news in tasks}


def test_a_robot_whose_next_segment_does_not_come_holds_and_says_so(world: World) -> None:
    states = world.program.listen(RobotState, "/drone1/state", latched=True)
    health = world.program.listen(DiagnosticArray, "/diagnostics")
    world.server.ahead = 0
    goal = world.task("drone1", "fly")
    stream = eventually(lambda: next(iter(world.server.streams.values()), None))

    async def lost(*reports: object) -> None:
        raise EngineFailed("lost")

    stream.report = lost
    eventually(lambda: any(state.mode == RobotState.HOLDING for state in states), "it does not hold")
    ended = next(i for i, state in enumerate(states) if state.mode == RobotState.HOLDING)
    assert states[ended - 1].mode == RobotState.EXECUTING
    late_s = [
        (state.stamp.sec - before.stamp.sec) + 1e-9 * (state.stamp.nanosec - before.stamp.nanosec)
        for before, state in [(states[ended - 1], states[ended])]
    ]
    assert max(late_s) < AT_ONCE_S
    assert "segment 1 has not come" in states[ended].detail

    def warned() -> bool:
        return any(
            part.hardware_id == "drone1" and part.level == DiagnosticStatus.WARN and "holds" in part.message
            for array in list(health)
            for part in array.status
        )

    eventually(warned, "its diagnostics do not say so")
    goal.cancel()
    assert goal.result().outcome == "cancelled"
    eventually(lambda: states[-1].mode == RobotState.READY, "it still holds for a task that has ended")


def test_a_task_nobody_speaks_of_any_more_goes_no_further(domain_id: int) -> None:
    fleet = a_fleet(1, 0, speed=1.0)
    world = World(domain_id, fleet, FakeServer(SCRIPTS))
    try:
        driver = world.fleet.drivers["drone1"]
        driver._watchdog.silence_s = 600.0
        driver._watchdog.observe("mine", TaskNews.PLANNING, 0, time.monotonic())
        texts = ["d(3);", "d(0.1);", "d(0.1);"]
        goals = [
            world.program.send(
                ExecuteSegment,
                "/drone1/execute_segment",
                task_id="mine",
                index=index,
                text=text,
                execution_s=1.0,
                **lease_of(world),
            )
            for index, text in enumerate(texts)
        ]
        eventually(lambda: driver.segments.executing and driver.segments.queued_segments == 2)
        driver._watchdog.silence_s = 0.0
        results = [goal.result() for goal in goals]
        assert [result.outcome for result in results] == ["done", "cancelled", "cancelled"], results
        assert 2.9 < results[0].elapsed_s < 3.0 + AT_ONCE_S
        assert "no message of the task" in results[1].error_msg
    finally:
        world.close()


def test_a_driver_that_restarts_does_not_go_on_with_the_old_plan(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    driver = world.fleet.drivers["drone1"]
    for step in ("deactivate", "activate"):
        world.fleet.spinner.call_and_wait(getattr(driver, f"trigger_{step}"), LIMIT_S)
    result = goal.result()
    assert result.outcome == "failed"
    assert result.error_code in (ErrorCode.DRIVER_STOPPED, ErrorCode.DRIVER_LOST)
    eventually(lambda: world.task("drone1", "fly").result().outcome == "complete")


def test_the_fleet_stops_and_goes_on_after_a_reset(world: World) -> None:
    goals = [world.task(robot, "wait") for robot in ("drone1", "drone2")]
    eventually(lambda: all(goal.feedback for goal in goals), "they never began")
    called_s = time.monotonic()
    assert world.program.call(Trigger, "/timely_bridge/stop").success
    for goal in goals:
        result = goal.result()
        assert (result.outcome, result.error_code) == ("cancelled", ErrorCode.FLEET_STOPPED)
        assert goal.ended_s - called_s < AT_ONCE_S
    assert world.task("arm1", "tidy").result().error_code == ErrorCode.FLEET_STOPPED
    assert world.program.call(ResetStop, "/timely_bridge/reset").success
    eventually(lambda: world.task("drone1", "fly").result().outcome == "complete")


def test_an_urgent_task_preempts_when_the_bridge_is_told_so(domain_id: int, server: FakeServer) -> None:
    made = World(domain_id, a_fleet(on_busy="preempt"), server)
    try:
        normal = made.task("drone1", "wait")
        eventually(lambda: normal.feedback, "it never began")
        urgent = made.task("drone1", "fly", tuf=Tuf(ert_s=0.2, alpha=-6.67, beta=2.0))
        result = urgent.result()
        assert result.outcome == "complete"
        assert normal.result().error_code == ErrorCode.PREEMPTED
        assert result.response < AT_ONCE_S
    finally:
        made.close()


def test_an_arm_called_away_with_something_in_its_hand_says_so_to_the_next_plan(domain_id: int) -> None:
    scripts = {
        "tidy": PICK,
        "away": (FakeSegment("home();", 2.0),),
        "drop it": (FakeSegment("drop('bin');", 2.0),),
    }
    server = FakeServer(scripts, ahead=0)
    here = World(domain_id, a_fleet(0, 1, speed=3.0, on_busy="preempt"), server)
    try:
        states = here.program.listen(RobotState, "/arm1/state", latched=True)
        tidy = here.task("arm1", "tidy", scene="cup, table")
        eventually(lambda: states and states[-1].holding == "cup", "it never said that it holds the cup")
        here.task("arm1", "away", scene="cup, table", tuf=Tuf(ert_s=0.2, alpha=-6.67, beta=2.0)).result()
        assert tidy.result().error_code == ErrorCode.PREEMPTED
        assert states[-1].holding == "cup"
        here.task("arm1", "drop it", scene="bin").result()
        eventually(lambda: states[-1].holding == "")
        here.task("arm1", "away", scene="bin").result()
        scenes = [task["scene"] for task in server.submitted]
        assert scenes == ["cup, table", "table, cup in your gripper", "bin, cup in your gripper", "bin"]
    finally:
        here.close()


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


def test_a_segment_that_comes_twice_from_elsewhere_moves_nothing(world: World) -> None:
    goal = world.task("drone1", "wait")
    task_id = eventually(lambda: goal.feedback)[0].segment.task_id
    for fields, code in (({}, ErrorCode.NOT_OWNER), (lease_of(world), ErrorCode.DUPLICATE)):
        again = world.program.send(
            ExecuteSegment, "/drone1/execute_segment", task_id=task_id, index=0, text="mf(100);", **fields
        )
        assert again.result().error_code == code
    goal.cancel()
    goal.result()


def test_a_script_of_tasks_is_played_robot_by_robot(
    domain_id: int, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made = World(domain_id, a_fleet(), server)
    try:
        tasks = [
            {
                "at_s": 0.0,
                "robot": "drone1",
                "task": "fly",
                "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0},
            },
            {"at_s": 0.1, "robot": "drone1", "task": "fly", "urgency": 4},
            {"at_s": 0.0, "robot": "arm1", "task": "tidy", "scene": "a cup"},
            {"at_s": 0.0, "robot": "drone2", "task": ""},
        ]
        late = [{"at_s": 60.0, "robot": "drone2", "task": "fly"}]
        assert play_bridge_tasks(tasks, threading.Event(), domain_id=domain_id)
        assert play_bridge_tasks(late, threading.Event(), until_s=0.1, domain_id=domain_id)
        ended = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert sorted((one["robot"], one["task"], one["outcome"]) for one in ended) == [
            ("arm1", "tidy", "complete"),
            ("drone1", "fly", "complete"),
            ("drone1", "fly", "complete"),
            ("drone2", "", "refused"),
        ]
        assert [one["utility"] for one in ended if one["robot"] == "drone2"] == [None]
        assert len(server.submitted) == 3
    finally:
        made.close()


def test_a_play_that_is_stopped_cancels_what_runs(domain_id: int, server: FakeServer) -> None:
    made = World(domain_id, a_fleet(), server)
    try:
        stop, answers = threading.Event(), []
        script = [{"at_s": 0.0, "robot": "drone1", "task": "wait"}]
        player = threading.Thread(
            target=lambda: answers.append(play_bridge_tasks(script, stop, domain_id=domain_id))
        )
        player.start()
        eventually(lambda: server.reports, "it never began")
        stop.set()
        player.join(LIMIT_S)
        assert answers == [False]
        assert len(server.cancelled) == 1
    finally:
        made.close()


def test_a_play_requests_a_lost_result_again(
    domain_id: int, server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost: list[Any] = []
    take_result = actions.ActionCall._on_result

    def lose_first(call: actions.ActionCall, response: Any) -> None:
        if lost:
            take_result(call, response)
        lost.append(response)

    monkeypatch.setattr(actions.ActionCall, "_on_result", lose_first)
    monkeypatch.setattr(actions, "RESULT_S", 0.3)
    made = World(domain_id, a_fleet(), server)
    stop, answers = threading.Event(), []
    script = [{"at_s": 0.0, "robot": "drone1", "task": "fly"}]
    player = threading.Thread(
        target=lambda: answers.append(play_bridge_tasks(script, stop, domain_id=domain_id))
    )
    try:
        player.start()
        player.join(LIMIT_S)
        assert answers == [True]
        assert len(lost) > 1
        assert '"outcome": "complete"' in capsys.readouterr().out
    finally:
        stop.set()
        player.join(LIMIT_S)
        made.close()


@pytest.mark.parametrize("arrives", [True, False], ids=["acceptance lost", "goal lost"])
def test_a_goal_without_an_answer_is_asked_for_and_never_executed_twice(
    world: World, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def lossy(client: Any, goal: Any, feedback: Any, goal_id: Any) -> Any:
        sent.append(goal.index)
        if len(sent) > 1:
            return send_ros_goal(client, goal, feedback, goal_id)
        if arrives:
            # The driver takes it, and nobody here hears of that.
            send_ros_goal(client, goal, feedback, goal_id)
        return Future()

    monkeypatch.setattr(driver_port, "send_ros_goal", lossy)
    goal = world.task("drone1", "fly")
    result = goal.result()
    assert (result.outcome, result.error_code) == ("complete", 0)
    assert sent == ([0, 1, 2] if arrives else [0, 0, 1, 2])
    assert world.server.kinds(goal.feedback[0].segment.task_id) == [
        (what, index) for index in range(3) for what in ("started", "done")
    ]


@pytest.mark.parametrize(
    ("robots", "error"),
    [
        ({"drone1": {"profile": "sim-drone", "skill_set": "drone", "driver": "submarine"}}, UnknownName),
        ({"drone1": {"profile": "no-such", "skill_set": "drone"}}, EngineFailed),
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


def test_no_segment_is_lost_before_a_driver_that_is_held_up(domain_id: int) -> None:
    held, script = threading.Event(), [FakeSegment("mf(20);", 1.0)] * 16

    class Server(FakeServer):
        async def submit(self, task: str, **fields: Any) -> Any:
            here.fleet.spinner.call(held.wait, LIMIT_S)  # of the bridge and the driver
            return await super().submit(task, **fields)

    here = World(domain_id, a_fleet(1, 0, speed=100.0, driver_silence_s=LIMIT_S), Server({"many": script}))
    try:
        port = here.fleet.bridge._robots["drone1"].port
        eventually(lambda: port.alive, "the bridge has no lease")
        goal = here.task("drone1", "many")
        eventually(lambda: len(port._goals) == len(script), "not all segments were sent")
        held.set()
        assert goal.result().error_msg == ""
    finally:
        held.set()
        here.close()


def test_a_fleet_in_a_namespace_is_refused(domain_id: int) -> None:
    """All its drivers would have the same names."""
    with pytest.raises(InvalidInput, match="namespace"):
        start_bridge_fleet(
            a_fleet(),
            domain_id=domain_id,
            ros_args=["--ros-args", "-r", "__ns:=/hall"],
            client_factory=FakeServer(),
        )


def test_a_goal_that_is_cancelled_before_it_is_accepted_does_not_go_on(world: World) -> None:
    responses: list[Any] = []
    client = world.program.client(ExecuteTask, "/drone1/execute_task")
    call = actions.ActionCall(client, ExecuteTask.Goal(task="wait"), responses.append)

    def send_and_cancel() -> None:
        call.send()
        call.cancel()

    world.program.spinner.call(send_and_cancel)
    eventually(lambda: responses, "it goes on")
    assert responses[0].result.outcome == "cancelled"


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
    world = World(domain_id, a_fleet(driver_silence_s=2.5, cancel_timeout_s=600.0), server)
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
    try:
        goal = world.task("drone1", "wait")
        assert sending.wait(LIMIT_S)
        spinner.call_and_wait(lambda: (bridge.trigger_deactivate(), bridge.trigger_cleanup()), LIMIT_S)
        assert goal.result().error_code == ErrorCode.BRIDGE_INACTIVE
        eventually(lambda: not driver.segments.executing, "the robot moves on")
    finally:
        world.close()


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
