"""Finds an engine that hangs: its process lives, and it answers nothing.

An engine answers between two steps, so the longest answer so far is about its longest step. The limit is a multiple of
that, and never below a floor that covers a first long prompt or a compilation. Loading a model is not watched.
"""

import asyncio

from timely.core.clock import AsyncClock, wait_on_clock
from timely.engines.base import Engine

PERIOD_S = 5.0
"""Between an answer and the next question."""

POLL_S = 1.0

LIMIT_ANSWERS = 4.0
"""The limit over the longest answer so far."""


class TaskEngineHeartbeat:
    """Asks an engine again and again.

    Attributes:
        answered_s: when the last question was sent that got an answer, seconds on the clock.
    """

    def __init__(self, engine: Engine, floor_s: float, clock: AsyncClock) -> None:
        self.answered_s = clock.now()
        self._engine = engine
        self._floor_s = floor_s
        self._clock = clock
        self._longest_s = 0.0

    @property
    def limit_s(self) -> float:
        """An engine that answers nothing for so long hangs, seconds."""
        return max(self._floor_s, LIMIT_ANSWERS * self._longest_s)

    async def wait_silent(self) -> None:
        """Return when the engine has not answered within the limit."""
        self.answered_s = self._clock.now()
        while True:
            await self._clock.sleep(PERIOD_S)
            asked_s = self._clock.now()
            if not await self._answers():
                return
            self.answered_s = asked_s

    async def _answers(self) -> bool:
        answer = asyncio.create_task(self._engine.answer(), name="engine-heartbeat")
        answered = asyncio.Event()
        answer.add_done_callback(lambda _: answered.set())
        silent_s = 0.0
        try:
            # Counts waits: a server that was itself suspended must not blame its engine.
            while not await wait_on_clock(answered, self._clock, self._clock.now() + POLL_S):
                silent_s += POLL_S
                if silent_s >= self.limit_s:
                    return False
        finally:
            answer.cancel()
            # The end of a dead engine is found elsewhere.
            await asyncio.gather(answer, return_exceptions=True)
        self._longest_s = max(self._longest_s, silent_s)
        return True
