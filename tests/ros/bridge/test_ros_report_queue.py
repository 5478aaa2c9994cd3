"""The reports of a plan: on ROS and to the server, repeated over an outage, dropped when refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from bridge_doubles import FakeSegment, FakeServer
from manual_clock import ManualClock
from plan_world import GENEROUS, world
from timely_bridge import report_queue
from timely_bridge.report_queue import BridgeReportQueue
from timely_interfaces.msg import SegmentReport

from timely.client.problems import client_error_from_problem
from timely.client.protocol import ClientBackoff
from timely.core.errors import Conflict, EngineFailed, InvalidInput
from timely.core.reports import ExecutionReport


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


@pytest.mark.parametrize(
    "error", [EngineFailed("connection lost", where="http://server"), RuntimeError("no such stream")]
)
@pytest.mark.parametrize("plan", ["value", "failed"])
async def test_a_report_that_the_server_waits_for_is_repeated_until_taken(
    plan: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Retries wait in real time.
    monkeypatch.setattr(ClientBackoff, "delay_s", lambda *_: 0.0)
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
        async with asyncio.timeout(20):
            while (plan, 0) not in here.server.kinds("t1"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert failures == 3
        assert len([message for message in caplog.messages if "repeated" in message]) == 1
        assert here.server.kinds("t1") == [("started", 0), (plan, 0)]


async def test_an_outage_of_the_server_is_one_line_for_all_tasks_and_the_next_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A progress report that fails is dropped, so each of them is the first of its attempts."""
    monkeypatch.setattr(ClientBackoff, "delay_s", lambda *_: 0.0)
    outcomes = [True, True, True, True, True, True, False, False] * 2

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            if outcomes.pop(0):
                raise EngineFailed("connection lost", where="http://server")

    stream: Any = Stream()
    queues = [
        BridgeReportQueue(name, ManualClock(), GENEROUS, lambda: True, stream=stream) for name in ("t1", "t2")
    ]
    for queue in queues:
        queue.start()
    async with asyncio.timeout(20):
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
    monkeypatch.setattr(ClientBackoff, "delay_s", lambda *_: 0.0)
    lost = EngineFailed("connection lost", where="http://server")
    answers: list[Exception | None] = [lost, InvalidInput("no such segment"), lost, None]

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

    stream: Any = Stream()
    queue = BridgeReportQueue("t1", ManualClock(), GENEROUS, lambda: True, stream=stream)
    queue.start()
    async with asyncio.timeout(20):
        for _ in range(2):
            queue.put(ExecutionReport(0, "failed"), 0.0)
            await queue.join()
    queue.close()
    assert not answers
    assert len([message for message in caplog.messages if "repeated" in message]) == 2


async def test_a_report_under_a_token_that_was_withdrawn_is_repeated_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has not looked at the report: it would wait for this value in vain."""
    monkeypatch.setattr(report_queue, "FIRST_RETRY_S", 0.0)
    unknown = client_error_from_problem({"code": "not_authenticated"}, 401)
    answers: list[Exception | None] = [unknown, unknown, unknown, None]
    kinds: list[list[str]] = []

    class Stream:
        async def report(self, *reports: ExecutionReport) -> None:
            kinds.append([report.kind for report in reports])
            if (answer := answers.pop(0)) is not None:
                raise answer

    queue = BridgeReportQueue("t1", ManualClock(), GENEROUS, lambda: True, stream=Stream())  # type: ignore[arg-type]
    queue.put(ExecutionReport(0, "progress", elapsed_s=1.0, remaining_s=1.0), 0.0)
    queue.put(ExecutionReport(0, "value", value="a cat"), 0.0)
    queue.start()
    async with asyncio.timeout(20):
        await queue.join()
    queue.close()
    assert kinds == [["progress", "value"], ["value"], ["value"], ["value"]]


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

    queue = BridgeReportQueue("t1", ManualClock(), GENEROUS, lambda: True, stream=Stream())  # type: ignore[arg-type]
    for segment in range(3):
        queue.put(ExecutionReport(segment, "done"), 0.0)
    queue.start()
    async with asyncio.timeout(20):
        await queue.join()
    queue.close()
    assert taken == [("done", 0), ("done", 2)]


async def test_a_report_after_the_end_is_dropped_and_keeps_no_cancellation_waiting() -> None:
    """A motion may end after its plan was given up."""
    queue = BridgeReportQueue("t1", ManualClock(), GENEROUS, lambda: True)
    queue.start()
    queue.close()
    async with asyncio.timeout(20):
        await queue.join()
        queue.put(ExecutionReport(0, "done"), 0.0)
        await queue.join()
