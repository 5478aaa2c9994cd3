"""The batching stage in front of the queue, and predictions that are wrong on purpose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.batching import PredictorStage, predictor_ready_times_s
from timely.disciplines.predictors.error_injection import (
    inject_predictor_level_errors,
    inject_predictor_token_errors,
)


def test_immediate_takes_whatever_is_there_when_it_is_free() -> None:
    stage: PredictorStage[int] = PredictorStage(0.1)
    assert predictor_ready_times_s([0.0, 0.02, 0.05, 0.5], stage) == pytest.approx([0.1, 0.2, 0.2, 0.6])


def test_one_at_a_time() -> None:
    assert predictor_ready_times_s([0.0, 0.0, 0.0], PredictorStage(0.1, batch=1)) == pytest.approx(
        [0.1, 0.2, 0.3]
    )


def test_a_full_batch_waits_for_its_last_request() -> None:
    stage: PredictorStage[int] = PredictorStage(0.01, batch=3, batching="full", max_wait_s=10.0)
    assert predictor_ready_times_s([0.0, 0.3, 0.7, 0.8], stage) == pytest.approx([0.71, 0.71, 0.71, 10.81])


def test_a_batch_that_never_fills_goes_after_its_time() -> None:
    stage: PredictorStage[str] = PredictorStage(0.01, batch=64, batching="full", max_wait_s=0.1)
    stage.offer("a", 1.0)
    assert stage.next_s() == pytest.approx(1.1)
    assert stage.take(1.05) == []
    stage.offer("b", 1.08)
    assert stage.take(1.1) == []
    assert stage.next_s() == pytest.approx(1.11)
    taken = stage.take(1.2)
    assert [name for name, _ in taken] == ["a", "b"]
    assert [ready_s for _, ready_s in taken] == pytest.approx([1.11, 1.11])
    assert stage.next_s() == math.inf
    assert len(stage) == 0


def test_latency_nought_and_nothing_to_do() -> None:
    assert predictor_ready_times_s([1.0, 2.0], PredictorStage(0.0)) == [1.0, 2.0]
    stage: PredictorStage[int] = PredictorStage(0.1)
    assert (stage.take(5.0), stage.next_s()) == ([], math.inf)


@settings(max_examples=examples(150))
@given(
    gaps=st.lists(st.floats(0.0, 0.3), max_size=40), latency=st.just(0.0) | st.floats(1e-3, 0.5),
    batch=st.integers(1, 8), batching=st.sampled_from(["immediate", "full"]), wait=st.floats(0.0, 0.4),
)  # fmt: skip
def test_nobody_is_lost_early_or_overtaken(
    *, gaps: list[float], latency: float, batch: int, batching: Any, wait: float
) -> None:
    arrivals = np.cumsum(gaps).tolist()
    ready = predictor_ready_times_s(arrivals, PredictorStage(latency, batch, batching, wait))
    assert len(ready) == len(arrivals)
    assert ready == sorted(ready)
    for arrival, when in zip(arrivals, ready, strict=True):
        assert when >= arrival + latency - 1e-9
    for size in np.unique(ready, return_counts=True)[1] if latency > 0 else []:
        assert size <= batch
    calls = np.unique(ready)
    assert (np.diff(calls) >= latency - 1e-9).all(), "one call at a time"


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"latency_s": -1.0}, "latency_s"),
        ({"latency_s": math.nan}, "latency_s"),
        ({"latency_s": 1.0, "batch": 0}, "batch"),
        ({"latency_s": 1.0, "batching": "lazy"}, "batching"),
        ({"latency_s": 1.0, "max_wait_s": -1.0}, "max_wait_s"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(bad: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PredictorStage(**bad)
    assert caught.value.where == where


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.9])
def test_levels_are_wrong_at_the_rate_and_by_the_distance(rate: float) -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(5, size=6000).tolist()
    said = np.array(inject_predictor_level_errors(truth, rate, rng))
    away = np.abs(said - truth)
    assert (away > 0).mean() == pytest.approx(rate, abs=0.03)
    assert said.min() >= 0
    assert said.max() <= 4
    if rate:
        # Distances below one and beyond the farther end of the range cannot be.
        mean = away[away > 0].mean()
        assert mean == pytest.approx(max(1.0, 5 * rate), abs=0.1) or (rate >= 0.5 and 2.3 < mean < 3.3)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.6])
def test_lengths_are_wrong_at_the_rate(rate: float) -> None:
    rng = np.random.default_rng(2)
    truth = rng.uniform(50.0, 300.0, size=5000)
    said = np.array(inject_predictor_token_errors(truth.tolist(), rate, rng))
    away = np.abs(said - truth)
    assert (away > 0).mean() == pytest.approx(rate, abs=0.03)
    assert said.min() >= 1.0
    assert said.max() <= 500.0
    if rate == 0.2:
        assert away[away > 0].mean() == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_share(rate: float) -> None:
    for mistaken in (inject_predictor_level_errors, inject_predictor_token_errors):
        with pytest.raises(InvalidInput, match="error rate"):
            mistaken([1], rate, np.random.default_rng(0))


def test_a_server_takes_who_is_there_and_waits_for_the_call_to_end() -> None:
    stage: PredictorStage[str] = PredictorStage(0.0, batch=3)
    assert stage.begin(0.0) == []
    for number, name in enumerate("abcde"):
        stage.offer(name, 0.1 * number)
        if name == "a":
            assert stage.begin(0.0) == ["a"]
            assert stage.next_s() == math.inf
    assert stage.begin(0.5) == [], "one call at a time"
    stage.end(0.6)
    assert stage.begin(0.6) == ["b", "c", "d"], "all that came meanwhile, up to a batch"
    stage.end(0.7)
    assert stage.begin(0.7) == ["e"]
    stage.end(0.8)
    assert stage.next_s() == math.inf
    assert len(stage) == 0


def test_a_server_in_full_mode_waits_for_a_batch_or_for_the_oldest_to_have_waited() -> None:
    stage: PredictorStage[str] = PredictorStage(0.0, batch=2, batching="full", max_wait_s=0.5)
    stage.offer("a", 0.0)
    assert stage.begin(0.4) == []
    assert stage.next_s() == 0.5
    stage.offer("b", 0.45)
    assert stage.begin(0.45) == ["a", "b"]
    stage.end(0.5)
    stage.offer("c", 0.6)
    assert stage.begin(1.0) == []
    assert stage.begin(1.1) == ["c"]
