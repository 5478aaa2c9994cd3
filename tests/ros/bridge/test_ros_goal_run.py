"""A goal through several plans: failures and new scenes lead to other plans, in virtual time with fakes that behave."""

from __future__ import annotations

import asyncio

import pytest
from bridge_doubles import FakeSegment, FakeServer
from plan_world import PLAN, TEXT, World, world
from timely_bridge.goal_run import BridgeGoalRun
from timely_bridge.goals import TaskGoal
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import TaskEnd
from timely_bridge.past_plan import PastBridgePlan
from timely_bridge.plan_run import BridgePlanRun, Replan
from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.core.errors import EngineFailed, Overloaded
from timely.core.utility import NORMAL, URGENT

DETOUR = (FakeSegment("ml(60);", 1.0), FakeSegment("mf(50);", 1.0))


def start(here: World, attempts: int = 2, name: str = "t1") -> tuple[BridgeGoalRun, asyncio.Task[TaskEnd]]:
    def make_run(
        run: BridgeGoalRun, task_id: str, replaces: Replan | None, past: PastBridgePlan | None
    ) -> BridgePlanRun:
        return BridgePlanRun(
            task_id, run.goal, here.context(), here, run.claim, replaces, run.timeline, past=past
        )

    goal = TaskGoal("go", "", "drone", "sim-drone", NORMAL, "drone1", None, None)
    run = BridgeGoalRun(name, goal, here.lock, make_run, attempts)
    return run, asyncio.create_task(run.run())


def server(**scripts: object) -> FakeServer:
    return FakeServer({"go": PLAN, "replan": DETOUR} | scripts)  # type: ignore[arg-type]


async def test_a_failed_motion_leads_to_an_urgent_plan_that_knows_what_was_done() -> None:
    async with world(server(), fails=("tc(90);",)) as here:
        _, task = start(here)
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("complete", 0)
        assert end.plan == "mf(100);tc(90);mu(40);ml(60);mf(50);"
        (request,) = here.server.replans
        assert (request["task_id"], request["id"], request["executed"]) == ("t1", "t1-r1", "mf(100);")
        assert request["reason"] == "segment 1: stuck"
        assert request["wait_s"] == here.server.submitted[0]["wait_s"] > 0.0
        assert request["utility"] == URGENT
        assert [(name, index, what) for name, index, what in here.driver.log if what == "done"] == [
            ("t1", 0, "done"),
            ("t1-r1", 0, "done"),
            ("t1-r1", 1, "done"),
        ]
        # The response is the first plan's; the time of all executions is no waiting.
        assert end.response == pytest.approx(0.0, abs=0.06)
        assert end.waiting == pytest.approx(0.0, abs=0.3)
        assert not here.lock.busy


@pytest.mark.parametrize("attempts", [0, 1, 3])
async def test_plans_that_keep_failing_come_to_an_end(attempts: int) -> None:
    async with world(server(replan=PLAN), fails=("tc(90);",)) as here:
        run, task = start(here, attempts)
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.MOTION_FAILED)
        assert run.plans == len(here.server.replans) == attempts
        assert not here.lock.busy


async def test_a_new_scene_drops_the_rest_and_no_other_task_comes_in_between() -> None:
    async with world(server()) as here:
        run, first = start(here)
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        _, second = start(here, name="t2")
        await here.time.run_for(0.1)
        assert run.replan("a dog came", "dog")
        end = await here.end_of(first)
        assert (end.outcome, end.plan) == ("complete", "mf(100);tc(90);mu(40);ml(60);mf(50);")
        assert (here.server.replans[0]["scene"], here.server.replans[0]["executed"]) == ("dog", "mf(100);")
        assert ("t1", 1, "cancelled") in here.driver.log
        assert not run.replan("too late", "x")
        await here.end_of(second)
        began = [name for name, _, what in here.driver.log if what == "started"]
        assert began == ["t1", "t1", "t1-r1", "t1-r1", "t2", "t2", "t2"]


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 20])
async def test_a_segment_that_was_done_when_a_new_scene_came_was_executed(turns: int) -> None:
    """Its result comes so many turns of the loop after the scene; else the robot makes the motion again."""
    plans = FakeServer({"go": PLAN, "replan": DETOUR}, ahead=0)
    async with world(plans) as here:
        run, task = start(here)
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        here.driver.stubborn = True
        assert run.replan("a dog came", "dog")
        for _ in range(turns):
            await asyncio.sleep(0)
        assert run.plan is not None
        done = SegmentExecution("done", elapsed_s=0.5, end_s=here.time.now())
        run.plan.sent_segments[1].ended.set_result(done)
        end = await here.end_of(task)
        assert end.outcome == "complete"
        assert here.server.replans[0]["executed"] == "mf(100);tc(90);"
        assert (1, SegmentReport.DONE) in [(note.segment, note.kind) for note in here.notes]
        assert turns > 1 or ("done", 1) in here.server.kinds("t1")
        assert run.timeline.spans[1] == (done.end_s - 0.5, done.end_s)


@pytest.mark.parametrize("what", ["a new scene", "a cancellation"])
async def test_what_comes_at_the_moment_of_the_end_is_too_late(what: str) -> None:
    """All was executed. Another plan would move the robot for a task that is complete."""

    def interrupt(_: object) -> None:
        if what == "a new scene":
            run.replan("a dog came", "dog")
        else:
            run.cancel(ErrorCode.CANCELLED, "enough")

    async with world(server()) as here:
        run, task = start(here)
        await here.until(lambda: ("t1", 0, "started") in here.driver.log)
        (work,) = (one for one in asyncio.all_tasks() if one.get_name() == "plan t1")
        work.add_done_callback(interrupt)
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)
        assert not here.server.replans
        assert not here.server.cancelled


async def test_new_scenes_take_no_attempt_from_a_failed_motion() -> None:
    async with world(server(), fails=("ml(60);",)) as here:
        run, task = start(here, attempts=1)
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        assert run.replan("a dog came", "dog")
        end = await here.end_of(task)
        assert (end.outcome, run.plans) == ("failed", 2)


async def test_another_plan_is_told_what_the_robot_holds_by_then() -> None:
    async with world(server(), fails=("tc(90);",)) as here:
        run, task = start(here)
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        here.driver.holding = "cup"
        await here.until(lambda: ("t1-r1", 0, "started") in here.driver.log)
        assert here.server.submitted[0]["scene"] == ""
        assert here.server.replans[0]["scene"] == "cup in your gripper"
        assert run.replan("a dog came", "dog")
        await here.until(lambda: len(here.server.replans) == 2)
        assert here.server.replans[1]["scene"] == "dog, cup in your gripper"
        here.driver.holding = ""
        await here.until(lambda: ("t1-r2", 0, "started") in here.driver.log)
        assert run.replan("put down")
        await here.until(lambda: len(here.server.replans) == 3)
        assert here.server.replans[2]["scene"] == "dog", (
            "the scene as it was said last, and nothing in the hand"
        )
        await here.end_of(task)


async def test_what_ends_a_task_ends_all_its_plans() -> None:
    async with world(server(), fails=("tc(90);",)) as here:
        run, task = start(here)
        await here.until(lambda: ("t1-r1", 0, "started") in here.driver.log)
        run.cancel(ErrorCode.CANCELLED, "enough")
        end = await here.end_of(task)
        assert (end.outcome, end.code, run.plans) == ("cancelled", ErrorCode.CANCELLED, 1)
        assert ("t1-r1", 1, "started") not in here.driver.log
    async with world(server()) as here:
        run, task = start(here)
        run.cancel(ErrorCode.FLEET_STOPPED, "stop")
        assert (await here.end_of(task)).code == ErrorCode.FLEET_STOPPED
        assert here.driver.log == []


async def test_a_stop_during_a_new_scene_wins() -> None:
    async with world(server()) as here:
        run, task = start(here)
        await here.until(lambda: ("t1", 0, "started") in here.driver.log)
        run.replan("a dog came", "dog")
        run.cancel(ErrorCode.FLEET_STOPPED, "stop")
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.message) == ("cancelled", ErrorCode.FLEET_STOPPED, "stop")
        assert end.plan == "mf(100);tc(90);mu(40);"
        assert here.server.replans == []


async def test_without_another_plan_the_first_failure_is_the_result() -> None:
    gone = EngineFailed("cannot plan", where="engine")
    async with world(server(replan=(gone,)), fails=("tc(90);",)) as here:
        _, task = start(here)
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.MOTION_FAILED)
        assert "segment 1: stuck; no other plan: engine: cannot plan" in end.message
        assert len(here.server.replans) == 1


async def test_a_new_scene_without_another_plan_ends_with_what_kept_it_from_it() -> None:
    full = Overloaded("the disk is full", where="tasks")
    async with world(server(replan=(full,))) as here:
        run, task = start(here)
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        assert run.replan("a dog came", "dog")
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.OVERLOADED)
        assert "a dog came; no other plan: tasks: the disk is full" in end.message


async def test_a_lost_driver_or_server_is_not_planned_around() -> None:
    async with world(server()) as here:
        _, task = start(here)
        await here.until(lambda: ("t1", 0, "started") in here.driver.log)
        here.driver.lose()
        end = await here.end_of(task)
        assert end.code == ErrorCode.DRIVER_LOST
        assert here.server.replans == []
