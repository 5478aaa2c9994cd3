"""Output lengths from the recent past: similar prompts got answers of similar length (SageSched section 3.1).

There is no training. A request that ends is stored with its prompt's embedding; a request that arrives gets the output
lengths of similar stored ones. The result is a distribution, not a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.errors import InvalidInput, UnknownName, Unsupported
from timely.core.job import JobSpec
from timely.disciplines.predictors.embedding import Embedder, HashEmbedder, Vectors, prompt_embedder
from timely.disciplines.predictors.predictor_file import read_predictor_arrays, write_predictor_arrays

WINDOW = 10_000
"""Requests remembered (the paper's footnote 3)."""

ENOUGH = 8
"""Similar requests from which on their lengths stand alone; fewer are filled up from the overall history."""

MOST = 256
"""Similar requests used at most, the newest ones: more change nothing and cost time."""

SMOOTH = 0.25
"""Sigma of the log-normal kernel around each remembered length. A dozen lengths are not a distribution: taken for one,
a request is about to end whenever it comes near any of them. Ours; it gains 1 to 2% of the completion time."""

SMOOTH_NODES: Floats = np.array([-2.857, -1.356, 0.0, 1.356, 2.857])
SMOOTH_SHARES: Floats = np.array([0.0113, 0.2221, 0.5332, 0.2221, 0.0113])
"""Nodes and weights of five-point Gauss-Hermite quadrature for a standard normal."""

_RECENT = 256
_PRIOR_SHAPE = (0.3, 0.5, 0.75, 1.0, 1.2, 1.45, 1.8)
"""Around a length that came with the request: its mean is the hint itself."""
LENGTH_HISTORY = "timely-length-history"
"""Format of its files."""


@dataclass(frozen=True, slots=True)
class LengthPrediction:
    """What is believed of a request's output length.

    Attributes:
        lengths: output tokens, shape ``(k,)``, each at least 1 and at most the request's ``max_tokens``.
        weights: their weights, shape ``(k,)``, not negative, not all zero.
        similar: how many similar requests it rests on; 0 when it is a fallback altogether.
        vector: the prompt's embedding, to be remembered with the outcome; None when the source needs none.
    """

    lengths: Floats
    weights: Floats
    similar: int = 0
    vector: Vectors | None = None

    @property
    def mean(self) -> float:
        """Expected output tokens."""
        return float(self.lengths @ self.weights / self.weights.sum())


class LengthPredictor(Protocol):
    """Tells the output length of a request as a distribution, at arrival."""

    def predict(self, spec: JobSpec) -> LengthPrediction:
        """The belief about a request that has just arrived."""

    def learn(self, spec: JobSpec, prediction: LengthPrediction, output_tokens: int) -> None:
        """A request ended after ``output_tokens``."""


def predictor_length_prior(spec: JobSpec) -> LengthPrediction:
    """The belief when there is no history: around ``expected_tokens`` if the request brings it, else anything.

    Without any hint: powers of two up to ``max_tokens``, equally likely.
    """
    top = float(max(1, spec.max_tokens))
    if spec.hints.expected_tokens is not None and spec.hints.expected_tokens > 0:
        lengths = np.asarray(_PRIOR_SHAPE) * spec.hints.expected_tokens
    else:
        lengths = np.append(2.0 ** np.arange(3, max(4, int(np.log2(top)) + 1)), top)
    clipped_lengths = np.clip(lengths, 1.0, top)
    return LengthPrediction(clipped_lengths, np.ones_like(clipped_lengths))


_DOUBT = 1e-4
"""Distance from the threshold within which single precision is not trusted."""


def similar_predictor_rows(rows: Vectors, query: Vectors, threshold: float) -> Ints:
    """Rows whose cosine with ``query`` is at least ``threshold``, ascending: 0.07 ms at 10,000 rows of 256 on one core.

    Single-precision products decide, and double precision near the threshold, so the answer is exact.
    """
    # Not a matrix product: that takes threads, for which a busy machine lets it wait for milliseconds.
    scores: Vectors = np.einsum("ij,j->i", rows, query)
    similar = scores >= threshold + _DOUBT
    doubtful = np.flatnonzero(~similar & (scores >= threshold - _DOUBT))
    if doubtful.size:
        # A sum for each row, not a matrix product: that one rounds by how many rows there are.
        exact = (rows[doubtful].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        similar[doubtful] = exact >= threshold
    return np.flatnonzero(similar)


class HistoryPredictor:
    """Lengths of past requests that are similar to the new one.

    Args:
        space: for ``by="prompt"``: the embedder, where prompts lie. Hashed words when left out.
        threshold: cosine from which a past request counts as similar; the embedder's own when left out. For
            ``by="length"`` the ratio of the shorter to the longer prompt.
        window: requests remembered, first in first out.
        enough: similar requests from which on their lengths stand alone.
        by: ``prompt`` (the paper's predictor), or ``length``: similar means an input of similar length (the
            paper's semantic-unaware baseline, section 4.3.1).
        smooth: sigma of the kernel around each length; 0 takes the lengths as they are, as the paper does.

    Raises:
        ValueError: the window, threshold or ``enough`` make no sense.
    """

    def __init__(
        self,
        space: Embedder | None = None,
        *,
        threshold: float | None = None,
        window: int = WINDOW,
        enough: int = ENOUGH,
        by: Literal["prompt", "length"] = "prompt",
        smooth: float = SMOOTH,
    ) -> None:
        self.embedder = space or HashEmbedder()
        default = self.embedder.threshold if by == "prompt" else 0.8
        self.threshold = default if threshold is None else threshold
        if not 0.01 <= self.threshold <= 1.0:
            raise ValueError(f"a similarity threshold lies within 0.01..1, got {self.threshold}")
        if window < 1 or enough < 0 or smooth < 0.0:
            raise ValueError(
                f"window must be positive, enough and smooth not negative, got {window}, {enough}, {smooth}"
            )
        self.by = by
        self.window = window
        self.enough = enough
        self.request_count = 0
        """Requests remembered so far, forgotten ones included."""
        self._factors: Floats = np.exp(smooth * SMOOTH_NODES) if smooth else np.ones(1)
        self._shares: Floats = SMOOTH_SHARES if smooth else np.ones(1)
        self._outputs: Floats = np.zeros(window)
        self._inputs: Floats = np.zeros(window)

    @cached_property
    def _vectors(self) -> Vectors | None:
        """Embeddings of the prompts: ten megabytes, which only a history that remembers a request takes."""
        if self.by != "prompt":
            return None
        return np.zeros((self.window, self.embedder.dim), dtype=np.float32)

    @classmethod
    def from_file(cls, path: Path, **settings: Any) -> HistoryPredictor:
        """A history that begins with what ``save`` wrote, with the embedder that it was made with.

        Raises:
            InvalidInput: no such file, or its embedder is not known or not installed here.
        """
        space = str(read_predictor_arrays(path, LENGTH_HISTORY).meta.get("space"))
        embedder: Embedder = HashEmbedder()
        if space != embedder.name:
            try:
                embedder = prompt_embedder(space.partition("-")[0])
            except (UnknownName, Unsupported) as error:
                raise InvalidInput(str(error), where=str(path)) from error
        predictor = cls(embedder, **settings)
        predictor.load(path)
        return predictor

    def __len__(self) -> int:
        return min(self.request_count, self.window)

    # ------------------------------------------------------------------ predicting and learning

    def predict(self, spec: JobSpec) -> LengthPrediction:
        vector = self.embedder.embed([spec.words])[0] if self.by == "prompt" else None
        slots = self._similar(spec, vector)
        top = float(max(1, spec.max_tokens))
        lengths = self._outputs[slots]
        weights = np.ones_like(lengths)
        padding = self.enough - lengths.size
        if padding > 0:
            other = self._overall(spec, vector)
            share = padding / float(other.weights.sum())
            lengths = np.concatenate((lengths, other.lengths))
            weights = np.concatenate((weights, other.weights * share))
        lengths = np.clip(np.outer(lengths, self._factors).ravel(), 1.0, top)
        probabilities: Floats = np.outer(weights, self._shares).ravel().astype(np.float64)
        return LengthPrediction(lengths, probabilities, int(slots.size), vector)

    def learn(self, spec: JobSpec, prediction: LengthPrediction, output_tokens: int) -> None:
        """See ``LengthPredictor.learn``; the oldest is forgotten once the window is full."""
        self.remember(prediction.vector, spec.prompt_tokens, output_tokens)

    def cosines(self, vector: Vectors) -> Vectors:
        """Similarity of a prompt to each remembered one, shape ``(len(self),)``; 0 without embeddings."""
        if not len(self) or self._vectors is None:
            return np.zeros(len(self), dtype=np.float32)
        result: Vectors = np.einsum("ij,j->i", self._vectors[: len(self)], vector)
        return result

    def outputs(self, slots: Ints) -> Floats:
        """Output lengths of remembered requests, tokens."""
        return self._outputs[slots]

    # ------------------------------------------------------------------ the history

    def remember(self, vector: Vectors | None, prompt_tokens: int, output_tokens: int) -> None:
        """Store one outcome; a missing or empty vector is kept as one that is similar to nothing."""
        slot = self.request_count % self.window
        self._outputs[slot] = max(1, output_tokens)
        self._inputs[slot] = max(1, prompt_tokens)
        if self._vectors is not None:
            self._vectors[slot] = 0.0 if vector is None else vector
        self.request_count += 1

    def _similar(self, spec: JobSpec, vector: Vectors | None) -> Ints:
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        if self._vectors is not None and vector is not None:
            slots = similar_predictor_rows(self._vectors[: len(self)], vector, self.threshold)
        else:
            inputs, mine = self._inputs[: len(self)], float(max(1, spec.prompt_tokens))
            ratio = np.minimum(inputs, mine) / np.maximum(inputs, mine)
            slots = np.flatnonzero(ratio >= self.threshold)
        return self.latest(slots, MOST)

    def _overall(self, spec: JobSpec, vector: Vectors | None) -> LengthPrediction:
        """What is believed where few requests are similar."""
        # A hint about this very request is worth more than the mix of all others.
        if spec.hints.expected_tokens is not None or len(self) < self.enough:
            return predictor_length_prior(spec)
        newest = self.newest(_RECENT)
        return LengthPrediction(self._outputs[newest], np.ones(newest.size))

    def newest(self, most: int) -> Ints:
        """Slots of the latest requests, the newest first."""
        return (self.request_count - 1 - np.arange(min(len(self), most))) % self.window

    def latest(self, slots: Ints, most: int) -> Ints:
        """The latest of these slots, at most so many, in no order."""
        if slots.size > most:
            age = (self.request_count - 1 - slots) % self.window
            slots = slots[np.argpartition(age, most)[:most]]
        return slots

    # ------------------------------------------------------------------ files

    def save(self, path: Path) -> None:
        """Write the history as an ``npz`` of plain numbers, oldest first.

        Raises:
            InvalidInput: ``by="length"`` has no vectors to keep.
        """
        if self._vectors is None:
            raise InvalidInput("only a history of prompts can be saved", where=str(path))
        order = (self.request_count - len(self) + np.arange(len(self))) % self.window
        write_predictor_arrays(
            path,
            LENGTH_HISTORY,
            {"space": self.embedder.name},
            {"vectors": self._vectors[order], "inputs": self._inputs[order], "outputs": self._outputs[order]},
        )

    def load(self, path: Path) -> int:
        """Remember what ``save`` wrote; returns how many requests that were.

        Raises:
            InvalidInput: the file is missing, is no such history, is damaged, or belongs to another embedder.
        """
        if self._vectors is None:
            raise InvalidInput("only a history of prompts can be loaded", where=str(path))
        arrays = read_predictor_arrays(path, LENGTH_HISTORY, ("vectors", "inputs", "outputs"))
        vectors, inputs, outputs = arrays["vectors"], arrays["inputs"], arrays["outputs"]
        if arrays.meta.get("space") != self.embedder.name:
            raise InvalidInput(
                f"this history was embedded by {arrays.meta.get('space')!r}, not by {self.embedder.name!r}",
                where=str(path),
            )
        rows = len(outputs) if outputs.ndim == 1 else -1
        if vectors.shape != (rows, self.embedder.dim) or inputs.shape != (rows,):
            raise InvalidInput(
                f"damaged history: arrays of {vectors.shape}, {inputs.shape} and {outputs.shape}",
                where=str(path),
            )
        for vector, prompt_tokens, output_tokens in zip(vectors, inputs, outputs, strict=True):
            self.remember(vector.astype(np.float32), int(prompt_tokens), int(output_tokens))
        return rows
