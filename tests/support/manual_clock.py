"""A clock that a test owns."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from typing import Any


class ManualClock:
    """A clock that stands still until it is advanced; sleepers wake in the order of their due times.

    ``advance`` may be called from any thread, and sleepers may belong to several event loops. Nothing waits for real
    time: a test that advances by an hour takes no longer than one that advances by a second.
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
            while self._sleepers and self._sleepers[0][3].done():
                heapq.heappop(self._sleepers)
            return self._sleepers[0][0] if self._sleepers else math.inf

    async def sleep(self, seconds: float) -> None:
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
        """Move forward by ``seconds`` (zero or more), wake all sleepers that are due and return the new time.

        A sleeper that sleeps again does so from the new time; ``run_for`` stops at every due time instead.
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

    def advance_to(self, when_s: float) -> float:
        """Move forward to ``when_s`` and return the time; a time in the past changes nothing."""
        self.advance(max(0.0, when_s - self._now))
        self._now = max(self._now, when_s)  # a difference may be rounded
        return self._now

    async def run_for(self, seconds: float) -> float:
        """Move forward by ``seconds``, stopping at every due time until the loop has settled; the new time.

        For code whose sleepers all live in the running loop.
        """
        end_s = self._now + seconds
        await settle_clock_tasks()
        while (due_s := self.next_due_s) <= end_s:
            self.advance(max(0.0, due_s - self._now))
            await settle_clock_tasks()
        self.advance(max(0.0, end_s - self._now))
        await settle_clock_tasks()
        return self._now


class LeapingClock:
    """Time that a sleep moves on at once, for a test with one sleeper."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        self._now_s += seconds


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


SETTLE_ROUNDS = 50
"""Turns of the event loop after which all tasks that need no further time have run, chains of tasks included."""
IDLE_ROUNDS = 2
"""Turns in a row after which a loop that had nothing else to run is taken for settled."""


async def settle_clock_tasks() -> None:
    """Let every task that can run do so, without time passing."""
    loop: Any = asyncio.get_running_loop()
    idle_rounds = 0
    for _ in range(SETTLE_ROUNDS):
        await asyncio.sleep(0)
        idle_rounds = 0 if loop._ready else idle_rounds + 1
        if idle_rounds == IDLE_ROUNDS:
            break
