"""Time for drivers: a clock to read and a way to wait that a cancellation or a test can cut short."""

from __future__ import annotations

import threading
from typing import Protocol

from timely.core.clock import SystemClock


class Pacer(Protocol):
    """A monotonic clock (``timely.core.clock.Clock``) that can also be waited on."""

    def now(self) -> float:
        """The current time, seconds."""
        ...

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """Let ``seconds`` pass; True as soon as ``interrupted`` is set, False when the time is up."""
        ...


class SystemPacer(SystemClock):
    """Real time."""

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """See ``Pacer``."""
        return interrupted.wait(max(0.0, seconds))


class ScaledPacer(SystemPacer):
    """Real time, ``speed`` times as fast: for robots that are emulated or simulated at that speed."""

    def __init__(self, speed: float) -> None:
        self.speed = speed

    def now(self) -> float:
        """See ``Pacer``."""
        return super().now() * self.speed

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """See ``Pacer``."""
        return super().wait(interrupted, seconds / self.speed)


class _VirtualTime:
    """Time that stands still but for ``advance``, and threads that wait for it.

    Args:
        start_s: the time at first.
    """

    POLL_S = 0.005
    """How often a waiting thread looks whether it was interrupted; real time."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._changed = threading.Condition()
        self._deadlines: dict[int, float] = {}

    def now(self) -> float:
        """See ``Pacer``."""
        return self._now

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """See ``Pacer``."""
        me = threading.get_ident()
        with self._changed:
            deadline = self._deadlines[me] = self._now + seconds
            self._changed.notify_all()
            try:
                while self._now < deadline and not interrupted.is_set():
                    self._changed.wait(self.POLL_S)
            finally:
                del self._deadlines[me]
                self._changed.notify_all()
        return interrupted.is_set()


class SteppedPacer(_VirtualTime):
    """A simulation's own time, which moves when the simulation has moved: see ``advance``.

    Threads that wait are served in lock step, so a busy machine makes the simulation slower and no time longer.

    Args:
        speed: simulated seconds a second, at most.
    """

    GRACE_S = 0.02
    """A thread that was woken may think for so long before time goes on without it; real time."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.speed = speed

    def advance(self, seconds: float) -> None:
        """The simulation has gone on by ``seconds``; wakes whoever waited for that, and waits for their next wait."""
        with self._changed:
            self._now += seconds
            woken = {thread for thread, end in self._deadlines.items() if end <= self._now}
            if woken:
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: all(self._deadlines.get(thread, -1.0) > self._now for thread in woken),
                    self.GRACE_S,
                )


class ManualPacer(_VirtualTime):
    """Virtual time for tests: it stands still until ``advance`` is called."""

    POLL_S = 0.002
    """How often a waiting thread looks whether it was interrupted; real time, only here."""

    def advance(self, seconds: float, timeout_s: float = 5.0) -> None:
        """Move on by ``seconds`` and wake whoever waited for that; returns when they have all seen it.

        Raises:
            TimeoutError: a thread did not wake within real ``timeout_s``.
        """
        with self._changed:
            self._now += seconds
            self._changed.notify_all()
            if not self._changed.wait_for(
                lambda: all(end > self._now for end in self._deadlines.values()), timeout_s
            ):
                raise TimeoutError(f"a thread that waits for virtual time did not wake within {timeout_s} s")

    def until_waiting(self, threads: int = 1, timeout_s: float = 5.0) -> bool:
        """Block until that many threads wait for virtual time; False if they do not within real ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._deadlines) >= threads, timeout_s)
