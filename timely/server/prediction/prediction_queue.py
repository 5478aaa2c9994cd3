"""Predictions at the server's door: requests wait here for their urgency level and their length, in batches, not long.

``immediate``: a call of the predictors is made whenever none runs, with all that wait. ``full``: with a full batch, or
when the first of it has waited long enough. What each costs: section 4.1 of the paper on semantic
scheduling. ``PredictionStage`` is the same object that its simulation uses. A predictor that fails or dawdles delays a
request by ``prediction_timeout_s`` at most: it then goes on with what it brought.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Hashable

from timely.core.clock import AsyncClock, wait_until
from timely.disciplines.predictors.batching import PredictionStage
from timely.disciplines.predictors.request_annotator import Annotation, Arrival, Door, Guesses
from timely.disciplines.predictors.urgency import Assignment
from timely.disciplines.requirements import check_urgency
from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

_Waiting = tuple[Arrival, asyncio.Future[Annotation]]


class PredictionQueue:
    """The door of one server: everything that asks for an answer passes it.

    Args:
        door: what is known of requests, and the record of it.
        settings: how predictions are batched.
        clock: how long requests have waited.
    """

    def __init__(self, door: Door, settings: ServerSettings, clock: AsyncClock) -> None:
        self._door = door
        self._settings = settings
        self._clock = clock
        self._stage: PredictionStage[_Waiting] = PredictionStage(
            latency_s=0.0,
            batch=settings.prediction_batch,
            batching=settings.prediction_batching,
            max_wait_s=settings.prediction_max_wait_s,
        )
        self._reads: Collection[str] = ()
        self._arrived = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    def serve(self, reads: Collection[str]) -> None:
        """The discipline in use reads these fields (``needs.reads``): no others are predicted."""
        self._reads = reads

    async def stop(self) -> None:
        """Predict no more; who waits goes on as it came."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)

    async def annotate(self, arrival: Arrival) -> Annotation:
        """What a request goes on with.

        Raises:
            InvalidInput: it brought a level that does not exist.
        """
        check_urgency(arrival.urgency)  # before it shares a batch with others
        if not self._door.missing(arrival, self._reads):
            return self._plainly(arrival)
        waiting: asyncio.Future[Annotation] = asyncio.get_running_loop().create_future()
        self._stage.offer((arrival, waiting), self._clock.now())
        self._arrived.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="predictions")
        try:
            async with asyncio.timeout(self._settings.prediction_timeout_s):
                return await waiting
        except TimeoutError:
            log.warning("no prediction for %s within %s s", arrival.name, self._settings.prediction_timeout_s)
            return self._plainly(arrival)

    def override(self, name: Hashable, level: int, *, operator: str, reason: str) -> Assignment | None:
        """An operator's word on one request; see ``UrgencyDesk.override``."""
        return self._door.desk.override(name, level, operator=operator, reason=reason, now=self._clock.now())

    def _plainly(self, arrival: Arrival) -> Annotation:
        return self._door.annotate([arrival], Guesses(), self._clock.now())[0]

    async def _run(self) -> None:
        """One call after the other, as long as anybody waits."""
        while len(self._stage):
            self._arrived.clear()
            batch = self._stage.begin(self._clock.now())
            if not batch:
                await wait_until(self._arrived, self._clock, self._stage.next_s())
                continue
            # Whoever gave up waiting has gone on without.
            left = [(arrival, future) for arrival, future in batch if not future.done()]
            arrivals = [arrival for arrival, _ in left]
            try:
                guesses = await asyncio.to_thread(self._door.guess, arrivals, self._reads)
            except Exception:
                log.exception("a predictor failed; %s requests go on without", len(left))
                guesses = Guesses()
            self._stage.end(self._clock.now())
            still = [place for place, (_, future) in enumerate(left) if not future.done()]
            kept = Guesses(
                {n: guesses.urgency[i] for n, i in enumerate(still) if i in guesses.urgency},
                {n: guesses.lengths[i] for n, i in enumerate(still) if i in guesses.lengths},
            )
            found = self._door.annotate([arrivals[i] for i in still], kept, self._clock.now())
            for place, annotation in zip(still, found, strict=True):
                left[place][1].set_result(annotation)
