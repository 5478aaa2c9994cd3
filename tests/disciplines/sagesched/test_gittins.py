"""The Gittins index against its definition, and its policy against every other policy on tiny instances."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.disciplines.sagesched.gittins import CostDistribution

distributions = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=8)


def brute_force(pairs: list[tuple[int, int]], age: int) -> Fraction:
    """The definition, word for word, over every integer budget."""
    left = [(cost - age, weight) for cost, weight in pairs if cost > age]
    total = sum(weight for _, weight in left)
    best: Fraction | None = None
    for budget in range(1, max(cost for cost, _ in left) + 1):
        done = sum(weight for cost, weight in left if cost <= budget)
        if done == 0:
            continue
        spent = sum(weight * min(cost, budget) for cost, weight in left)
        ratio = Fraction(spent, total) / Fraction(done, total)
        best = ratio if best is None else min(best, ratio)
    assert best is not None
    return best


@given(distributions, st.integers(0, 59))
def test_index_is_the_definition(pairs: list[tuple[int, int]], age: int) -> None:
    costs, weights = zip(*pairs, strict=True)
    value = CostDistribution(costs, weights).index(age)
    if age >= max(costs):
        assert math.isnan(value)
    else:
        # To the last bit, so that equal indices are equal floats: ties then go by arrival, not by rounding.
        assert value == float(brute_force(pairs, age))


@given(distributions, st.integers(0, 59))
def test_mean_left_is_the_definition(pairs: list[tuple[int, int]], age: int) -> None:
    costs, weights = zip(*pairs, strict=True)
    left = [(c - age, w) for c, w in pairs if c > age]
    value = CostDistribution(costs, weights).mean_left(age)
    if not left:
        assert math.isnan(value)
    else:
        assert value == pytest.approx(sum(c * w for c, w in left) / sum(w for _, w in left), rel=1e-9)


def test_a_certain_size_has_its_remaining_size_as_index() -> None:
    assert CostDistribution([40.0]).index() == 40.0
    assert CostDistribution([40.0]).index(30.0) == 10.0


def test_memoryless_sizes_keep_their_index() -> None:
    # Geometric: what is left looks the same at any age, so the index cannot move.
    costs = np.arange(1, 400)
    weights = 0.9 ** (costs - 1) * 0.1
    fresh = CostDistribution(costs, weights).index()
    assert fresh == pytest.approx(10.0, rel=1e-6)
    assert CostDistribution(costs, weights).index(50) == pytest.approx(fresh, rel=1e-6)


def test_the_paper_example_prefers_the_larger_mean() -> None:
    # SageSched Fig. 6: a larger mean may still be the better bet when it is likely to end soon.
    sure = CostDistribution([10.0])
    gamble = CostDistribution([2.0, 30.0], [0.6, 0.4])
    assert gamble.mean > sure.mean
    assert gamble.index() < sure.index()


@pytest.mark.parametrize(
    ("costs", "weights"),
    [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0, -1.0]), ([math.inf], [1.0]), ([1], [1, 2])],
)
def test_nonsense_is_refused(costs: list[float], weights: list[float]) -> None:
    with pytest.raises(ValueError):
        CostDistribution(costs, weights)


# --------------------------------------------------------------------------- optimality

Sizes = tuple[tuple[int, int], ...]


def _expected_total(jobs: tuple[Sizes, ...], policy: str) -> float:
    """Least (``best``) or Gittins' (``gittins``) expected sum of completion times, one unit of service a time.

    State: the age of each job, -1 once done. Every unit of time costs the number of unfinished jobs.
    """
    models = [CostDistribution([c for c, _ in sizes], [w for _, w in sizes]) for sizes in jobs]

    def completes(job: int, age: int) -> float:
        left = sum(w for c, w in jobs[job] if c > age)
        return sum(w for c, w in jobs[job] if c == age + 1) / left

    @cache
    def value(ages: tuple[int, ...]) -> float:
        alive = [j for j, age in enumerate(ages) if age >= 0]
        if not alive:
            return 0.0
        first = min(alive, key=lambda j: (models[j].index(ages[j]), j))
        options = []
        for job in [first] if policy == "gittins" else alive:
            chance = completes(job, ages[job])
            total = float(len(alive))
            if chance > 0:
                total += chance * value((*ages[:job], -1, *ages[job + 1 :]))
            if chance < 1:
                total += (1 - chance) * value((*ages[:job], ages[job] + 1, *ages[job + 1 :]))
            options.append(total)
        return min(options)

    return value(tuple(0 for _ in jobs))


tiny = st.lists(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=3).map(tuple),
    min_size=2,
    max_size=3,
).map(tuple)


@given(tiny)
@settings(max_examples=examples(60))
def test_no_policy_beats_gittins_on_one_server(jobs: tuple[Sizes, ...]) -> None:
    assert _expected_total(jobs, "gittins") == pytest.approx(_expected_total(jobs, "best"), abs=1e-9)


def test_the_optimality_test_can_tell_policies_apart() -> None:
    # Mean-first is not optimal on this instance, so the equality above is not vacuous.
    jobs: tuple[Sizes, ...] = (((3, 1),), ((1, 3), (5, 2), (5, 1)))
    best = _expected_total(jobs, "best")
    orders = []
    for order in itertools.permutations(range(2)):
        done = 0.0
        total = 0.0
        for j in order:
            mean = sum(c * w for c, w in jobs[j]) / sum(w for _, w in jobs[j])
            done += mean
            total += done
        orders.append(total)
    assert best < min(orders) - 1e-6
