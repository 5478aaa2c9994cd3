"""When a new request would be served, predicted from the queue and step times, and corrected by earlier predictions."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely.core.hints import RequestHints
from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.core.utility import TimeUtility
from timely.disciplines.base import Speed, StepLimits
from timely.disciplines.tardiness.segment_lengths import TardinessSegmentLengths
from timely.engines.base import ResponsePrediction
from timely.engines.promised_responses import PromisedStepInFlight, engine_response_behind_promises_s
from timely.routing.forecast import UNBOUNDED, RoutingEngineLoad, routing_response_s

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

STALL = 3.0
"""A step this many times longer than predicted is a stall, of the machine or of its garbage collection."""

RARE = 0.5
"""Stalls are rare whose tasks are fewer than this share of those that may be late."""

UPPER = {True: 0.98, False: 1.0 - 0.0875}
"""Quantiles of the upper predictions for urgent and other requests. QoServe is late for 8.75% in overload."""


@dataclass(slots=True)
class _EngineWaitingJob:
    """A job without a segment.

    Attributes:
        forecast_s: of its response at its arrival, seconds.
        stalled_s: by how much stalls have delayed it, seconds.
    """

    urgent: bool
    arrival_s: float
    forecast_s: float
    stalled_s: float = 0.0

    @property
    def key(self) -> tuple[bool, int]:
        """Of the correction that it teaches."""
        return self.urgent, _engine_service_bucket(self.forecast_s)

    def ratios(self, now: float) -> tuple[float, float]:
        """Logarithm of its time until now over the forecast; and the same without stalls."""
        waited_s = now - self.arrival_s
        times_s = max(waited_s, 1e-6), max(waited_s - self.stalled_s, 1e-6)
        return math.log(times_s[0] / self.forecast_s), math.log(times_s[1] / self.forecast_s)


class EngineServiceTime:
    """Predicts the response to a request that has not been sent to the engine yet.

    Its prompt is not known, so it gets the mean length of recent requests, without what was cached. The forecast knows
    neither the tasks that will come nor the true length of a segment. So each forecast is compared with what became of
    its task. Later ones of its size are corrected by the middle and by an upper quantile of these ratios. A task that
    still waits counts once its wait is longer than most. Urgent tasks have corrections of their own.
    Until some were served, an idle engine is expected to give the next task the shortest segment. Otherwise a server
    that refuses late tasks might refuse all, and never learn how long segments are.
    A stall delays all tasks of a moment. While few tasks of a class meet one, ratios leave stalls out. Otherwise the
    server would refuse urgent tasks until those of the stall are old, for refused ones give no better ratios.
    The upper prediction is at least what the responses that are promised already leave.
    """

    def __init__(self) -> None:
        self._prompt_tokens = FIRST_PROMPT_TOKENS
        self._segment_tokens = FIRST_SEGMENT_TOKENS
        self._waiting: dict[JobId, _EngineWaitingJob] = {}
        """Jobs without a segment."""
        self._lengths = TardinessSegmentLengths()
        self._ratios: dict[tuple[bool, int], deque[tuple[float, ...]]] = {}
        """Time, and logarithms of response over forecast with and without stalls; by urgency and size."""
        self._stalls: deque[tuple[float, ...]] = deque(maxlen=RATIOS)
        """End of each stall, and by how much it delayed tasks, seconds."""
        self._responses = {True: 0, False: 0}
        """Tasks that were served, by urgency."""

    def arrive(self, spec: JobSpec, table: JobTable, speed: Speed, limits: StepLimits | None) -> None:
        """A request arrives; it is not in the table yet."""
        if spec.plain:
            return
        mean = self._mean_spec(RequestHints(utility=spec.hints.utility), spec.arrival_s)
        forecast_s = _engine_service_forecast_s(mean, table, speed, limits)
        self._waiting[spec.job_id] = _EngineWaitingJob(spec.hints.utility.urgent, spec.arrival_s, forecast_s)
        self._prompt_tokens += WEIGHT * (spec.prompt_tokens - spec.cached_tokens - self._prompt_tokens)
        self._segment_tokens += WEIGHT * (spec.segment_tokens - self._segment_tokens)

    def ran(self, begin_s: float, step_s: float, predicted_s: float) -> None:
        """A step is over; by its prediction it would have taken ``predicted_s`` seconds."""
        if step_s <= STALL * predicted_s:
            return
        end_s = begin_s + step_s
        self._stalls.append((end_s, step_s - predicted_s))
        for waiting in self._waiting.values():
            waiting.stalled_s += max(0.0, end_s - max(begin_s + predicted_s, waiting.arrival_s))

    def close_segment(self, job: Job, now: float) -> None:
        """A job has closed a segment, the first or a later one."""
        self._lengths.learn(job)
        waiting = self._waiting.pop(job.job_id, None)
        if waiting is None or now <= waiting.arrival_s:
            return
        self._responses[waiting.urgent] += 1
        self._ratios.setdefault(waiting.key, deque(maxlen=RATIOS)).append((now, *waiting.ratios(now)))

    def finish(self, job_id: JobId) -> None:
        self._waiting.pop(job_id, None)

    def predict(
        self,
        utility: TimeUtility,
        table: JobTable,
        speed: Speed,
        limits: StepLimits | None,
        now: float,
        in_flight: PromisedStepInFlight | None = None,
        ahead: Sequence[RequestHints] = (),
    ) -> ResponsePrediction:
        """The time until the first segment is complete.

        Args:
            limits: of the latest step; None before the first one.
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
            forecast_s = _engine_service_forecast_s(spec, table, speed, limits)
            least_s = 0.0
            if limits is not None:
                least_s = engine_response_behind_promises_s(
                    spec, table, self._lengths, limits, in_flight, now
                )
        finally:
            table.remove_together([other.job_id for other in reversed(coming)])
        for past in (*self._ratios.values(), self._stalls):
            while past and past[0][0] < now - RATIO_AGE_S:
                past.popleft()
        middle, upper = self._correction(utility.urgent, forecast_s, now)
        return ResponsePrediction(forecast_s * math.exp(middle), max(forecast_s * math.exp(upper), least_s))

    def _correction(self, urgent: bool, forecast_s: float, now: float) -> tuple[float, float]:
        """Logarithms of measured over predicted times of similar tasks: the mean of their middle half, and a high one.

        Where lengths are of two kinds, the median is that of either kind, and changes from one to the other.
        """
        bucket = _engine_service_bucket(forecast_s)
        near = min(
            (key for key, ratios in self._ratios.items() if key[0] == urgent and len(ratios) >= LEAST_RATIOS),
            key=lambda key: abs(key[1] - bucket),
            default=None,
        )
        if near is None:
            return 0.0, 0.0
        # A task meets a stall that ends while it waits, or in which it comes.
        met_s = sum(delay_s + forecast_s for _, delay_s in self._stalls)
        kind = 1 if met_s < RARE * (1.0 - UPPER[urgent]) * RATIO_AGE_S else 0
        ratios = sorted(entry[1 + kind] for entry in self._ratios[near])
        upper = _engine_service_quantile(ratios, UPPER[urgent])
        # A job that waits for longer than most will also respond after that.
        waits = (waiting.ratios(now)[kind] for waiting in self._waiting.values() if waiting.key == near)
        ratios = sorted([*ratios, *(ratio for ratio in waits if ratio > upper)])
        middle = ratios[len(ratios) // 4 : math.ceil(0.75 * len(ratios))]
        return sum(middle) / len(middle), _engine_service_quantile(ratios, UPPER[urgent])

    def _mean_spec(self, hints: RequestHints, now: float) -> JobSpec:
        """A request that is like recent ones."""
        return JobSpec(
            None,
            now,
            hints,
            prompt_tokens=max(1, round(self._prompt_tokens)),
            segment_tokens=max(1, round(self._segment_tokens)),
        )


def _engine_service_forecast_s(
    spec: JobSpec, table: JobTable, speed: Speed, limits: StepLimits | None
) -> float:
    free, block, batch = (
        (UNBOUNDED, 1, UNBOUNDED)
        if limits is None
        else (limits.free_blocks, limits.block_tokens, limits.max_batch)
    )
    load = RoutingEngineLoad(table, speed, 0, free, UNBOUNDED, block, batch)
    return routing_response_s(spec, load, spec.arrival_s)


def _engine_service_quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * len(ordered))]


def _engine_service_bucket(forecast_s: float) -> int:
    return math.floor(BUCKETS * math.log2(max(forecast_s, 1e-6)))
