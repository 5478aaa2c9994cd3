"""Verdicts follow from an interval and a rule that is fixed before the run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest

from timely.bench.papers import claims
from timely.bench.papers.claims import PaperRule, paper_claim
from timely.bench.papers.seed_statistics import (
    paper_half_width,
    paper_percent_lower,
    paper_ratio_of_means,
    paper_ratios,
)

pytestmark = pytest.mark.paper


@pytest.mark.parametrize(
    ("rule", "interval", "verdict"),
    [
        (PaperRule.near(2.0, neutral=1.0), (2.1, 1.9, 2.2), "met"),
        (
            PaperRule.near(2.0, neutral=1.0),
            (2.1, 1.9, 2.4),
            "direction only",
        ),  # the interval leaves the 15%
        (PaperRule.near(2.0, neutral=1.0), (1.3, 1.1, 1.5), "direction only"),
        (
            PaperRule.near(2.0, neutral=1.0),
            (1.2, 1.1, 1.3),
            "not met",
        ),  # less than a quarter of the effect
        (PaperRule.near(64.0, neutral=1.0), (1.3, 1.2, 1.4), "not met"),
        (
            PaperRule.near(2.0, neutral=1.0),
            (1.2, 0.9, 1.5),
            "not met",
        ),  # no effect is within the interval
        (PaperRule.near(2.0), (1.2, 1.1, 1.3), "not met"),  # no direction to have
        (PaperRule.near(0.5, neutral=1.0), (0.8, 0.7, 0.9), "direction only"),
        # The paper's number is so near to no effect that the 15% reach to its other side.
        (PaperRule.near(1.04, neutral=1.0), (0.95, 0.9, 0.98), "not met"),  # the other direction
        (PaperRule.near(1.04, neutral=1.0), (1.0, 1.0, 1.0), "not met"),  # no effect
        (PaperRule.near(1.04, neutral=1.0), (1.03, 0.99, 1.07), "not met"),  # perhaps none
        (PaperRule.near(1.04, neutral=1.0), (1.005, 1.002, 1.008), "not met"),  # an eighth of the effect
        (PaperRule.near(1.04, neutral=1.0), (1.03, 1.02, 1.04), "met"),
        (PaperRule.near(0.94, neutral=1.0), (1.02, 1.01, 1.03), "not met"),
        (PaperRule.near(0.94, neutral=1.0), (0.95, 0.93, 0.97), "met"),
        (PaperRule.at_least(28.7, neutral=0.0), (30.0, 28.8, 31.0), "met"),
        (PaperRule.at_least(28.7, neutral=0.0), (30.0, 28.0, 32.0), "direction only"),
        (PaperRule.at_least(28.7, neutral=0.0), (-1.0, -2.0, -0.5), "not met"),
        (PaperRule.at_most(1.0), (0.9, 0.8, 1.01), "not met"),
        (PaperRule.at_most(1.0, neutral=2.0), (1.5, 1.4, 1.6), "direction only"),
        (PaperRule.at_most(1.0), (1.0, 1.0, 1.0), "met"),
        # Two systems that do the same: neither is ahead.
        (PaperRule.below(1.0), (1.0, 1.0, 1.0), "not met"),
        (PaperRule.below(1.0), (0.9, 0.8, 0.99), "met"),
        (PaperRule.above(0.0), (0.0, 0.0, 0.0), "not met"),
        (PaperRule.above(0.0), (0.2, 0.1, 0.3), "met"),
        (PaperRule.above(0.0), (0.1, -0.1, 0.3), "not met"),
        (PaperRule.at_least(1.0), (math.nan, math.nan, math.nan), "not exercised"),
        (
            PaperRule.at_least(1.0),
            (2.0, math.nan, math.nan),
            "not exercised",
        ),  # one seed has no interval
        (claims.BY_CONSTRUCTION, (1.0, 1.0, 1.0), "by construction"),
        (claims.NOT_EXERCISED, (1.0, 1.0, 1.0), "not exercised"),
    ],
)
def test_the_verdict_follows_from_the_whole_interval(
    rule: PaperRule, interval: tuple[float, float, float], verdict: str
) -> None:
    assert rule.judge(interval) == verdict


@pytest.mark.parametrize("rule", [PaperRule.near, PaperRule.at_least, PaperRule.at_most])
def test_a_paper_s_number_that_is_no_effect_has_no_direction(rule: Callable[..., PaperRule]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        rule(1.0, neutral=1.0)


def test_one_seed_gives_no_verdict() -> None:
    row = paper_claim("a", "b", 1.0, [1.0], "s", PaperRule.near(1.0))
    assert (row["ours"], row["interval"], row["verdict"]) == (1.0, None, "not exercised")


def test_a_claim_has_the_agreed_form() -> None:
    row = paper_claim("a", "b", math.nan, [1.0, 2.0, 3.0, 4.0], "s", PaperRule.near(2.5), "note", "ours")
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert set(row) == {"id", "what", "paper", "ours", "interval", "unit", "verdict", "note", "subject"}
    assert (row["paper"], row["ours"], row["subject"]) == (None, 2.5, "ours")
    # 3.18 is Student's t for three degrees of freedom.
    assert row["interval"][1] - 2.5 == pytest.approx(3.18 * math.sqrt(5 / 3) / 2, abs=1e-6)


def test_a_single_number_has_no_interval_and_nothing_measured_no_number() -> None:
    assert paper_claim("a", "b", 1.0, 1.0, "s", PaperRule.near(1.0))["interval"] is None
    empty = paper_claim("a", "b", 1.0, None, "s", PaperRule.near(1.0))
    assert (empty["ours"], empty["verdict"]) == (None, "not exercised")
    assert paper_claim("a", "b", None, 1.0, "s", claims.CONTEXT)["verdict"] is None


@pytest.mark.parametrize(
    ("seeds", "t"), [(10, 2.262), (16, 2.131), (17, 2.120), (21, 2.086), (31, 2.042), (1001, 1.962)]
)
def test_intervals_have_student_s_t_for_any_number_of_seeds(seeds: int, t: float) -> None:
    """From 17 seeds on it was 2.0, so intervals were up to 6% too narrow."""
    values = [float(k % 2) for k in range(seeds)]
    deviation = statistics.stdev(values)
    assert paper_half_width(values) == pytest.approx(t * deviation / math.sqrt(seeds), rel=2e-3)


def test_a_ratio_of_means_has_the_interval_of_its_seeds() -> None:
    rng = np.random.default_rng(6)
    below = 10.0 + rng.standard_normal((2000, 10))
    above = 2.0 * below + rng.standard_normal((2000, 10))
    intervals = [paper_ratio_of_means(a, b) for a, b in zip(above.tolist(), below.tolist(), strict=True)]
    assert 0.94 <= sum(low <= 2.0 <= high for _, low, high in intervals) / len(intervals) <= 0.96
    assert paper_ratio_of_means([3.0], [2.0])[0] == 1.5
    # The last: by its interval the mean below may be zero, so the ratio may be any number.
    for bad in (([1.0, 2.0], [-1.0, 0.5]), ([], []), ([1.0, 2.0, 3.0], [0.1, 0.2, 1.5])):
        assert all(math.isnan(value) for value in paper_ratio_of_means(*bad))


def test_a_factor_over_a_loss_is_no_number() -> None:
    values = paper_ratios([2.0, 2.0], [1.0, -1.0])
    assert values[0] == 2.0
    assert math.isnan(values[1])
    assert paper_percent_lower([1.0], [4.0]) == [75.0]


def test_a_number_measured_once_gets_a_verdict() -> None:
    """Nothing varies from seed to seed in a training time or a count, so there is no interval to wait for."""
    assert paper_claim("a", "b", 8.0, 1.0, "ms", PaperRule.at_most(8.0))["verdict"] == "met"
    assert paper_claim("a", "b", 8.0, 9.0, "ms", PaperRule.at_most(8.0))["verdict"] == "not met"
