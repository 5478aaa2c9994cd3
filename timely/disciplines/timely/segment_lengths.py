"""How long segments turn out to be: learned online, so that nothing has to be profiled beforehand."""

from __future__ import annotations

from timely.core.job import Job

WEIGHT = 0.05
"""Of the newest segment in the running means: follows a change of task mix within some twenty segments."""

CAUTION = 2.0
"""Mean deviations added to the mean: the promise that a deadline is met must survive a long segment."""

UNKNOWN = 0.5
"""Share of the skill set's longest segment that is expected before any has been seen."""


class SegmentLengths:
    """Running mean and mean deviation of segment lengths, tokens; first and later ones, urgent and normal apart.

    First segments differ from later ones (a search before an action), urgent tasks from normal ones (an evasive
    move is short).
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[bool, bool], tuple[float, float]] = {}

    def learn(self, job: Job) -> None:
        """The job's newest segment is complete."""
        segment = job.segments[-1]
        kind = (segment.index == 0, job.spec.hints.utility.urgent)
        known = self._seen.get(kind)
        if known is None:
            self._seen[kind] = (float(segment.tokens), 0.0)
            return
        mean, deviation = known
        error = segment.tokens - mean
        self._seen[kind] = (mean + WEIGHT * error, deviation + WEIGHT * (abs(error) - deviation))

    def expect(self, job: Job, index: int) -> float:
        """A length that segment ``index`` of the job will hardly exceed, tokens; at most its skill set's longest."""
        bound = float(job.spec.segment_tokens)
        known = self._seen.get((index == 0, job.spec.hints.utility.urgent))
        if known is None:
            return UNKNOWN * bound
        return min(bound, known[0] + CAUTION * known[1])
