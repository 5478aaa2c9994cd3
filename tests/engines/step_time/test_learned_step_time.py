"""Step times learned online: coefficients found, stalls shrugged off, nothing blows up."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timely.engines.step_time.learned import JOINED, FixedSpeed, LearnedSpeed, StepLearner

TRUE = (0.012, 0.0008, 0.00025)


def step(sequences: int, prefill: int, true: tuple[float, float, float] = TRUE) -> float:
    return true[0] + true[1] * sequences + true[2] * prefill


def teach(
    speed: LearnedSpeed, steps: int, rng: np.random.Generator, true: tuple[float, float, float] = TRUE
) -> None:
    for _ in range(steps):
        sequences = int(rng.integers(1, 32))
        prefill = int(rng.integers(16, 512)) if rng.random() < 0.3 else 0
        speed.observe(sequences, prefill, step(sequences, prefill, true) * rng.normal(1.0, 0.03))


@pytest.mark.parametrize("true", [TRUE, (0.2, 0.01, 0.004), (0.001, 1e-5, 1e-5)], ids=["gpu", "slow", "fast"])
def test_it_learns_any_machine_in_three_hundred_steps(true: tuple[float, float, float]) -> None:
    speed = LearnedSpeed()
    teach(speed, 300, np.random.default_rng(1), true)
    for sequences, prefill in ((1, 0), (16, 0), (8, 256), (30, 500)):
        assert speed.step_s(sequences, prefill) == pytest.approx(step(sequences, prefill, true), rel=0.1)
    assert speed.prefill_token_s == pytest.approx(true[2], rel=0.1)


def test_it_follows_a_machine_that_slows_down() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(2)
    teach(speed, 500, rng)
    slower = (0.03, 0.001, 0.0005)
    teach(speed, 600, rng, slower)
    assert speed.step_s(8, 256) == pytest.approx(step(8, 256, slower), rel=0.1)


def test_one_stall_is_not_the_machines_speed() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(3)
    teach(speed, 300, rng)
    before, token = speed.step_s(8, 100), speed.token_s
    speed.observe(8, 0, 30.0)
    assert speed.step_s(8, 100) == pytest.approx(before, rel=0.25)
    assert speed.token_s < 2.0 * token


def test_a_stall_at_the_very_first_step_is_forgotten() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(4)
    speed.observe(1, 900, 60.0)
    teach(speed, 100, rng)
    assert speed.step_s(8, 100) == pytest.approx(step(8, 100), rel=0.25)


def test_many_hours_without_a_prompt_do_not_spoil_the_prompt_cost() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(5)
    teach(speed, 300, rng)
    for _ in range(100_000):
        speed.observe(4, 0, step(4, 0) * rng.normal(1.0, 0.03))
    assert speed.step_s(4, 0) == pytest.approx(step(4, 0), rel=0.05)
    assert 0.0 < speed.prefill_token_s < 0.01
    speed.observe(5, 100, step(5, 100))
    assert speed.step_s(5, 100) == pytest.approx(step(5, 100), rel=0.3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 512), st.integers(0, 100_000), st.floats(0.0, 1e4)), min_size=1, max_size=200
    )
)
def test_nothing_blows_up_whatever_it_is_shown(steps: list[tuple[int, int, float]]) -> None:
    speed = LearnedSpeed()
    for sequences, prefill, seconds in steps:
        speed.observe(sequences, prefill, seconds)
        for value in (speed.token_s, speed.prefill_token_s, speed.step_s(8, 100, 1000)):
            assert math.isfinite(value)
            assert value > 0.0


def test_token_time_is_that_of_recent_decoding() -> None:
    speed = LearnedSpeed()
    for _ in range(40):
        speed.observe(4, 0, 0.05)
    assert speed.token_s == pytest.approx(0.05, rel=0.01)
    for _ in range(200):
        speed.observe(4, 300, 0.05 + 300 * 0.001)
    assert speed.token_s == pytest.approx(0.05, rel=0.3), "prompts computed alongside are not decoding"


def test_a_fixed_speed_learns_nothing() -> None:
    speed = FixedSpeed(0.02, 0.001, 0.0003)
    speed.observe(1, 1, 9.0)
    assert speed.step_s(2, 10) == pytest.approx(0.02 + 0.002 + 0.003)
    assert (speed.token_s, speed.prefill_token_s) == (pytest.approx(0.021), pytest.approx(0.0003))


def events(*steps: tuple[float, float, float, bool]) -> list[tuple[float, float, float]]:
    """What a speed hears of steps (sequences, prompt tokens, seconds, whether prompts follow)."""
    heard: list[tuple[float, float, float]] = []
    learner = StepLearner(lambda *step: heard.append(step))
    for sequences, prefill_tokens, step_s, follow in steps:
        learner.ran(sequences, prefill_tokens, step_s, prompts_follow=follow)
    return heard


def test_steps_are_told_one_by_one_where_each_is_seen() -> None:
    steps = [(1.0, 0.0, 0.02), (3.0, 120.0, 0.05), (3.0, 0.0, 0.02)]
    assert events(*((*step, False) for step in steps)) == steps


def test_a_step_before_prompts_is_told_with_them() -> None:
    assert events((1, 0, 0.02, False), (2, 0, 0.06, True), (4, 90, 0.01, False), (4, 0, 0.02, False)) == [
        (1, 0, 0.02),
        (3, 45, pytest.approx(0.035)),
        (4, 0, 0.02),
    ]


def test_an_endless_row_of_prompts_is_told_in_parts() -> None:
    heard = events(*((2.0, 100.0, 0.04, True) for _ in range(3 * JOINED + 1)))
    assert heard == [(2.0, 100.0, pytest.approx(0.04))] * 3


def test_what_prompts_cost_is_learned_though_their_time_is_seen_in_the_step_before() -> None:
    """20 ms a step, 1 ms a sequence, 0.2 ms a prompt token; each launch moves 25 ms of it to the step before."""
    rng = random.Random(1)
    joined, apart = LearnedSpeed(), LearnedSpeed()
    learner = StepLearner(joined.observe)
    steps = [(rng.randint(1, 8), rng.choice((0, 0, 0, 120, 240))) for _ in range(600)]
    for (sequences, prompt), (_, following) in itertools.pairwise(steps):
        step_s = 0.02 + 0.001 * sequences + 0.0002 * prompt
        step_s += 0.025 * (following > 0) - 0.025 * (prompt > 0)
        learner.ran(sequences, prompt, step_s, prompts_follow=following > 0)
        apart.observe(sequences, prompt, step_s)
    assert joined.prefill_token_s == pytest.approx(0.0002, rel=0.1)
    assert joined.step_s(4, 0) == pytest.approx(0.024, rel=0.05)
    assert apart.prefill_token_s < 0.5 * 0.0002
