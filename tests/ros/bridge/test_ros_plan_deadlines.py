"""A plan whose server or driver is silent, late or gone: each wait has its limit."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from bridge_doubles import FakeSegment, FakeServer
from manual_clock import LeapingClock, ManualClock, settle_clock_tasks
from plan_world import GENEROUS, PLAN, world
from timely_bridge import plan_run
from timely_bridge.driver_port import BridgeDriverPort
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.interfaces import BridgeSegment, SegmentExecution
from timely_bridge.loop_rounds import bridge_further_loop_rounds_s
from timely_bridge.node import bridge_client
from timely_bridge.outcome import BridgeTimeline, Deadlines, TaskEnd
from timely_bridge.report_queue import BridgeReportQueue
from timely_bridge.segment_run import WAIT_POLLS, BridgeSegmentRun
from timely_interfaces.msg import ErrorCode, RobotState, SegmentReport

from timely.client import Segment
from timely.core.errors import EngineFailed
from timely.core.reports import ExecutionReport


@pytest.mark.parametrize(
    ("problem", "reason"), [("", ""), ("cannot connect: refused", ": http://server: cannot connect: refused")]
)
async def test_a_server_that_does_not_answer_is_given_up(problem: str, reason: str) -> None:
    """The client tries without end to reach a server that is away, and says nothing meanwhile."""
    server = FakeServer({"go": PLAN})
    server.hangs = True
    async with world(server) as here:
        here.server_problem = problem
        _, task = here.run(deadlines=Deadlines(submit_s=0.05))
        async with asyncio.timeout(20):
            end = await task
        assert end.message == f"the server did not answer in time{reason}"
        assert (end.outcome, end.code) == ("failed", ErrorCode.SERVER_TIMEOUT)


async def test_a_server_that_is_down_says_so() -> None:
    server = FakeServer({"go": PLAN})
    server.down = True
    async with world(server) as here:
        _, task = here.run()
        assert (await here.end_of(task)).code == ErrorCode.SERVER_UNREACHABLE


async def test_an_end_for_want_of_a_segment_says_why_the_server_could_not_be_asked() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        _, task = here.run(deadlines=replace(GENEROUS, segment_s=0.05, cancel_s=0.0))
        await here.until(lambda: "t1" in here.server.streams)
        here.server.streams["t1"].outage = "no principal has this program's token"
        here.server.down = True  # so that it does not know of the first segment's end
        await here.until(lambda: ("t1", 0, "done") in here.driver.log)
        async with asyncio.timeout(20):
            end = await task
        assert end.code == ErrorCode.SERVER_TIMEOUT
        assert end.message == "no segment came within 0.05 s: no principal has this program's token"


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
        async with asyncio.timeout(20):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.SERVER_TIMEOUT)


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
        assert end.response == pytest.approx(0.0, abs=0.1), "it had begun"


async def test_a_driver_that_never_begins_is_given_up() -> None:
    async with world() as here:
        here.driver.mute = True
        _, task = here.run(deadlines=Deadlines(driver_s=0.05, cancel_s=0.05))
        async with asyncio.timeout(20):
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
        async with asyncio.timeout(20):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.SEGMENT_TIMEOUT)
        assert here.driver.log[-1] == ("t1", 0, "cancelled")


async def test_the_whole_task_has_a_deadline() -> None:
    async with world() as here:
        _, task = here.run(deadlines=Deadlines(task_s=0.05))
        async with asyncio.timeout(20):
            end = await task
        assert (end.outcome, end.code) == ("failed", ErrorCode.EXPIRED)


async def test_a_loop_that_a_return_may_end_has_the_time_of_all_its_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server expects one round of it; a drone that searches in vain flies them all."""
    further_s: list[float] = []

    def segment_run(*args: Any) -> BridgeSegmentRun:
        run = BridgeSegmentRun(*args)
        further_s.append(run.further_s)
        return run

    monkeypatch.setattr(plan_run, "BridgeSegmentRun", segment_run)
    search = [FakeSegment("8{?s('cat'){"), FakeSegment("g('{');"), FakeSegment("->True}mf(500)}"), PLAN[0]]
    async with world(FakeServer({"go": search})) as here:
        _, task = here.run()
        assert (await here.end_of(task)).outcome == "complete"
    assert further_s == [0.0, 0.0, 7 * 3.0, 0.0]


async def test_progress_is_reported_now_and_then() -> None:
    clock, published, queued = ManualClock(0.0), list[SegmentReport](), list[ExecutionReport]()
    sent = BridgeSegment(Segment("t", 0, "rp();", (), 1, 0.0, 3.0, 0.0, blocking=True), "drone", lambda: None)
    sent.started.set_result(0.0)
    reports = cast(BridgeReportQueue, SimpleNamespace(put=lambda report, when_s: queued.append(report)))
    deadlines = Deadlines(progress_every_s=1.0)
    run = BridgeSegmentRun(sent, deadlines, clock, BridgeTimeline(), reports, published.append)
    running = asyncio.create_task(run.run(None))
    await settle_clock_tasks()
    assert sent.progress is not None
    for quarter in range(1, 12):
        clock.advance_to(quarter / 4)
        sent.progress(quarter / 4, 3.0 - quarter / 4)
    sent.ended.set_result(SegmentExecution("done", elapsed_s=3.0, end_s=3.0, value="a cat"))
    await running
    kinds = (SegmentReport.STARTED, SegmentReport.PROGRESS, SegmentReport.PROGRESS, SegmentReport.VALUE)
    times_s = ((0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (3.0, 0.0))
    values = ("", "", "", "a cat")
    assert [(one.kind, (one.elapsed_s, one.remaining_s), one.value) for one in published] == list(
        zip(kinds, times_s, values, strict=True)
    )
    assert queued == [
        ExecutionReport(0, "started"),
        ExecutionReport(0, "progress", elapsed_s=1.0, remaining_s=2.0),
        ExecutionReport(0, "progress", elapsed_s=2.0, remaining_s=1.0),
        ExecutionReport(0, "value", elapsed_s=3.0, value="a cat"),
    ]


async def test_the_rounds_of_a_loop_count_for_the_limit_of_its_last_segment() -> None:
    segment = Segment("t", 0, "}", (), 1, 0.0, 1.0, 0.0)
    sent = BridgeSegment(segment, "drone", lambda: None)
    sent.started.set_result(0.0)
    deadlines = Deadlines(execution_factor=0.01, execution_margin_s=0.05)
    reports = cast(BridgeReportQueue, SimpleNamespace(put=lambda report, when_s: None))
    run = BridgeSegmentRun(
        sent, deadlines, ManualClock(0.0), BridgeTimeline(), reports, lambda report: None, 21.0
    )
    with pytest.raises(BridgeTaskError, match=r"segment 0 took more than 0\.3 s"):
        await run.run(None)


def test_the_rounds_of_nested_loops_multiply() -> None:
    def further_s(*texts: str) -> float:
        return bridge_further_loop_rounds_s(
            Segment("t", index, text, (), 1, 0.0, 1.0, 0.0) for index, text in enumerate(texts)
        )

    assert further_s("mf(50);", "3{2{?iv('a'){->True}mf(50)}", "mf(50)}") == 2 * (1 + 1 + 1)
    assert further_s("9{mf(50)}") == 0.0, "without a return the server expects all rounds"
    assert further_s("?ox('a')>9{->True}", "}", "l('9{->');") == 0.0


async def test_an_operator_who_is_asked_takes_no_time_of_the_segment() -> None:
    segment = Segment("t", 0, "open();", (), 1, 0.0, 1.0, 0.0)
    sent = BridgeSegment(segment, "drone", lambda: None)
    sent.started.set_result(0.0)
    polls = 0

    def awaits_operator() -> bool:
        nonlocal polls
        polls += 1
        if polls == 3 * WAIT_POLLS:
            sent.ended.set_result(SegmentExecution("done"))
        return True

    deadlines = Deadlines(execution_factor=0.0, execution_margin_s=0.01)
    reports = cast(BridgeReportQueue, SimpleNamespace(put=lambda report, when_s: None))
    run = BridgeSegmentRun(
        sent,
        deadlines,
        ManualClock(0.0),
        BridgeTimeline(),
        reports,
        lambda report: None,
        0.0,
        awaits_operator,
    )
    await run.run(None)
    assert polls == 3 * WAIT_POLLS


@pytest.mark.parametrize(
    ("state", "awaits"),
    [
        ({"task_id": "t", "segment": 2, "awaiting": "open()"}, True),
        ({"task_id": "t", "segment": 1, "awaiting": "open()"}, False),
        ({"task_id": "t", "segment": 2}, False),
    ],
)
def test_a_driver_says_for_which_segment_it_asks(state: dict[str, Any], awaits: bool) -> None:
    port = cast(BridgeDriverPort, SimpleNamespace(state=RobotState(**state), present=True))
    assert BridgeDriverPort.awaits_operator(port, Segment("t", 2, "open();", (), 1, 0.0, 1.0, 0.0)) == awaits
