"""How long an answer gets, as a distribution: from the request's own prediction, corrected, or from similar prompts."""

from __future__ import annotations

from collections import deque

import numpy as np

from timely.core.arrays import Floats
from timely.core.job import JobSpec
from timely.disciplines.predictors.embedding import Vectors
from timely.disciplines.predictors.history import HistoryPredictor, LengthPredictor, Prediction

PLACES = 32
"""Equally likely lengths that stand for a distribution."""

REMEMBERED = 128
"""Finished requests whose prediction errors count, of each size of prediction."""

PRIOR_ERRORS = 8
"""Finished requests that the prior of prediction errors weighs as much as."""

PRIOR_SIGMA = 0.35
"""Deviation of the logarithm of length over prediction, before any request has finished."""

PRIOR_TOKENS, PRIOR_TOKENS_SIGMA = 200.0, 1.0
"""Median of answers, and the deviation of their logarithm, before any has come: about those of public chats."""

PRIOR_ANSWERS = 2.0
"""Answers that this prior weighs as much as."""

SHRINK = 6.0
"""A past request weighs ``exp(SHRINK * cosine)`` where few are similar."""

SHRINK_RECENT = 1000
"""Requests that are looked at then."""

_MIDDLES: Floats = (np.arange(PLACES) + 0.5) / PLACES
_NORMAL: Floats = np.array([-1.534, -0.887, -0.489, -0.157, 0.157, 0.489, 0.887, 1.534])
"""The middles of eight equally likely parts of a standard normal."""


def expected_utility_even_lengths(lengths: Floats, weights: Floats) -> Floats:
    """``PLACES`` equally likely lengths, ascending, that stand for a weighted distribution."""
    order = np.argsort(lengths, kind="stable")
    mass = weights[order]
    middles = np.cumsum(mass) - 0.5 * mass
    even: Floats = np.interp(_MIDDLES * mass.sum(), middles, lengths[order])
    return even


class PredictionErrors:
    """Length over predicted length of finished requests, for predictions of similar size.

    A prediction in buckets errs most where it is small, so sizes are kept apart by their octave.
    """

    def __init__(self) -> None:
        self._errors: dict[int, deque[float]] = {}
        self._factors: dict[int, Floats] = {}

    def learn(self, predicted_tokens: float, tokens: int) -> None:
        """A request ended that brought a prediction."""
        octave = _octave(predicted_tokens)
        self._errors.setdefault(octave, deque(maxlen=REMEMBERED)).append(tokens / predicted_tokens)
        self._factors.pop(octave, None)

    def factors(self, predicted_tokens: float) -> Floats:
        """What the length may be, as factors of the prediction: ``PLACES`` equally likely ones, ascending."""
        octave = _octave(predicted_tokens)
        factors = self._factors.get(octave)
        if factors is None:
            seen = np.array(self._errors.get(octave, ()), dtype=np.float64)
            prior = np.exp(PRIOR_SIGMA * _NORMAL)
            both = np.concatenate((seen, prior))
            weights = np.ones_like(both)
            weights[seen.size :] = PRIOR_ERRORS / prior.size
            factors = self._factors[octave] = expected_utility_even_lengths(both, weights)
        return factors


def _octave(tokens: float) -> int:
    return int(max(1.0, tokens)).bit_length()


class ShrunkHistory(HistoryPredictor):
    """Lengths of past requests, shrunk to those of less similar ones and to a prior.

    Where few requests are similar, all recent ones count, the more similar the more. So a dozen answers say something
    of prompts that were never seen before. A log-normal prior stands in for the first answers.
    """

    def _overall(self, spec: JobSpec, vector: Vectors | None) -> Prediction:
        if spec.hints.expected_tokens is not None or self._vectors is None or vector is None:
            return super()._overall(spec, vector)
        newest = self._newest(SHRINK_RECENT)
        weights = np.exp(SHRINK * (self._vectors[newest] @ vector)).astype(np.float64)
        prior = np.clip(PRIOR_TOKENS * np.exp(PRIOR_TOKENS_SIGMA * _NORMAL), 1.0, max(1, spec.max_tokens))
        total = float(weights.max(initial=1.0)) * PRIOR_ANSWERS
        return Prediction(
            np.concatenate((self._outputs[newest], prior)),
            np.concatenate((weights, np.full(prior.size, total / prior.size))),
        )


class AnswerDistributions:
    """The distribution of each answer's length as it arrives, learned while serving.

    Args:
        history: lengths by similar prompts, for requests that bring no prediction.
    """

    def __init__(self, history: LengthPredictor | None = None) -> None:
        self.history: LengthPredictor = history if history is not None else ShrunkHistory()
        self._errors = PredictionErrors()
        self.learned = 0
        """Answers that were learned from."""

    def predict(self, spec: JobSpec) -> tuple[Floats, Prediction | None]:
        """``PLACES`` equally likely lengths, ascending, and what they rest on: nothing if the request predicts."""
        top = float(max(1, spec.max_tokens))
        expected = spec.hints.expected_tokens
        if expected is not None:
            lengths = max(1.0, expected) * self._errors.factors(expected)
            return np.clip(lengths, 1.0, top), None
        prediction = self.history.predict(spec)
        return np.clip(
            expected_utility_even_lengths(prediction.lengths, prediction.weights), 1.0, top
        ), prediction

    def learn(self, spec: JobSpec, prediction: Prediction | None, output_tokens: int) -> None:
        """A request has ended by itself."""
        self.learned += 1
        if prediction is not None:
            self.history.learn(spec, prediction, output_tokens)
        elif spec.hints.expected_tokens is not None:
            self._errors.learn(max(1.0, spec.hints.expected_tokens), output_tokens)
