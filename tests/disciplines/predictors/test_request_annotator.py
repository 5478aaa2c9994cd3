"""Predictors at admission: files sorted by kind, requests filled in, every level on record."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from timely.core.errors import InvalidInput
from timely.disciplines import registry
from timely.disciplines.predictors import urgency
from timely.disciplines.predictors.classifier import TextClassifier
from timely.disciplines.predictors.embedding import HashEmbedder
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.predictors.length_bucket import LengthBucketPredictor
from timely.disciplines.predictors.predictor_file import predictor_kind, write_predictor_arrays
from timely.disciplines.predictors.request_annotator import (
    Guesses,
    PredictorArrival,
    PredictorFiles,
    RequestAnnotator,
)
from timely.disciplines.predictors.urgency import UrgencyPredictor
from timely.disciplines.requirements import EXPECTED_TOKENS, URGENCY, discipline_reads

WORDS = ("bleeding", "choking", "broken", "tired", "curious")
TEXTS = [f"{word} {other}" for word in WORDS for other in ("man", "child", "dog", "robot")]
LEVELS = [level for level in range(5) for _ in range(4)]
LENGTHS = [50 * (1 + level) for level in LEVELS]
ALL = (URGENCY, EXPECTED_TOKENS)


@cache
def classifier() -> TextClassifier:
    return TextClassifier.train(TEXTS, LEVELS, 5, embedder=HashEmbedder(128))


@cache
def three_classes() -> TextClassifier:
    return TextClassifier.train(TEXTS[:12], [0, 1, 2] * 4, 3)


@cache
def length_buckets() -> LengthBucketPredictor:
    return LengthBucketPredictor.train(TEXTS, LENGTHS, embedder=HashEmbedder(128))


def predictors() -> PredictorFiles:
    return PredictorFiles(UrgencyPredictor(classifier()), length_buckets())


def files(folder: Path) -> dict[str, Path]:
    result = {name: folder / f"{name}.npz" for name in ("urgency", "lengths", "history", "three", "array")}
    classifier().save(result["urgency"])
    length_buckets().save(result["lengths"])
    history = HistoryPredictor()
    history.remember(None, 10, 20)
    history.save(result["history"])
    three_classes().save(result["three"])
    write_predictor_arrays(result["array"], "something-else", {}, {"x": np.zeros(3)})
    return result


@pytest.mark.parametrize("name", registry.discipline_names())
def test_what_a_discipline_goes_by_is_named_in_its_needs(name: str) -> None:
    fields = {
        "semantic": set(ALL), "semantic-mixed": set(ALL), "hpjf": {URGENCY}, "sjf": {EXPECTED_TOKENS},
        "lp-sjf": {EXPECTED_TOKENS}, "laps-sd": {EXPECTED_TOKENS}, "laps-sd-prior": {EXPECTED_TOKENS},
        "ssjf": {EXPECTED_TOKENS},
        "ltr": {EXPECTED_TOKENS}, "trail": {EXPECTED_TOKENS}, "vllm-sjf": {EXPECTED_TOKENS},
            "jitserve": {EXPECTED_TOKENS},
    }  # fmt: skip
    assert discipline_reads(registry.load_discipline(name).info) == fields.get(name, set())


def test_files_are_sorted_by_what_they_say_they_are(tmp_path: Path) -> None:
    result = files(tmp_path)
    assert predictor_kind(result["urgency"]) == "timely-text-classifier"
    read = PredictorFiles.read([str(result[name]) for name in ("history", "lengths", "urgency")])
    assert read.urgency is not None
    assert read.lengths is not None
    assert read.files == (result["history"],)
    assert read.urgency.predict(["choking child"])[0].level == 1
    assert read.lengths.predict(["curious dog"])[0].tokens == 250.0


def test_without_any_file_urgency_is_told_by_the_examples_unless_not_wanted() -> None:
    events = PredictorFiles.read([])
    assert events.urgency is not None
    assert "examples that ship" in events.urgency.classifier.name
    assert PredictorFiles.read(["none"]) == PredictorFiles()


def test_the_examples_are_learned_when_a_discipline_reads_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    monkeypatch.setattr(urgency, "example_urgency_classifier", trained.append)
    read = PredictorFiles.read([])
    read.load({EXPECTED_TOKENS})
    assert not trained
    read.load({URGENCY})
    assert len(trained) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (["three"], "tells 3 classes apart; urgency has 5 levels"),
        (["array"], "a something-else file is for no predictor here"),
        (["urgency", "urgency"], "is a timely-text-classifier too"),
        (["none", "urgency"], "'none' stands alone"),
        (["missing"], "cannot read it: No such file or directory"),
        (["pickle"], "not a predictor file"),
        (["words"], "not a predictor file"),
    ],
)
def test_files_that_cannot_be_used_are_told_by_name(tmp_path: Path, fields: list[str], why: str) -> None:
    result = files(tmp_path)
    (tmp_path / "words.npz").write_text("level 3")
    np.savez(tmp_path / "pickle.npz", meta=np.array([{"format": "timely-text-classifier"}], dtype=object))
    result |= {name: tmp_path / f"{name}.npz" for name in ("missing", "pickle", "words")}
    with pytest.raises(InvalidInput, match=why) as events:
        PredictorFiles.read([str(result.get(name, name)) for name in fields])
    if fields[0] != "none":
        assert f"{fields[0]}.npz" in str(events.value)


def test_a_discipline_takes_the_file_that_is_for_it(tmp_path: Path) -> None:
    fields = tuple(files(tmp_path).values())
    history = [path for path in fields if path.name == "history.npz"]
    sage: Any = registry.create_discipline("sagesched", history)
    assert len(sage.predictor) == 1
    assert len(registry.create_discipline("sagesched").predictor) == 0  # type: ignore[attr-defined]
    registry.create_discipline("justitia", history)
    registry.create_discipline("fcfs", history)


def test_only_what_is_missing_and_wanted_is_predicted() -> None:
    annotator = RequestAnnotator(predictors())
    calls = PredictorArrival("a", "bleeding child")
    assert annotator.lacks_prediction(calls, ALL)
    assert not annotator.lacks_prediction(calls, ())
    assert not annotator.lacks_prediction(PredictorArrival("b", "x", urgency=2, expected_tokens=7.0), ALL)
    assert annotator.lacks_prediction(PredictorArrival("b", "x", urgency=2), ALL)
    assert not annotator.lacks_prediction(PredictorArrival("b", "x", urgency=2), (URGENCY,))
    assert not RequestAnnotator().lacks_prediction(calls, ALL)


def test_a_request_goes_on_with_level_and_length_and_both_are_recorded() -> None:
    record: list[dict[str, Any]] = []
    annotator = RequestAnnotator(predictors(), lambda line: record.append(dict(line)))
    arrivals = [
        PredictorArrival("a", "bleeding child"),
        PredictorArrival("b", "curious dog", urgency=3, expected_tokens=9.0),
    ]
    first, second = annotator.annotate(arrivals, annotator.guess(arrivals, ALL), 5.0)
    assert (first.urgency.level, first.urgency.source, first.expected_tokens) == (0, "predicted", 50.0)
    assert 0.0 < first.urgency.confidence <= 1.0
    assert (second.urgency.level, second.urgency.source, second.expected_tokens) == (3, "given", 9.0)
    assert [(line["event"], line["job"]) for line in record] == [
        ("urgency", "a"), ("urgency", "b"), ("length", "a"),
    ]  # fmt: skip
    assert {"level", "source", "confidence", "probabilities", "model", "text"} <= set(record[0])


def test_each_request_of_a_batch_gets_its_own_prediction() -> None:
    """Predictors are asked about some requests of a batch, so places in their answer are not places in the batch."""
    annotator = RequestAnnotator(predictors())
    arrivals = [
        PredictorArrival("a", "curious dog", expected_tokens=9.0),
        PredictorArrival("b", "broken man", urgency=4),
        PredictorArrival("c", "bleeding child"),
    ]
    annotations = annotator.annotate(arrivals, annotator.guess(arrivals, ALL), 5.0)
    assert [annotation.expected_tokens for annotation in annotations] == [9.0, 150.0, 50.0]
    assert [annotation.urgency.level for annotation in annotations] == [4, 4, 0]


def test_an_operators_word_stands_above_all_predictions() -> None:
    annotator = RequestAnnotator(predictors())
    annotator.desk.override("a", 4, operator="jane", reason="a drill", now=0.0)
    arrival = PredictorArrival("a", "bleeding child", urgency=1)
    assert not annotator.lacks_prediction(arrival, (URGENCY,))
    (result,) = annotator.annotate([arrival], annotator.guess([arrival], ALL), 1.0)
    assert (result.urgency.level, result.urgency.source) == (4, "operator")


def test_a_robot_in_a_hurry_is_not_rated_below_its_hurry() -> None:
    record: list[dict[str, Any]] = []
    annotator = RequestAnnotator(predictors(), lambda line: record.append(dict(line)))
    arrivals = [
        PredictorArrival("a", "curious robot", hurry=True),
        PredictorArrival("b", "bleeding man", hurry=True),
    ]
    levels = [
        result.urgency.level
        for result in annotator.annotate(arrivals, annotator.guess(arrivals, (URGENCY,)), 0.0)
    ]
    assert levels == [1, 0]
    assert record[0]["at_least_as_urgent_as"] == 1


def test_nothing_is_recorded_where_nothing_is_said() -> None:
    record: list[Any] = []
    annotator = RequestAnnotator(record=record.append)
    (result,) = annotator.annotate(
        [PredictorArrival("a", "curious robot")], annotator.guess([PredictorArrival("a", "x")], ALL), 0.0
    )
    assert (result.urgency.level, result.urgency.source, result.expected_tokens) == (None, "none", None)
    assert not record


def test_a_level_that_does_not_exist_is_refused() -> None:
    annotator = RequestAnnotator(predictors())
    with pytest.raises(InvalidInput, match="urgency must be 0"):
        annotator.annotate(
            [PredictorArrival("b", "y", urgency=1), PredictorArrival("a", "x", urgency=5)], Guesses(), 0.0
        )
