"""One segment at the driver: its start, progress and end, as reports and in the goal's timeline."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timely_interfaces.msg import ErrorCode, SegmentReport

from timely.core.clock import Clock
from timely.core.reports import MAX_REASON_CHARS, MAX_VALUE_CHARS, ExecutionReport, ReportKind
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.interfaces import BridgeSegment, SegmentExecution
from timely_bridge.outcome import BridgeTimeline, Deadlines
from timely_bridge.report_queue import BridgeReportQueue

KINDS: Mapping[ReportKind, int] = {
    "started": SegmentReport.STARTED,
    "progress": SegmentReport.PROGRESS,
    "done": SegmentReport.DONE,
    "failed": SegmentReport.FAILED,
    "value": SegmentReport.VALUE,
}


WAIT_POLLS = 10
"""A wait for the driver has so many parts. A pause of this process, in which it hears nothing, takes one of them."""


@dataclass(frozen=True, slots=True)
class BridgeSegmentRun:
    """Follows one segment. ``publish`` gets every report as a ROS 2 message.

    Start and end are recorded until ``close``, also after ``run`` was cancelled. A motion that ended together with the
    cancellation of its plan was made all the same.

    Attributes:
        further_s: of the rounds of a loop that the segment may take beyond its expected time, seconds.
        awaits_operator: a skill of the segment waits for a confirmation, which has a limit of its own at the driver.
    """

    sent_segment: BridgeSegment
    deadlines: Deadlines
    clock: Clock
    timeline: BridgeTimeline
    reports: BridgeReportQueue
    publish: Callable[[SegmentReport], None]
    further_s: float = 0.0
    awaits_operator: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.sent_segment.started.add_done_callback(self._record_start)
        self.sent_segment.ended.add_done_callback(self._record_end)

    def close(self) -> None:
        """Record nothing more."""
        self.sent_segment.started.remove_done_callback(self._record_start)
        self.sent_segment.ended.remove_done_callback(self._record_end)

    async def run(self, previous: BridgeSegment | None) -> None:
        """Return when the segment is done; raises BridgeTaskError when it does not succeed."""
        sent_segment, index, driver_s = (
            self.sent_segment,
            self.sent_segment.segment.index,
            self.deadlines.driver_s,
        )
        if previous is not None:
            await asyncio.wait((previous.ended,))
            if previous.ended.result().outcome != "done":
                return  # the one before says why the plan has ended
        # The driver executes segments in order, so that this one begins now.
        await _wait_for_any_bridge_future((sent_segment.started, sent_segment.ended), driver_s)
        if not sent_segment.started.done() and not sent_segment.ended.done():
            raise BridgeTaskError(
                ErrorCode.DRIVER_UNAVAILABLE, f"segment {index} was not begun within {driver_s:g} s"
            )
        expected_s = sent_segment.segment.execution_s + self.further_s
        limit_s = expected_s * self.deadlines.execution_factor + self.deadlines.execution_margin_s
        await _wait_for_any_bridge_future((sent_segment.ended,), limit_s, self.awaits_operator)
        if not sent_segment.ended.done():
            raise BridgeTaskError(
                ErrorCode.SEGMENT_TIMEOUT, f"segment {index} took more than {limit_s:.1f} s"
            )
        execution = sent_segment.ended.result()
        if execution.outcome != "done":
            self._report(
                "failed",
                execution.end_s,
                elapsed_s=execution.elapsed_s,
                reason=execution.message,
                error_code=execution.code,
            )
            raise BridgeTaskError(execution.code, f"segment {index}: {execution.message}")

    def _record_start(self, started: asyncio.Future[float]) -> None:
        self.timeline.start(started.result())
        self._report("started", started.result())
        self.sent_segment.progress = self._make_progress()

    def _record_end(self, ended: asyncio.Future[SegmentExecution]) -> None:
        execution, segment = ended.result(), self.sent_segment.segment
        is_done = execution.outcome == "done"
        if execution.elapsed_s > 0.0 or is_done:
            self.timeline.end(execution.end_s, execution.elapsed_s)
        if is_done:
            self.timeline.executed.append(segment.text)
            value = (execution.value or "") if segment.blocking else None
            kind: ReportKind = "done" if value is None else "value"
            # The time of a segment that ended while the bridge was away may be unknown.
            self._report(kind, execution.end_s, elapsed_s=execution.elapsed_s or None, value=value)

    def _make_progress(self) -> Callable[[float, float], None]:
        last_s = self.clock.now()

        def progress(elapsed_s: float, remaining_s: float) -> None:
            nonlocal last_s
            now_s = self.clock.now()
            if now_s - last_s >= self.deadlines.progress_every_s:
                last_s = now_s
                self._report("progress", now_s, elapsed_s=elapsed_s, remaining_s=remaining_s)

        return progress

    def _report(
        self,
        kind: ReportKind,
        when_s: float,
        *,
        elapsed_s: float | None = None,
        remaining_s: float | None = None,
        value: str | None = None,
        reason: str = "",
        error_code: int = 0,
    ) -> None:
        """Publish a report that was true at ``when_s``, and queue it for the server."""
        segment = self.sent_segment.segment
        self.publish(
            SegmentReport(
                task_id=segment.task_id,
                segment=segment.index,
                kind=KINDS[kind],
                elapsed_s=elapsed_s or 0.0,
                remaining_s=remaining_s or 0.0,
                value=value or "",
                reason=reason,
                error_code=error_code,
            )
        )
        report = ExecutionReport(
            segment.index,
            kind,
            elapsed_s=elapsed_s,
            remaining_s=remaining_s,
            value=None if value is None else value[:MAX_VALUE_CHARS],
            reason=reason[:MAX_REASON_CHARS],
        )
        self.reports.put(report, when_s)


async def _wait_for_any_bridge_future(
    futures: Sequence[asyncio.Future[Any]], timeout_s: float, is_free: Callable[[], bool] = lambda: False
) -> None:
    """Wait until one is done, or for ``timeout_s`` without the time in which ``is_free`` holds."""
    polls = 0
    while polls < WAIT_POLLS and not any(future.done() for future in futures):
        await asyncio.wait(futures, timeout=timeout_s / WAIT_POLLS, return_when=asyncio.FIRST_COMPLETED)
        polls += not is_free()
