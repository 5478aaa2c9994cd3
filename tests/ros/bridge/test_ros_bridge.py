"""The bridge end to end over ROS 2: actions in, segments to simulated drivers, reports to a server that behaves."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from bridge_doubles import FakeSegment, FakeServer
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from fleet_world import PICK, PLAN, SCRIPTS, World, a_fleet, fleet_world
from ros_harness import AT_ONCE_S, eventually
from std_msgs.msg import String
from std_srvs.srv import Trigger
from timely_bridge.fleet import parse_bridge_fleet
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, RobotState, Segment, SegmentReport
from timely_interfaces.msg import Task as TaskNews
from timely_interfaces.msg import TimeUtility as Tuf
from timely_interfaces.srv import ResetStop
from timely_robots.ros import actions

from timely.core.errors import EngineFailed, TimelyError, UnsafeSegment
from timely.core.utility import NORMAL

pytestmark = [pytest.mark.ros]


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
    with fleet_world(domain_id, parse_bridge_fleet({"robots": {"drone1": data}}), server) as made:
        goal = made.task("drone1", "fly")
        result = goal.result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.MOTION_FAILED)
        assert "g('dog')" in result.error_msg
        assert goal.status == GoalStatus.STATUS_ABORTED
        assert server.kinds(goal.feedback[0].segment.task_id)[-1] == ("failed", 2)


def test_a_failed_segment_leads_to_another_plan_of_the_same_goal(domain_id: int) -> None:
    data = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "parameters": {"speed": 20.0, "failing_skills": ["goto"]},
    }
    server = FakeServer(SCRIPTS | {"replan": (FakeSegment("mu(50);", 1.0),)}, ahead=0)
    with fleet_world(domain_id, parse_bridge_fleet({"robots": {"drone1": data}}), server) as made:
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
    with fleet_world(domain_id, a_fleet(on_busy="preempt"), server) as made:
        normal = made.task("drone1", "wait")
        eventually(lambda: normal.feedback, "it never began")
        urgent = made.task("drone1", "fly", tuf=Tuf(ert_s=0.2, alpha=-6.67, beta=2.0))
        result = urgent.result()
        assert result.outcome == "complete"
        assert normal.result().error_code == ErrorCode.PREEMPTED
        assert result.response < AT_ONCE_S


def test_an_arm_called_away_with_something_in_its_hand_says_so_to_the_next_plan(domain_id: int) -> None:
    scripts = {
        "tidy": PICK,
        "away": (FakeSegment("home();", 2.0),),
        "drop it": (FakeSegment("drop('bin');", 2.0),),
    }
    server = FakeServer(scripts, ahead=0)
    with fleet_world(domain_id, a_fleet(0, 1, speed=3.0, on_busy="preempt"), server) as here:
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


def test_a_goal_that_is_cancelled_before_it_is_accepted_does_not_go_on(world: World) -> None:
    responses: list[Any] = []
    client = world.program.client(ExecuteTask, "/drone1/execute_task")
    call = actions.RosActionCall(client, ExecuteTask.Goal(task="wait"), responses.append)

    def send_and_cancel() -> None:
        call.send()
        call.cancel()

    world.program.spinner.call(send_and_cancel)
    eventually(lambda: responses, "it goes on")
    assert responses[0].result.outcome == "cancelled"
