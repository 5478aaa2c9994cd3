"""Reads labelled texts from CSV, JSON lines or traces, and judges predictors of requests by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.csv_rows import read_csv_rows
from lrtrace.jsonl import read_jsonl
from lrtrace.trace import Trace
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.length_bucket import LengthBucketPredictor
from timely.disciplines.predictors.urgency import UrgencyPredictor
from timely.disciplines.requirements import LEVELS

TRACE_SUFFIX = ".lrtrace.jsonl"

NAMES = {"urgency": ("urgency", "level", "label"), "output_tokens": ("output_tokens", "tokens", "label")}
"""Names of a label's column or field; the first one present counts."""

MOST_CHARS = 100_000
"""Maximum characters of a text."""


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts and their labels: urgency levels, or output tokens."""

    texts: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.texts)

    def split(self, seed: int, share: float = 0.2) -> tuple[LabelledTexts, LabelledTexts]:
        """Texts to train on, and a ``share`` of them to judge by.

        Equal texts stay together, since a text that was trained on says nothing of unseen ones.
        """
        places_by_text: dict[str, list[int]] = {}
        for place, text in enumerate(self.texts):
            places_by_text.setdefault(text, []).append(place)
        groups = list(places_by_text.values())
        order = np.random.default_rng(seed).permutation(len(groups)).tolist()
        test_count = max(1, round(share * len(groups)))
        return self._subset(groups, order[test_count:]), self._subset(groups, order[:test_count])

    def _subset(self, groups: Sequence[Sequence[int]], numbers: Sequence[int]) -> LabelledTexts:
        places = [place for number in numbers for place in groups[number]]
        return LabelledTexts([self.texts[i] for i in places], [self.labels[i] for i in places])


def read_labelled_texts(paths: Iterable[Path], what: str) -> LabelledTexts:
    """The labelled texts of some files.

    ``*.lrtrace.jsonl``: the tasks of a trace with their ``urgency``, or the tokens of their plans. ``*.csv`` with a
    header, or JSON lines: ``text`` and ``urgency`` (``level``, ``label``) or ``output_tokens`` (``tokens``, ``label``).

    Args:
        what: ``urgency`` or ``output_tokens``.

    Raises:
        InvalidInput: a file cannot be read, a line has no text or no whole number in range; says which.
        BadInput: a trace cannot be read.
    """
    result = LabelledTexts([], [])
    for path in paths:
        for where, text, label in _read_labelled_lines(path, what):
            if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARS:
                raise InvalidInput("no text, or one that is too long", where=where)
            result.texts.append(text)
            result.labels.append(_read_text_label(label, what, where))
    if not len(result):
        raise InvalidInput(f"not one text with its {what}", where=", ".join(str(path) for path in paths))
    return result


def _read_text_label(label: object, what: str, where: str) -> int:
    try:
        number = int(str(label))
    except ValueError:
        number = -1
    good = 0 <= number < LEVELS if what == "urgency" else 1 <= number < 10**7
    if not good:
        expected = f"0 to {LEVELS - 1}" if what == "urgency" else "a positive whole number"
        raise InvalidInput(f"{what} must be {expected}, got {str(label)[:40]!r}", where=where)
    return number


def _read_labelled_lines(path: Path, what: str) -> Iterator[tuple[str, Any, Any]]:
    if path.name.endswith(TRACE_SUFFIX):
        for job in Trace(path).jobs_by_arrival():
            label = job.urgency if what == "urgency" else job.tokens
            if job.task and label is not None:
                yield f"{path}: job {job.job}", job.task, label
        return
    rows: Iterable[tuple[int, Mapping[str, Any]]] = (
        read_csv_rows(path, ("text",)) if path.suffix == ".csv" else read_jsonl(path)
    )
    for number, row in rows:
        where = f"{path}:{number}"
        name = next((name for name in NAMES[what] if row.get(name) is not None), None)
        if name is None:
            raise InvalidInput(f"no {what}", where=where)
        yield where, row.get("text"), row[name]


# ---------------------------------------------------------------------- judging


def judge_urgency_predictor(predictor: UrgencyPredictor, examples: LabelledTexts) -> dict[str, float]:
    """Shares of the texts whose level is right, at most one off, and rated too low (less urgent than it is)."""
    guesses = predictor.predict(examples.texts)
    levels = np.array([guess.level for guess in guesses])
    truth = np.array(examples.labels)
    return {
        "texts": float(len(examples)),
        "right": float(np.mean(levels == truth)),
        "within_one": float(np.mean(np.abs(levels - truth) <= 1)),
        "too_low": float(np.mean(levels > truth)),
        "confidence": float(np.mean([guess.confidence for guess in guesses])),
    }


def judge_length_predictor(predictor: LengthBucketPredictor, examples: LabelledTexts) -> dict[str, float]:
    """Share of the texts whose bucket is right, and the mean error in tokens beside that of one guess for all."""
    guesses = predictor.predict(examples.texts)
    truth = np.array(examples.labels, dtype=np.float64)
    tokens = np.array([guess.tokens for guess in guesses])
    buckets = np.array([guess.bucket for guess in guesses])
    real = np.array([predictor.bucket_of(length) for length in examples.labels])
    return {
        "texts": float(len(examples)),
        "right": float(np.mean(buckets == real)),
        "error_tokens": float(np.mean(np.abs(tokens - truth))),
        "error_of_one_guess_tokens": float(np.mean(np.abs(np.median(truth) - truth))),
    }
