"""Output tokens that a generation still has before it: predicted if a prediction came with it, else learned."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, Floats, Rows
from timely.disciplines.predictors.history import (
    LENGTH_HISTORY,
    HistoryPredictor,
    LengthPrediction,
    LengthPredictor,
)

COMPLETE_OUTCOMES = ("complete", "stop", "length")
"""Outcomes after which the number of tokens is the length the generation really had; ``stop`` is vLLM's word."""

PRIOR_TOKENS = 128.0
"""Length of a generation before the first one has finished."""

WEIGHT = 0.02
"""Weight of the newest finished generation in the running mean."""


class LengthEstimates:
    """Expected output lengths; the fallback is the running mean of what has finished.

    The expectation is formed once, when a job arrives, and kept in the table's ``rank``: a discipline that uses
    this leaves that column to it.
    """

    def __init__(self, prior_tokens: float = PRIOR_TOKENS) -> None:
        self.mean_tokens = prior_tokens

    def arrived(self, job: Job) -> None:
        """Form the expectation, from the prediction or the past."""
        tokens = job.spec.hints.expected_tokens
        job.table.rank[job.row] = max(1.0, self.mean_tokens if tokens is None else tokens)

    def finished(self, job: Job) -> None:
        tokens = int(job.table.output_tokens[job.row])
        if job.outcome in COMPLETE_OUTCOMES and tokens > 0:
            self.mean_tokens += WEIGHT * (tokens - self.mean_tokens)

    @staticmethod
    def left(table: JobTable, rows: Rows) -> Floats:
        """Expected output tokens still to come, at least 1: a generation past its prediction is about to end.

        Of a segmented generation those up to its next park, at most its longest segment. That is the work that the
        machine does for it in one go.
        """
        whole = np.maximum(1.0, table.rank[rows] - table.output_tokens[rows])
        piece = np.maximum(1.0, table.segment_bound[rows] - table.segment_tokens[rows])
        return np.where(table.segmented[rows], np.minimum(whole, piece), whole)


class LengthLearningDiscipline(Discipline):
    """A discipline that expects lengths from predictions or a running mean, in the table's ``rank``."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths = LengthEstimates()

    def arrived(self, job: Job, now: float) -> None:
        self._lengths.arrived(job)

    def finished(self, job: Job, now: float) -> None:
        self._lengths.finished(job)


class HistoryLearningDiscipline(Discipline):
    """A discipline that predicts lengths from similar past prompts, and remembers how long each answer got.

    Args:
        predictor: output lengths as a distribution; a history of prompts when left out.
    """

    predictor_kind = LENGTH_HISTORY
    history_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of a history that is read from a file."""

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__()
        self.predictor: LengthPredictor = predictor if predictor is not None else self.default_history()

    @staticmethod
    def default_history() -> HistoryPredictor:
        """The predictor if none is passed in."""
        return HistoryPredictor()

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        return cls(HistoryPredictor.from_file(path, **cls.history_settings))

    def knowledge(self) -> LengthPredictor:
        return self.predictor

    def recall(self, knowledge: object) -> None:
        self.predictor = cast(LengthPredictor, knowledge)

    def predict_tokens(self, spec: JobSpec) -> tuple[float, LengthPrediction | None]:
        """Expected output tokens, and what they were predicted from: nothing if the request brings them."""
        if spec.hints.expected_tokens is not None:
            return max(1.0, float(spec.hints.expected_tokens)), None
        prediction = self.predictor.predict(spec)
        return prediction.mean, prediction

    def learn(self, job: Job, prediction: LengthPrediction | None) -> None:
        """Remember the length of a finished job, if it was predicted and ran to its end."""
        output = int(job.table.output_tokens[job.row])
        if prediction is not None and job.outcome in COMPLETE_OUTCOMES and output > 0:
            self.predictor.learn(job.spec, prediction, output)
