"""A plan that ends early: a cancellation at the bridge or the server, and a stop of the fleet."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest
from bridge_doubles import FakeServer
from manual_clock import settle_clock_tasks
from plan_world import GENEROUS, PLAN, world
from timely_bridge import plan_run
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import Deadlines
from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.client.protocol import ClientBackoff
from timely.core.errors import Conflict
from timely.core.reports import ExecutionReport


async def test_cancel_stops_robot_and_generation() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        run, task = here.run()
        await here.until(lambda: here.driver.log[-1:] == [("t1", 1, "started")])
        run.cancel(ErrorCode.CANCELLED, "the client said so")
        await settle_clock_tasks()
        # No virtual time has passed since.
        assert task.done()
        end = task.result()
        assert (end.outcome, end.code, end.plan) == ("cancelled", ErrorCode.CANCELLED, "mf(100);tc(90);")
        assert here.driver.log[-1] == ("t1", 1, "cancelled")
        assert here.server.cancelled == ["t1"]
        assert not here.lock.busy


@pytest.mark.parametrize(
    ("cause", "outcome", "code"),
    [
        ("", "cancelled", ErrorCode.CANCELLED),
        ("no_reader", "failed", ErrorCode.SEGMENT_CANCELLED),
        ("fleet_stop", "cancelled", ErrorCode.FLEET_STOPPED),
    ],
)
async def test_a_plan_that_was_cancelled_at_the_server_is_not_complete(
    cause: str, outcome: str, code: int
) -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        _, task = here.run()
        await here.until(lambda: "t1" in here.server.streams)
        here.server.streams["t1"].ended, here.server.streams["t1"].cause = "cancelled", cause
        end = await here.end_of(task)
        assert (end.outcome, end.code) == (outcome, code)


async def test_a_goal_that_is_cancelled_says_that_the_robot_drops_the_plan() -> None:
    """Else the server counts a plan as complete that was cancelled while its last segments were executed."""
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: bool(run.sent_segments) and run.sent_segments[0].started.done())
        run.cancel(ErrorCode.CANCELLED, "enough")
        await here.end_of(task)
        assert here.server.dropped == ["t1"]


async def test_a_goal_that_is_cancelled_reports_first_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes no report of a task that is over."""
    monkeypatch.setattr(plan_run, "REPORTS_S", 60.0)
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: "t1" in here.server.streams)
        stream, arrival = here.server.streams["t1"], asyncio.Event()
        take = stream.report

        async def slow(*reports: ExecutionReport) -> None:
            await arrival.wait()
            await take(*reports)

        stream.report = slow  # type: ignore[method-assign]
        await here.until(
            lambda: (0, SegmentReport.DONE) in [(note.segment, note.kind) for note in here.notes]
        )
        run.cancel(ErrorCode.CANCELLED, "enough")
        await settle_clock_tasks()
        arrival.set()
        await here.end_of(task)
        assert here.server.dropped == ["t1"]
        assert ("done", 0) in here.server.kinds("t1")


async def test_a_goal_is_cancelled_although_the_server_takes_no_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_run, "REPORTS_S", 0.01)
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: "t1" in here.server.streams)
        answer = asyncio.Event()

        async def hang(*reports: ExecutionReport) -> None:
            await answer.wait()

        here.server.streams["t1"].report = hang  # type: ignore[method-assign]
        await here.until(lambda: bool(run.sent_segments) and run.sent_segments[0].started.done())
        run.cancel(ErrorCode.CANCELLED, "enough")
        async with asyncio.timeout(20):
            await task
        assert here.server.dropped == ["t1"]
        answer.set()


@pytest.mark.parametrize("trouble", ["down", "token"])
async def test_a_cancellation_that_the_server_did_not_look_at_is_repeated_and_delays_no_goal(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the plan goes on at the server until its own limits end it."""
    monkeypatch.setattr(plan_run, "REPORTS_S", 0.0)
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        run, task = here.run()
        await here.until(lambda: here.driver.log[-1:] == [("t1", 1, "started")])
        here.server.down, here.server.knows_token = trouble == "down", trouble != "token"
        run.cancel(ErrorCode.CANCELLED, "enough")
        end = await here.end_of(task)
        assert (end.outcome, here.server.dropped) == ("cancelled", [])
        here.server.down, here.server.knows_token = False, True
        async with asyncio.timeout(20):
            while not here.server.dropped:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert here.server.dropped == ["t1"]


async def test_a_failed_plan_is_cancelled_after_the_report_of_its_failure_reached_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server takes no report of a task that is over, and would count the failure as a cancellation."""
    monkeypatch.setattr(ClientBackoff, "delay_s", lambda *_: 0.0)
    async with world(fails=["tc(90);"]) as here:
        _, task = here.run(deadlines=replace(GENEROUS, cancel_s=0.0))
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        here.server.down = True
        end = await here.end_of(task)
        assert (end.outcome, here.server.dropped) == ("failed", [])
        here.server.down = False
        async with asyncio.timeout(20):
            while not here.server.dropped:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert here.server.kinds("t1")[-1] == ("failed", 1)


async def test_a_cancellation_that_the_server_refuses_is_not_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        run, task = here.run()
        await here.until(lambda: here.driver.log[-1:] == [("t1", 1, "started")])
        here.server.streams["t1"].token = "another"
        run.cancel(ErrorCode.CANCELLED, "enough")
        await here.end_of(task)
        await here.until(lambda: "could not be cancelled" in caplog.text)
        assert here.server.cancelled == []


async def test_a_plan_that_a_stop_of_the_fleet_ended_moves_nothing_on() -> None:
    """The order to stop has a connection of its own, which may be slower or cut."""
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        run, task = here.run()
        await here.until(lambda: bool(run.sent_segments) and run.sent_segments[0].started.done())
        stream = here.server.streams["t1"]
        stream.ended, stream.cause = "cancelled", "fleet_stop"
        await stream.cancel()
        end = await here.end_of(task)
        assert end.code == ErrorCode.FLEET_STOPPED
        assert here.driver.log[-1] == ("t1", 0, "cancelled")


async def test_a_goal_that_the_server_refuses_because_the_fleet_is_stopped_says_so() -> None:
    server = FakeServer({"go": [Conflict("the fleet is stopped", where="stop")]})
    async with world(server) as here:
        _, task = here.run()
        assert (await here.end_of(task)).code == ErrorCode.FLEET_STOPPED


@pytest.mark.parametrize("turns", range(5))
async def test_a_segment_that_comes_together_with_the_cancellation_is_not_executed(turns: int) -> None:
    """It comes so many turns of the loop after the cancellation."""
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        run, task = here.run()
        await here.until(lambda: ("t1", 0, "started") in here.driver.log)
        stream = here.server.streams["t1"]
        here.server.down = True  # so that it does not know of the first segment's end
        await here.until(run.sent_segments[0].ended.done)
        here.server.down = False
        run.cancel(ErrorCode.CANCELLED, "enough")
        for _ in range(turns):
            await asyncio.sleep(0)
        stream._settled.add(0)
        stream._changed.set()
        end = await here.end_of(task)
        assert end.code == ErrorCode.CANCELLED
        await here.time.run_for(10.0)
        assert ("t1", 1, "done") not in here.driver.log


async def test_a_goal_that_the_loop_is_about_to_end_sends_no_segment() -> None:
    async with world() as here:
        run, task = here.run()
        run.claim.end = BridgeTaskError(ErrorCode.FLEET_STOPPED, "the fleet was stopped")
        end = await here.end_of(task)
        assert end.code == ErrorCode.FLEET_STOPPED
        assert here.driver.log == []


@pytest.mark.parametrize("fleet_stopped", [True, False])
async def test_a_stop_of_the_fleet_has_one_code_whoever_says_it_first(fleet_stopped: bool) -> None:
    """Drivers end their segments before the bridge ends its goals."""
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: bool(here.feedback))
        here.fleet_stopped = fleet_stopped
        stopped = SegmentExecution("cancelled", ErrorCode.DRIVER_STOPPED, "~/stop was called")
        run.sent_segments[0].ended.set_result(stopped)
        end = await here.end_of(task)
        expected = ("cancelled", ErrorCode.FLEET_STOPPED) if fleet_stopped else ("failed", stopped.code)
        assert (end.outcome, end.code) == expected


async def test_a_goal_whose_disk_hangs_ends_at_once_when_it_is_cancelled() -> None:
    async with world() as here:
        here.disk.clear()
        run, task = here.run()
        await here.time.run_for(1.0)
        run.cancel(ErrorCode.FLEET_STOPPED, "the fleet was stopped")
        await here.time.run_for(0.1)
        assert task.result().code == ErrorCode.FLEET_STOPPED
        assert here.driver.log == []


async def test_cancel_before_the_server_has_answered() -> None:
    server = FakeServer({"go": PLAN})
    server.hangs = True
    async with world(server) as here:
        run, task = here.run()
        await settle_clock_tasks()
        run.cancel(ErrorCode.CANCELLED, "no longer wanted")
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("cancelled", ErrorCode.CANCELLED, "")
        assert math.isnan(end.response)
        assert math.isnan(end.utility)


async def test_cancel_before_it_even_ran() -> None:
    async with world() as here:
        run, task = here.run()
        run.cancel(ErrorCode.CANCELLED, "too late")
        end = await here.end_of(task)
        assert end.outcome == "cancelled"
        assert here.driver.log == []


async def test_the_first_reason_counts() -> None:
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        run.cancel(ErrorCode.PREEMPTED, "first")
        run.cancel(ErrorCode.CANCELLED, "second")
        assert (await here.end_of(task)).code == ErrorCode.PREEMPTED


async def test_a_driver_that_ignores_cancel_does_not_hold_up_the_answer() -> None:
    async with world() as here:
        here.driver.stubborn = True
        run, task = here.run(deadlines=Deadlines(cancel_s=0.05))
        await here.until(lambda: bool(here.driver.log))
        run.cancel(ErrorCode.CANCELLED, "now")
        async with asyncio.timeout(20):
            end = await task
        assert end.outcome == "cancelled"


async def test_cancelling_the_coroutine_leaves_nothing() -> None:
    async with world() as here:
        _, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not here.lock.busy
