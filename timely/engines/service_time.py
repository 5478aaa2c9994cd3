"""When a new request would be served, predicted from the queue, step times, and the prompts of earlier requests."""

from __future__ import annotations

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import TimeUtility
from timely.disciplines.base import Speed, StepLimits
from timely.routing.forecast import EngineLoad, forecast

WEIGHT = 0.05
"""Weight of the newest request in the means."""

FIRST_PROMPT_TOKENS = 256.0
"""Prompt tokens to compute for a request, before the first one has arrived."""

UNBOUNDED = 1 << 30


class ServiceTime:
    """Predicts the response to a request that has not been sent to the engine yet.

    Its prompt is not known, so it gets the mean length of recent requests, without what was cached.
    """

    def __init__(self) -> None:
        self._prompt_tokens = FIRST_PROMPT_TOKENS
        self._segment_tokens = 0.0

    def learn(self, spec: JobSpec) -> None:
        """A request has arrived."""
        if spec.plain:
            return
        prompt_tokens = float(spec.prompt_tokens - spec.cached_tokens)
        if not self._segment_tokens:
            self._prompt_tokens, self._segment_tokens = prompt_tokens, float(spec.segment_tokens)
        self._prompt_tokens += WEIGHT * (prompt_tokens - self._prompt_tokens)
        self._segment_tokens += WEIGHT * (spec.segment_tokens - self._segment_tokens)

    def response_s(
        self, utility: TimeUtility, table: JobTable, speed: Speed, limits: StepLimits | None, now: float
    ) -> float:
        """Predicted time until the first segment is complete, seconds.

        Args:
            limits: of the latest step; None before the first one.
        """
        spec = JobSpec(
            None,
            now,
            RequestHints(utility=utility),
            prompt_tokens=max(1, round(self._prompt_tokens)),
            segment_tokens=max(1, round(self._segment_tokens)) if self._segment_tokens else 10,
        )
        free, block, batch = (
            (UNBOUNDED, 1, UNBOUNDED)
            if limits is None
            else (limits.free_blocks, limits.block_tokens, limits.max_batch)
        )
        return forecast(spec, EngineLoad(table, speed, 0, free, UNBOUNDED, block, batch), now).response_s
