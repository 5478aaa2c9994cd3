"""Output lengths as buckets (semantic scheduling, section 3.3, after S3): a class per range of lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.classifier import PredictorClassifier, TextClassifier
from timely.disciplines.predictors.embedding import Embedder
from timely.disciplines.predictors.predictor_file import read_predictor_arrays, write_predictor_arrays

BUCKETS = 5
"""As the paper has for its emergency dialogues."""

LENGTH_BUCKETS = "timely-length-buckets"
"""Format of its files."""


@dataclass(frozen=True, slots=True)
class LengthGuess:
    """A predicted length.

    Attributes:
        bucket: its number, the shortest first.
        tokens: what requests of that bucket had on average: what to give as ``expected_tokens``.
        confidence: probability of just this bucket.
    """

    bucket: int
    tokens: float
    confidence: float


class LengthBucketPredictor:
    """A classifier over length buckets.

    Args:
        classifier: class k means bucket k.
        edges: output tokens at which buckets end, shape ``(buckets - 1,)``, increasing; an end belongs to the next.
        means: mean output tokens in each bucket.

    Raises:
        InvalidInput: these do not go together.
    """

    def __init__(
        self, classifier: PredictorClassifier, edges: Sequence[float], means: Sequence[float]
    ) -> None:
        self.classifier = classifier
        self.edges: Floats = np.asarray(edges, dtype=np.float64)
        self.means: Floats = np.asarray(means, dtype=np.float64)
        if not (
            classifier.classes == self.means.size == self.edges.size + 1
            and (np.diff(self.edges) > 0).all()
            and (self.means > 0).all()
        ):
            raise InvalidInput(
                f"{classifier.classes} classes, {self.edges.size} increasing edges and {self.means.size} positive means"
                " do not go together",
                where="length predictor",
            )

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        output_tokens: Sequence[int],
        *,
        buckets: int = BUCKETS,
        width: float | None = None,
        embedder: Embedder | None = None,
    ) -> Self:
        """Train a predictor on past requests and the lengths of their answers; it takes seconds.

        Args:
            width: tokens a bucket spans, as the paper's tens; equally filled buckets unless given.

        Raises:
            InvalidInput: too few or too uniform lengths for so many buckets, or texts and lengths do not match.
        """
        lengths = np.asarray(output_tokens, dtype=np.float64)
        if lengths.size != len(texts) or buckets < 2 or lengths.size < buckets or lengths.min() < 1:
            raise InvalidInput(
                f"{len(texts)} texts and {lengths.size} positive lengths do not make {buckets} buckets",
                where="output_tokens",
            )
        if width is None:
            edges = np.unique(np.quantile(lengths, np.arange(1, buckets) / buckets))
        else:
            edges = width * np.arange(1, buckets)
        labels = np.searchsorted(edges, lengths, side="right")
        if np.unique(labels).size != buckets:
            raise InvalidInput(f"the lengths do not fill {buckets} buckets", where="output_tokens")
        means = [float(lengths[labels == bucket].mean()) for bucket in range(buckets)]
        classifier = TextClassifier.train(texts, labels.tolist(), buckets, embedder=embedder)
        return cls(classifier, edges.tolist(), means)

    def bucket_of(self, output_tokens: float) -> int:
        return int(np.searchsorted(self.edges, output_tokens, side="right"))

    def predict(self, texts: Sequence[str]) -> list[LengthGuess]:
        """Lengths of the outputs to some texts, in one batch."""
        table = self.classifier.probabilities(texts)
        best = table.argmax(axis=1)
        return [
            LengthGuess(int(bucket), float(self.means[bucket]), float(row[bucket]))
            for bucket, row in zip(best, table, strict=True)
        ]

    def save(self, path: Path) -> None:
        """Write it and its classifier to one ``npz`` of plain numbers.

        Raises:
            InvalidInput: its classifier is not one that can be saved.
        """
        if not isinstance(self.classifier, TextClassifier):
            raise InvalidInput(f"{self.classifier.name} has files of its own", where=str(path))
        meta, arrays = self.classifier.record()
        write_predictor_arrays(
            path, LENGTH_BUCKETS, meta, {**arrays, "edges": self.edges, "means": self.means}
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            InvalidInput: it is something else, or damaged.
            Unsupported: its embedder is not installed.
        """
        data = read_predictor_arrays(path, LENGTH_BUCKETS, ("edges", "means", *TextClassifier.ARRAYS))
        classifier = TextClassifier.of(data, path)
        try:
            return cls(classifier, data["edges"].ravel().tolist(), data["means"].ravel().tolist())
        except InvalidInput as error:
            raise InvalidInput(error.message, where=str(path)) from error
