"""Traces of goals, as a collector of OpenTelemetry receives them from the bridge."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from bridge_doubles import FakeSegment, FakeServer
from fleet_world import SCRIPTS, a_fleet, fleet_world
from plan_world import PLAN, World, world
from ros_harness import eventually
from timely_bridge.goal_run import BridgeGoalRun
from timely_bridge.goal_trace import bridge_goal_span, bridge_traceparent
from timely_bridge.goals import TaskGoal
from timely_bridge.outcome import TaskEnd
from timely_bridge.past_plan import PastBridgePlan
from timely_bridge.plan_run import BridgePlanRun, Replan
from timely_interfaces.msg import ErrorCode
from trace_collector import span_attributes, trace_collector

from timely.core.errors import EngineFailed
from timely.core.traces import TraceExporter, TraceSpan
from timely.core.utility import NORMAL

GOAL = "0af7651916cd43dd8448eb211c80319c"
TASK = f"ros-{GOAL}"


def start(here: World, attempts: int = 0) -> tuple[BridgeGoalRun, asyncio.Task[TaskEnd]]:
    def make_run(
        run: BridgeGoalRun, task_id: str, replaces: Replan | None, past: PastBridgePlan | None
    ) -> BridgePlanRun:
        return BridgePlanRun(
            task_id, run.goal, here.context(), here, run.claim, replaces, run.timeline, past=past
        )

    goal = TaskGoal("go", "", "drone", "sim-drone", NORMAL, "drone1", None, None)
    run = BridgeGoalRun(TASK, goal, here.lock, make_run, attempts)
    return run, asyncio.create_task(run.run())


async def goal_span(here: World, attempts: int = 0) -> TraceSpan:
    run, task = start(here, attempts)
    end = await here.end_of(task)
    return bridge_goal_span(run, "drone1", end, here.time.now())


async def test_the_span_of_a_goal_has_the_ids_that_the_server_was_told() -> None:
    async with world() as here:
        span = await goal_span(here)
        (request,) = here.server.submitted
        with trace_collector() as (url, spans):
            traces = TraceExporter(url, here.time, service="timely_bridge")
            traces.export_as(span, bridge_traceparent(TASK) or "")
            traces.close()
    (goal,) = [span for span in spans if span.name == "goal"]
    assert request["traceparent"] == f"00-{goal.trace_id.hex()}-{goal.span_id.hex()}-01"
    assert (goal.trace_id.hex(), goal.parent_span_id) == (GOAL, b"")
    motions = [span for span in spans if span is not goal]
    assert {(span.trace_id, span.parent_span_id) for span in motions} == {(goal.trace_id, goal.span_id)}
    assert len(motions) == len(PLAN)


async def test_a_goal_lasts_from_its_acceptance_to_its_result_with_each_motion_inside() -> None:
    async with world() as here:
        begin_s = here.time.now()
        span = await goal_span(here)
    assert span.start_s == pytest.approx(begin_s, abs=0.1)
    assert span.end_s - span.start_s == pytest.approx(6.0, abs=0.5)
    assert span.error == ""
    expected = {
        "timely.task_id": TASK,
        "timely.robot": "drone1",
        "timely.outcome": "complete",
        "timely.code": 0,
    }
    assert expected.items() <= span.attributes.items()
    assert [motion.attributes["timely.segment"] for motion in span.children] == [0, 1, 2]
    assert [motion.end_s - motion.start_s for motion in span.children] == pytest.approx(
        [2.0, 3.0, 1.0], abs=0.1
    )
    for motion in span.children:
        assert span.start_s <= motion.start_s <= motion.end_s <= span.end_s


async def test_a_failed_motion_and_the_plan_after_it_are_in_the_goals_span() -> None:
    server = FakeServer({"go": PLAN, "replan": (FakeSegment("ml(60);", 1.0),)})
    async with world(server, fails=("tc(90);",)) as here:
        span = await goal_span(here, attempts=1)
    motions = [(motion.attributes["timely.task_id"], motion.attributes["timely.outcome"], motion.error)
               for motion in span.children]  # fmt: skip
    assert motions == [
        (TASK, "done", ""),
        (TASK, "failed", "MOTION_FAILED: stuck"),
        (f"{TASK}-r1", "done", ""),
    ]
    assert (span.attributes["timely.outcome"], span.attributes["timely.replans"]) == ("complete", 1)


async def test_a_goal_that_fails_says_why_and_a_cancelled_one_is_no_error() -> None:
    broken = EngineFailed("cannot plan", where="engine")
    async with world(FakeServer({"go": (broken,)})) as here:
        span = await goal_span(here)
    assert (span.attributes["timely.code"], span.children) == (ErrorCode.ENGINE_FAILED, ())
    assert span.error == "ENGINE_FAILED: engine: cannot plan"
    async with world() as here:
        run, task = start(here)
        await here.until(lambda: (TASK, 0, "started") in here.driver.log)
        await here.time.run_for(1.0)
        run.cancel(ErrorCode.CANCELLED, "enough")
        span = bridge_goal_span(run, "drone1", await here.end_of(task), here.time.now())
    assert (span.attributes["timely.outcome"], span.error) == ("cancelled", "")
    assert [motion.attributes["timely.outcome"] for motion in span.children] == ["cancelled"]


@pytest.mark.ros
def test_a_bridge_exports_its_goals_and_goes_on_without_a_collector(
    domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds between two exports
    server = FakeServer(SCRIPTS, ahead=0)
    with ExitStack() as collecting:
        url, spans = collecting.enter_context(trace_collector())
        with fleet_world(domain_id, a_fleet(1, 0, otlp_endpoint=url), server) as world:
            assert world.task("drone1", "fly").result().outcome == "complete"
            (goal,) = eventually(lambda: [span for span in spans if span.name == "goal"])
            collecting.close()
            assert world.task("drone1", "fly").result().outcome == "complete"
    assert server.submitted[0]["traceparent"] == f"00-{goal.trace_id.hex()}-{goal.span_id.hex()}-01"
    assert span_attributes(goal)["timely.robot"] == "drone1"
    assert [span.parent_span_id for span in spans if span is not goal] == [goal.span_id] * 3
