"""Calls a robot's halt on threads of its own, because a vendor's call may hang. Times are seconds."""

import contextlib
import threading
from collections.abc import Callable

from timely_robots.error_codes import ErrorCode
from timely_robots.segments import Motion, MotionError

HALT_S = 0.4
"""A stop waits so long for the robot's halt."""
HALT_FIRST_S = 0.05
"""The work after a stop waits so long for the robot's halt: both need the processor and the interpreter."""
PENDING_HALTS_S = 3.0
"""A motion waits so long for earlier halts to return."""
MAX_OPEN = 8
"""Halts that hang at most. Each has a thread, and a stop is repeated without end."""


class RobotHaltCall(threading.Thread):
    """One call of a robot's halt; ``join`` waits for it."""

    def __init__(self, halt: Callable[[], object], free: threading.Semaphore) -> None:
        super().__init__(name="halt", daemon=True)
        self._halt, self._free = halt, free
        self._error: Exception | None = None

    def run(self) -> None:
        if not self._free.acquire(blocking=False):
            self._error = MotionError(f"{MAX_OPEN} halts of the robot hang", ErrorCode.MOTION_TIMEOUT)
            return
        try:
            self._halt()
        except Exception as error:  # handed to the caller
            self._error = error
        finally:
            self._free.release()

    def join(self, timeout: float | None = None) -> None:
        """See ``Thread``; a call that had no thread is over."""
        if self.ident is not None:
            super().join(timeout)

    @property
    def error(self) -> Exception | None:
        """Why it is not certain that the robot was commanded to halt; None if it is."""
        if self.is_alive():
            return MotionError("the robot's halt did not return", ErrorCode.MOTION_TIMEOUT)
        return self._error


class RobotHalter:
    """Begins halts of one robot; from any thread.

    Args:
        halt: stops any motion now; raises an exception if that is not certain.
    """

    def __init__(self, halt: Callable[[], object]) -> None:
        self._halt = halt
        self._free = threading.Semaphore(MAX_OPEN)
        self._lock = threading.Lock()
        self._calls: list[RobotHaltCall] = []

    def begin(self) -> RobotHaltCall:
        call = RobotHaltCall(self._halt, self._free)
        with self._lock:
            with contextlib.suppress(RuntimeError):  # the system gives this process no more threads
                call.start()
            self._calls = [*(one for one in self._calls if one.is_alive()), call]
        if call.ident is None:
            call.run()  # it may hang the caller, but no halt at all is worse
        return call

    @property
    def pending(self) -> bool:
        """A halt has not returned: it may still reach the robot, and would end a motion that begins now."""
        return any(call.is_alive() for call in self._calls)

    def halt(self) -> None:
        """Halt the robot; a halt that fails or hangs ends its segments all the same."""
        self.begin().join(HALT_FIRST_S)

    def halt_again(self) -> None:
        """Halt the robot on behalf of the motion thread, which begins nothing more.

        A command that it had begun to send when the first halt came may have reached the robot after that halt.
        """
        self.begin().join(HALT_S)

    def wait(self, motion: Motion) -> None:
        """Return when no halt is pending; raises MotionError if one takes too long."""
        if not motion.wait_for(lambda: not self.pending, PENDING_HALTS_S):
            raise MotionError("an earlier halt of the robot has not returned", ErrorCode.MOTION_TIMEOUT)
        motion.check()
