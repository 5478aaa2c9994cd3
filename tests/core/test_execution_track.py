"""Segment times of a plan: estimates, what reports make of them, and that repeats and disorder change nothing."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.core.errors import Conflict
from timely.core.execution import ExecutionTrack
from timely.core.job import Segment
from timely.core.reports import ExecutionReport


def track(*segments: tuple[float, float], arrival_s: float = 10.0, network_s: float = 0.0) -> ExecutionTrack:
    """A track with segments of (ready_s, execution_s)."""
    made = ExecutionTrack(arrival_s, network_s)
    for index, (ready_s, execution_s) in enumerate(segments):
        made.release(Segment(index, "x", 1, ready_s, execution_s))
    return made


def report(segment: int, kind: str, **fields: object) -> ExecutionReport:
    return ExecutionReport(segment, kind, **fields)  # type: ignore[arg-type]


def test_without_reports_times_are_those_of_the_papers_figure_three() -> None:
    # The second segment is ready in time, the third is late by half a second.
    made = track((11.0, 2.0), (12.0, 3.0), (16.5, 1.0), network_s=0.01)
    starts = [segment.start_s for segment in made.segments]
    assert starts == pytest.approx([11.01, 13.01, 16.51])
    assert made.response_time_s == pytest.approx(1.01)
    assert made.waiting_time_s == pytest.approx(1.01 + 0.0 + 0.5)
    assert made.completion_time_s == pytest.approx(7.51)
    assert not made.measured
    assert (made.executing(12.0), made.executing(16.2), made.executing(99.0)) == (
        made.segments[0],
        None,
        None,
    )


def test_an_empty_track_measures_nothing() -> None:
    made = track()
    assert all(
        math.isnan(value) for value in (made.response_time_s, made.waiting_time_s, made.completion_time_s)
    )
    assert made.end_s == 10.0
    assert not made.all_done


def test_reports_replace_estimates_and_move_what_follows() -> None:
    made = track((11.0, 2.0), (12.0, 3.0))
    assert made.report(report(0, "started", age_s=0.1), 11.6)
    assert made.segments[0].start_s == pytest.approx(11.5)
    assert made.segments[1].start_s == pytest.approx(13.5)
    assert made.report(report(0, "progress", remaining_s=0.5, elapsed_s=0.5), 12.0)
    assert made.segments[1].start_s == pytest.approx(12.5)
    assert made.report(report(0, "done", elapsed_s=1.2), 12.7)
    assert (made.segments[0].end_s, made.end_s) == pytest.approx((12.7, 15.7))
    assert made.measured
    assert made.response_time_s == pytest.approx(1.5)


def test_a_segment_that_starts_ends_all_before_it() -> None:
    made = track((11.0, 2.0), (11.5, 2.0), (12.0, 2.0))
    made.report(report(2, "started"), 12.5)
    assert [segment.done for segment in made.segments] == [True, True, False]
    assert [segment.end_s for segment in made.segments] == pytest.approx([12.5, 13.0, 15.0])


def test_a_value_ends_its_segment_and_another_value_is_a_conflict() -> None:
    made = track((11.0, 2.0))
    assert made.report(report(0, "value", value="True"), 12.0)
    assert made.segments[0].done
    assert not made.report(report(0, "value", value="True"), 13.0)
    with pytest.raises(Conflict, match="another value"):
        made.report(report(0, "value", value="False"), 13.0)
    assert made.values == {0: "True"}


def test_a_value_moves_what_follows() -> None:
    made = track((11.0, 2.0), (11.5, 3.0))
    assert made.report(report(0, "value", value="a cat"), 12.0)
    assert made.segments[1].start_s == 12.0


def test_an_end_without_a_start_leaves_the_start_as_expected() -> None:
    made = track((11.0, 2.0))
    assert made.report(report(0, "done"), 12.0)
    assert (made.segments[0].start_s, made.segments[0].end_s) == (11.0, 12.0)


def test_a_failure_is_remembered() -> None:
    made = track((11.0, 2.0))
    assert made.report(report(0, "failed", reason="a wall"), 12.0)
    assert (made.failed, made.all_done) == (0, True)


def test_what_was_not_released_is_a_conflict() -> None:
    made = track((11.0, 2.0))
    with pytest.raises(Conflict):
        made.report(report(1, "started"), 12.0)
    with pytest.raises(Conflict):
        made.release(Segment(5, "x", 1, 11.0, 1.0))


REPORTS = st.lists(
    st.builds(
        report,
        segment=st.integers(0, 2),
        kind=st.sampled_from(["started", "done", "failed"]),
        age_s=st.floats(0.0, 3.0),
    )
    | st.builds(
        lambda segment, elapsed: report(segment, "progress", remaining_s=1.0, elapsed_s=elapsed),
        st.integers(0, 2),
        st.floats(0.0, 5.0),
    ),
    max_size=12,
)


@given(reports=REPORTS)
def test_however_reports_come_times_stay_in_order(reports: list[ExecutionReport]) -> None:
    made = track((11.0, 2.0), (12.0, 3.0), (13.0, 1.0))
    for number, entry in enumerate(reports):
        made.report(entry, 14.0 + number)
    for segment in made.segments:
        assert segment.start_s >= segment.ready_s
        assert segment.end_s >= segment.start_s
    for earlier, later in itertools.pairwise(made.segments):
        assert later.start_s >= earlier.end_s - 1e-9
    total = sum(segment.end_s - segment.start_s for segment in made.segments)
    assert made.waiting_time_s == pytest.approx(made.completion_time_s - total)


@given(reports=REPORTS)
def test_saying_it_twice_changes_nothing(reports: list[ExecutionReport]) -> None:
    once, twice = (track((11.0, 2.0), (12.0, 3.0), (13.0, 1.0)) for _ in range(2))
    for number, entry in enumerate(reports):
        once.report(entry, 14.0 + number)
        twice.report(entry, 14.0 + number)
        assert not twice.report(entry, 14.5 + number)
    assert once.segments == twice.segments
