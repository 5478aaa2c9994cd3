"""The text classifier and what is built on it: urgency with overrides and record, length buckets, safe files."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from timely.core.errors import InvalidInput, Unsupported
from timely.core.hints import RequestHints
from timely.core.job import JobSpec
from timely.disciplines.predictors import embedding
from timely.disciplines.predictors.classifier import TextClassifier
from timely.disciplines.predictors.embedding import HashEmbedder
from timely.disciplines.predictors.length_bucket import LengthBucketPredictor
from timely.disciplines.predictors.predictor_file import write_predictor_arrays
from timely.disciplines.predictors.urgency import (
    MAX_ASSIGNMENTS,
    UrgencyPredictor,
    UrgencyService,
    example_urgency_classifier,
    urgency_predictor_examples,
)
from timely.disciplines.registry import create_discipline
from timely.engines.scheduler_core import EngineController

ROOMS = ("kitchen", "hall", "cellar", "garden", "office", "workshop")
KINDS = (
    ("fire", "burning", "flames"),
    ("injury", "bleeding", "wound"),
    ("find", "search", "look"),
    ("tidy", "clean", "sweep"),
    ("poem", "story", "joke"),
)


def labelled(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Texts whose class is in one of their words."""
    rng = np.random.default_rng(seed)
    labels = [int(rng.integers(5)) for _ in range(count)]
    texts = [
        f"please {rng.choice(KINDS[label])} near number {rng.integers(90)} in the {rng.choice(ROOMS)}"
        for label in labels
    ]
    return texts, labels


@cache
def trained(count: int = 300) -> TextClassifier:
    return TextClassifier.train(*labelled(count, 1), 5, embedder=HashEmbedder(256))


# ---------------------------------------------------------------- training


def test_it_learns_what_words_mean_and_is_sure_of_it() -> None:
    classifier = trained()
    texts, labels = labelled(200, 2)
    table = classifier.probabilities(texts)
    assert table.shape == (200, 5)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert (table.argmax(axis=1) == labels).mean() > 0.97
    assert table.max(axis=1).mean() > 0.7


def test_it_trains_the_same_twice() -> None:
    texts, labels = labelled(100, 3)
    first = TextClassifier.train(texts, labels, 5, embedder=HashEmbedder(256))
    second = TextClassifier.train(texts, labels, 5, embedder=HashEmbedder(256))
    np.testing.assert_array_equal(first.weights, second.weights)


def test_a_rare_class_is_not_drowned() -> None:
    texts = ["write a poem"] * 300 + ["he is bleeding"] * 3
    classifier = TextClassifier.train(texts, [1] * 300 + [0] * 3, 2, embedder=HashEmbedder(128))
    assert classifier.probabilities(["he is bleeding"])[0, 0] > 0.8


def test_no_texts_no_rows() -> None:
    assert trained(50).probabilities([]).shape == (0, 5)
    assert trained(50).probabilities([""]).shape == (1, 5)


@pytest.mark.parametrize(
    ("texts", "labels", "classes"),
    [
        (["a"], [0, 1], 2), (["a", "b"], [0, 2], 2), (["a", "b"], [0, -1], 2), (["a", "b"], [0, 0], 2), ([], [], 2),
        (["a"], [0], 1),
    ],
)  # fmt: skip
def test_labels_that_make_no_sense_are_refused(texts: list[str], labels: list[int], classes: int) -> None:
    with pytest.raises(InvalidInput, match=r"labels"):
        TextClassifier.train(texts, labels, classes, embedder=HashEmbedder(16))


# ---------------------------------------------------------------- files


def test_a_saved_classifier_says_the_same(tmp_path: Path) -> None:
    classifier = trained()
    path = tmp_path / "urgency.npz"
    classifier.save(path)
    assert path.stat().st_size < 50_000
    loaded = TextClassifier.load(path)
    texts, _ = labelled(20, 4)
    np.testing.assert_allclose(loaded.probabilities(texts), classifier.probabilities(texts), atol=1e-5)
    assert loaded.name == classifier.name


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_what_is_not_a_classifier_file_is_refused_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file.npz"
    cases: list[bytes] = [b"", b"not a zip", pickle.dumps(Bomb()), b"PK\x03\x04 broken"]
    for content in cases:
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match="not a timely-text-classifier file"):
            TextClassifier.load(path)
    np.savez(path, weights=np.array([Bomb()], dtype=object))
    with pytest.raises(InvalidInput):
        TextClassifier.load(path)
    assert not (tmp_path / "exploded").exists()
    with pytest.raises(InvalidInput):
        TextClassifier.load(tmp_path / "missing.npz")


def npy(dtype: str, shape: str) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


RECORD = json.dumps({"format": "timely-text-classifier", "version": 1}).encode()
EMPTY, HUGE = npy("<f8", "(0,)"), npy("<f8", "(10000000000000,)")


@pytest.mark.parametrize(
    ("record", "weights", "place", "byte"),
    [
        (b"[" * 100_000, EMPTY, 0, None),  # nested too deeply
        (RECORD, HUGE, 0, None),  # more numbers than any memory holds
        (RECORD, npy("<f8", f"({10**30},)"), 0, None),
        (RECORD, b"no array", 0, None),
        (RECORD, EMPTY, 8, 1),  # encrypted
        (RECORD, EMPTY, 10, 99),  # compressed in a way that is not known
    ],
)
def test_a_file_that_was_made_to_break_is_refused_in_one_line(
    record: bytes, weights: bytes, place: int, byte: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", npy("|u1", f"({len(record)},)") + record)
        archive.writestr("weights.npy", weights)
        archive.writestr("bias.npy", EMPTY)
    content = bytearray(path.read_bytes())
    if byte is not None:
        content[content.find(b"PK\x01\x02") + place] = byte
        content[content.find(b"PK\x03\x04") + place - 2] = byte
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match="not a timely-text-classifier file"):
        TextClassifier.load(path)


@pytest.mark.parametrize(
    ("meta", "weights", "bias", "says"),
    [
        ({"embedder": "hash-16-0"}, (16, 5), 4, "do not go with"),
        ({"embedder": "hash-99999999-0"}, (16, 5), 5, "not known"),
        ({"embedder": "hash-0-0"}, (16, 5), 5, "not known"),
        ({}, (16, 5), 5, "not known"),
    ],
)  # fmt: skip
def test_a_file_whose_parts_do_not_fit_is_refused(
    tmp_path: Path, meta: dict[str, object], weights: tuple[int, int], bias: int, says: str
) -> None:
    path = tmp_path / "file.npz"
    write_predictor_arrays(
        path, "timely-text-classifier", meta, {"weights": np.zeros(weights), "bias": np.zeros(bias)}
    )
    with pytest.raises(InvalidInput, match=says) as caught:
        TextClassifier.load(path)
    assert str(path) in str(caught.value)


# ---------------------------------------------------------------- urgency


class Fixed:
    """A classifier that says what it was told."""

    name = "fixed"

    def __init__(self, *rows: Sequence[float]) -> None:
        self.rows = np.array(rows)
        self.classes = self.rows.shape[1]
        self.calls: list[list[str]] = []

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return self.rows[: len(texts)]


@pytest.mark.parametrize(
    ("row", "caution", "level"),
    [
        ((0.0, 0.0, 1.0, 0.0, 0.0), 0.4, 2),
        ((0.45, 0.0, 0.0, 0.0, 0.55), 0.4, 0),   # not the likeliest, but likely enough
        ((0.45, 0.0, 0.0, 0.0, 0.55), 0.5, 4),
        ((0.2, 0.25, 0.1, 0.1, 0.35), 0.4, 1),
        ((0.2, 0.2, 0.2, 0.2, 0.2), 1.0, 4),
    ],
)  # fmt: skip
def test_a_level_is_taken_on_the_safe_side(row: tuple[float, ...], caution: float, level: int) -> None:
    (guess,) = UrgencyPredictor(Fixed(row), caution=caution).predict(["x"])
    assert (guess.level, guess.confidence, guess.probabilities) == (level, row[level], row)


def test_a_predictor_needs_five_levels_and_a_sensible_caution() -> None:
    with pytest.raises(InvalidInput, match="5 classes, fixed has 3"):
        UrgencyPredictor(Fixed((0.2, 0.3, 0.5)))
    with pytest.raises(InvalidInput, match="caution"):
        UrgencyPredictor(Fixed((0.2,) * 5), caution=0.0)


def desk() -> tuple[UrgencyService, Fixed, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    classifier = Fixed((0.0, 0.9, 0.1, 0.0, 0.0), (0.0, 0.0, 0.0, 0.8, 0.2))
    return (
        UrgencyService(UrgencyPredictor(classifier), lambda record: records.append(dict(record))),
        classifier,
        records,
    )


def test_levels_are_predicted_in_one_batch_and_all_is_on_record() -> None:
    service, classifier, records = desk()
    first, last = service.guess(["help", "find"])
    levels = [
        service.assign("a", "help", None, 5.0, guess=first),
        service.assign("b", "given", 4, 5.0),
        service.assign("c", "find", None, 5.0, guess=last),
    ]
    assert [(one.level, one.source) for one in levels] == [(1, "predicted"), (4, "given"), (3, "predicted")]
    assert classifier.calls == [["help", "find"]]
    assert [record["level"] for record in records] == [1, 4, 3]
    assert records[0] == {
        "event": "urgency", "t_s": 5.0, "job": "a", "level": 1, "source": "predicted", "confidence": 0.9,
        "text": "help", "model": "fixed", "probabilities": [0.0, 0.9, 0.1, 0.0, 0.0],
    }  # fmt: skip
    json.dumps(records)


def test_an_operators_word_counts_more_and_is_signed() -> None:
    service, classifier, records = desk()
    service.assign("a", "help", None, 5.0, guess=service.guess(["help"])[0])
    before = service.override("a", 0, operator="dr. who", reason="heard the call", now=6.0)
    assert before is not None
    assert before.level == 1
    assert records[-1] == {
        "event": "urgency_override", "t_s": 6.0, "job": "a", "from": 1, "to": 0, "operator": "dr. who",
        "reason": "heard the call",
    }  # fmt: skip
    assert service.assign("a", "help", 3, 7.0).level == 0
    assert service.override("later", 2, operator="dr. who", reason="announced", now=8.0) is None
    assert service.assign("later", "x", None, 9.0).source == "operator"
    assert len(classifier.calls) == 1
    for level, operator in ((5, "dr. who"), (1, " ")):
        with pytest.raises(InvalidInput):
            service.override("a", level, operator=operator, reason="", now=9.0)


def test_a_bad_level_is_refused_before_anything_is_on_record() -> None:
    service, _, records = desk()
    with pytest.raises(InvalidInput, match="urgency"):
        service.assign("b", "y", 7, 0.0)
    assert not records


def test_without_a_predictor_the_unknown_stays_unknown() -> None:
    assert UrgencyService().assign("a", "x", None, 0.0).level is None


def test_the_desk_does_not_remember_for_ever() -> None:
    service = UrgencyService()
    service.override("first", 0, operator="o", reason="r", now=0.0)
    for name in range(MAX_ASSIGNMENTS + 100):
        service.assign(name, "", 3, 0.0)
    assert len(service._assignments) == MAX_ASSIGNMENTS
    assert service.assign("first", "", 3, 1.0).source == "given"


def test_an_override_reaches_a_request_that_already_waits() -> None:
    controller = EngineController(create_discipline("semantic"))
    controller.arrive(JobSpec("a", 0.0, hints=RequestHints(urgency=4)))
    assert controller.set_urgency("a", 0, 1.0) is not None
    assert controller.table.urgency[0] == 0
    assert controller.set_urgency("b", 0, 1.0) is None
    with pytest.raises(InvalidInput):
        controller.set_urgency("a", 9, 1.0)


def test_the_examples_that_ship_are_thirty_a_level_and_teach_something() -> None:
    texts, levels = urgency_predictor_examples()
    assert np.bincount(levels).tolist() == [30] * 5
    assert len(set(texts)) == 150
    fields = UrgencyPredictor(example_urgency_classifier()).predict(texts)
    assert np.mean([abs(guess.level - level) for guess, level in zip(fields, levels, strict=True)]) < 0.3
    unseen = ["he collapsed and has no pulse", "there is a man bleeding heavily", "write a story about chess"]
    guesses = UrgencyPredictor(example_urgency_classifier()).predict(unseen)
    assert guesses[0].level <= 1
    assert guesses[1].level <= 1
    assert guesses[2].level >= 3


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "floor"), [("hash", (0.38, 0.76)), ("wordllama", (0.44, 0.82))])
def test_the_examples_accuracy_is_what_the_docstring_says(name: str, floor: tuple[float, float]) -> None:
    """Ten-fold cross-validation."""
    if name == "wordllama":
        pytest.importorskip("wordllama")
    texts, fields = urgency_predictor_examples()
    levels = np.array(fields)
    fold = np.random.default_rng(0).permutation(len(texts)) % 10
    space = embedding.prompt_embedder("wordllama") if name == "wordllama" else HashEmbedder(1024)
    guess = np.zeros_like(levels)
    for part in range(10):
        train, test = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
        classifier = TextClassifier.train(
            [texts[i] for i in train], levels[train].tolist(), 5, embedder=space
        )
        guess[test] = classifier.probabilities([texts[i] for i in test]).argmax(axis=1)
    exact, near = (guess == levels).mean(), (abs(guess - levels) <= 1).mean()
    assert (exact, near) >= floor, f"{exact:.3f} exact, {near:.3f} within one level"


# ---------------------------------------------------------------- length buckets


def lengths(count: int, seed: int) -> tuple[list[str], list[int]]:
    texts, kinds = labelled(count, seed)
    rng = np.random.default_rng(seed)
    return texts, [int(10 * kind + rng.integers(1, 10)) for kind in kinds]


def test_buckets_of_ten_tokens_as_in_the_paper(tmp_path: Path) -> None:
    predictor = LengthBucketPredictor.train(*lengths(300, 1), width=10, embedder=HashEmbedder(256))
    assert predictor.edges.tolist() == [10.0, 20.0, 30.0, 40.0]
    assert [predictor.bucket_of(tokens) for tokens in (1, 9, 10, 39.9, 40, 9000)] == [0, 0, 1, 3, 4, 4]
    texts, real = lengths(100, 2)
    guesses = predictor.predict(texts)
    assert (
        np.mean([guess.bucket == predictor.bucket_of(one) for guess, one in zip(guesses, real, strict=True)])
        > 0.95
    )
    assert np.mean([abs(guess.tokens - one) for guess, one in zip(guesses, real, strict=True)]) < 4.0
    predictor.save(tmp_path / "lengths.npz")
    loaded = LengthBucketPredictor.load(tmp_path / "lengths.npz")
    for one, other in zip(loaded.predict(texts), guesses, strict=True):
        assert (one.bucket, one.tokens) == (other.bucket, other.tokens)
        assert one.confidence == pytest.approx(other.confidence, abs=1e-4)


def test_equally_filled_buckets_by_default() -> None:
    texts, real = lengths(500, 3)
    predictor = LengthBucketPredictor.train(texts, real, embedder=HashEmbedder(64))
    filled = np.bincount([predictor.bucket_of(tokens) for tokens in real])
    assert filled.min() > 40


@pytest.mark.parametrize(
    ("tokens", "more"), [([5] * 10, {}), ([1, 2], {}), ([0] * 10, {}), (list(range(1, 11)), {"width": 100.0})]
)
def test_lengths_that_make_no_buckets_are_refused(tokens: list[int], more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="buckets"):
        LengthBucketPredictor.train(
            [f"text {i}" for i in range(len(tokens))], tokens, embedder=HashEmbedder(16), **more
        )


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    classifier = trained(50)
    with pytest.raises(InvalidInput, match="do not go together"):
        LengthBucketPredictor(classifier, [10.0, 5.0, 20.0, 30.0], [1.0] * 5)
    with pytest.raises(InvalidInput, match="files of its own"):
        LengthBucketPredictor(Fixed((0.5, 0.5)), [10.0], [5.0, 15.0]).save(tmp_path / "x.npz")


# ---------------------------------------------------------------- DistilBERT


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    if find_spec("transformers") is None or find_spec("torch") is None:
        from timely.disciplines.predictors.distilbert import DistilBertClassifier

        with pytest.raises(Unsupported, match="needs transformers"):
            DistilBertClassifier(tmp_path)
        return
    from timely.disciplines.predictors.distilbert import DistilBertClassifier

    with pytest.raises(InvalidInput, match=r"no config\.json"):
        DistilBertClassifier(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(InvalidInput, match=r"no config\.json with a \.safetensors"):
        DistilBertClassifier(tmp_path)


@pytest.mark.process
def test_a_distilbert_of_ones_own(tmp_path: Path) -> None:
    """A tiny one with random weights, written as users have it on disk."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    from timely.disciplines.predictors.distilbert import DistilBertClassifier

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "help", "me", "find", "the", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.DistilBertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path)
    config = transformers.DistilBertConfig(
        vocab_size=len(words),
        dim=16,
        hidden_dim=32,
        n_layers=1,
        n_heads=2,
        max_position_embeddings=300,
        num_labels=5,
    )
    transformers.DistilBertForSequenceClassification(config).save_pretrained(tmp_path)
    classifier = DistilBertClassifier(tmp_path, classes=5)
    table = classifier.probabilities(["help me", "find the cat " * 200])
    assert table.shape == (2, 5)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-5)
    assert "distilbert" in classifier.name
    assert UrgencyPredictor(classifier).predict(["help"])[0].level in range(5)
    with pytest.raises(InvalidInput, match="5 classes, 3 are needed"):
        DistilBertClassifier(tmp_path, classes=3)
    (next(tmp_path.glob("*.safetensors"))).write_bytes(b"garbage")
    with pytest.raises(InvalidInput, match="not a sequence classifier"):
        DistilBertClassifier(tmp_path)
