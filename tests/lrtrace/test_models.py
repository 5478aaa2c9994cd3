"""Execution-time models: quantiles, means, minima and draws that belong together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from lrtrace.errors import BadInput
from lrtrace.models import (
    ConstantModel,
    ExecutionModel,
    LinearModel,
    SampledModel,
    trace_quantile_value,
    trace_quantiles_mean,
)

ADAPTER: TypeAdapter[ExecutionModel] = TypeAdapter(ExecutionModel)

seconds = st.floats(0, 100)
residuals = st.lists(st.floats(-5, 5), max_size=12).map(sorted).map(tuple)
models = st.one_of(
    st.builds(ConstantModel, seconds=seconds, residual_s=residuals, variable=st.booleans()),
    st.builds(
        LinearModel,
        argument=st.just("distance"),
        unit=st.just("cm"),
        intercept_s=st.floats(-10, 10),
        per_unit_s=st.floats(-0.1, 0.1),
        floor_s=seconds,
        residual_s=residuals,
        variable=st.booleans(),
    ),
    st.builds(SampledModel, quantiles_s=st.lists(seconds, min_size=2, max_size=12).map(sorted).map(tuple)),
)
arguments = st.floats(-500, 500).map(lambda value: {"distance": value})


@given(models, arguments, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_rise_and_bound_everything(
    model: ExecutionModel, args: dict[str, float], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert 0 <= model.minimum_s(args) <= model.quantile_s(low, args) <= model.quantile_s(high, args)
    assert model.quantile_s(high, args) <= model.quantile_s(1.0, args)
    slack = 1e-9
    assert model.minimum_s(args) - slack <= model.mean_s(args) <= model.quantile_s(1.0, args) + slack
    assert model.estimate_s(args) == (model.minimum_s(args) if model.variable else model.mean_s(args))


@given(models, arguments, st.integers(0, 2**32))
def test_draws_follow_the_seed_and_take_one_number(
    model: ExecutionModel, args: dict[str, float], seed: int
) -> None:
    rng, same, reference = (np.random.default_rng(seed) for _ in range(3))
    drawn = model.sample_s(args, rng)
    assert drawn == model.sample_s(args, same)
    reference.random()
    assert rng.random() == reference.random()
    assert model.minimum_s(args) <= drawn <= model.quantile_s(1.0, args)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20).map(sorted))
def test_the_mean_is_that_of_the_distribution(quantiles: list[float]) -> None:
    levels = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.interp(levels, np.linspace(0, 1, len(quantiles)), quantiles)
    assert trace_quantiles_mean(quantiles) == pytest.approx(
        drawn.mean(), abs=1e-3 * (1 + max(map(abs, quantiles)))
    )
    assert trace_quantile_value(quantiles, 0.0) == quantiles[0]
    if len(quantiles) > 1:
        assert trace_quantile_value(quantiles, 1.0) == quantiles[-1]


@given(models)
def test_models_survive_a_file(model: ExecutionModel) -> None:
    assert ADAPTER.validate_python(model.model_dump(mode="json")) == model


def test_sampled_draws_have_the_recorded_distribution() -> None:
    model = SampledModel(quantiles_s=(1.53, 2.62, 3.71))
    rng = np.random.default_rng(1)
    drawn = np.array([model.sample_s({}, rng) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(model.mean_s({}), abs=0.05)
    assert np.quantile(drawn, 0.25) == pytest.approx(model.quantile_s(0.25, {}), abs=0.06)
    assert model.estimate_s({}) == 1.53


def test_words_and_characters_are_counted() -> None:
    words = LinearModel(argument="text", unit="word", intercept_s=0, per_unit_s=0.2, measure="words")
    assert words.mean_s({"text": "one two  three"}) == pytest.approx(0.6)
    chars = LinearModel(argument="text", unit="char", intercept_s=1, per_unit_s=0.1, measure="chars")
    assert chars.mean_s({"text": "abcd"}) == pytest.approx(1.4)


def test_a_turn_to_the_other_side_takes_as_long() -> None:
    turn = LinearModel(argument="angle", unit="deg", intercept_s=0.1, per_unit_s=0.01, measure="magnitude")
    assert turn.mean_s({"angle": -90}) == turn.mean_s({"angle": "90"}) == pytest.approx(1.0)


@pytest.mark.parametrize("value", ["x", None, math.nan, math.inf, True, 10**400, 1e300])
def test_arguments_that_are_no_sensible_number_are_refused(value: object) -> None:
    model = LinearModel(argument="distance", unit="cm", intercept_s=0, per_unit_s=1)
    with pytest.raises(BadInput, match="'distance'"):
        model.mean_s({"distance": value})
    with pytest.raises(BadInput, match="'distance' is missing"):
        model.mean_s({})


@pytest.mark.parametrize(
    "raw",
    [
        {"model": "sampled", "quantiles_s": [2.0, 1.0]},
        {"model": "sampled", "quantiles_s": [1.0]},
        {"model": "sampled", "quantiles_s": [-1.0, 1.0]},
        {"model": "constant", "seconds": -1},
        {"model": "constant", "seconds": 1, "residual_s": [1.0, -1.0]},
        {"model": "linear", "argument": "x", "unit": "m", "intercept_s": 1},
        {"model": "linear", "argument": "x", "unit": "m", "intercept_s": 1, "per_unit_s": math.inf},
    ],
)
def test_broken_models_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(raw)
