"""When a new request would be served, predicted from the queue and step times, and corrected by earlier predictions."""

import math
from collections import deque

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

UPPER = {True: 0.98, False: 0.9}
"""Quantiles of the upper predictions for urgent and other requests."""


class ServiceTime:
    """Predicts the response to a request that has not been sent to the engine yet.

    Its prompt is not known, so it gets the mean length of recent requests, without what was cached. The forecast knows
    neither the tasks that will come nor the true length of a segment. So each forecast is compared with what became of
    its task, and later ones of its size are corrected by quantiles of these ratios. Urgent tasks have corrections of
    their own. The upper prediction is at least what the responses that are promised already leave.
    """

    def __init__(self) -> None:
        self._prompt_tokens = FIRST_PROMPT_TOKENS
        self._segment_tokens = FIRST_SEGMENT_TOKENS
        self._forecasts: dict[JobId, float] = {}
        """Forecast at the arrival of each job without a segment, seconds."""
        self._lengths = SegmentLengths()
        self._ratios: dict[tuple[bool, int], deque[tuple[float, float]]] = {}
        """Time and logarithm of response over forecast, by urgency and size of the forecast."""

    def arrive(self, spec: JobSpec, table: JobTable, speed: Speed, limits: StepLimits | None) -> None:
        """A request arrives; it is not in the table yet."""
        if spec.plain:
            return
        mean = self._mean_spec(spec.hints.utility, spec.arrival_s)
        self._forecasts[spec.job_id] = _forecast_s(mean, table, speed, limits)
        self._prompt_tokens += WEIGHT * (spec.prompt_tokens - spec.cached_tokens - self._prompt_tokens)
        self._segment_tokens += WEIGHT * (spec.segment_tokens - self._segment_tokens)

    def respond(self, job: Job, now: float) -> None:
        """A job has closed its first segment."""
        forecast_s = self._forecasts.pop(job.job_id, None)
        response_s = now - job.spec.arrival_s
        if forecast_s is None or response_s <= 0.0:
            return
        self._lengths.learn(job)
        key = (job.spec.hints.utility.urgent, _bucket(forecast_s))
        ratio = math.log(response_s / forecast_s)
        self._ratios.setdefault(key, deque(maxlen=RATIOS)).append((now, ratio))

    def finish(self, job_id: JobId) -> None:
        """A job has ended, with or without a segment."""
        self._forecasts.pop(job_id, None)

    def predict(
        self,
        utility: TimeUtility,
        table: JobTable,
        speed: Speed,
        limits: StepLimits | None,
        now: float,
        in_flight: StepInFlight | None = None,
    ) -> ResponsePrediction:
        """The time until the first segment is complete.

        Args:
            limits: of the latest step; None before the first one.
            in_flight: that step, if it is not over.
        """
        spec = self._mean_spec(utility, now)
        forecast_s = _forecast_s(spec, table, speed, limits)
        least_s = 0.0
        if limits is not None:
            least_s = response_behind_promises_s(spec, table, self._lengths, limits, in_flight, now)
        bucket = _bucket(forecast_s)
        for ratios in self._ratios.values():
            while ratios and ratios[0][0] < now - RATIO_AGE_S:
                ratios.popleft()
        near = min(
            (
                key
                for key, ratios in self._ratios.items()
                if key[0] == utility.urgent and len(ratios) >= LEAST_RATIOS
            ),
            key=lambda key: abs(key[1] - bucket),
            default=None,
        )
        if near is None:
            return ResponsePrediction(forecast_s, max(forecast_s, least_s))
        log_ratios = sorted(ratio for _, ratio in self._ratios[near])
        middle, upper = (log_ratios[int(share * len(log_ratios))] for share in (0.5, UPPER[utility.urgent]))
        return ResponsePrediction(forecast_s * math.exp(middle), max(forecast_s * math.exp(upper), least_s))

    def _mean_spec(self, utility: TimeUtility, now: float) -> JobSpec:
        """A request of that utility, which is like recent ones."""
        return JobSpec(
            None,
            now,
            RequestHints(utility=utility),
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


def _bucket(forecast_s: float) -> int:
    return math.floor(BUCKETS * math.log2(max(forecast_s, 1e-6)))
