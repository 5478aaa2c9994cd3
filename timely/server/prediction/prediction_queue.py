"""The queue of requests that wait for a prediction of their urgency level and length.

``immediate``: the predictors are called whenever none runs, with all waiting requests. ``full``: with a full batch, or
when its first request has waited long enough. Section 4.1 of the paper on semantic scheduling compares their costs.
``PredictorStage`` is the object that its simulation uses too. A slow or failing predictor delays a request by
``prediction_timeout_s`` at most; the request is then queued without a prediction. While a call takes longer than that,
further requests are not delayed at all.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Hashable
from contextvars import Context

from timely.core.clock import AsyncClock, wait_on_clock
from timely.disciplines.predictors.batching import PredictorStage
from timely.disciplines.predictors.request_annotator import (
    Annotation,
    Guesses,
    PredictorArrival,
    RequestAnnotator,
)
from timely.disciplines.predictors.urgency import Assignment
from timely.disciplines.requirements import check_discipline_urgency
from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

_Waiting = tuple[PredictorArrival, asyncio.Future[Annotation]]


class PredictionQueue:
    """Annotates every request of one server before it is queued."""

    def __init__(self, annotator: RequestAnnotator, settings: ServerSettings, clock: AsyncClock) -> None:
        self._annotator = annotator
        self._settings = settings
        self._clock = clock
        self._stage: PredictorStage[_Waiting] = PredictorStage(
            latency_s=0.0,
            batch=settings.prediction_batch,
            batching=settings.prediction_batching,
            max_wait_s=settings.prediction_max_wait_s,
        )
        self._reads: Collection[str] = ()
        self._arrived = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._call_begin_s = math.inf
        """When the call that runs began, on the clock of the loop; infinite while none runs."""

    def serve(self, reads: Collection[str]) -> None:
        """Set the fields that the discipline in use reads; no others are predicted."""
        self._reads = reads

    async def stop(self) -> None:
        """Make no more predictions; waiting requests are queued without one."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)

    async def annotate(self, arrival: PredictorArrival) -> Annotation:
        """The urgency and length with which a request is queued.

        Raises:
            InvalidInput: its urgency level does not exist.
        """
        check_discipline_urgency(arrival.urgency)  # before it shares a batch with others
        loop, timeout_s = asyncio.get_running_loop(), self._settings.prediction_timeout_s
        is_hanging = loop.time() - self._call_begin_s >= timeout_s
        if is_hanging or not self._annotator.lacks_prediction(arrival, self._reads):
            return self._without_prediction(arrival)
        waiting: asyncio.Future[Annotation] = loop.create_future()
        self._stage.offer((arrival, waiting), self._clock.now())
        self._arrived.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="predictions", context=Context())
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            log.warning("no prediction for %s within %s s", arrival.name, timeout_s)
            return self._without_prediction(arrival)

    def override(self, name: Hashable, level: int, *, operator: str, reason: str) -> Assignment | None:
        """Record the level that an operator set; returns the assignment before."""
        return self._annotator.desk.override(
            name, level, operator=operator, reason=reason, now=self._clock.now()
        )

    def _without_prediction(self, arrival: PredictorArrival) -> Annotation:
        return self._annotator.annotate_without_guess(arrival, self._clock.now())

    async def _run(self) -> None:
        """Call the predictors, one batch after the other, while requests wait."""
        while len(self._stage):
            self._arrived.clear()
            batch = self._stage.begin(self._clock.now())
            if not batch:
                await wait_on_clock(self._arrived, self._clock, self._stage.next_s())
                continue
            # Requests whose wait timed out are queued already.
            open_requests = [(arrival, future) for arrival, future in batch if not future.done()]
            arrivals = [arrival for arrival, _ in open_requests]
            self._call_begin_s = asyncio.get_running_loop().time()
            try:
                guesses = await asyncio.to_thread(self._annotator.guess, arrivals, self._reads)
            except Exception:
                log.exception("a predictor failed; %s requests go on without", len(open_requests))
                guesses = Guesses()
            finally:
                self._call_begin_s = math.inf
            self._stage.end(self._clock.now())
            still = [place for place, (_, future) in enumerate(open_requests) if not future.done()]
            open_guesses = Guesses(
                {n: guesses.urgency[i] for n, i in enumerate(still) if i in guesses.urgency},
                {n: guesses.lengths[i] for n, i in enumerate(still) if i in guesses.lengths},
            )
            annotations = self._annotator.annotate(
                [arrivals[i] for i in still], open_guesses, self._clock.now()
            )
            for place, annotation in zip(still, annotations, strict=True):
                open_requests[place][1].set_result(annotation)
