"""A segment on its way through a driver: order, motion, result, and the errors that end it. Times are seconds."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from timely.plans.units import convert_plan_unit
from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode

LOOK_S = 0.02
"""How often a waiting motion looks."""

Outcome = Literal["done", "failed", "cancelled", "refused"]

SkillValue = bool | int | float | str | None
"""What a skill returns to the plan; None for a plain motion."""


@dataclass(frozen=True, slots=True)
class SkillCall:
    """One call of a plan: ``skill`` by its full name, ``args`` in call order, ``text`` as written."""

    skill: str
    args: tuple[object, ...] = ()
    text: str = ""
    units: tuple[str, ...] = ()
    """Of the arguments; a number without one is in the unit that the robot's code expects."""

    def number(self, unit: str) -> float:
        """The first argument as a number in ``unit``.

        Raises:
            MotionError: OUT_OF_LIMITS, it is no number or of another quantity.
        """
        value = self.args[0] if self.args else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise MotionError(f"{self.text}: {value!r} is no number", ErrorCode.OUT_OF_LIMITS)
        own_unit = self.units[0] if self.units else ""
        number = convert_plan_unit(value, own_unit, unit)
        if number is None:
            raise MotionError(f"{self.text}: {own_unit} is no {unit}", ErrorCode.OUT_OF_LIMITS)
        return number


@dataclass(frozen=True, slots=True)
class SegmentOrder:
    """A segment to execute; ``execution_s`` is the expected time."""

    task_id: str
    index: int
    text: str
    skill_set: str
    execution_s: float = 0.0
    blocking: bool = False
    owner: str = ""
    epoch: int = 0
    """Of the sender's lease; 0: it holds none."""
    skill_set_fingerprint: str = ""
    """Of the copy of the skill set that it was checked by; empty: unknown."""


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """The end of a segment. Times are on the robot's clock; NaN if the segment never began."""

    outcome: Outcome
    code: int = ErrorCode.NONE
    message: str = ""
    executed: str = ""
    start_s: float = math.nan
    end_s: float = math.nan
    value: str | None = None

    @property
    def elapsed_s(self) -> float:
        """Execution time; 0 if the segment never began."""
        return 0.0 if math.isnan(self.start_s) else self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class ExecutorState:
    executing: bool = False
    stopped: bool = False
    task_id: str = ""
    segment: int = 0
    progress: float = 0.0
    queued_segments: int = 0
    rested_s: float = math.nan
    """When the last segment ended; NaN while one is executed and before the first."""
    task_over: bool = False
    """One of the segments of the last task failed or was cancelled."""
    done_segments: int = 0
    failed_segments: int = 0
    refused_segments: int = 0
    """Segments since the start, by outcome; the failed ones include cancelled ones."""


class MotionError(Exception):
    """A motion did not succeed; ``code`` is of ErrorCode's 2000 range."""

    def __init__(self, message: str, code: int = ErrorCode.MOTION_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class MotionCancelled(Exception):
    """Raised by ``Motion.sleep`` and ``Motion.check``: stop moving and return."""


class SegmentListener(Protocol):
    """Receives what happens to one segment.

    Called on the motion thread, or on the thread that submitted or cancelled the segment.
    """

    def on_start(self) -> None:
        """Execution begins."""

    def on_progress(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        """Execution goes on: fraction executed (0..1), and the driver's estimate of the time left."""

    def on_end(self, result: SegmentResult) -> None:
        """The end; called exactly once for every segment, refused ones included."""


class SilentListener:
    """The listener of a motion that nothing follows."""

    def on_start(self) -> None: ...
    def on_progress(self, fraction: float, elapsed_s: float, remaining_s: float) -> None: ...
    def on_end(self, result: SegmentResult) -> None: ...


class Motion:
    """A segment in execution, as the code that moves the robot uses it.

    Attributes:
        permit: raises MotionError if no movement may begin now. A robot calls it right before a movement that begins
            later than its skill call, as after a wait or when a command was lost. The guard's answer is old by then.
    """

    def __init__(
        self, order: SegmentOrder, listener: SegmentListener, clock: RobotClock, report_every_s: float
    ) -> None:
        self.order = order
        self.clock = clock
        self.interrupted = threading.Event()
        self.start_s = clock.now()
        self._listener = listener
        self._report_every_s = report_every_s
        self._reported_s = self.start_s
        self.permit: Callable[[], None] = self.check

    def check(self) -> None:
        """Raise MotionCancelled if the segment was cancelled."""
        if self.interrupted.is_set():
            raise MotionCancelled

    def sleep(self, seconds: float) -> None:
        """Wait and report progress; raises MotionCancelled at once when the segment is cancelled."""
        end = self.clock.now() + seconds
        while (left_s := end - self.clock.now()) > 0.0:
            if self.clock.wait(self.interrupted, min(left_s, self._report_every_s)):
                raise MotionCancelled
            self.progress(max(0.0, end - self.clock.now()))
        self.check()

    def wait_for(self, what: Callable[[], bool], limit_s: float) -> bool:
        """Wait until ``what`` holds; False in the end. A pause of this process shortens the wait by one look only."""
        for _ in range(math.ceil(limit_s / LOOK_S)):
            if what():
                return True
            self.sleep(LOOK_S)
        return what()

    def progress(self, remaining_s: float) -> None:
        """Report that the current motion takes another ``remaining_s``; calls that come too often are dropped."""
        now = self.clock.now()
        if now - self._reported_s >= self._report_every_s and remaining_s > 0.0:
            self._reported_s = now
            elapsed_s = now - self.start_s
            left_s = max(remaining_s, self.order.execution_s - elapsed_s)
            self._listener.on_progress(elapsed_s / (elapsed_s + left_s), elapsed_s, left_s)
