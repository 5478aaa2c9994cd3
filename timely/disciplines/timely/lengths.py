"""How long an answer gets, as a distribution: from the request's own prediction, corrected, or from similar prompts."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.job import JobSpec
from timely.disciplines.predictors.embedding import Vectors
from timely.disciplines.predictors.history import MOST, SMOOTH, SMOOTH_NODES, SMOOTH_SHARES, HistoryPredictor

PLACES = 32
"""Equally likely lengths that stand for a distribution."""

MAX_ERRORS = 128
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

BINS = 420
"""Parts of the range of lengths, which are kept apart by their logarithm; 3.8% wide, up to 7 million tokens."""

_NODE_BINS = 9
_BIN = SMOOTH * SMOOTH_NODES[3] / _NODE_BINS
_SHIFTS = (-19, -_NODE_BINS, 0, _NODE_BINS, 19)
"""Nodes of the kernel around each length, bins."""

_CENTRES: Floats = np.exp(_BIN * (np.arange(BINS + 2 * _SHIFTS[-1]) - _SHIFTS[-1]))
"""Lengths of the bins, with room for the kernel on both sides."""

_MIDDLES: Floats = (np.arange(PLACES) + 0.5) / PLACES
_NORMAL: Floats = np.array([-1.534, -0.887, -0.489, -0.157, 0.157, 0.489, 0.887, 1.534])
"""The middles of eight equally likely parts of a standard normal."""

_PRIOR_FACTORS: Floats = np.exp(PRIOR_SIGMA * _NORMAL)
"""Lengths over their predictions before any request has finished, equally likely."""


def timely_even_lengths(lengths: Floats, weights: Floats) -> Floats:
    """``PLACES`` equally likely lengths, ascending, that stand for a weighted distribution."""
    order = np.argsort(lengths, kind="stable")
    mass = weights[order]
    middles = np.cumsum(mass) - 0.5 * mass
    even: Floats = np.interp(_MIDDLES * mass.sum(), middles, lengths[order])
    return even


def _timely_length_bins(lengths: Floats) -> Ints:
    bins: Ints = np.rint(np.log(lengths) / _BIN).astype(np.int64)
    return np.minimum(bins, BINS - 1)


_PRIOR: Floats = (
    np.bincount(_timely_length_bins(PRIOR_TOKENS * np.exp(PRIOR_TOKENS_SIGMA * _NORMAL)), minlength=BINS)
    / _NORMAL.size
)


def _timely_even_lengths_of_counts(counts: Floats) -> Floats:
    """``PLACES`` equally likely lengths, ascending, for so many answers of each bin, smoothed."""
    wide = np.zeros(BINS + 2 * _SHIFTS[-1])
    for shift, share in zip(_SHIFTS, SMOOTH_SHARES, strict=True):
        begin = _SHIFTS[-1] + shift
        wide[begin : begin + BINS] += share * counts
    places = wide.nonzero()[0]
    mass = wide[places]
    middles = np.cumsum(mass) - 0.5 * mass
    even: Floats = np.interp(_MIDDLES * mass.sum(), middles, _CENTRES[places])
    return even


class TimelyLengthErrors:
    """Length over predicted length of finished requests, for predictions of similar size.

    A prediction in buckets errs most where it is small, so sizes are kept apart by their octave.
    """

    def __init__(self) -> None:
        self._errors: dict[int, deque[float]] = {}
        self._factors: dict[int, Floats] = {}

    def learn(self, predicted_tokens: float, tokens: int) -> None:
        """A request ended that brought a prediction."""
        octave = _timely_length_octave(predicted_tokens)
        self._errors.setdefault(octave, deque(maxlen=MAX_ERRORS)).append(tokens / predicted_tokens)
        self._factors.pop(octave, None)

    def factors(self, predicted_tokens: float) -> Floats:
        """What the length may be, as factors of the prediction: ``PLACES`` equally likely ones, ascending."""
        octave = _timely_length_octave(predicted_tokens)
        factors = self._factors.get(octave)
        if factors is None:
            errors = np.array(self._errors.get(octave, ()), dtype=np.float64)
            weights = np.ones(errors.size + _PRIOR_FACTORS.size)
            weights[errors.size :] = PRIOR_ERRORS / _PRIOR_FACTORS.size
            factors = timely_even_lengths(np.concatenate((errors, _PRIOR_FACTORS)), weights)
            self._factors[octave] = factors
        return factors


def _timely_length_octave(tokens: float) -> int:
    return int(max(1.0, tokens)).bit_length()


class TimelyAnswerLengths:
    """The distribution of each answer's length as it arrives, learned while serving.

    Args:
        history: lengths by similar prompts, for requests that bring no prediction.
    """

    def __init__(self, history: HistoryPredictor | None = None) -> None:
        self.history = history if history is not None else HistoryPredictor()
        self._errors = TimelyLengthErrors()
        self.answer_count = 0
        """Answers that were learned from."""

    def embed(self, spec: JobSpec) -> Vectors | None:
        """Where its prompt lies; None of a request that brings a prediction."""
        return self.history.embedder.embed([spec.words])[0] if spec.hints.expected_tokens is None else None

    def predict(self, specs: Sequence[JobSpec], vectors: Sequence[Vectors | None]) -> Floats:
        """``PLACES`` equally likely lengths of each answer, ascending, shape ``(len(specs), PLACES)``."""
        recent: tuple[Ints, Ints] | None = None
        lengths: Floats = np.empty((len(specs), PLACES))
        for place, (spec, vector) in enumerate(zip(specs, vectors, strict=True)):
            expected_tokens = spec.hints.expected_tokens
            if vector is not None:
                recent = recent or self._recent()
                lengths[place] = self._of_similar(vector, *recent)
            elif expected_tokens is not None:
                lengths[place] = max(1.0, expected_tokens) * self._errors.factors(expected_tokens)
        longest = np.array([max(1, spec.max_tokens) for spec in specs]).reshape(-1, 1)
        bounded: Floats = np.minimum(np.maximum(lengths, 1.0), longest)
        return bounded

    def _of_similar(self, vector: Vectors, newest: Ints, bins: Ints) -> Floats:
        """Lengths of the answers to similar prompts.

        Where few requests are similar, all recent ones count, the more similar the more. So a dozen answers say
        something of prompts that were never seen before. A log-normal prior stands in for the first answers.

        Args:
            newest: slots of the recent requests.
            bins: of their lengths.
        """
        history = self.history
        cosines = history.cosines(vector)
        similar = history.latest((cosines >= history.threshold).nonzero()[0], MOST)
        counts = np.zeros(BINS)
        if similar.size:
            counts += np.bincount(_timely_length_bins(history.outputs(similar)), minlength=BINS)
        if similar.size < history.enough:
            weights = np.exp(SHRINK * cosines[newest])
            prior = PRIOR_ANSWERS * float(weights.max(initial=1.0)) * _PRIOR
            others = np.bincount(bins, weights, minlength=BINS) + prior
            counts += (history.enough - similar.size) / others.sum() * others
        return _timely_even_lengths_of_counts(counts)

    def _recent(self) -> tuple[Ints, Ints]:
        newest = self.history.newest(SHRINK_RECENT)
        return newest, _timely_length_bins(self.history.outputs(newest))

    def learn(self, spec: JobSpec, vector: Vectors | None, output_tokens: int) -> None:
        """A request has ended by itself."""
        self.answer_count += 1
        if vector is not None:
            self.history.remember(vector, spec.prompt_tokens, output_tokens)
        elif spec.hints.expected_tokens is not None:
            self._errors.learn(max(1.0, spec.hints.expected_tokens), output_tokens)
