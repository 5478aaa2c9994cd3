"""One task from goal to result, against a server and a driver that behave, in virtual time."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from bridge_doubles import FakeDriver, FakeSegment, FakeServer
from manual_clock import LeapingClock, ManualClock, settle_clock_tasks
from timely_bridge import plan_run
from timely_bridge.driver_port import DriverPort
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.goals import TaskGoal, bridge_scene_with_object
from timely_bridge.interfaces import BridgeSegment, SegmentExecution
from timely_bridge.loop_rounds import further_loop_rounds_s
from timely_bridge.node import bridge_client
from timely_bridge.outcome import Deadlines, TaskEnd, Timeline
from timely_bridge.plan_run import PlanRun, RunContext
from timely_bridge.report_queue import ReportQueue
from timely_bridge.robot_lock import RobotClaim, RobotLock
from timely_bridge.segment_run import LOOKS, SegmentRun
from timely_interfaces.msg import ErrorCode, RobotState, SegmentReport

from timely.client import Segment
from timely.client.protocol import Backoff
from timely.core.errors import Conflict, EngineFailed, InvalidInput, TimelyError, UnsafeSegment
from timely.core.reports import MAX_REASON_CHARS, ExecutionReport
from timely.core.utility import NORMAL, URGENT, TimeUtility

PLAN = (FakeSegment("mf(100);", 2.0), FakeSegment("tc(90);", 3.0), FakeSegment("mu(40);", 1.0))
TEXT = "mf(100);tc(90);mu(40);"
GENEROUS = Deadlines(submit_s=20.0, segment_s=20.0, task_s=60.0, driver_s=20.0, cancel_s=20.0, report_s=20.0)
"""Real seconds; no test comes near them."""


class World:
    """A robot, a server and time."""

    def __init__(self, server: FakeServer, *, policy: str = "queue", **driver: Any) -> None:
        self.time = ManualClock(100.0)
        self.server = server
        self.driver = FakeDriver(self.time.now, self.time.sleep, **driver)
        self.lock = RobotLock(policy)
        self.fleet_stopped = False
        self.feedback: list[Segment] = []
        self.begun: list[str] = []
        self.disk = asyncio.Event()
        """Is set while the disk takes what happens."""
        self.disk.set()
        self.notes: list[SegmentReport] = []
        self.changes: list[tuple[str, bool, TaskEnd | None]] = []

    def context(self, deadlines: Deadlines = GENEROUS) -> RunContext:
        return RunContext(
            cast(Any, self.server),
            self.driver,
            self.lock,
            deadlines,
            self.time,
            "http://server",
            lambda: self.fleet_stopped,
        )

    def plan_changed(self, run: PlanRun, end: TaskEnd | None) -> None:
        self.changes.append((run.task_id, run.planned, end))

    def beginning(self, run: PlanRun) -> None:
        self.begun.append(run.task_id)

    async def flush(self) -> None:
        await self.disk.wait()

    def segment_sent(self, segment: Segment) -> None:
        self.feedback.append(segment)

    def reported(self, report: SegmentReport) -> None:
        self.notes.append(report)

    def run(
        self,
        task: str = "go",
        *,
        utility: TimeUtility = NORMAL,
        deadlines: Deadlines = GENEROUS,
        name: str = "t1",
        scene: str = "",
    ) -> tuple[PlanRun, asyncio.Task[TaskEnd]]:
        goal = TaskGoal(task, scene, "drone", "sim-drone", utility, "drone1", None, None)
        run = PlanRun(name, goal, self.context(deadlines), self)
        return run, asyncio.create_task(run.run())

    async def until(self, what: Callable[[], bool], within_s: float = 120.0) -> None:
        """Let virtual time pass until ``what`` holds."""
        end = self.time.now() + within_s
        while not what():
            assert self.time.now() < end, "it never came to that"
            await self.time.run_for(0.05)

    async def end_of(self, task: asyncio.Task[TaskEnd]) -> TaskEnd:
        await self.until(task.done)
        return task.result()


@asynccontextmanager
async def world(server: FakeServer | None = None, **options: Any) -> AsyncIterator[World]:
    made = World(server or FakeServer({"go": PLAN}), **options)
    made.server("http://server")
    try:
        yield made
    finally:
        await made.driver.close()
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(left, timeout=5.0)
        assert not left, f"left behind: {left}"


@pytest.mark.parametrize("ahead", [None, 0])
async def test_a_plan_is_executed_once_in_order_and_reported(ahead: int | None) -> None:
    async with world(FakeServer({"go": PLAN}, ahead=ahead)) as here:
        run, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)
        assert [(order.index, order.text) for order in here.feedback] == [
            (0, "mf(100);"),
            (1, "tc(90);"),
            (2, "mu(40);"),
        ]
        assert [entry[1:] for entry in here.driver.log] == [
            (index, what) for index in range(3) for what in ("started", "done")
        ]
        assert here.server.kinds("t1") == [
            (what, index) for index in range(3) for what in ("started", "done")
        ]
        assert run.executing == 0
        assert here.server.submitted[0]["id"] == "t1"
        assert here.server.submitted[0]["deadline_s"] == GENEROUS.task_s
        assert here.server.submitted[0]["wait_s"] == 0.8 * GENEROUS.submit_s


async def test_times_and_utility_follow_the_definitions() -> None:
    async with world() as here:
        _, task = here.run(utility=TimeUtility(0.0, -1.0, 1.0))
        end = await here.end_of(task)
        # Nothing takes time but the robot, which starts at once and is never idle.
        assert end.response == pytest.approx(0.0, abs=0.06)
        assert end.waiting == pytest.approx(0.0, abs=0.06)
        assert end.utility == pytest.approx(1.0 - end.response)


async def test_segments_sent_ahead_leave_no_gap() -> None:
    async with world() as here:
        begin = here.time.now()
        _, task = here.run()
        await here.end_of(task)
        assert here.time.now() - begin == pytest.approx(6.0, abs=0.11)


async def test_reports_are_published_too() -> None:
    async with world() as here:
        _, task = here.run()
        await here.end_of(task)
        kinds = [(note.segment, note.kind) for note in here.notes if note.kind != SegmentReport.PROGRESS]
        assert kinds == [
            (index, kind) for index in range(3) for kind in (SegmentReport.STARTED, SegmentReport.DONE)
        ]
        assert {note.task_id for note in here.notes} == {"t1"}
        assert here.notes[-1].elapsed_s == pytest.approx(1.0, abs=0.06)


async def test_progress_goes_to_the_server() -> None:
    async with world() as here:
        _, task = here.run()
        await here.end_of(task)
        progress = [report for report in here.server.reports if report.kind == "progress"]
        assert [report.segment for report in progress] == [0, 1]  # the third is over before a report is due
        assert progress[1].fields["remaining_s"] == pytest.approx(1.5)


async def test_the_value_of_a_blocking_segment_reaches_the_server() -> None:
    plan = (FakeSegment("rp();", 1.0, blocking=True), FakeSegment("mf(50);", 1.0))
    async with world(FakeServer({"go": plan}), values={"rp();": "a cat"}) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert end.outcome == "complete"
        assert here.server.kinds("t1") == [("started", 0), ("value", 0), ("started", 1), ("done", 1)]
        assert (
            next(report for report in here.server.reports if report.kind == "value").fields["value"]
            == "a cat"
        )


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


async def test_the_first_segment_that_fails_says_why_the_plan_ended() -> None:
    """A driver refuses the segments behind it as well, perhaps in the same moment and for another reason."""
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: len(run.sent_segments) == 3)
        codes = (ErrorCode.SEGMENT_CANCELLED, ErrorCode.OUT_OF_ORDER, ErrorCode.OUT_OF_ORDER)
        for sent_segment, code in zip(run.sent_segments, codes, strict=True):
            sent_segment.ended.set_result(SegmentExecution("refused", code, "refused"))
        end = await here.end_of(task)
        assert end.code == ErrorCode.SEGMENT_CANCELLED
        assert here.server.kinds("t1")[-1] == ("failed", 0)


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


async def test_nothing_is_submitted_or_sent_before_the_disk_knows_of_it() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        other = RobotClaim(False, lambda code, message: None)
        await here.lock.acquire(other)
        here.disk.clear()
        _, task = here.run()
        await here.time.run_for(3.0)
        assert here.server.submitted == []
        here.disk.set()
        await here.until(lambda: here.lock.queue_length == 1)
        here.disk.clear()
        here.lock.release(other)
        await here.time.run_for(3.0)
        assert here.feedback == []
        here.disk.set()
        assert (await here.end_of(task)).outcome == "complete"


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


async def test_a_failed_segment_ends_the_task_with_the_drivers_code() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0), fails=["tc(90);"]) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.MOTION_FAILED)
        assert "segment 1" in end.message
        assert "stuck" in end.message
        assert here.server.kinds("t1")[-1] == ("failed", 1)
        assert ("t1", 2, "started") not in here.driver.log


async def test_a_long_complaint_of_a_driver_is_cut_to_what_the_server_takes() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0), fails=["tc(90);"], failure="x" * 5000) as here:
        _, task = here.run()
        assert len((await here.end_of(task)).message) > 5000
        assert here.server.reports[-1].fields["reason"] == "x" * MAX_REASON_CHARS


async def test_what_was_sent_ahead_is_not_executed_after_a_failure() -> None:
    async with world(fails=["mf(100);"]) as here:
        _, task = here.run()
        assert (await here.end_of(task)).code == ErrorCode.MOTION_FAILED
        assert [entry[1] for entry in here.driver.log] == [0, 0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsafeSegment("mf(9999)"), ErrorCode.UNSAFE_SEGMENT),
        (EngineFailed("died", where="engine"), ErrorCode.ENGINE_FAILED),
        (EngineFailed("connection lost", where="http://server"), ErrorCode.SERVER_UNREACHABLE),
    ],
)
async def test_when_the_plan_breaks_off_the_robot_finishes_what_it_has(error: TimelyError, code: int) -> None:
    async with world(FakeServer({"go": (*PLAN[:2], error)})) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("failed", code, "mf(100);tc(90);")
        assert here.driver.log[-1] == ("t1", 1, "done")


async def test_a_goal_the_server_refuses_is_refused() -> None:
    server = FakeServer({"go": PLAN}, skill_sets=["arm"])
    async with world(server) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("refused", ErrorCode.UNKNOWN_NAME)
        assert "arm" in end.message


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    server = FakeServer({"go": PLAN})
    server.hangs = True
    async with world(server) as here:
        _, task = here.run(deadlines=Deadlines(submit_s=0.05))
        async with asyncio.timeout(5):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.SERVER_TIMEOUT)


async def test_a_server_that_is_down_says_so() -> None:
    server = FakeServer({"go": PLAN})
    server.down = True
    async with world(server) as here:
        _, task = here.run()
        assert (await here.end_of(task)).code == ErrorCode.SERVER_UNREACHABLE


async def test_silence_with_nothing_to_do_has_an_end() -> None:
    class Silent(FakeServer):
        async def submit(self, task: str, **fields: Any) -> Any:
            stream = await super().submit(task, **fields)
            stream._settled.clear()
            return stream

    never = (FakeSegment("mf(100);", 0.1, blocking=True), FakeSegment("tc(90);", 0.1))
    async with world(Silent({"go": never})) as here:
        # The value never arrives: the report is refused, so the plan waits for ever.
        async def refuse(*args: Any, **kwargs: Any) -> None:
            raise EngineFailed("lost")

        run, task = here.run(deadlines=Deadlines(segment_s=0.1, cancel_s=0.1, report_limit_s=0.1))
        await settle_clock_tasks()
        run._stream.report = refuse  # type: ignore[union-attr, method-assign]
        await here.until(lambda: here.driver.log[-1:] == [("t1", 0, "done")])
        async with asyncio.timeout(5):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.SERVER_TIMEOUT)


async def test_no_driver_no_motion() -> None:
    async with world() as here:
        here.driver.alive = False
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.DRIVER_UNAVAILABLE)
        assert here.feedback == []


async def test_a_driver_that_comes_late_is_waited_for() -> None:
    async with world() as here:
        here.driver.alive = False
        here.driver.appears_s = here.time.now() + 3.0
        _, task = here.run()
        end = await here.end_of(task)
        assert end.outcome == "complete"
        assert end.response == pytest.approx(3.0, abs=0.1)


async def test_a_driver_that_vanishes_loses_the_task() -> None:
    async with world() as here:
        _, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        here.driver.lose()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.DRIVER_LOST)


async def test_a_driver_that_never_begins_is_given_up() -> None:
    async with world() as here:
        here.driver.mute = True
        _, task = here.run(deadlines=Deadlines(driver_s=0.05, cancel_s=0.05))
        async with asyncio.timeout(5):
            end = await task
        assert end.code == ErrorCode.DRIVER_UNAVAILABLE


async def test_a_pause_of_the_bridge_is_no_fault_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now, ahead_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + ahead_s)

    async def pause(task: asyncio.Task[TaskEnd]) -> None:
        nonlocal ahead_s
        await settle_clock_tasks()
        ahead_s += 25.0  # longer than any wait for the driver
        await settle_clock_tasks()
        assert not task.done()

    async with world(FakeServer({"go": [PLAN[0]]})) as here:
        here.driver.mute = True
        run, task = here.run(deadlines=replace(GENEROUS, execution_factor=0.0, execution_margin_s=20.0))
        await here.until(lambda: bool(run.sent_segments))
        await pause(task)
        run.sent_segments[0].started.set_result(here.time.now())
        await pause(task)
        run.sent_segments[0].ended.set_result(SegmentExecution("done"))
        assert (await here.end_of(task)).outcome == "complete"


async def test_a_motion_that_never_ends_is_given_up_and_cancelled() -> None:
    tight = Deadlines(execution_factor=0.0, execution_margin_s=0.05)
    async with world() as here:
        _, task = here.run(deadlines=tight)
        async with asyncio.timeout(5):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.SEGMENT_TIMEOUT)
        assert here.driver.log[-1] == ("t1", 0, "cancelled")


async def test_a_loop_that_a_return_may_end_has_the_time_of_all_its_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server expects one round of it; a drone that searches in vain flies them all."""
    further_s: list[float] = []

    def segment_run(*args: Any) -> SegmentRun:
        run = SegmentRun(*args)
        further_s.append(run.further_s)
        return run

    monkeypatch.setattr(plan_run, "SegmentRun", segment_run)
    search = [FakeSegment("8{?s('cat'){"), FakeSegment("g('{');"), FakeSegment("->True}mf(500)}"), PLAN[0]]
    async with world(FakeServer({"go": search})) as here:
        _, task = here.run()
        assert (await here.end_of(task)).outcome == "complete"
    assert further_s == [0.0, 0.0, 7 * 3.0, 0.0]


async def test_the_rounds_of_a_loop_count_for_the_limit_of_its_last_segment() -> None:
    segment = Segment("t", 0, "}", (), 1, 0.0, 1.0, 0.0)
    sent = BridgeSegment(segment, "drone", lambda: None)
    sent.started.set_result(0.0)
    deadlines = Deadlines(execution_factor=0.01, execution_margin_s=0.05)
    reports = cast(ReportQueue, SimpleNamespace(put=lambda report, when_s: None))
    run = SegmentRun(sent, deadlines, ManualClock(0.0), Timeline(), reports, lambda report: None, 21.0)
    with pytest.raises(BridgeTaskError, match=r"segment 0 took more than 0\.3 s"):
        await run.run(None)


async def test_an_operator_who_is_asked_takes_no_time_of_the_segment() -> None:
    segment = Segment("t", 0, "open();", (), 1, 0.0, 1.0, 0.0)
    sent = BridgeSegment(segment, "drone", lambda: None)
    sent.started.set_result(0.0)
    looks = 0

    def awaits_operator() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3 * LOOKS:
            sent.ended.set_result(SegmentExecution("done"))
        return True

    deadlines = Deadlines(execution_factor=0.0, execution_margin_s=0.01)
    reports = cast(ReportQueue, SimpleNamespace(put=lambda report, when_s: None))
    run = SegmentRun(
        sent, deadlines, ManualClock(0.0), Timeline(), reports, lambda report: None, 0.0, awaits_operator
    )
    await run.run(None)
    assert looks == 3 * LOOKS


@pytest.mark.parametrize(
    ("state", "awaits"),
    [
        ({"task_id": "t", "segment": 2, "awaiting": "open()"}, True),
        ({"task_id": "t", "segment": 1, "awaiting": "open()"}, False),
        ({"task_id": "t", "segment": 2}, False),
    ],
)
def test_a_driver_says_for_which_segment_it_asks(state: dict[str, Any], awaits: bool) -> None:
    port = cast(DriverPort, SimpleNamespace(state=RobotState(**state), present=True))
    assert DriverPort.awaits_operator(port, Segment("t", 2, "open();", (), 1, 0.0, 1.0, 0.0)) == awaits


def test_the_rounds_of_nested_loops_multiply() -> None:
    def further_s(*texts: str) -> float:
        return further_loop_rounds_s(
            Segment("t", index, text, (), 1, 0.0, 1.0, 0.0) for index, text in enumerate(texts)
        )

    assert further_s("mf(50);", "3{2{?iv('a'){->True}mf(50)}", "mf(50)}") == 2 * (1 + 1 + 1)
    assert further_s("9{mf(50)}") == 0.0, "without a return the server expects all rounds"
    assert further_s("?ox('a')>9{->True}", "}", "l('9{->');") == 0.0


async def test_a_driver_that_ignores_cancel_does_not_hold_up_the_answer() -> None:
    async with world() as here:
        here.driver.stubborn = True
        run, task = here.run(deadlines=Deadlines(cancel_s=0.05))
        await here.until(lambda: bool(here.driver.log))
        run.cancel(ErrorCode.CANCELLED, "now")
        async with asyncio.timeout(5):
            end = await task
        assert end.outcome == "cancelled"


async def test_the_whole_task_has_a_deadline() -> None:
    async with world() as here:
        _, task = here.run(deadlines=Deadlines(task_s=0.05))
        async with asyncio.timeout(5):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.EXPIRED)


async def test_two_tasks_of_one_robot_are_not_mixed() -> None:
    async with world(FakeServer({"go": PLAN, "come": PLAN}, ahead=0)) as here:
        _, first = here.run("go", name="t1")
        await here.until(lambda: bool(here.driver.log))
        _, second = here.run("come", name="t2")
        await here.end_of(first)
        end = await here.end_of(second)
        assert end.outcome == "complete"
        assert [entry[0] for entry in here.driver.log] == ["t1"] * 6 + ["t2"] * 6
        assert end.response > 4.0, "it was generated meanwhile and waited for the robot"


async def test_an_urgent_task_takes_the_robot_under_preempt() -> None:
    async with world(FakeServer({"go": PLAN, "dodge": PLAN[:1]}, ahead=0), policy="preempt") as here:
        _, normal = here.run("go", name="t1")
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        _, urgent = here.run("dodge", name="t2", utility=URGENT)
        end = await here.end_of(urgent)
        cut = normal.result()
        assert (cut.outcome, cut.code) == ("cancelled", ErrorCode.PREEMPTED)
        assert end.outcome == "complete"
        assert end.response == pytest.approx(0.0, abs=0.1)


async def test_a_second_task_is_refused_under_reject() -> None:
    async with world(FakeServer({"go": PLAN, "come": PLAN}), policy="reject") as here:
        _, first = here.run("go", name="t1")
        await here.until(lambda: bool(here.driver.log))
        _, second = here.run("come", name="t2")
        end = await here.end_of(second)
        assert (end.outcome, end.code) == ("refused", ErrorCode.ROBOT_BUSY)
        assert len(here.server.submitted) == 1
        assert (await here.end_of(first)).outcome == "complete"


@pytest.mark.parametrize(
    "error", [EngineFailed("connection lost", where="http://server"), RuntimeError("no such stream")]
)
@pytest.mark.parametrize("plan", ["value", "failed"])
async def test_a_report_that_the_server_waits_for_is_repeated_until_taken(
    plan: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Retries wait in real time.
    monkeypatch.setattr(Backoff, "delay_s", lambda *_: 0.0)
    ask = FakeSegment("rp();", 1.0, blocking=plan == "value")
    async with world(
        FakeServer({"go": (ask,)}), values={"rp();": "a cat"}, fails=[] if plan == "value" else ["rp();"]
    ) as here:
        _, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        stream, failures = here.server.streams["t1"], 0
        take = stream.report

        async def lossy(*reports: Any) -> None:
            nonlocal failures
            if failures < 3:
                failures += 1
                raise error
            await take(*reports)

        stream.report = lossy  # type: ignore[method-assign]
        await here.end_of(task)
        async with asyncio.timeout(5):
            while (plan, 0) not in here.server.kinds("t1"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert failures == 3
        assert len([message for message in caplog.messages if "repeated" in message]) == 1
        assert here.server.kinds("t1") == [("started", 0), (plan, 0)]


async def test_an_outage_of_the_server_is_one_line_for_all_tasks_and_the_next_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A progress report that fails is dropped, so each of them is the first of its attempts."""
    monkeypatch.setattr(Backoff, "delay_s", lambda *_: 0.0)
    outcomes = [True, True, True, True, True, True, False, False] * 2

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            if outcomes.pop(0):
                raise EngineFailed("connection lost", where="http://server")

    stream: Any = Stream()
    queues = [
        ReportQueue(name, ManualClock(), GENEROUS, lambda: True, stream=stream) for name in ("t1", "t2")
    ]
    for queue in queues:
        queue.start()
    async with asyncio.timeout(5):
        while outcomes:
            for queue in queues:
                queue.put(ExecutionReport(0, "progress", elapsed_s=1.0, remaining_s=1.0), 0.0)
                await queue.join()
    for queue in queues:
        queue.close()
    assert len([message for message in caplog.messages if "repeated" in message]) == 2


async def test_a_report_that_is_refused_ends_an_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Backoff, "delay_s", lambda *_: 0.0)
    lost = EngineFailed("connection lost", where="http://server")
    answers: list[Exception | None] = [lost, InvalidInput("no such segment"), lost, None]

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

    stream: Any = Stream()
    queue = ReportQueue("t1", ManualClock(), GENEROUS, lambda: True, stream=stream)
    queue.start()
    async with asyncio.timeout(5):
        for _ in range(2):
            queue.put(ExecutionReport(0, "failed"), 0.0)
            await queue.join()
    queue.close()
    assert not answers
    assert len([message for message in caplog.messages if "repeated" in message]) == 2


async def test_a_report_that_the_server_refuses_is_dropped() -> None:
    async with world() as here:
        _, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        stream, refused = here.server.streams["t1"], Counter[tuple[str, int]]()

        async def refuse(*reports: ExecutionReport) -> None:
            refused.update((report.kind, report.segment) for report in reports if report.kind != "progress")
            raise Conflict("no such segment", where="segment")

        stream.report = refuse  # type: ignore[method-assign]
        assert (await here.end_of(task)).outcome == "complete"
        # With others, and alone.
        assert max(refused.values()) <= 2


async def test_a_refused_report_takes_no_other_of_its_batch_with_it() -> None:
    taken: list[tuple[str, int]] = []

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            if any(report.segment == 1 for report in reports):
                raise Conflict("segment 1 was not released", where="segment")
            taken.extend((report.kind, report.segment) for report in reports)

    queue = ReportQueue("t1", ManualClock(), GENEROUS, lambda: True, stream=Stream())  # type: ignore[arg-type]
    for segment in range(3):
        queue.put(ExecutionReport(segment, "done"), 0.0)
    queue.start()
    async with asyncio.timeout(5):
        await queue.join()
    queue.close()
    assert taken == [("done", 0), ("done", 2)]


async def test_cancelling_the_coroutine_leaves_nothing() -> None:
    async with world() as here:
        _, task = here.run()
        await here.until(lambda: bool(here.driver.log))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not here.lock.busy


# ---------------------------------------------------------------- what the robot holds


async def test_the_scene_of_a_plan_names_what_the_robot_holds() -> None:
    async with world() as here:
        here.driver.holding = "cup"
        _, task = here.run(scene="plate, bin")
        await here.end_of(task)
        assert here.server.submitted[0]["scene"] == "plate, bin, cup in your gripper"
        here.driver.holding = ""
        _, task = here.run(scene="plate, bin", name="t2")
        await here.end_of(task)
        assert here.server.submitted[1]["scene"] == "plate, bin"


async def test_what_another_task_holds_says_nothing_about_the_next() -> None:
    """It will be put down by then; unless the next one takes the robot away from it."""
    for policy, expected in (("queue", "bin"), ("preempt", "bin, cup in your gripper")):
        async with world(policy=policy) as here:
            _, first = here.run()
            await here.until(lambda: bool(here.driver.log))
            here.driver.holding = "cup"
            _, second = here.run(scene="bin", utility=URGENT, name="t2")
            await here.until(lambda: len(here.server.submitted) == 2)
            assert here.server.submitted[1]["scene"] == expected
            await here.end_of(first)
            await here.end_of(second)


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("", "cup in your gripper"),
        ("  ", "cup in your gripper"),
        ("plate, bin", "plate, bin, cup in your gripper"),
        ("A plate and a bin.", "A plate and a bin, cup in your gripper"),
        ("Cup, plate , cup holder", "plate, cup holder, cup in your gripper"),
    ],
)
def test_the_scene_names_the_object_once(scene: str, expected: str) -> None:
    assert bridge_scene_with_object(scene, "cup") == expected
    assert bridge_scene_with_object(scene, "") == scene


async def test_a_plan_outlives_a_server_that_takes_long_to_start() -> None:
    """The client's own limit is 20 s, and a model loads for longer; the plan's deadlines hold all the same."""
    clock, begun_s = LeapingClock(100.0), list[float]()
    result = {
        "task_id": "t1", "outcome": "complete", "plan": "", "tail": "", "segments": 0, "response_time_s": None,
        "waiting_time_s": None, "completion_time_s": None, "utility": 0.0, "measured": False,
    }  # fmt: skip

    def answer(request: httpx.Request) -> httpx.Response:
        begun_s.append(clock.now())
        if len(begun_s) == 1:
            return httpx.Response(200, stream=httpx.ByteStream(b": keep-alive\n\n"))
        if clock.now() < 150.0:
            raise httpx.ConnectError("nothing listens")
        event = f"id: 1\nevent: result\ndata: {json.dumps(result)}\n\n"
        return httpx.Response(200, stream=httpx.ByteStream(event.encode()))

    client = bridge_client(
        "http://server", transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    )
    stream = await client.resume("t1")
    assert [segment async for segment in stream] == []
    assert stream.result.outcome == "complete"
    await client.close()
