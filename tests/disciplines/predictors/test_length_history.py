"""Embeddings, the search window, and output lengths from similar past prompts."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.errors import InvalidInput, UnknownName
from timely.core.job import JobSpec
from timely.disciplines.predictors.embedding import HashEmbedder, prompt_embedder
from timely.disciplines.predictors.history import (
    HistoryPredictor,
    predictor_length_prior,
    similar_predictor_rows,
)
from timely.disciplines.predictors.predictor_file import write_predictor_arrays

POEM = "write a short poem about the sea in autumn"
POEM_TOO = "write a short poem about the sea in spring"
PROOF = "prove that the square root of two is irrational"


def spec(text: str = "", **fields: object) -> JobSpec:
    return JobSpec("x", 0.0, text=text, **with_hints({"max_tokens": 4096, **fields}))


# --------------------------------------------------------------------------- embeddings


def test_similar_prompts_lie_close_and_others_do_not() -> None:
    space = HashEmbedder()
    poem, too, proof = space.embed([POEM, POEM_TOO, PROOF])
    assert poem @ too > space.threshold > 0.4 > poem @ proof


@given(st.text(max_size=300))
def test_every_text_has_a_unit_vector_or_none_at_all(text: str) -> None:
    vector = HashEmbedder(64).embed([text])[0]
    norm = float(np.linalg.norm(vector))
    assert norm == pytest.approx(1.0, abs=1e-5) or norm == 0.0
    np.testing.assert_array_equal(vector, HashEmbedder(64).embed(["other", text])[1])


@pytest.mark.parametrize(
    "before", [" " * 65, "-" * 900, "\ud800"], ids=["spaces", "dashes", "half a character"]
)
def test_what_precedes_the_words_of_a_text_does_not_matter(before: str) -> None:
    first, second = HashEmbedder().embed([POEM, f"{before} {POEM}"])
    assert first @ second > 0.9


def test_case_and_punctuation_do_not_matter() -> None:
    first, second = HashEmbedder().embed(["Find the scissors, please!", "find THE scissors   please"])
    np.testing.assert_array_equal(first, second)


def test_the_hash_is_the_same_on_every_machine() -> None:
    vector = HashEmbedder(16, seed=3).embed(["find the red scissors"])[0]
    assert {place: round(float(v), 4) for place, v in enumerate(vector) if v} == {
        4: 0.2491, 6: 0.4983, 14: -0.8305,
    }  # fmt: skip


def test_unknown_names_are_told() -> None:
    with pytest.raises(UnknownName, match="hash, wordllama"):
        prompt_embedder("bert")


@pytest.mark.process
@pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the extra 'predict'")
def test_wordllama_does_not_configure_the_logging_of_the_process() -> None:
    """A server whose discipline was switched wrote a line for each request from then on."""
    program = (
        "import logging; from timely.disciplines.predictors.embedding import prompt_embedder;"
        "prompt_embedder('wordllama'); print(logging.root.level, logging.root.handlers)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, timeout=120.0)
    assert done.stdout == f"{logging.WARNING} []\n".encode()


@pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the extra 'predict'")
def test_wordllama_brings_paraphrases_together_without_a_network() -> None:
    space = prompt_embedder("wordllama")
    one, other, proof, empty = space.embed(
        ["Find the scissors in the kitchen", "Where are the scissors? look in the kitchen", PROOF, "  "]
    )
    assert one @ other > space.threshold > 0.4 > one @ proof
    assert not empty.any()


# --------------------------------------------------------------------------- the window


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 0.6, 0.9]))
@settings(max_examples=examples(30))
def test_the_search_is_exact_to_the_last_row(seed: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((150, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for query in rows[::17]:
        exact = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        # One row exactly at the threshold, where rounding would decide differently.
        for limit in (threshold, exact[-1] if exact[-1] > 0.02 else threshold):
            np.testing.assert_array_equal(
                similar_predictor_rows(rows, query, limit), np.flatnonzero(exact >= limit)
            )


def test_the_oldest_is_forgotten_first() -> None:
    history = HistoryPredictor(window=3, enough=0, smooth=0.0)
    for length in (10, 20, 30, 40):
        before = history.predict(spec(POEM)) if length > 10 else None
        history.learn(spec(POEM), before or history.predict(spec(POEM, expected_tokens=1.0)), length)
    assert len(history) == 3
    assert sorted(history.predict(spec(POEM)).lengths) == [20.0, 30.0, 40.0]


def test_the_window_is_ten_thousand_and_search_is_by_similarity() -> None:
    history = HistoryPredictor(enough=0, smooth=0.0)
    assert history.window == 10_000
    for text, length in ((POEM, 50), (POEM_TOO, 70), (PROOF, 900)):
        history.learn(spec(text), history.predict(spec(text)), length)
    assert sorted(history.predict(spec(POEM)).lengths) == [50.0, 70.0]
    assert history.predict(spec(PROOF)).lengths.tolist() == [900.0]
    assert history.predict(spec(POEM)).similar == 2


# --------------------------------------------------------------------------- while it is cold


def test_without_history_the_belief_is_wide_and_within_the_limit() -> None:
    cold = HistoryPredictor().predict(spec("anything", max_tokens=300))
    assert cold.similar == 0
    assert cold.lengths.min() >= 1.0
    assert cold.lengths.max() == 300.0
    assert len(set(cold.lengths)) >= 4


def test_a_hint_in_the_request_is_believed_while_cold() -> None:
    assert predictor_length_prior(spec(expected_tokens=100.0)).mean == pytest.approx(100.0)
    assert predictor_length_prior(spec(expected_tokens=1e9, max_tokens=50)).lengths.tolist() == [50.0] * 7


def test_a_few_similar_ones_are_filled_up_from_the_rest() -> None:
    history = HistoryPredictor(enough=8, smooth=0.0)
    for _ in range(20):
        history.learn(spec(PROOF), history.predict(spec(PROOF)), 1000)
    for _ in range(2):
        history.learn(spec(POEM), history.predict(spec(POEM)), 10)
    belief = history.predict(spec(POEM))
    weight = dict.fromkeys((10.0, 1000.0), 0.0)
    for length, mass in zip(belief.lengths, belief.weights, strict=True):
        weight[float(length)] += float(mass)
    assert belief.similar == 2
    # Two of the eight it takes stand for themselves; the overall history gives the other six.
    assert weight[10.0] + weight[1000.0] == pytest.approx(8.0)
    assert 2.0 < weight[10.0] < 3.0


def test_a_length_is_smoothed_into_its_neighbourhood() -> None:
    history = HistoryPredictor(enough=0)
    history.learn(spec(POEM), history.predict(spec(POEM)), 100)
    belief = history.predict(spec(POEM))
    assert belief.weights.sum() == pytest.approx(1.0, abs=1e-3)
    logs = np.log(belief.lengths / 100.0)
    assert float(logs @ belief.weights) == pytest.approx(0.0, abs=1e-9)
    assert float(np.sqrt(logs**2 @ belief.weights)) == pytest.approx(0.25, abs=0.01)


def test_similar_by_length_is_blind_to_the_text() -> None:
    history = HistoryPredictor(by="length", enough=0, smooth=0.0)
    for prompt, length in ((100, 10), (110, 12), (500, 99)):
        fields = spec(PROOF, prompt_tokens=prompt)
        history.learn(fields, history.predict(fields), length)
    assert sorted(history.predict(spec(POEM, prompt_tokens=105)).lengths) == [10.0, 12.0]


@pytest.mark.parametrize(
    "bad", [{"threshold": 0.0}, {"threshold": 1.5}, {"window": 0}, {"enough": -1}, {"smooth": -1.0}]
)
def test_nonsense_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        HistoryPredictor(**bad)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- files


def test_a_history_survives_a_file(tmp_path: Path) -> None:
    history = HistoryPredictor(window=5, enough=0)
    for number, text in enumerate([PROOF, POEM, POEM_TOO, PROOF, POEM, POEM]):
        history.learn(spec(text), history.predict(spec(text)), 10 + number)
    history.save(tmp_path / "h.npz")
    back = HistoryPredictor(window=5, enough=0)
    assert back.load(tmp_path / "h.npz") == 5
    for text in (PROOF, POEM):
        assert sorted(back.predict(spec(text)).lengths) == sorted(history.predict(spec(text)).lengths)


def test_a_file_that_is_no_history_of_this_space_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.npz"
    path.write_text("no history")
    with pytest.raises(InvalidInput, match=r"h\.npz"):
        HistoryPredictor().load(path)
    HistoryPredictor(HashEmbedder(dim=64)).save(path)
    with pytest.raises(InvalidInput, match="embedded by 'hash-64-0'"):
        HistoryPredictor().load(path)
    arrays = {"vectors": np.zeros((2, 9)), "inputs": np.zeros(2), "outputs": np.zeros(2)}
    write_predictor_arrays(path, "timely-length-history", {"space": "hash-256-0"}, arrays)
    with pytest.raises(InvalidInput, match="damaged"):
        HistoryPredictor().load(path)
    with pytest.raises(InvalidInput, match="only a history of prompts"):
        HistoryPredictor(by="length").load(path)
