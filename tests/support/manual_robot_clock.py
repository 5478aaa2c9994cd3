"""Virtual time of a robot, moved by a test."""

from __future__ import annotations

from timely_robots.clock import _VirtualRobotTime


class ManualRobotClock(_VirtualRobotTime):
    """Virtual time for tests; only ``advance`` moves it."""

    POLL_S = 0.002

    def advance(self, seconds: float, timeout_s: float = 5.0) -> None:
        """Move by ``seconds`` and wake the threads that are due; returns when all of them have woken.

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
