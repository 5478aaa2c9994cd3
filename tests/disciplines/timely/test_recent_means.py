"""Means over recent steps, and the price of a delay: what a job saves by waiting for another step."""

from __future__ import annotations

import math

import pytest

from timely.disciplines.tardiness.delay_cost import TardinessDelayCost
from timely.disciplines.timely.recent_mean import HORIZON_S, TimelyRecentMean


def price_after(rates: list[float], step_s: float = 0.1) -> TimelyRecentMean:
    price = TimelyRecentMean()
    for number, rate in enumerate(rates):
        price.advance(number * step_s)
        price.note(rate, step_s)
    price.advance(len(rates) * step_s)
    return price


def test_a_busy_machine_has_the_mean_cost_of_its_steps() -> None:
    assert price_after([6.0, 2.0] * 200).mean == pytest.approx(4.0, rel=0.05)
    assert price_after([]).mean == 0.0
    assert price_after([0.0] * 9).mean == 0.0


def test_an_idle_machine_forgets_the_price() -> None:
    price = price_after([4.0] * 200)
    price.advance(20.0 + 10.0 * HORIZON_S)
    assert price.mean < 0.01


@pytest.mark.parametrize("looks", [1, 7])
def test_a_repeated_step_counts_alike_however_often_it_is_composed(looks: int) -> None:
    """The simulator leaps over repeated steps, and vLLM's scheduler composes each of them."""
    mean = price_after([4.0] * 20)
    for look in range(1, looks + 1):
        now = 2.0 + look / looks
        mean.go_on(now)
        mean.advance(now)
    assert mean.mean == pytest.approx(4.0 * (1.0 - math.exp(-3.0 / HORIZON_S)))


def test_what_a_delay_costs_anyway_does_not_keep_a_job_out() -> None:
    """A late member loses 6 a second by a delay of 0.1 s, and the candidate 2 by each second that it waits."""
    costs = TardinessDelayCost(0.0)
    costs.join(-1.0, 0.0, 0.0, 6.0, 0.1, plain=False)
    candidate = {"delay_s": 0.1, "weight": 2.0, "slack_s": -0.1, "late_s": 0.0, "already_s": 0.0}
    assert costs.late_weight == 6.0
    assert not costs.is_worth(**candidate)
    costs.price = 5.0
    assert costs.is_worth(**candidate)
