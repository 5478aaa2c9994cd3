"""The predicted response of a request that has not been sent, and its correction by what became of others."""

from __future__ import annotations

import pytest

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.engines.service_time import ServiceTime
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.001, 0.0005)


def serve(times: ServiceTime, number: int, utility: TimeUtility, ratio: float) -> None:
    """A request alone on the engine, whose response takes ``ratio`` times the forecast."""
    table = JobTable()
    forecast_s = ServiceTime().response_s(utility, table, SPEED, None, 0.0)
    spec = JobSpec(number, 0.0, RequestHints(utility=utility), prompt_tokens=256)
    times.arrive(spec, table, SPEED, None)
    times.respond(table.add(spec), ratio * forecast_s)
    times.finish(number)


def test_predictions_are_corrected_by_the_responses_of_their_kind() -> None:
    times, table = ServiceTime(), JobTable()
    before_s = times.response_s(NORMAL, table, SPEED, None, 0.0)
    for number in range(20):
        serve(times, number, NORMAL, 2.0)
    assert times.response_s(NORMAL, table, SPEED, None, 0.0) == pytest.approx(2.0 * before_s)
    assert times.response_s(URGENT, table, SPEED, None, 0.0) == pytest.approx(before_s)


def test_a_request_that_ends_without_a_segment_teaches_nothing() -> None:
    times, table = ServiceTime(), JobTable()
    before_s = times.response_s(NORMAL, table, SPEED, None, 0.0)
    spec = JobSpec(1, 0.0, prompt_tokens=256)
    times.arrive(spec, table, SPEED, None)
    times.finish(1)
    times.respond(table.add(spec), 100.0)
    assert times.response_s(NORMAL, JobTable(), SPEED, None, 0.0) == pytest.approx(before_s)
