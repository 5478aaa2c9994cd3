"""The measurement of a scheduling point: it measures what it says, and a decision stays affordable."""

from __future__ import annotations

import itertools

import pytest

from timely.bench.decision_cost import scheduling_point_us
from timely.core.errors import UnknownName
from timely.disciplines import registry


@pytest.mark.parametrize("name", registry.discipline_names())
@pytest.mark.parametrize("jobs", [1, 40])
def test_every_discipline_can_be_measured(name: str, jobs: int) -> None:
    assert scheduling_point_us(name, jobs, points=4) > 0.0


@pytest.mark.parametrize("name", registry.discipline_names())
def test_every_discipline_can_be_measured_on_a_long_queue(name: str) -> None:
    """From 256 jobs on some look at a part of them."""
    assert scheduling_point_us(name, 300, points=2) > 0.0


@pytest.mark.parametrize("name", ["timely", "weighted-tardiness", "sagesched-smooth"])
def test_ordinary_requests_can_be_measured(name: str) -> None:
    assert scheduling_point_us(name, 40, points=12, ordinary=True) > 0.0


def test_it_is_the_time_of_the_discipline_alone() -> None:
    """A clock that ticks at each look: five spans a point, whatever else happens in between."""
    ticks = itertools.count()
    assert scheduling_point_us("fcfs", 20, points=5, timer=lambda: next(ticks) * 1e-6) == pytest.approx(5.0)


def test_a_point_counts_as_its_quickest_repetition() -> None:
    """Of three runs on a clock that is disturbed in the first and in the second one."""
    now_s = 0.0
    looks = itertools.count()
    looks_a_run = 2 * 5 * (2 + 6)

    def disturbed_s() -> float:
        nonlocal now_s
        now_s += 1e-6 if next(looks) >= 2 * looks_a_run else 1e-3
        return now_s

    assert scheduling_point_us("fcfs", 20, points=6, repetitions=3, timer=disturbed_s) == pytest.approx(5.0)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UnknownName):
        scheduling_point_us("nope", 5)
    for jobs, points, repetitions in ((0, 5, 1), (5, 0, 1), (5, 5, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            scheduling_point_us("fcfs", jobs, points=points, repetitions=repetitions)
