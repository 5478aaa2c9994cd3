"""Texts into classes: a linear classifier on sentence vectors, trained in seconds, kept in a file of numbers.

The paper on semantic scheduling uses DistilBERT (section 4). This classifier needs no accelerator and no download, and
takes well under a millisecond a prompt. The caller knows what a class means: an urgency level or a length bucket.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.embedding import Embedder, HashEmbedder, WordLlamaEmbedder
from timely.disciplines.predictors.predictor_file import (
    ArrayFile,
    read_predictor_arrays,
    write_predictor_arrays,
)

DIM = 1024
"""Buckets of the default embedder: words must not collide much, or their weights are shared."""

ITERATIONS = 400
DECAY = 3e-4
"""Weight of the squared weights in the loss."""

SMALL_PRODUCT = 150_000
"""Multiplications in a matrix product that is surely not split over threads."""

SMALL_SLOPE = 1e-6
"""Training ends where the loss changes no more than this with any weight."""

TEXT_CLASSIFIER = "timely-text-classifier"
"""Format of its files."""


class PredictorClassifier(Protocol):
    """Anything that gives texts probabilities over classes 0, 1, ..."""

    @property
    def name(self) -> str:
        """Identifies the model in records."""

    @property
    def classes(self) -> int: ...

    def probabilities(self, texts: Sequence[str]) -> Floats:
        """Shape ``(len(texts), classes)``; rows sum to one."""


class TextClassifier:
    """Multinomial logistic regression on the vectors of an embedder.

    Args:
        embedder: gave the vectors it was trained on.
        weights: shape ``(dim, classes)``. bias: shape ``(classes,)``.
    """

    ARRAYS: ClassVar[tuple[str, ...]] = ("weights", "bias")
    """What its files hold."""

    def __init__(self, embedder: Embedder, weights: Floats, bias: Floats, note: str = "") -> None:
        if weights.shape != (embedder.dim, bias.size) or bias.ndim != 1 or bias.size < 2:
            raise InvalidInput(
                f"weights {weights.shape} and bias {bias.shape} do not go with vectors of {embedder.dim}",
                where="classifier",
            )
        self.embedder = embedder
        self.weights = weights
        self.bias = bias
        self.note = note
        self.classes = int(bias.size)
        self.name = f"linear on {embedder.name}" + (f", {note}" if note else "")

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        labels: Sequence[int],
        classes: int,
        *,
        embedder: Embedder | None = None,
        decay: float = DECAY,
        iterations: int = ITERATIONS,
        note: str = "",
    ) -> TextClassifier:
        """Fit to labelled texts. Classes weigh the same however rare; the same input gives the same weights.

        Raises:
            InvalidInput: texts and labels do not go together, a label is out of range, or a class has no text.
        """
        classes_of_texts = np.asarray(labels, dtype=np.int64)
        if len(texts) != classes_of_texts.size or classes_of_texts.ndim != 1:
            raise InvalidInput(f"{len(texts)} texts and {classes_of_texts.size} labels", where="labels")
        if classes_of_texts.size and (classes_of_texts.min() < 0 or classes_of_texts.max() >= classes):
            raise InvalidInput(f"labels must lie within 0..{classes - 1}", where="labels")
        count = np.bincount(classes_of_texts, minlength=classes)
        if classes < 2 or (count == 0).any():
            empty_classes = ", ".join(map(str, np.flatnonzero(count == 0)))
            raise InvalidInput(
                f"each label from 0 to {classes - 1} needs a text; there is none with {empty_classes}",
                where="labels",
            )
        text_embedder = embedder or HashEmbedder(DIM)
        x = text_embedder.embed(texts).astype(np.float64)
        share = (1.0 / (classes * count))[classes_of_texts]
        weights, bias = _fit_predictor_classifier(x, classes_of_texts, classes, share, decay, iterations)
        return cls(text_embedder, weights, bias, note or f"{len(texts)} texts")

    def probabilities(self, texts: Sequence[str]) -> Floats:
        if not texts:
            return np.zeros((0, self.classes))
        return _predictor_softmax(self.embedder.embed(texts) @ self.weights + self.bias)

    def save(self, path: Path) -> None:
        write_predictor_arrays(path, TEXT_CLASSIFIER, *self.record())

    def record(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file has to hold of it: a JSON record and arrays."""
        meta = {"embedder": self.embedder.name, "note": self.note}
        return meta, {"weights": self.weights.astype(np.float32), "bias": self.bias}

    @classmethod
    def load(cls, path: Path) -> TextClassifier:
        """Read what ``save`` wrote.

        Raises:
            InvalidInput: it is something else, or damaged.
            Unsupported: its embedder is not installed.
        """
        return cls.of(read_predictor_arrays(path, TEXT_CLASSIFIER, cls.ARRAYS), path)

    @classmethod
    def of(cls, data: ArrayFile, path: Path) -> TextClassifier:
        """The classifier whose ``record`` is in a file that has been read.

        Raises:
            InvalidInput: it is damaged. Unsupported: its embedder is not installed.
        """
        text_embedder = _predictor_embedder_of(str(data.meta.get("embedder")), path)
        weights, bias = data["weights"].astype(np.float64), data["bias"].astype(np.float64)
        try:
            return cls(text_embedder, weights, bias, str(data.meta.get("note", "")))
        except InvalidInput as error:
            raise InvalidInput(error.message, where=str(path)) from error


def _predictor_embedder_of(name: str, path: Path) -> Embedder:
    if name == WordLlamaEmbedder.name:
        return WordLlamaEmbedder()
    match = re.fullmatch(r"hash-(\d{1,5})-(\d{1,9})", name)
    if match and int(match[1]) > 0:
        return HashEmbedder(int(match[1]), int(match[2]))
    raise InvalidInput(f"made for an embedder {name!r} that is not known", where=str(path))


def _predictor_softmax(scores: Floats) -> Floats:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    return result


def _fit_predictor_classifier(
    x: Floats, labels: Ints, classes: int, share: Floats, decay: float, iterations: int
) -> tuple[Floats, Floats]:
    """Accelerated gradient descent; vectors have unit length, so one is a safe step for a weighted mean."""
    rows, width = x.shape[0], x.shape[1] + 1
    # Slabs make products so small that BLAS does not split them over threads. On a machine that is busy serving,
    # these would wait for each other for seconds.
    slab = max(1, SMALL_PRODUCT // (width * classes))
    slabs = -(-rows // slab)
    features = np.zeros((slabs * slab, width))
    features[:rows, :-1] = x
    features[:rows, -1] = 1.0  # the bias is one more column; it is not decayed
    features = features.reshape(slabs, slab, width)
    target = np.zeros((slabs * slab, classes))
    target[np.arange(rows), labels] = 1.0
    weight = np.zeros((slabs * slab, 1))
    weight[:rows, 0] = share
    shrink = np.full((width, 1), decay)
    shrink[-1] = 0.0
    weights = np.zeros((width, classes))
    ahead, momentum = weights, 1.0
    for _ in range(iterations):
        scores = (features @ ahead).reshape(-1, classes)
        error = ((_predictor_softmax(scores) - target) * weight).reshape(slabs, slab, classes)
        # The softmax loss of a weighted mean of vectors of squared length two has curvature at most one.
        slope = (features.transpose(0, 2, 1) @ error).sum(axis=0) + shrink * ahead
        if float(np.abs(slope).max()) < SMALL_SLOPE:
            break
        step = ahead - slope / (1.0 + decay)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = step + (momentum - 1.0) / following * (step - weights)
        weights, momentum = step, following
    return weights[:-1], weights[-1]
