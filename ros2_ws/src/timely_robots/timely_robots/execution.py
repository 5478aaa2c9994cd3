"""What every driver does with segments, without ROS: queue, order, at most once, cancel, stop, honest reports.

One motion thread a robot executes segments one after the other, so a vendor's blocking calls may be used as they are
and the next segment begins the moment the previous one is done. Everything else (accepting, cancelling, stopping)
happens at once on the caller's thread.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from timely_interfaces.msg import ErrorCode

from timely_robots.clock import Pacer

Outcome = Literal["done", "failed", "cancelled", "refused"]
IDLE_WAIT_S = 1.0
"""The motion thread looks this often whether it should end, if nobody wakes it; it is woken in any case."""


@dataclass(frozen=True, slots=True)
class SkillCall:
    """One call of a plan: ``skill`` by its full name, ``args`` in call order, ``text`` as written."""

    skill: str
    args: tuple[object, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class SegmentOrder:
    """A segment to execute; ``execution_s`` is the expected time, seconds."""

    task_id: str
    index: int
    text: str
    skill_set: str
    execution_s: float = 0.0
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class SegmentDone:
    """What became of a segment. Times are on the driver's monotonic clock, seconds; NaN if it never began."""

    outcome: Outcome
    code: int = ErrorCode.NONE
    message: str = ""
    executed: str = ""
    start_s: float = math.nan
    end_s: float = math.nan
    value: str | None = None

    @property
    def elapsed_s(self) -> float:
        """How long it was executed, seconds; 0 if it never began."""
        return 0.0 if math.isnan(self.start_s) else self.end_s - self.start_s


class MotionError(Exception):
    """A motion did not succeed; ``code`` is one of ErrorCode's 2000 range."""

    def __init__(self, message: str, code: int = ErrorCode.MOTION_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class MotionCancelled(Exception):
    """Raised out of ``Motion.sleep`` and ``Motion.check``: stop moving and return."""


class Listener(Protocol):
    """Is told about one segment. Called on the motion thread, or on the thread that submitted or cancelled it."""

    def started(self) -> None:
        """Execution begins."""

    def progressed(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        """Execution goes on: share done (0..1), seconds so far, seconds left by the driver's own estimate."""

    def finished(self, done: SegmentDone) -> None:
        """The last word; called exactly once for every segment, refused ones included."""


class Motion:
    """A segment in execution, as the code that moves the robot sees it."""

    def __init__(self, order: SegmentOrder, listener: Listener, pacer: Pacer, report_every_s: float) -> None:
        self.order = order
        self.pacer = pacer
        self.interrupted = threading.Event()
        self.start_s = pacer.now()
        self._listener = listener
        self._report_every_s = report_every_s
        self._reported_s = self.start_s

    def check(self) -> None:
        """Raise MotionCancelled if the segment was cancelled."""
        if self.interrupted.is_set():
            raise MotionCancelled

    def sleep(self, seconds: float) -> None:
        """Let time pass, reporting progress; raises MotionCancelled at once when the segment is cancelled."""
        end = self.pacer.now() + seconds
        while (left := end - self.pacer.now()) > 0.0:
            if self.pacer.wait(self.interrupted, min(left, self._report_every_s)):
                raise MotionCancelled
            self.progress(max(0.0, end - self.pacer.now()))
        self.check()

    def progress(self, remaining_s: float) -> None:
        """Tell that the current motion will take another ``remaining_s``; more often than wanted is fine."""
        now = self.pacer.now()
        if now - self._reported_s >= self._report_every_s and remaining_s > 0.0:
            self._reported_s = now
            elapsed = now - self.start_s
            left = max(remaining_s, self.order.execution_s - elapsed)
            self._listener.progressed(elapsed / (elapsed + left), elapsed, left)


class Robot(Protocol):
    """What moves: the part of a driver that the executor calls."""

    def check(self, order: SegmentOrder) -> None:
        """Refuse a segment that must not run (language, limits); raises MotionError. Called before it is queued."""

    def execute(self, motion: Motion, executed: list[str]) -> str | None:
        """Execute a segment and return its value, or None; appends each call to ``executed`` as it begins.

        Runs on the motion thread and returns when the robot is at rest. Raises MotionError or MotionCancelled.
        """

    def halt(self) -> None:
        """Stop any motion now. Any thread, any time, any number of times; returns quickly."""


@dataclass(slots=True)
class _Queued:
    order: SegmentOrder
    listener: Listener


@dataclass(slots=True)
class _Task:
    expected: int = 0
    dead: SegmentDone | None = None
    """Why the rest of the task is not executed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the executor is doing."""

    executing: bool = False
    stopped: bool = False
    task_id: str = ""
    segment: int = 0
    progress: float = 0.0
    queued: int = 0
    rested_s: float = math.nan
    """When the last segment ended; NaN while one is executed and before the first."""
    over: bool = False
    """The task of the last segment is over here: one of its segments failed or was cancelled."""
    done: int = 0
    failed: int = 0
    refused: int = 0
    """Segments since the start, by outcome; ``failed`` with those that were cancelled."""


@dataclass(slots=True)
class _Current:
    item: _Queued
    motion: Motion
    cut: SegmentDone | None = None
    """Why it was interrupted."""


class SegmentExecutor:
    """Executes segments for one robot, in order and at most once.

    A task's first segment has index 0 and each next one is higher by one: anything else is refused, so a segment
    that is sent twice, or sent to a driver that was restarted in mid-plan, never moves the robot. When a segment
    fails or is cancelled, the rest of its task is not executed. After ``stop`` nothing is until ``reset``.

    Args:
        queue_limit: most segments that wait.
        report_every_s: progress is reported at most this often, seconds.
        remembered_tasks: tasks whose position is kept; the oldest are forgotten.
    """

    def __init__(
        self,
        robot: Robot,
        pacer: Pacer,
        *,
        queue_limit: int = 64,
        report_every_s: float = 0.5,
        remembered_tasks: int = 1024,
        name: str = "robot",
    ) -> None:
        self._robot = robot
        self._pacer = pacer
        self._queue_limit = queue_limit
        self._report_every_s = report_every_s
        self._remembered = remembered_tasks
        self._state = threading.Condition()
        self._queue: deque[_Queued] = deque()
        self._tasks: OrderedDict[str, _Task] = OrderedDict()
        self._current: _Current | None = None
        self._last: SegmentOrder | None = None
        self._rested_s = math.nan
        self._counts = {"done": 0, "failed": 0, "refused": 0}
        self._stopped = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"motion of {name}", daemon=True)
        self._thread.start()

    def submit(self, order: SegmentOrder, listener: Listener) -> None:
        """Queue a segment, or tell ``listener`` at once why not."""
        refusal = self._admit(order, listener)
        if refusal is not None:
            self._counts["refused"] += 1
            listener.finished(refusal)

    def cancel(self, task_id: str, index: int) -> None:
        """End a segment, queued or in motion, and with it the rest of its task. Unknown ones are ignored."""
        why = SegmentDone("cancelled", ErrorCode.SEGMENT_CANCELLED, "cancelled on request")
        with self._state:
            current = self._current
            moving = current is not None and (current.item.order.task_id, current.item.order.index) == (
                task_id,
                index,
            )
            if not moving and not any(
                item.order.task_id == task_id and item.order.index == index for item in self._queue
            ):
                return
            if (task := self._tasks.get(task_id)) is not None and task.dead is None:
                task.dead = why
            ended = self._take_out(
                lambda order: order.task_id == task_id and (moving or order.index >= index)
            )
            if moving:
                self._interrupt(why)
        for item in ended:
            item.listener.finished(why)

    def abandon(self, task_id: str, why: str) -> int:
        """Execute no more of a task: what is in motion is finished, what waits is cancelled; how many that were."""
        done = SegmentDone("cancelled", ErrorCode.SEGMENT_CANCELLED, why)
        with self._state:
            task = self._tasks.get(task_id)
            if task is None or task.dead is not None:
                return 0
            task.dead = done
            ended = self._take_out(lambda order: order.task_id == task_id)
        for item in ended:
            item.listener.finished(done)
        return len(ended)

    @property
    def tasks(self) -> set[str]:
        """Tasks with segments here that wait or are executed, and that of the last one."""
        with self._state:
            live = {item.order.task_id for item in self._queue}
            if self._last is not None:
                live.add(self._last.task_id)
            return live

    def stop(self, why: str = "stopped") -> None:
        """End all motion now, forget the queue, refuse everything until ``reset``; the running tasks are over."""
        done = SegmentDone("cancelled", ErrorCode.DRIVER_STOPPED, why)
        with self._state:
            self._stopped = True
            for task in self._tasks.values():
                task.dead = task.dead or done
            ended = self._take_out(lambda order: True)
            self._interrupt(done)
        # Also when nothing seems to move: a stop is a stop.
        self._robot.halt()
        for item in ended:
            item.listener.finished(done)

    def reset(self) -> None:
        """Take segments again after ``stop``; those of tasks that were stopped stay refused."""
        with self._state:
            self._stopped = False

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop and end the motion thread; False if a motion did not end within ``timeout_s``."""
        with self._state:
            self._closed = True
        self.stop("the driver is shutting down")
        with self._state:
            self._state.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def snapshot(self) -> Snapshot:
        """What is going on now."""
        with self._state:
            current, last = self._current, self._last
            task = self._tasks.get(last.task_id) if last is not None else None
            counts = self._counts
            found = Snapshot(
                executing=current is not None,
                stopped=self._stopped,
                task_id=last.task_id if last else "",
                segment=last.index if last else 0,
                queued=len(self._queue),
                rested_s=self._rested_s,
                over=task is not None and task.dead is not None,
                done=counts["done"],
                failed=counts["failed"],
                refused=counts["refused"],
            )
            if current is None:
                return found
            expected_s = current.item.order.execution_s
            elapsed = self._pacer.now() - current.motion.start_s
            return replace(
                found, rested_s=math.nan, progress=min(1.0, elapsed / expected_s) if expected_s > 0 else 0.0
            )

    def _admit(self, order: SegmentOrder, listener: Listener) -> SegmentDone | None:
        def refuse(code: int, message: str) -> SegmentDone:
            return SegmentDone("refused", code, message)

        problem: MotionError | None = None
        try:
            self._robot.check(order)  # takes a while: not with the lock in hand
        except MotionError as error:
            problem = error
        with self._state:
            if self._closed:
                return refuse(ErrorCode.DRIVER_INACTIVE, "the driver is shutting down")
            if self._stopped:
                return refuse(ErrorCode.DRIVER_STOPPED, "the robot was stopped; call ~/reset first")
            task = self._tasks.get(order.task_id)
            expected = task.expected if task is not None else 0
            if order.index < expected:
                return refuse(
                    ErrorCode.DUPLICATE, f"segment {order.index} of task {order.task_id!r} was taken before"
                )
            if order.index > expected:
                return refuse(
                    ErrorCode.OUT_OF_ORDER,
                    f"segment {order.index} of task {order.task_id!r} came, {expected} is next",
                )
            if task is not None and task.dead is not None:
                return refuse(task.dead.code, f"the task is over here: {task.dead.message}")
            if len(self._queue) >= self._queue_limit:
                return refuse(ErrorCode.QUEUE_FULL, f"{self._queue_limit} segments wait already")
            task = self._tasks.setdefault(order.task_id, _Task())
            self._tasks.move_to_end(order.task_id)
            self._forget()
            task.expected = order.index + 1
            if problem is not None:
                task.dead = refuse(problem.code, problem.message)
                return task.dead
            self._queue.append(_Queued(order, listener))
            self._state.notify_all()
        return None

    def _forget(self) -> None:
        live = {item.order.task_id for item in self._queue}
        if self._current is not None:
            live.add(self._current.item.order.task_id)
        for task_id in list(self._tasks):
            if len(self._tasks) <= self._remembered:
                break
            if task_id not in live:
                del self._tasks[task_id]

    def _take_out(self, which: Callable[[SegmentOrder], bool]) -> list[_Queued]:
        out = [item for item in self._queue if which(item.order)]
        if out:
            self._queue = deque(item for item in self._queue if not which(item.order))
        return out

    def _interrupt(self, why: SegmentDone) -> None:
        if self._current is not None and self._current.cut is None:
            self._current.cut = why
            self._current.motion.interrupted.set()
            self._robot.halt()

    def _run(self) -> None:
        while True:
            with self._state:
                while not self._queue and not self._closed:
                    self._state.wait(IDLE_WAIT_S)
                if self._closed and not self._queue:
                    return
                item = self._queue.popleft()
                motion = Motion(item.order, item.listener, self._pacer, self._report_every_s)
                self._current = current = _Current(item, motion)
                self._last = item.order
            item.listener.started()
            done = self._execute(current)
            with self._state:
                self._current = None
                self._rested_s = done.end_s
                self._counts["done" if done.outcome == "done" else "failed"] += 1
                ended: Sequence[_Queued] = ()
                why = done
                if done.outcome != "done":
                    task = self._tasks.get(item.order.task_id)
                    why = SegmentDone(
                        "cancelled",
                        ErrorCode.SEGMENT_CANCELLED,
                        f"segment {item.order.index} did not succeed",
                    )
                    if task is not None and task.dead is None:
                        task.dead = why
                    ended = self._take_out(lambda order: order.task_id == item.order.task_id)  # noqa: B023
            item.listener.finished(done)
            for other in ended:
                other.listener.finished(why)

    def _execute(self, current: _Current) -> SegmentDone:
        motion, executed = current.motion, list[str]()
        value: str | None = None
        outcome: Outcome = "done"
        code, message = ErrorCode.NONE, ""
        try:
            value = self._robot.execute(motion, executed)
        except MotionCancelled:
            outcome, code, message = "cancelled", ErrorCode.SEGMENT_CANCELLED, "cancelled"
        except MotionError as error:
            outcome, code, message = "failed", error.code, error.message
        except Exception as error:  # a defect of a driver must end as a typed failure, with the robot at rest
            self._robot.halt()
            outcome, code, message = "failed", ErrorCode.DRIVER_INTERNAL, f"{type(error).__name__}: {error}"
        end_s = self._pacer.now()
        if outcome != "done" and current.cut is not None:
            # A motion that was cut short often ends in an error of the robot's own; what counts is who cut it.
            outcome, code, message = "cancelled", current.cut.code, current.cut.message
        return SegmentDone(outcome, code, message, ";".join(executed), motion.start_s, end_s, value)
