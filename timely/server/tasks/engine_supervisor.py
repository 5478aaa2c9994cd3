"""Starts an engine again that has died or hangs, so that the server and its tasks outlive it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from timely.core.clock import AsyncClock, first_done_on_clock
from timely.core.errors import EngineDied, EngineFailed, Overloaded
from timely.engines.base import Engine
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_heartbeat import TaskEngineHeartbeat

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
"""Waits before the second start in a row and before later ones at most; each is twice the one before."""

STEADY_S = 60.0
"""An engine that ran so long is started again at once."""


class TaskEngineSupervisor:
    """Watches one engine.

    Attributes:
        problem: why it does not run; empty while it does.
        discipline: what was switched to; a new engine starts with its own default.
        on_death: called for each death before the engine is started again, with the time at which the engine last
            worked, seconds on the clock.
    """

    def __init__(self, engine: Engine, settings: ServerSettings, clock: AsyncClock) -> None:
        self.deaths = 0
        self.problem = ""
        self.discipline = ""
        self.on_death: Callable[[EngineFailed, float], None] = lambda error, worked_s: None
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._heartbeat = TaskEngineHeartbeat(engine, settings.engine_hang_s, clock)
        self._died = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._watching: asyncio.Task[None] | None = None
        self._start_s = 0.0
        """How long the latest start took."""
        self._attempt = 0
        self._next_start_s = 0.0

    @property
    def running(self) -> bool:
        return self._running.is_set()

    @property
    def answered_s(self) -> float:
        """When the last question was sent that the engine answered, seconds on the clock."""
        return self._heartbeat.answered_s

    def restarting(self) -> Overloaded:
        """The refusal of a request while no engine runs.

        Its ``eta_s`` holds if the next start succeeds and takes as long as the one before.
        """
        now = self._clock.now()
        begin_s = now if self.running else self._next_start_s
        eta_s = max(0.0, begin_s + self._start_s - now)
        return Overloaded("the engine is being started again", where="engine", eta_s=eta_s)

    def restart(self) -> dict[str, Any] | None:
        """The number of the start in a row, and when it begins, seconds from now; None while the engine runs."""
        if self.running:
            return None
        next_try_s = max(0.0, self._next_start_s - self._clock.now())
        return {"attempt": self._attempt, "next_try_s": round(next_try_s, 1)}

    async def wait_running(self, deaths: int | None = None) -> None:
        """Return when the engine runs.

        Args:
            deaths: wait for a further death first; a generation learns of it before the supervisor does.
        """
        if self.deaths == deaths:
            await self._died.wait()
        await self._running.wait()

    def died_since(self, deaths: int) -> bool:
        """The engine has died after so many deaths."""
        return self.deaths != deaths or self._engine.dead

    async def start(self) -> None:
        """Start the engine and watch it.

        Raises:
            EngineFailed: it could not start.
        """
        await self._start()
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
        except Exception as error:
            # Whatever a library raises: the next start must follow.
            log.error("the engine failed while stopping: %s", error)

    async def _start(self) -> None:
        began_s = self._clock.now()
        await self._engine.start()
        self._start_s = self._clock.now() - began_s

    async def _watch(self) -> None:
        delay_s, started_s = 0.0, self._clock.now()
        while True:
            error = await self._wait_end()
            if self._clock.now() - started_s >= STEADY_S:
                delay_s = 0.0
            self._set_dead(error)
            while not await self._start_again(delay_s):
                delay_s = _longer_engine_restart_delay_s(delay_s)
            delay_s, started_s = _longer_engine_restart_delay_s(delay_s), self._clock.now()
            log.warning("the engine runs again")
            self.problem = ""
            self._running.set()

    async def _wait_end(self) -> EngineFailed:
        """Return when the engine has ended; an engine that hangs is killed."""
        async with first_done_on_clock(self._engine.wait_dead(), self._heartbeat.wait_silent()) as (dead, _):
            if dead.done():
                self._heartbeat.answered_s = self._clock.now()
                error: EngineFailed = dead.result()
                return error
            error = EngineDied(f"it answered nothing for {self._heartbeat.limit_s:g} s", where="engine")
            await self._kill()
            return error

    async def _kill(self) -> None:
        try:
            async with asyncio.timeout(self._settings.stop_timeout_s):
                await self._engine.kill()
        except Exception as error:
            # Its stop, which follows, may still end it.
            log.critical("the engine that hangs could not be killed: %s", error)

    def _set_dead(self, error: EngineFailed) -> None:
        log.critical("the engine died and is started again: %s", error)
        self.deaths += 1
        self.problem = error.message
        self._attempt = 0
        self._next_start_s = self._clock.now()
        self._running.clear()
        self.on_death(error, self.answered_s)
        death, self._died = self._died, asyncio.Event()
        death.set()

    async def _start_again(self, delay_s: float) -> bool:
        self._attempt += 1
        self._next_start_s = self._clock.now() + delay_s
        await self.stop_engine()
        await self._clock.sleep(self._next_start_s - self._clock.now())
        try:
            await self._start()
            if self.discipline:
                await self._engine.set_discipline(self.discipline)
        except Exception as error:
            # Without an engine no robot gets on, and the next start may succeed.
            log.critical("the engine did not start again: %s", error)
            self.problem = str(error)
            return False
        return True


def _longer_engine_restart_delay_s(delay_s: float) -> float:
    return min(LONGEST_DELAY_S, max(FIRST_DELAY_S, 2.0 * delay_s))
