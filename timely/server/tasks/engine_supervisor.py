"""Starts an engine again that has died, so that the server and its tasks outlive it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from timely.core.clock import AsyncClock
from timely.core.errors import EngineFailed, TimelyError
from timely.engines.base import Engine
from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
"""Waits before the second start in a row and before later ones at most; each is twice the one before."""

STEADY_S = 60.0
"""An engine that ran so long is started again at once."""


class EngineSupervisor:
    """Watches one engine.

    Attributes:
        deaths: how often the engine has died.
        problem: why it does not run; empty while it does.
        discipline: what was switched to; a new engine starts with its own default.
        on_death: called for each death, before the engine is started again.
    """

    def __init__(self, engine: Engine, settings: ServerSettings, clock: AsyncClock) -> None:
        self.deaths = 0
        self.problem = ""
        self.discipline = ""
        self.on_death: Callable[[EngineFailed], None] = lambda error: None
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._died = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._watching: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """The engine is not known to be dead."""
        return self._running.is_set()

    async def wait_running(self, deaths: int | None = None) -> None:
        """Return when the engine runs.

        Args:
            deaths: wait for a further death first; a generation learns of it before the supervisor does.
        """
        if self.deaths == deaths:
            await self._died.wait()
        await self._running.wait()

    def begin(self) -> None:
        """Watch the engine, which has been started."""
        self._watching = asyncio.create_task(self._watch(), name="engine-supervisor")

    async def end(self) -> None:
        """Watch no more. Safe to call twice."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def stop_engine(self) -> None:
        """Stop the engine; one that does not stop in time is abandoned, with a line in the log."""
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await self._engine.stop()
        except TimeoutError:
            log.error("the engine did not stop within %s s", self._settings.stop_timeout_s)
        except TimelyError as error:
            log.error("the engine failed while stopping: %s", error)

    async def _watch(self) -> None:
        delay_s, started_s = 0.0, self._clock.now()
        while True:
            error = await self._engine.wait_dead()
            if self._clock.now() - started_s >= STEADY_S:
                delay_s = 0.0
            self._set_dead(error)
            while not await self._start_again(delay_s):
                delay_s = _longer(delay_s)
            delay_s, started_s = _longer(delay_s), self._clock.now()
            log.warning("the engine runs again")
            self.problem = ""
            self._running.set()

    def _set_dead(self, error: EngineFailed) -> None:
        log.critical("the engine died and is started again: %s", error)
        self.deaths += 1
        self.problem = error.message
        self._running.clear()
        self.on_death(error)
        died, self._died = self._died, asyncio.Event()
        died.set()

    async def _start_again(self, delay_s: float) -> bool:
        await self.stop_engine()
        await self._clock.sleep(delay_s)
        try:
            await self._engine.start()
            if self.discipline:
                await self._engine.set_discipline(self.discipline)
        except Exception as error:
            # Without an engine no robot gets on, and the next start may succeed.
            log.critical("the engine did not start again: %s", error)
            self.problem = str(error)
            return False
        return True


def _longer(delay_s: float) -> float:
    return min(LONGEST_DELAY_S, max(FIRST_DELAY_S, 2.0 * delay_s))
