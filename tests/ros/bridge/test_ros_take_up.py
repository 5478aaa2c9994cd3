"""A bridge that was killed and started again goes on with its goals: fakes that behave, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from bridge_doubles import FakeSegment, FakeServer
from manual_clock import settle_clock_tasks
from plan_world import GENEROUS, PLAN, TEXT, World, world
from timely_bridge import driver_port, past_plan
from timely_bridge.error_codes import AWAY, BridgeTaskError
from timely_bridge.goal_run import BridgeGoalRun, PastBridgeGoal
from timely_bridge.goals import TaskGoal
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import BridgeTimeline, Deadlines, TaskEnd
from timely_bridge.past_plan import PastBridgePlan
from timely_bridge.plan_run import BridgePlanRun, Replan
from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.core.utility import NORMAL

DETOUR = (FakeSegment("ml(60);", 1.0), FakeSegment("mf(50);", 1.0))


class Life:
    """One life of the bridge with one goal; its journal is kept by ``World``."""

    def __init__(
        self,
        here: World,
        past: PastBridgeGoal | None = None,
        attempts: int = 0,
        deadlines: Deadlines = GENEROUS,
    ) -> None:
        self.here, self.deadlines = here, deadlines
        self.plans: dict[str, BridgePlanRun] = {}
        goal = TaskGoal("go", "", "drone", "sim-drone", NORMAL, "drone1", None, None)
        timeline = past.before if past is not None else BridgeTimeline()
        self.run = BridgeGoalRun(
            "t1", goal, here.lock, self._make_run, attempts, past=past, timeline=timeline
        )
        self.task: asyncio.Task[TaskEnd] = asyncio.create_task(self.run.run())

    def _make_run(
        self, run: BridgeGoalRun, task_id: str, replaces: Replan | None, past: PastBridgePlan | None
    ) -> BridgePlanRun:
        plan = BridgePlanRun(
            task_id,
            run.goal,
            self.here.context(self.deadlines),
            self.here,
            run.claim,
            replaces,
            run.timeline,
            past=past,
        )
        self.plans[task_id] = plan
        return plan

    async def die(self) -> PastBridgeGoal:
        """End as SIGKILL does, without a word to anyone; what the journal has of the goal."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        here, (task_id, plan) = self.here, list(self.plans.items())[-1]
        done = {
            note.segment: SegmentExecution("done", elapsed_s=note.elapsed_s, end_s=here.time.now())
            for note in here.notes
            if note.task_id == task_id and note.kind == SegmentReport.DONE
        }
        done |= plan.past.executions if plan.past is not None else {}
        began = task_id in here.begun
        past = PastBridgePlan(plan.token, began, here.driver.session, done)
        return PastBridgeGoal(
            task_id, self.run.plans, plan.replaces, past, BridgeTimeline(100.0), bool(here.begun)
        )


def begun(here: World, index: int, task: str = "t1") -> Callable[[], bool]:
    return lambda: (task, index, "started") in here.driver.log


def executed(here: World) -> list[tuple[str, int]]:
    return [(task, index) for task, index, what in here.driver.log if what == "started"]


@pytest.mark.parametrize("deaths", [1, 3])
async def test_a_goal_goes_on_with_each_segment_once(deaths: int) -> None:
    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        for _ in range(deaths):
            life = Life(here, await life.die())
            await here.time.run_for(0.2)
        end = await here.end_of(life.task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)
        assert end.response == pytest.approx(0.0, abs=0.06)
        assert executed(here) == [("t1", index) for index in range(3)]
        assert [segment.index for segment in here.feedback] == [0, 1, 2], "each segment is announced once"
        done = [note.segment for note in here.notes if note.kind == SegmentReport.DONE]
        assert done == [0, 1, 2], "each end is published once"
        assert not here.server.replans
        assert not here.server.cancelled
        assert not here.lock.busy


async def test_what_was_interrupted_is_planned_again_from_what_was_executed() -> None:
    async with world(FakeServer({"go": PLAN, AWAY: DETOUR})) as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        here.driver.cancel_task("t1")  # a driver ends its segments when the lease has lapsed
        end = await here.end_of(Life(here, past).task)
        assert (end.outcome, end.plan) == ("complete", TEXT + "ml(60);mf(50);")
        (request,) = here.server.replans
        assert (request["task_id"], request["id"], request["executed"]) == ("t1", "t1-r1", "mf(100);")
        assert request["reason"] == AWAY
        assert executed(here) == [("t1", 0), ("t1", 1), ("t1-r1", 0), ("t1-r1", 1)]


async def test_a_plan_that_the_server_gave_up_meanwhile_is_followed_by_another() -> None:
    async with world(FakeServer({"go": PLAN[:1], AWAY: DETOUR})) as here:
        life = Life(here)
        await here.until(begun(here, 0))
        past = await life.die()
        here.server.streams["t1"].ended, here.server.streams["t1"].cause = "cancelled", "no_reader"
        end = await here.end_of(Life(here, past).task)
        assert (end.outcome, end.plan) == ("complete", "mf(100);ml(60);mf(50);")


async def test_a_bridge_that_dies_before_its_other_plan_began_asks_for_that_plan() -> None:
    async with world(FakeServer({"go": PLAN, AWAY: DETOUR})) as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        here.driver.cancel_task("t1")
        life = Life(here, past)
        await here.until(lambda: bool(here.server.replans))
        past = await life.die()
        assert (past.task_id, past.plans) == ("t1-r1", 1)
        end = await here.end_of(Life(here, past).task)
        assert (end.outcome, end.plan) == ("complete", "ml(60);mf(50);")
        assert len(here.server.replans) == 1, "the server had accepted it"


async def test_a_failure_before_the_bridge_died_counts_as_an_attempt() -> None:
    server = FakeServer({"go": PLAN, "replan": DETOUR})
    async with world(server, fails=("tc(90);", "mf(50);")) as here:
        life = Life(here, attempts=1)
        await here.until(begun(here, 0, "t1-r1"))
        end = await here.end_of(Life(here, await life.die(), attempts=1).task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.MOTION_FAILED)
        assert [request["id"] for request in here.server.replans] == ["t1-r1"]


async def test_a_goal_that_the_server_never_got_is_submitted() -> None:
    async with world() as here:
        past = PastBridgePlan("secret", False, 0, {})
        goal = PastBridgeGoal("t1", 0, None, past, BridgeTimeline(100.0), False)
        end = await here.end_of(Life(here, goal).task)
        assert (end.outcome, end.plan) == ("complete", TEXT)
        assert (here.server.submitted[0]["id"], here.server.submitted[0]["report_token"]) == ("t1", "secret")


async def die_with_server(here: World, trouble: str) -> PastBridgeGoal:
    """The goal of a bridge that was killed; the server is down from then on, or lacks the bridge's token."""
    life = Life(here)
    await here.until(begun(here, 1))
    past = await life.die()
    here.server.down, here.server.knows_token = trouble == "down", trouble != "token"
    return past


@pytest.mark.parametrize("trouble", ["down", "token"])
async def test_a_goal_waits_for_a_server_that_was_killed_too_or_lacks_the_token(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine takes longer to start than the time in which a server accepts a task."""
    monkeypatch.setattr(past_plan, "RETRY_S", 0.0)
    async with world() as here:
        past = await die_with_server(here, trouble)
        life = Life(here, past, deadlines=replace(GENEROUS, submit_s=0.0))
        await settle_clock_tasks()
        here.server.down, here.server.knows_token = False, True
        end = await here.end_of(life.task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)


@pytest.mark.parametrize(
    ("trouble", "code", "reason"),
    [
        ("down", ErrorCode.SERVER_UNREACHABLE, "http://server: cannot connect"),
        ("token", ErrorCode.NOT_ALLOWED, "no principal has this program's token"),
    ],
)
async def test_a_goal_that_the_server_does_not_take_up_in_time_says_why(
    trouble: str, code: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with "did not answer in time", also where the server had answered."""
    monkeypatch.setattr(past_plan, "RETRY_S", 2.0 * GENEROUS.segment_s)  # so the first attempt is the last
    async with world() as here:
        past = await die_with_server(here, trouble)
        life = Life(here, past, deadlines=replace(GENEROUS, cancel_s=0.0))
        end = await here.end_of(life.task)
        assert (end.outcome, end.code) == ("failed", code)
        assert reason in end.message
        assert here.driver.cancelled_tasks == ["t1"]
        here.server.down, here.server.knows_token = False, True
        async with asyncio.timeout(20):
            while not here.server.cancelled:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert here.server.cancelled == ["t1"], "it would go on at the server"


async def test_a_pause_of_the_bridge_does_not_end_its_wait_to_be_activated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its deadlines are over when it runs again, and its activation is still to come."""
    # Looks are in real time, the rest is in virtual time, which may pass in a moment.
    monkeypatch.setattr(driver_port, "READY_PERIOD_S", 0.001)
    looks = iter([False, False, True])
    loop = asyncio.get_running_loop()
    now_s = loop.time

    def pause() -> bool:
        monkeypatch.setattr(loop, "time", lambda: now_s() + 2.0 * GENEROUS.driver_s)
        return next(looks)

    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        patient = replace(GENEROUS, segment_s=600.0, task_s=600.0)
        life = Life(here, replace(past, plan=replace(past.plan, active=pause)), deadlines=patient)
        end = await here.end_of(life.task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)


async def stopped(here: World) -> None:
    here.driver.stopped = True


async def restarted(here: World) -> None:
    here.driver.session += 1


async def gone(here: World) -> None:
    here.driver.lose()


async def other_copy(here: World) -> None:
    here.driver.lose()
    here.driver.refusal = BridgeTaskError(ErrorCode.UNKNOWN_NAME, "it has another copy of the skill set")


async def forgotten(here: World) -> None:
    here.server.streams.clear()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (stopped, "the robot was stopped"),
        (restarted, "its driver was started again"),
        (gone, "its driver does not answer"),
        (other_copy, "it has another copy of the skill set"),
        (forgotten, "the server no longer has the task"),
    ],
)
async def test_a_goal_that_cannot_be_taken_up_fails(
    change: Callable[[World], Awaitable[None]], reason: str
) -> None:
    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        await change(here)
        end = await here.end_of(Life(here, past, attempts=2).task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.BRIDGE_INACTIVE)
        assert end.message == f"{AWAY}: {reason}"
        assert here.driver.cancelled_tasks == ["t1"]
        assert executed(here) == [("t1", 0), ("t1", 1)]
        assert not here.server.replans
        assert here.server.cancelled == ([] if change is forgotten else ["t1"])


async def test_a_goal_whose_bridge_is_not_activated_again_fails() -> None:
    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        past = replace(past, plan=replace(past.plan, active=lambda: False))
        end = await here.end_of(Life(here, past, deadlines=replace(GENEROUS, driver_s=0.0)).task)
        assert end.message == f"{AWAY}: it was not activated"
        assert here.driver.cancelled_tasks == ["t1"]


async def test_a_plan_that_was_executed_to_its_end_needs_no_driver_that_remembers_it() -> None:
    async with world(FakeServer({"go": PLAN[:1]})) as here:
        life = Life(here)
        await here.until(lambda: ("t1", 0, "done") in here.driver.log)
        past = await life.die()
        here.driver.session += 1
        end = await here.end_of(Life(here, past).task)
        assert (end.outcome, executed(here)) == ("complete", [("t1", 0)])


@pytest.mark.parametrize("server_down", [True, False])
async def test_a_goal_is_cancelled_while_it_is_taken_up_and_after(server_down: bool) -> None:
    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        here.server.down = server_down
        life = Life(here, past)
        await settle_clock_tasks()
        assert life.plans["t1"].executing == (0 if server_down else 2)
        life.run.cancel(ErrorCode.CANCELLED, "cancelled by the client")
        here.server.down = False
        end = await here.end_of(life.task)
        assert (end.outcome, end.code) == ("cancelled", ErrorCode.CANCELLED)
        assert here.driver.log[-1] == ("t1", 1, "cancelled")
        assert here.server.cancelled == ["t1"]
        assert not here.lock.busy


async def test_the_goal_in_execution_keeps_its_robot_before_those_that_wait() -> None:
    async with world() as here:
        life = Life(here)
        await here.until(begun(here, 1))
        past = await life.die()
        life = Life(here, past)
        _, other = here.run(name="t2")
        end = await here.end_of(life.task)
        assert end.outcome == "complete"
        assert (await here.end_of(other)).outcome == "complete"
        assert executed(here) == [(task, index) for task in ("t1", "t2") for index in range(3)]
