"""Time as an argument: clocks that can be read and waited for.

No module reads a global clock, so tests and the simulator own the time.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Equal as long as the monotonic clock goes on."""


class Clock(Protocol):
    """Seconds on a monotonic axis."""

    def now(self) -> float: ...


class AsyncClock(Clock, Protocol):
    """A clock whose seconds can be waited for in an event loop."""

    async def sleep(self, seconds: float) -> None:
        """Return once ``seconds`` have passed on this clock; zero or less yields to the loop once."""


@cache
def machine_boot_id() -> str:
    """Of this start of the machine, to which times of the monotonic clock belong; empty if it is unknown."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class SystemClock:
    """The machine's monotonic clock; on Linux it is one axis for all processes of a host.

    Args:
        speed: seconds of this clock in a second of the machine: over 1 for emulated and simulated robots.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        """Seconds since an arbitrary origin, common to all processes that use the same speed."""
        return time.monotonic() * self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds / self.speed))

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """Block for ``seconds`` of this clock; True as soon as ``interrupted`` is set, False at the end."""
        return interrupted.wait(max(0.0, seconds / self.speed))


@asynccontextmanager
async def first_done_on_clock(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Enter the block, with a task for each of ``works``, when the first is done; its end cancels the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_on_clock(event: asyncio.Event, clock: AsyncClock, when_s: float) -> bool:
    """Wait for ``event`` or until ``when_s`` on ``clock``, whichever is first; True if the event is set."""
    if event.is_set() or when_s <= clock.now():
        return event.is_set()
    if math.isinf(when_s):
        return await event.wait()
    async with first_done_on_clock(event.wait(), clock.sleep(when_s - clock.now())):
        return event.is_set()


@asynccontextmanager
async def clock_timeout(seconds: float) -> AsyncIterator[None]:
    """Give up the block after ``seconds`` of the machine's time, without an error."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        return
