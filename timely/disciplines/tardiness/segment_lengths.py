"""How long segments and plain answers turn out to be: learned online, so that nothing is profiled beforehand."""

import math
from bisect import bisect_right
from typing import ClassVar

import numpy as np

from timely.core.arrays import Bools
from timely.core.job import Job, JobSpec
from timely.disciplines.base import Floats, Rows

WEIGHT = 0.05
"""Weight of the newest segment in the running means: they follow a change of task mix within some twenty segments."""

CAUTION = 2.0
"""Mean deviations added to the mean: the promise that a deadline is met must survive a long segment."""

UNKNOWN_SHARE = 0.5
"""Share of the skill set's longest segment that is expected before the first segment has closed."""


class TardinessSegmentLengths:
    """Running mean and mean deviation of segment lengths, tokens.

    First segments are kept apart from later ones (a search precedes an action), and urgent tasks from normal ones (an
    evasive move is short).
    """

    def __init__(self) -> None:
        self._means: dict[tuple[bool, bool], tuple[float, float]] = {}
        self._longer = 0
        """Whole answers that were longer than expected."""
        self.beyond_tokens = 1.0
        """By how much, mean."""

    def learn(self, job: Job) -> None:
        """The job's newest segment is complete."""
        segment = job.segments[-1]
        kind = (segment.index == 0, job.spec.hints.utility.urgent)
        beyond = segment.tokens - self.expect(job.spec, segment.index)
        if beyond > 0.0 and kind in self._means and job.spec.whole_answer:
            self._longer += 1
            self.beyond_tokens += max(WEIGHT, 1.0 / self._longer) * (beyond - self.beyond_tokens)
        mean, deviation = self._means.get(kind, (float(segment.tokens), 0.0))
        error = segment.tokens - mean
        self._means[kind] = (mean + WEIGHT * error, deviation + WEIGHT * (abs(error) - deviation))

    def expect(self, spec: JobSpec, index: int) -> float:
        """A length that segment ``index`` of a job will hardly exceed, tokens; at most its skill set's longest."""
        bound = float(spec.segment_tokens)
        mean = self._means.get((index == 0, spec.hints.utility.urgent))
        return UNKNOWN_SHARE * bound if mean is None else min(bound, mean[0] + CAUTION * mean[1])

    def first_caution_tokens(self, expected_tokens: Floats, is_urgent: Bools) -> Floats:
        """By how much these expected lengths of first segments exceed the mean, tokens."""
        normal, urgent = (self._means.get((True, kind), (math.inf, 0.0))[0] for kind in (False, True))
        caution: Floats = np.maximum(expected_tokens - np.where(is_urgent, urgent, normal), 0.0)
        return caution


class TardinessAnswerLengths:
    """Lengths of finished plain answers as a fading histogram, tokens.

    It gives the tokens still to come of an answer that has got so far. An answer longer than all before it is expected
    to go on for as long as an average one takes: it is not about to end because it is long already.
    """

    PRIOR_TOKENS: ClassVar[float] = 128.0
    """Mean length before the first answer has finished."""
    MEMORY: ClassVar[float] = 0.98
    """Weight of the past at each finished answer: some fifty of them count."""

    def __init__(self) -> None:
        edges = {int(2.0 ** (step / 4.0)) for step in range(72)}
        self._places = [0, *sorted(edges)]
        self._edges = np.array(self._places)
        self._counts = np.zeros(len(self._edges))
        self._sums = np.zeros(len(self._edges))
        self._totals = self._edges + self.PRIOR_TOKENS
        """Expected length of an answer that has reached each edge."""
        self._stale = False

    def learn(self, tokens: int) -> None:
        """A plain answer of so many tokens has finished."""
        self._counts *= self.MEMORY
        self._sums *= self.MEMORY
        place = bisect_right(self._places, tokens) - 1
        self._counts[place] += 1.0
        self._sums[place] += tokens
        self._stale = True

    def _expect(self) -> None:
        self._stale = False
        mean = (self._sums.sum() + self.PRIOR_TOKENS) / (self._counts.sum() + 1.0)
        counts, sums = self._counts[::-1].cumsum()[::-1], self._sums[::-1].cumsum()[::-1]
        self._totals = (sums + self._edges + mean) / (counts + 1.0)

    def left(self, output_tokens: Rows) -> Floats:
        """Tokens still to come of answers that have so many, at least one each."""
        if self._stale:
            self._expect()
        places = np.searchsorted(self._edges, output_tokens, side="right") - 1
        return np.maximum(1.0, self._totals[places] - output_tokens)
