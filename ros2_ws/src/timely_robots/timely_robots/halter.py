"""Calls a robot's halt on threads of its own, because a vendor's call may hang."""

import threading
from typing import Protocol

from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError

MAX_OPEN = 8
"""Halts that hang at most. Each has a thread, and a stop is repeated without end."""


class HaltCall:
    """One call of a robot's halt."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        """Record that the halt has returned, or why it failed."""
        self._error = error
        self._ended.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait at most so long for the end; False if the halt still runs."""
        return self._ended.wait(timeout_s)

    @property
    def error(self) -> Exception | None:
        """Why it is not certain that the robot was commanded to halt; None if it is."""
        if not self._ended.is_set():
            return MotionError("the robot's halt did not return", ErrorCode.MOTION_TIMEOUT)
        return self._error


class Halting(Protocol):
    """What can be halted: a robot, or what moves it."""

    def halt(self) -> None:
        """Stop any motion now."""


class Halter:
    """Begins halts of one robot; from any thread."""

    def __init__(self, robot: Halting) -> None:
        self._robot = robot
        self._open = threading.BoundedSemaphore(MAX_OPEN)

    def begin(self) -> HaltCall:
        """Call the robot's halt; returns at once."""
        call = HaltCall()
        if not self._open.acquire(blocking=False):
            call.end(MotionError(f"{MAX_OPEN} halts of the robot hang", ErrorCode.MOTION_TIMEOUT))
            return call

        def run() -> None:
            error: Exception | None = None
            try:
                self._robot.halt()
            except Exception as failure:  # handed to the caller
                error = failure
            finally:
                self._open.release()
            call.end(error)

        threading.Thread(target=run, name="halt", daemon=True).start()
        return call
