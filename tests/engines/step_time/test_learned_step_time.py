"""Step times learned online: coefficients found, stalls shrugged off, nothing blows up."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.engines.step_time.learned import (
    EAGER,
    EVERY,
    MAX_JOINT_STEPS,
    FixedSpeed,
    LearnedSpeed,
    StepTimeLearner,
)
from timely.engines.step_time.profile import StepTerms, StepTime

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


def teach_contexts(speed: LearnedSpeed, steps: int, terms: StepTerms, seed: int = 6) -> list[float]:
    """Chats of different lengths come and go; the relative error of each step's prediction before it is learned."""
    rng, time_s = np.random.default_rng(seed), StepTime(terms)
    contexts: list[int] = []
    errors = []
    for _ in range(steps):
        prompt = int(rng.integers(64, 512)) if rng.random() < 0.2 and len(contexts) < 24 else 0
        if not contexts and not prompt:
            continue
        context = sum(contexts)
        step_s = time_s(len(contexts), int(prompt > 0), prompt, 0.0, context) * float(rng.normal(1.0, 0.02))
        sequences = len(contexts) + (prompt > 0)
        errors.append(abs(speed.step_s(sequences, prompt, context) / step_s - 1.0))
        mixed = float(prompt > 0 and context > 0)
        speed.observe(sequences, prompt, step_s, context, mixed, mixed * context)
        contexts = [tokens + 1 for tokens in contexts if rng.random() > 0.02]
        if prompt:
            contexts.append(prompt * int(rng.integers(1, 8)))
    return errors


LONG_CONTEXTS = StepTerms(
    base=0.0273, per_sequence=0.0, per_prefill_token=2.2e-4, per_prefill_token_sq=0.0, per_context_token=1e-6,
    mixed_base=0.004,
)  # fmt: skip


def test_context_and_mixed_steps_are_learned() -> None:
    speed = LearnedSpeed()
    errors = teach_contexts(speed, 800, LONG_CONTEXTS)
    assert np.mean(errors[200:]) < 0.035, "of which the noise is 0.016"
    more = speed.step_s(10, 0, 20_000) - speed.step_s(10, 0, 10_000)
    assert more == pytest.approx(10_000 * 1e-6, rel=0.4)
    usual = speed.step_s(10, 0)
    assert speed.step_s(10, 0, 1000) < usual < speed.step_s(10, 0, 40_000)


@pytest.mark.parametrize(("base_s", "token_s"), [(0.004, 0.0), (0.0, 1e-6), (0.002, 5e-7)])
def test_what_mixing_costs_is_learned_by_context(base_s: float, token_s: float) -> None:
    changes = {"mixed_base": base_s, "mixed_per_context_token": LONG_CONTEXTS.per_context_token + token_s}
    speed = LearnedSpeed()
    errors = teach_contexts(speed, 1500, LONG_CONTEXTS.model_copy(update=changes))
    assert np.mean(errors[200:]) < 0.021, "of which the noise is 0.016"
    assert speed.mixing_s(0.0) == 0.0
    assert speed.mixing_s(20_000) == pytest.approx(base_s + token_s * 20_000, rel=0.35)


def test_a_prompt_by_itself_mixes_with_nothing() -> None:
    speed = LearnedSpeed()
    teach_contexts(speed, 800, LONG_CONTEXTS)
    assert speed.mixing_s(1.0) > 0.001
    for context_tokens in (0.0, None):
        alone_s = speed.step_s(1, 64, context_tokens) - speed.step_s(1, 0, context_tokens)
        assert alone_s == pytest.approx(64 * speed.prefill_token_s)


def test_where_context_costs_nothing_none_is_learned() -> None:
    speed = LearnedSpeed()
    teach_contexts(speed, 800, LONG_CONTEXTS.model_copy(update={"per_context_token": 0.0, "mixed_base": 0.0}))
    assert speed.step_s(10, 0, 40_000) == pytest.approx(0.0273, rel=0.1)


def test_a_long_prompt_hardly_moves_the_token_time() -> None:
    """What is left of a long step without its prompt says little of decoding."""
    speed = LearnedSpeed()
    for number in range(60):
        prompt = 0 if number % 6 else 100
        speed.observe(8, prompt, 0.02 + 0.0003 * prompt, 4000, float(prompt > 0))
    before = speed.token_s
    speed.observe(9, 2000, 1.3 * (0.02 + 0.0003 * 2000), 4000, 1.0)
    assert speed.token_s == pytest.approx(before, rel=0.02)


def test_it_follows_a_machine_that_slows_down() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(2)
    teach(speed, 500, rng)
    slower = (0.03, 0.001, 0.0005)
    teach(speed, 600, rng, slower)
    assert speed.step_s(8, 256) == pytest.approx(step(8, 256, slower), rel=0.1)


def test_it_follows_a_machine_that_decodes_more_slowly() -> None:
    speed = LearnedSpeed()
    for step_s in [0.02] * 1000 + [0.04] * 1000:
        speed.observe(8, 0, step_s)
    assert speed.step_s(8, 0) == pytest.approx(0.04, rel=0.05)


def test_it_is_fitted_to_eight_steps_at_a_time_after_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    speed, fits = LearnedSpeed(), 0
    learn = speed._learn

    def count() -> None:
        nonlocal fits
        fits += 1
        learn()

    monkeypatch.setattr(speed, "_learn", count)
    for _ in range(EAGER + 80):
        speed.observe(8, 0, 0.02)
    assert fits <= EAGER + 80 // EVERY


def test_one_stall_is_not_the_machines_speed() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(3)
    teach(speed, 300, rng)
    before, token = speed.step_s(8, 100), speed.token_s
    speed.observe(8, 0, 30.0)
    assert speed.step_s(8, 100) == pytest.approx(before, rel=0.25)
    assert speed.token_s < 2.0 * token


def test_stalls_that_do_not_follow_each_other_are_not_the_machines_speed() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(3)
    teach(speed, 300, rng)
    before_s = speed.token_s
    for _ in range(4):
        speed.observe(8, 0, step(8, 0))
        speed.observe(8, 0, 30.0)
    assert speed.token_s < 2.0 * before_s


def test_a_machine_that_is_suddenly_far_slower_is_learned_anew_and_keeps_what_is_not_measured() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(3)
    teach(speed, 300, rng, (0.2, 0.01, 0.004))
    for _ in range(10):
        speed.observe(8, 0, 3.0)
    assert speed.step_s(8, 0) == pytest.approx(3.0, rel=0.1)
    assert speed.prefill_token_s == pytest.approx(0.004, rel=0.1)


def test_a_stall_at_the_very_first_step_is_forgotten() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(4)
    speed.observe(1, 900, 60.0)
    teach(speed, 100, rng)
    assert speed.step_s(8, 100) == pytest.approx(step(8, 100), rel=0.25)


@pytest.mark.process
def test_many_hours_without_a_prompt_do_not_spoil_the_prompt_cost() -> None:
    speed, rng = LearnedSpeed(), np.random.default_rng(5)
    teach(speed, 300, rng)
    for noise in rng.normal(1.0, 0.03, 100_000).tolist():
        speed.observe(4, 0, step(4, 0) * noise)
    assert speed.step_s(4, 0) == pytest.approx(step(4, 0), rel=0.05)
    assert 0.0 < speed.prefill_token_s < 0.01
    speed.observe(5, 100, step(5, 100))
    assert speed.step_s(5, 100) == pytest.approx(step(5, 100), rel=0.3)


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 512), st.integers(0, 100_000), st.floats(0.0, 1e4), st.integers(0, 10**7),
            st.floats(0.0, 1.0),
        ),
        min_size=1, max_size=200,
    )
)  # fmt: skip
def test_nothing_blows_up_whatever_it_is_shown(steps: list[tuple[int, int, float, int, float]]) -> None:
    speed = LearnedSpeed()
    for step in steps:
        speed.observe(*step)
        for value in (speed.token_s, speed.prefill_token_s, speed.step_s(8, 100, 1000), speed.step_s(8, 0)):
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
    assert (speed.token_s, speed.prefill_token_s) == pytest.approx((0.021, 0.0003))


def events(*steps: tuple[float, float, float, bool]) -> list[tuple[float, float, float]]:
    """What a speed hears of steps (sequences, prompt tokens, seconds, whether prompts follow)."""
    heard: list[tuple[float, ...]] = []
    learner = StepTimeLearner(lambda *step: heard.append(step))
    for sequences, prefill_tokens, step_s, follow in steps:
        learner.ran(sequences, prefill_tokens, step_s, prompts_follow=follow)
    return [(sequences, prefill_tokens, step_s) for sequences, prefill_tokens, step_s, *_ in heard]


def test_of_joined_steps_the_share_that_mixes_counts() -> None:
    heard: list[tuple[float, ...]] = []
    learner = StepTimeLearner(lambda *step: heard.append(step))
    learner.ran(2, 0, 0.06, 300, prompts_follow=True)
    learner.ran(3, 90, 0.01, 302, prompts_follow=False)
    (step,) = heard
    assert step == pytest.approx((2.5, 45, 0.035, 301, 0.5, 151))


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
    heard = events(*((2.0, 100.0, 0.04, True) for _ in range(3 * MAX_JOINT_STEPS + 1)))
    assert [(sequences, tokens, round(step_s, 9)) for sequences, tokens, step_s in heard] == [
        (2.0, 100.0, 0.04)
    ] * 3


def test_what_prompts_cost_is_learned_though_their_time_is_seen_in_the_step_before() -> None:
    """20 ms a step, 1 ms a sequence, 0.2 ms a prompt token; each launch moves 25 ms of it to the step before."""
    rng = random.Random(1)
    joined, apart = LearnedSpeed(), LearnedSpeed()
    learner = StepTimeLearner(joined.observe)
    steps = [(rng.randint(1, 8), rng.choice((0, 0, 0, 120, 240))) for _ in range(600)]
    for (sequences, prompt), (_, following) in itertools.pairwise(steps):
        step_s = 0.02 + 0.001 * sequences + 0.0002 * prompt
        step_s += 0.025 * (following > 0) - 0.025 * (prompt > 0)
        learner.ran(sequences, prompt, step_s, prompts_follow=following > 0)
        apart.observe(sequences, prompt, step_s)
    assert joined.prefill_token_s == pytest.approx(0.0002, rel=0.1)
    assert joined.step_s(4, 0) == pytest.approx(0.024, rel=0.05)
    assert apart.prefill_token_s < 0.5 * 0.0002
