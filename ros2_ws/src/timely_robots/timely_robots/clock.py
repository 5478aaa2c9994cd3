"""Clocks of robots: they can be read, and waited for until an event. ``timely.core.clock.SystemClock`` is one."""

import threading
from typing import Protocol

from timely.core.clock import Clock


class RobotClock(Clock, Protocol):
    """A monotonic clock on which a thread can wait."""

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
        """Block for ``seconds`` of this clock; True as soon as ``interrupted`` is set, False at the end."""


class _VirtualRobotTime:
    """Time that moves only by ``advance``, and threads that wait for it.

    Args:
        start_s: the time at first.
    """

    POLL_S = 0.005
    """How often a waiting thread checks its event; real time."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._changed = threading.Condition()
        self._deadlines: dict[int, float] = {}

    def now(self) -> float:
        return self._now

    def wait(self, interrupted: threading.Event, seconds: float) -> bool:
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


class SteppedRobotClock(_VirtualRobotTime):
    """A simulation's own time: it moves when the simulation has moved, by ``advance``.

    Waiting threads and simulation run in lock step. So a busy machine slows the simulation down and lengthens no time.

    Args:
        speed: simulated seconds a second, at most.
    """

    GRACE_S = 0.02
    """A woken thread may compute for so long before time goes on without it; real time."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.speed = speed

    def advance(self, seconds: float) -> None:
        """Move by ``seconds``, wake the threads that are due, and wait until each waits again."""
        with self._changed:
            self._now += seconds
            due_threads = {thread for thread, end in self._deadlines.items() if end <= self._now}
            if due_threads:
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: all(self._deadlines.get(thread, -1.0) > self._now for thread in due_threads),
                    self.GRACE_S,
                )
