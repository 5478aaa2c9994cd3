"""Cached or computed again: the closed forms against brute force, and the slips in the paper's own."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.disciplines.base import StepLimits
from timely.disciplines.semantic.cache_cost import SemanticCacheCostModel
from timely.engines.step_time.learned import FixedSpeed

A5000_7B = SemanticCacheCostModel(1.859e-9, 2.175e-4, 3e-4, 2.117e-6, 2.727e-2)
A100_7B = SemanticCacheCostModel(5.135e-7, 1.481e-4, 1e-4, 1.349e-8, 1.330e-2)
"""Appendix B of the paper."""

models = st.builds(
    SemanticCacheCostModel,
    alpha_1=st.floats(0.0, 1e-4),
    alpha_2=st.floats(0.0, 1e-2),
    beta=st.floats(1e-6, 0.2),
    gamma_1=st.sampled_from([0.0, 1e-6]) | st.floats(1e-7, 1e-2),
    gamma_2=st.floats(0.0, 0.05),
    save=st.just(0.0) | st.floats(0.0, 0.2),
)


@settings(max_examples=examples(300))
@given(models, st.integers(0, 400), st.integers(0, 300))
def test_decoded_tokens_to_save_minimise_eq5_over_all_choices(
    model: SemanticCacheCostModel, prompt: int, decoded: int
) -> None:
    kept = model.keep_decoded(prompt, decoded)
    assert 0 <= kept <= decoded
    best = min(model.resume_s(prompt, decoded, other) for other in range(decoded + 1))
    assert model.resume_s(prompt, decoded, kept) == pytest.approx(best, rel=1e-9, abs=1e-15)


@settings(max_examples=examples(300))
@given(models, st.integers(1, 400))
def test_tokens_of_a_prompt_to_save_are_best_of_all_splits_at_either_end(
    model: SemanticCacheCostModel, prompt: int
) -> None:
    def last_s(kept: int) -> float:
        """Compute the first tokens, load the last ones."""
        return model.moving * kept + model.prefill_s(prompt - kept)

    def first_s(kept: int) -> float:
        """Load the first ``kept`` tokens, compute the others after them."""
        return model.moving * kept + model.prefill_s(prompt) - model.prefill_s(kept)

    kept = model.keep_prompt(prompt)
    assert 0 <= kept <= prompt
    best = min(last_s(other) for other in range(prompt + 1))
    assert last_s(kept) == pytest.approx(best, rel=1e-9, abs=1e-15)
    assert best <= min(first_s(other) for other in range(prompt + 1)) * (1 + 1e-9) + 1e-15


@given(models, st.integers(0, 300), st.integers(0, 200))
def test_eq4_is_the_sum_over_the_tokens(model: SemanticCacheCostModel, context: int, tokens: int) -> None:
    one_by_one = sum(model.gamma_1 * i + model.gamma_2 for i in range(context + 1, context + tokens + 1))
    assert model.decode_s(context, tokens) == pytest.approx(one_by_one, rel=1e-9, abs=1e-15)


def test_caching_pays_when_loading_is_cheaper_which_eq3_has_the_wrong_way_round() -> None:
    # On the A100 loading (0.1 ms a token) is cheaper than computing (0.148 ms and more).
    # Eq. 3 as printed (beta > alpha_1 n + alpha_2) would compute it again.
    assert A100_7B.beta < A100_7B.alpha_2
    assert A100_7B.keep_prompt(500) == 500
    # On the A5000 loading is dearer for any prompt a model takes.
    assert A5000_7B.keep_prompt(500) == 0
    # With saving counted as well the A100 computes the first 51 tokens again and moves the others.
    assert replace(A100_7B, save=1e-4).keep_prompt(500) == 449


def test_the_papers_eq6_is_not_the_minimum_of_eq5() -> None:
    model, prompt, decoded = SemanticCacheCostModel(0.0, 0.0, 0.06, 1e-4, 0.02), 100, 500
    printed = max(
        0.0,
        (model.beta - model.gamma_1 * prompt - (model.gamma_1 + 2 * model.gamma_2) / 2) / (2 * model.gamma_1),
    )
    kept = model.keep_decoded(prompt, decoded)
    assert kept in (200, 201)  # k = 0.06/1e-4 - 0.02/1e-4 - 100 - 1/2 = 299.5: both neighbours are as good
    assert model.resume_s(prompt, decoded, kept) < model.resume_s(prompt, decoded, round(printed)) - 0.1


def test_with_the_papers_machines_decoded_tokens_are_always_kept() -> None:
    for model in (A5000_7B, A100_7B):
        assert model.keep_decoded(800, 200) == 200


def test_nothing_is_kept_where_nothing_can_be_loaded_or_nothing_is_there() -> None:
    blind = SemanticCacheCostModel(1e-9, 1e-4, math.inf, 1e-6, 0.02)
    assert (blind.keep_decoded(100, 50), blind.keep_prompt(100), blind.keep_context(150)) == (0, 0, 0)
    assert (A100_7B.keep_decoded(10, 0), A100_7B.keep_prompt(0)) == (0, 0)
    assert blind.resume_s(100, 50, 0) == blind.decode_s(100, 50)


def test_an_engine_tells_its_own_coefficients() -> None:
    limits = StepLimits(0.0, 1, 1, 1, 1, 1, 16, FixedSpeed(0.02, 0.001, 0.0003), 1e-4)
    model = SemanticCacheCostModel.of(limits)
    assert astuple(model) == pytest.approx((0.0, 0.0003, 1e-4, 0.0, 0.021, 1e-4))
    assert model.keep_context(40) == 40


def test_out_and_in_again_counts_not_only_in() -> None:
    """Loading alone would be cheaper than computing, both ways together are not."""
    limits = StepLimits(0.0, 1, 1, 1, 1, 1, 16, FixedSpeed(0.02, 0.001, 0.0003), 2e-4)
    assert SemanticCacheCostModel.of(limits).keep_context(40) == 0
