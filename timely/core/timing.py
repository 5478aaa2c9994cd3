"""Waiting as an argument: a clock that can also sleep, for the machine's time and for time owned by a test."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from timely.core.clock import Clock, SystemClock


class AsyncClock(Clock, Protocol):
    """A clock whose seconds can be waited for."""

    async def sleep(self, seconds: float) -> None:
        """Return once ``seconds`` have passed on this clock; zero or less yields to the loop once."""
        ...


class SystemTime(SystemClock):
    """The machine's monotonic clock with asyncio's sleep."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for real."""
        await asyncio.sleep(max(0.0, seconds))


class ManualTime:
    """Time that stands still until ``advance`` or ``run_for``: sleepers wake in the order of their due times.

    ``advance`` may be called from any thread; sleepers may belong to several event loops. Nothing here waits for
    real, so a test that advances by an hour takes no longer than one that advances by a second.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def now(self) -> float:
        """The time set so far, seconds."""
        return self._now

    @property
    def next_due_s(self) -> float:
        """When the next sleeper is due, seconds; ``inf`` without sleepers."""
        with self._lock:
            self._drop_finished()
            return self._sleepers[0][0] if self._sleepers else math.inf

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by ``seconds``."""
        if seconds <= 0 or math.isnan(seconds):
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            due_s = self._now + seconds
            heapq.heappush(self._sleepers, (due_s, next(self._order), loop, future))
        await future

    def advance(self, seconds: float) -> float:
        """Move forward by ``seconds`` (zero or more), wake everyone due and return the new time.

        Whoever sleeps again does so from the new time; ``run_for`` stops at every due time instead.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        with self._lock:
            self._now += seconds
            due = []
            while self._sleepers and self._sleepers[0][0] <= self._now:
                due.append(heapq.heappop(self._sleepers))
        for _, _, loop, future in due:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)
        return self._now

    async def run_for(self, seconds: float) -> float:
        """Move forward by ``seconds``, stopping at every due time until the loop has settled; the new time.

        For code whose sleepers all live in the running loop.
        """
        end_s = self._now + seconds
        await settle()
        while (due_s := self.next_due_s) <= end_s:
            self.advance(max(0.0, due_s - self._now))
            await settle()
        self.advance(max(0.0, end_s - self._now))
        await settle()
        return self._now

    def _drop_finished(self) -> None:
        while self._sleepers and self._sleepers[0][3].done():
            heapq.heappop(self._sleepers)


SETTLE_ROUNDS = 50
"""Turns of the event loop after which everything that needs no further time has run, chains of tasks included."""


async def settle() -> None:
    """Let every task that can run do so, without time passing."""
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_until(event: asyncio.Event, clock: AsyncClock, when_s: float) -> bool:
    """Wait for ``event`` or until ``when_s`` on ``clock``, whichever is first; True if the event is set."""
    if event.is_set() or when_s <= clock.now():
        return event.is_set()
    if math.isinf(when_s):
        return await event.wait()
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(when_s - clock.now()))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return event.is_set()


@asynccontextmanager
async def at_most(seconds: float) -> AsyncIterator[None]:
    """Give up what is inside after so many seconds of the machine's time, without complaint."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        return
