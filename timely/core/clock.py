"""Where time comes from: an argument, never a global, so that tests and the simulator own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic axis."""

    def now(self) -> float:
        """The current time, seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock; on Linux it is one axis for all processes of a host."""

    def now(self) -> float:
        """Seconds since an arbitrary origin, common to all processes."""
        return time.monotonic()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s

    def now(self) -> float:
        """The virtual time, seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by ``seconds`` (zero or more) and return the new time."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds
        return self._now

    def advance_to(self, when_s: float) -> float:
        """Move forward to ``when_s``; a time in the past leaves the clock where it is."""
        self._now = max(self._now, when_s)
        return self._now
