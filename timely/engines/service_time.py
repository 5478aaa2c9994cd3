"""When a new request would be served, predicted from the queue and step times, and corrected by earlier predictions."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely.core.hints import RequestHints
from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.core.utility import TimeUtility
from timely.disciplines.base import Speed, StepLimits
from timely.disciplines.tardiness.segment_lengths import SegmentLengths
from timely.engines.base import ResponsePrediction
from timely.engines.promised_responses import StepInFlight, response_behind_promises_s
from timely.routing.forecast import UNBOUNDED, EngineLoad, forecast

WEIGHT = 0.05
"""Weight of the newest request in the means."""

FIRST_PROMPT_TOKENS = 256.0
"""Prompt tokens to compute for a request, before the first one has arrived."""

FIRST_SEGMENT_TOKENS = 10.0
"""Longest segment of a request, before the first one has arrived."""

BUCKETS = 2
"""Corrections for each doubling of the predicted time."""

RATIOS = 400
"""So many of the latest ratios make a correction."""

RATIO_AGE_S = 120.0
"""Age beyond which a ratio counts no more, seconds. Requests that are refused give no new ones."""

LEAST_RATIOS = 5
"""Ratios of a size from which it has a correction of its own."""

UPPER = {True: 0.98, False: 1.0 - 0.0875}
"""Quantiles of the upper predictions for urgent and other requests. QoServe is late for 8.75% in overload."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A job without a segment, and its forecast at its arrival, seconds."""

    urgent: bool
    arrival_s: float
    forecast_s: float

    @property
    def key(self) -> tuple[bool, int]:
        """Of the correction that it teaches."""
        return self.urgent, _bucket(self.forecast_s)

    def ratio(self, now: float) -> float:
        """Logarithm of its time until now over the forecast."""
        return math.log(max(now - self.arrival_s, 1e-6) / self.forecast_s)


class ServiceTime:
    """Predicts the response to a request that has not been sent to the engine yet.

    Its prompt is not known, so it gets the mean length of recent requests, without what was cached. The forecast knows
    neither the tasks that will come nor the true length of a segment. So each forecast is compared with what became of
    its task, and later ones of its size are corrected by quantiles of these ratios. A task that still waits counts once
    its wait is longer than most. Urgent tasks have corrections of their own.
    Until some were served, an idle engine is expected to give the next task the shortest segment. Otherwise a server
    that refuses late tasks might refuse all, and never learn how long segments are.
    The upper prediction is at least what the responses that are promised already leave.
    """

    def __init__(self) -> None:
        self._prompt_tokens = FIRST_PROMPT_TOKENS
        self._segment_tokens = FIRST_SEGMENT_TOKENS
        self._waiting: dict[JobId, _Waiting] = {}
        """Jobs without a segment."""
        self._lengths = SegmentLengths()
        self._ratios: dict[tuple[bool, int], deque[tuple[float, float]]] = {}
        """Time and logarithm of response over forecast, by urgency and size of the forecast."""
        self._responses = {True: 0, False: 0}
        """Tasks that were served, by urgency."""

    def arrive(self, spec: JobSpec, table: JobTable, speed: Speed, limits: StepLimits | None) -> None:
        """A request arrives; it is not in the table yet."""
        if spec.plain:
            return
        mean = self._mean_spec(RequestHints(utility=spec.hints.utility), spec.arrival_s)
        forecast_s = _forecast_s(mean, table, speed, limits)
        self._waiting[spec.job_id] = _Waiting(spec.hints.utility.urgent, spec.arrival_s, forecast_s)
        self._prompt_tokens += WEIGHT * (spec.prompt_tokens - spec.cached_tokens - self._prompt_tokens)
        self._segment_tokens += WEIGHT * (spec.segment_tokens - self._segment_tokens)

    def close_segment(self, job: Job, now: float) -> None:
        """A job has closed a segment, the first or a later one."""
        self._lengths.learn(job)
        waiting = self._waiting.pop(job.job_id, None)
        if waiting is None or now <= waiting.arrival_s:
            return
        self._responses[waiting.urgent] += 1
        self._ratios.setdefault(waiting.key, deque(maxlen=RATIOS)).append((now, waiting.ratio(now)))

    def finish(self, job_id: JobId) -> None:
        self._waiting.pop(job_id, None)

    def predict(
        self,
        utility: TimeUtility,
        table: JobTable,
        speed: Speed,
        limits: StepLimits | None,
        now: float,
        in_flight: StepInFlight | None = None,
        ahead: Sequence[RequestHints] = (),
    ) -> ResponsePrediction:
        """The time until the first segment is complete.

        Args:
            limits: of the latest step; None before the first one.
            in_flight: that step, if it is not over.
            ahead: of requests that come before it; they are in the table while the prediction is made.
        """
        spec = self._mean_spec(RequestHints(utility=utility), now)
        if self._responses[utility.urgent] < LEAST_RATIOS and not (self._waiting or ahead):
            spec = replace(spec, segment_tokens=1)
        coming = [
            replace(self._mean_spec(hints, now), job_id=("ahead", place)) for place, hints in enumerate(ahead)
        ]
        for other in coming:
            table.add(other)
        try:
            forecast_s = _forecast_s(spec, table, speed, limits)
            least_s = 0.0
            if limits is not None:
                least_s = response_behind_promises_s(spec, table, self._lengths, limits, in_flight, now)
        finally:
            table.remove_together([other.job_id for other in reversed(coming)])
        for ratios in self._ratios.values():
            while ratios and ratios[0][0] < now - RATIO_AGE_S:
                ratios.popleft()
        middle, upper = self._correction(utility.urgent, _bucket(forecast_s), now)
        return ResponsePrediction(forecast_s * math.exp(middle), max(forecast_s * math.exp(upper), least_s))

    def _correction(self, urgent: bool, bucket: int, now: float) -> tuple[float, float]:
        """Median and upper quantile of the ratios of like tasks, logarithms."""
        near = min(
            (key for key, ratios in self._ratios.items() if key[0] == urgent and len(ratios) >= LEAST_RATIOS),
            key=lambda key: abs(key[1] - bucket),
            default=None,
        )
        if near is None:
            return 0.0, 0.0
        ratios = sorted(ratio for _, ratio in self._ratios[near])
        upper = _quantile(ratios, UPPER[urgent])
        # A job that waits for longer than most will also respond after that.
        waits = (waiting.ratio(now) for waiting in self._waiting.values() if waiting.key == near)
        ratios = sorted([*ratios, *(ratio for ratio in waits if ratio > upper)])
        return _quantile(ratios, 0.5), _quantile(ratios, UPPER[urgent])

    def _mean_spec(self, hints: RequestHints, now: float) -> JobSpec:
        """A request that is like recent ones."""
        return JobSpec(
            None,
            now,
            hints,
            prompt_tokens=max(1, round(self._prompt_tokens)),
            segment_tokens=max(1, round(self._segment_tokens)),
        )


def _forecast_s(spec: JobSpec, table: JobTable, speed: Speed, limits: StepLimits | None) -> float:
    free, block, batch = (
        (UNBOUNDED, 1, UNBOUNDED)
        if limits is None
        else (limits.free_blocks, limits.block_tokens, limits.max_batch)
    )
    load = EngineLoad(table, speed, 0, free, UNBOUNDED, block, batch)
    return forecast(spec, load, spec.arrival_s).response_s


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * len(ordered))]


def _bucket(forecast_s: float) -> int:
    return math.floor(BUCKETS * math.log2(max(forecast_s, 1e-6)))
