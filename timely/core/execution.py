"""What a robot is doing with its plan: start and end of each segment, from estimates until reports replace them."""

import math
from collections.abc import Iterable

from timely.core.errors import Conflict
from timely.core.job import Segment
from timely.core.reports import ExecutionReport


def waiting_time_s(arrival_s: float, spans: Iterable[tuple[float, float]]) -> float:
    """How long a robot had nothing to execute: completion minus execution (TimelyLLM Fig. 3), seconds.

    Args:
        spans: start and end of each segment in order, seconds; without any the result is nan.
    """
    waited_s, free_s = math.nan, arrival_s
    for start_s, end_s in spans:
        waited_s = (0.0 if math.isnan(waited_s) else waited_s) + max(0.0, start_s - free_s)
        free_s = end_s
    return waited_s


class ExecutionTrack:
    """The released segments of one task on one robot; all times absolute, seconds, on one clock.

    Until a report says otherwise, segment k starts when it has reached the robot and segment k-1 has ended, and
    takes its expected execution time. Reports may come late, twice or in any order: a worse estimate never replaces a
    better one.
    """

    def __init__(self, arrival_s: float, network_s: float = 0.0) -> None:
        self.arrival_s = arrival_s
        self.network_s = network_s
        self.segments: list[Segment] = []
        self.failed: int | None = None
        """Index of the segment that failed."""
        self.values: dict[int, str] = {}
        """What blocking segments returned."""
        self._elapsed_s: dict[int, float] = {}

    def release(self, segment: Segment) -> Segment:
        """Append the next segment and estimate its times.

        Raises:
            Conflict: its index is not the next one.
        """
        if segment.index != len(self.segments):
            raise Conflict(f"segment {segment.index} after {len(self.segments)} segments", where="segment")
        self.segments.append(segment)
        self._estimate_from(segment.index)
        return segment

    def check(self, report: ExecutionReport) -> None:
        """Whether the report fits the plan so far.

        Raises:
            Conflict: no such segment was released, or another value was reported for it.
        """
        if report.segment >= len(self.segments):
            raise Conflict(
                f"segment {report.segment} has not been released; {len(self.segments)} have", where="segment"
            )
        if report.kind == "value":
            value = self.values.get(report.segment)
            if value is not None and value != report.value:
                raise Conflict(f"segment {report.segment} already returned another value", where="value")

    def report(self, report: ExecutionReport, now: float) -> bool:
        """Take a report received at ``now``; False when it told nothing new.

        Raises:
            Conflict: see ``check``.
        """
        self.check(report)
        segment = self.segments[report.segment]
        at = now - report.age_s
        if report.kind == "value":
            return self._value(segment, report, at)
        if segment.done:
            return False
        if report.kind == "started":
            if segment.started:
                return False
            self._start(segment, at)
        elif report.kind == "progress":
            if not self._newer(report):
                return False
            if not segment.started:
                self._start(segment, at - (report.elapsed_s or 0.0))
            segment.end_s = max(segment.start_s, at + (report.remaining_s or 0.0))
        else:
            self._end(segment, at, report.elapsed_s)
            if report.kind == "failed":
                self.failed = segment.index
        self._estimate_from(segment.index + 1)
        return True

    def _value(self, segment: Segment, report: ExecutionReport, at: float) -> bool:
        if segment.index in self.values:
            return False
        self.values[segment.index] = report.value or ""
        if not segment.done:
            # A value is returned by a skill that has ended.
            self._end(segment, at, report.elapsed_s)
            self._estimate_from(segment.index + 1)
        return True

    def _newer(self, report: ExecutionReport) -> bool:
        """Progress is ordered by its elapsed time; without one each report counts as newer."""
        if report.elapsed_s is None:
            return True
        if report.elapsed_s <= self._elapsed_s.get(report.segment, -1.0):
            return False
        self._elapsed_s[report.segment] = report.elapsed_s
        return True

    def _start(self, segment: Segment, at: float) -> None:
        # Segments run in order: whatever precedes this one has ended by now, reported or not.
        for earlier in self.segments[: segment.index]:
            if not earlier.done:
                earlier.started = earlier.done = True
                earlier.end_s = max(earlier.start_s, min(earlier.end_s, at))
        segment.start_s = max(at, self._earliest_s(segment))
        segment.started = True
        segment.end_s = segment.start_s + segment.expected_s

    def _end(self, segment: Segment, at: float, elapsed_s: float | None) -> None:
        if not segment.started:
            self._start(segment, min(segment.start_s, at) if elapsed_s is None else at - elapsed_s)
        segment.end_s = max(segment.start_s, at)
        segment.done = True

    def _earliest_s(self, segment: Segment) -> float:
        """No segment starts before it exists, nor before its predecessor has ended."""
        previous = self.segments[segment.index - 1].end_s if segment.index else self.arrival_s
        return max(segment.ready_s, previous)

    def _estimate_from(self, index: int) -> None:
        for segment in self.segments[index:]:
            if segment.started:
                continue
            segment.start_s = max(segment.ready_s + self.network_s, self._earliest_s(segment))
            segment.end_s = segment.start_s + segment.expected_s

    @property
    def end_s(self) -> float:
        """When the robot runs out of released work: end of the last segment, or the arrival without any."""
        return self.segments[-1].end_s if self.segments else self.arrival_s

    @property
    def all_done(self) -> bool:
        """Every released segment is reported done (or failed), and there is at least one."""
        return bool(self.segments) and all(segment.done for segment in self.segments)

    @property
    def measured(self) -> bool:
        """The start of the first action was reported, not estimated."""
        return bool(self.segments) and self.segments[0].started

    @property
    def response_time_s(self) -> float:
        """Arrival to the start of the first action, seconds; nan before any segment."""
        return self.segments[0].start_s - self.arrival_s if self.segments else math.nan

    @property
    def waiting_time_s(self) -> float:
        """How long the robot had nothing to execute, seconds; nan before any segment."""
        return waiting_time_s(self.arrival_s, ((part.start_s, part.end_s) for part in self.segments))

    @property
    def completion_time_s(self) -> float:
        """Arrival to the end of the last segment, seconds; nan before any segment."""
        return self.segments[-1].end_s - self.arrival_s if self.segments else math.nan

    def executing(self, now: float) -> Segment | None:
        for segment in self.segments:
            if not segment.done and segment.start_s <= now and (segment.started or now < segment.end_s):
                return segment
        return None
