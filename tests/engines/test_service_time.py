"""The predicted response of a request that has not been sent, and its correction by what became of others."""

from __future__ import annotations

import pytest

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.engines.base import ResponsePrediction
from timely.engines.service_time import LEAST_RATIOS, EngineServiceTime
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.001, 0.0005)


def predict(times: EngineServiceTime, utility: TimeUtility) -> ResponsePrediction:
    """The prediction on an idle engine."""
    return times.predict(utility, JobTable(), SPEED, None, 0.0)


def serve(times: EngineServiceTime, number: int, utility: TimeUtility, ratio: float) -> None:
    """A request alone on the engine, whose response takes ``ratio`` times the forecast."""
    table = JobTable()
    spec = JobSpec(number, 0.0, RequestHints(utility=utility), prompt_tokens=256)
    times.arrive(spec, table, SPEED, None)
    job, response_s = table.add(spec), ratio * predict(EngineServiceTime(), utility).eta_s
    job.segments.append(Segment(0, "go", 5, response_s, 1.0))
    times.close_segment(job, response_s)
    times.finish(number)


def test_predictions_are_corrected_by_the_responses_of_their_kind() -> None:
    times = EngineServiceTime()
    before = predict(times, NORMAL)
    assert before.eta_s == before.upper_s
    for number in range(40):
        serve(times, number, NORMAL, 2.0 if number % 10 else 3.0)
    after = predict(times, NORMAL)
    assert after.eta_s == pytest.approx(2.0 * before.eta_s)
    assert after.upper_s == pytest.approx(3.0 * before.eta_s)
    assert predict(times, URGENT).eta_s == pytest.approx(before.eta_s)


def test_segments_of_two_lengths_are_predicted_between_them() -> None:
    """With as many of each, one more decides of which length the median is."""
    times = EngineServiceTime()
    before = predict(times, NORMAL)
    for number in range(41):
        serve(times, number, NORMAL, 1.0 + number % 2)
    assert predict(times, NORMAL).eta_s == pytest.approx(2**0.5 * before.eta_s, rel=0.05)


def test_only_served_tasks_show_that_segments_are_shorter_than_the_longest() -> None:
    """Where the longest segment takes too long, an idle engine gets a task of each kind all the same."""
    times, table = EngineServiceTime(), JobTable()
    for number in range(50):
        times.arrive(JobSpec(number, 0.0, prompt_tokens=1, segment_tokens=200), table, SPEED, None)
        times.finish(number)
    assert predict(times, URGENT).upper_s < URGENT.ert_s
    assert predict(times, NORMAL).upper_s < NORMAL.ert_s
    # One task at a time is enough for that.
    times.arrive(JobSpec("first", 0.0, RequestHints(utility=URGENT), prompt_tokens=1), table, SPEED, None)
    assert predict(times, NORMAL).upper_s > NORMAL.ert_s
    times.finish("first")
    for number in range(LEAST_RATIOS):
        serve(times, number, NORMAL, 20.0)
    assert predict(times, NORMAL).upper_s > NORMAL.ert_s
    assert predict(times, URGENT).upper_s < URGENT.ert_s


def test_a_request_that_ends_without_a_segment_teaches_nothing() -> None:
    times, table = EngineServiceTime(), JobTable()
    before = predict(times, NORMAL)
    for number in range(40):
        spec = JobSpec(number, 0.0, prompt_tokens=256)
        times.arrive(spec, table, SPEED, None)
        times.finish(number)
        job = table.add(spec)
        job.segments.append(Segment(0, "go", 5, 100.0, 1.0))
        times.close_segment(job, 100.0)
    assert predict(times, NORMAL) == before


def test_requests_that_wait_for_ever_count_as_slow_ones() -> None:
    """Late ones may starve while new ones are served, and then give no response to learn from."""
    times, table = EngineServiceTime(), JobTable()
    for number in range(20):
        serve(times, number, NORMAL, 1.0)
    before = predict(times, NORMAL)
    for number in range(4):
        times.arrive(JobSpec(f"starved {number}", 0.0, prompt_tokens=256), table, SPEED, None)
    assert predict(times, NORMAL) == before
    after = times.predict(NORMAL, table, SPEED, None, 60.0)
    assert after.upper_s == pytest.approx(60.0)
    assert after.eta_s == pytest.approx(before.eta_s)
    for number in range(4):
        times.finish(f"starved {number}")
    assert times.predict(NORMAL, table, SPEED, None, 60.0) == before


def test_a_stall_shuts_out_requests_for_a_while_only() -> None:
    """Where late requests are refused, none comes to teach that a stall is over."""
    times, table = EngineServiceTime(), JobTable()
    before = predict(times, URGENT)
    for number in range(400):
        serve(times, number, URGENT, 100.0 if number >= 390 else 1.0)
    assert predict(times, URGENT).upper_s > 50.0 * before.upper_s
    after = times.predict(URGENT, table, SPEED, None, 300.0)
    assert after.upper_s < 2.0 * before.upper_s


@pytest.mark.parametrize(("stalls", "counts"), [(1, False), (8, True)])
def test_tasks_of_a_rare_stall_shut_out_no_other(stalls: int, counts: bool) -> None:
    """They were late together, and without new tasks no better ratio would come."""
    times = EngineServiceTime()
    before = predict(times, URGENT)
    for number in range(50):
        serve(times, number, URGENT, 1.0)
    stalled_jobs, response_s, stall_s = [], before.eta_s + 0.4, 0.4 / stalls
    for number in range(8):
        spec, table = JobSpec(number, 0.0, RequestHints(utility=URGENT), prompt_tokens=256), JobTable()
        times.arrive(spec, table, SPEED, None)
        stalled_jobs.append(table.add(spec))
    for number in range(stalls):
        times.ran(number * stall_s, stall_s + 0.001, 0.001)
    for job in stalled_jobs:
        job.segments.append(Segment(0, "go", 5, response_s, 1.0))
        times.close_segment(job, response_s)
    assert (predict(times, URGENT).upper_s > 2.0 * before.upper_s) == counts


def test_a_stall_counts_from_the_arrival_of_a_task_that_comes_meanwhile() -> None:
    times = EngineServiceTime()
    before = predict(times, URGENT)
    for number in range(20):
        serve(times, number, URGENT, 1.0)
    spec, table = JobSpec("late", 0.0, RequestHints(utility=URGENT), prompt_tokens=256), JobTable()
    times.arrive(spec, table, SPEED, None)
    times.ran(-0.5, 0.6, 0.02)
    job, response_s = table.add(spec), before.eta_s + 0.1
    job.segments.append(Segment(0, "go", 5, response_s, 1.0))
    times.close_segment(job, response_s)
    assert predict(times, URGENT).upper_s == pytest.approx(before.upper_s)
