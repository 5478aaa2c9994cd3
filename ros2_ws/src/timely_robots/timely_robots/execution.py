"""Executes segments on one robot: queue, order, at most once, cancel, stop, reports.

One motion thread executes the segments in turn, call by call. So a robot may use a vendor's blocking calls, and the
next segment begins when the previous one ends. Accepting, cancelling and stopping run at once on the caller's thread.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from timely.core.errors import InvalidInput
from timely.core.json_log import ros_task_log_fields
from timely_robots import halter, language
from timely_robots.driver_store import DriverStore, is_driver_storage_error
from timely_robots.error_codes import ErrorCode
from timely_robots.robot import Robot
from timely_robots.safety import SafetyGuard
from timely_robots.segments import (
    ExecutorState,
    Motion,
    MotionCancelled,
    MotionError,
    Outcome,
    SegmentListener,
    SegmentOrder,
    SegmentResult,
    SilentListener,
    SkillCall,
    SkillValue,
)
from timely_robots.task_ledger import RobotTaskLedger

IDLE_WAIT_S = 1.0
"""The motion thread checks at least this often whether it should end."""


@dataclass(slots=True)
class _QueueItem:
    order: SegmentOrder
    listener: SegmentListener


@dataclass(slots=True)
class _Current:
    item: _QueueItem
    motion: Motion
    interruption: SegmentResult | None = None
    """Why it was interrupted; None if it was not."""


def _finish_robot_segments(items: Sequence[_QueueItem], result: SegmentResult) -> None:
    for item in items:
        item.listener.on_end(result)


class SegmentExecutor:
    """Executes segments on one robot, in order and at most once.

    A task's first segment has index 0, and each next one is higher by one. Any other index is refused. So a segment
    that is sent twice, or that reaches a driver restarted in mid-plan, never moves the robot. When a segment fails or
    is cancelled, the rest of its task is not executed. After ``stop`` no segment is executed until ``reset``.

    Args:
        guard: called before each call of a plan, also between the rounds of a loop.
        remembered_tasks: tasks whose position is kept; the oldest are dropped.
        store: keeps stop and begun tasks over restarts.
        reset_service: full name of the driver's ``~/reset``, for messages.
    """

    def __init__(
        self,
        robot: Robot,
        guard: SafetyGuard | None = None,
        *,
        remembered_tasks: int = 1024,
        name: str = "robot",
        store: DriverStore | None = None,
        reset_service: str = "~/reset",
    ) -> None:
        self._robot, self._guard = robot, guard
        self._plans = language.RobotPlans()
        self._halter = halter.RobotHalter(lambda: robot.halt())  # noqa: PLW0108 - a test may replace it
        self._clock = robot.clock
        self.set_limits(queue_limit=64, report_every_s=0.5)
        self._changed = threading.Condition()
        self._queue: deque[_QueueItem] = deque()
        self._current: _Current | None = None
        self._last: SegmentOrder | None = None
        self._rested_s = math.nan
        self._counts = {"done": 0, "failed": 0, "refused": 0}
        self._store = store or DriverStore()
        self._ledger = RobotTaskLedger(self._store, remembered_tasks)
        self._reset_service = reset_service
        self._action: Callable[[Motion], None] | None = None
        self._acting: Motion | None = None
        self._action_cause = self._action_problem = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"motion of {name}", daemon=True)
        self._thread.start()

    def set_limits(self, queue_limit: int, report_every_s: float) -> None:
        """At most ``queue_limit`` segments wait; progress is reported every ``report_every_s`` seconds at most."""
        self._queue_limit, self._report_every_s = queue_limit, report_every_s

    def submit(self, order: SegmentOrder, listener: SegmentListener) -> None:
        """Queue a segment, or finish it at once as refused."""
        refusal = self._admit(order, listener)
        if refusal is not None:
            self._counts["refused"] += 1
            listener.on_end(refusal)

    def cancel(self, task_id: str, index: int) -> None:
        """End a segment, queued or in motion, and the rest of its task. Unknown segments are ignored."""

        def matches(order: SegmentOrder) -> bool:
            return (order.task_id, order.index) == (task_id, index)

        why = SegmentResult("cancelled", ErrorCode.SEGMENT_CANCELLED, "cancelled on request")
        with self._changed:
            current = self._current
            moving = current is not None and matches(current.item.order)
            if not moving and not any(matches(item.order) for item in self._queue):
                return
            self._ledger.end(task_id, why)
            removals = self._remove(
                lambda order: order.task_id == task_id and (moving or order.index >= index)
            )
            halt = moving and self._interrupt(why)
        if halt:
            self._halter.halt()
        _finish_robot_segments(removals, why)

    def abandon(self, task_id: str, why: str) -> int:
        """Cancel the queued segments of a task and take no more; returns how many. A segment in motion is finished."""
        result = SegmentResult("cancelled", ErrorCode.SEGMENT_CANCELLED, why)
        with self._changed:
            if not self._ledger.end(task_id, result):
                return 0
            removals = self._remove(lambda order: order.task_id == task_id)
        _finish_robot_segments(removals, result)
        return len(removals)

    @property
    def tasks(self) -> set[str]:
        """Tasks whose segments wait or are executed, and the task of the last segment."""
        with self._changed:
            live = {item.order.task_id for item in self._queue}
            if self._last is not None:
                live.add(self._last.task_id)
            return live

    def stop(self, why: str = "stopped") -> None:
        """Halt the robot, end all motion, drop the queue, and refuse every segment until ``reset``.

        The halt runs on a thread of its own, so a vendor's call that hangs delays neither the latch nor the refusals.

        Raises:
            MotionError: the halt did not return in time, or failed. InvalidInput: the disk refused the latch.
            The stop holds in this process either way. A slow disk delays no halt, see ``DriverStore.stop_unsaved``.
        """
        with self._store.stopping(why):
            end_s = time.monotonic() + halter.HALT_S
            result = SegmentResult("cancelled", ErrorCode.DRIVER_STOPPED, why)
            removals = self._end_everything(result)
            halt = self._halter.begin()
            halt.join(halter.HALT_FIRST_S)
            _finish_robot_segments(removals, result)
            saving = self._store.save()
            halt.join(end_s - time.monotonic())
            if halt.error is not None:
                raise halt.error
            with suppress(TimeoutError):
                saving.result(max(0.0, end_s - time.monotonic()))

    def reset(self) -> None:
        """Take segments again after ``stop``; stopped tasks stay refused. Raises as ``DriverStore.clear_stop``."""
        self._store.clear_stop()

    def act(self, why: str, action: Callable[[Motion], None], *, also_stopped: bool = False) -> bool:
        """End all segments and run a failsafe action on the motion thread; False while one runs or after a stop.

        Until the action has ended, every segment is refused with FAILSAFE. Another stop ends the action.

        Args:
            also_stopped: the action runs after a stop, too.
        """
        with self._changed:
            if self._closed or self._action is not None or self._acting is not None:
                return False
            if self._store.stop_reason is not None and not also_stopped:
                return False
            self._action, self._action_cause = action, why
            moving = self._current is not None
        result = SegmentResult("cancelled", ErrorCode.FAILSAFE, why)
        removals = self._end_everything(result, stopping=False)
        if moving:
            self._halter.halt()
        _finish_robot_segments(removals, result)
        return True

    def take_action_problem(self) -> str:
        """Return and clear why the last failsafe action failed; empty if it succeeded or still runs."""
        problem, self._action_problem = self._action_problem, ""
        return problem

    def end_tasks(self, which: Callable[[SegmentOrder], bool], result: SegmentResult) -> None:
        """End the tasks of the segments that ``which`` names, the segment in motion included."""
        with self._changed:
            current = self._current
            moving = current is not None and which(current.item.order)
            removals = self._remove(which)
            orders = [item.order for item in removals] + ([current.item.order] if current and moving else [])
            for order in orders:
                self._ledger.end(order.task_id, result)
            halt = moving and self._interrupt(result)
        if halt:
            self._halter.halt()
        _finish_robot_segments(removals, result)

    def interrupt(self, code: int, why: str) -> None:
        """End the segment in motion, and the rest of its task."""
        result = SegmentResult("cancelled", code, why)
        with self._changed:
            halt = self._interrupt(result)
        if halt:
            self._halter.halt()

    def _end_everything(self, result: SegmentResult, *, stopping: bool = True) -> list[_QueueItem]:
        """End all tasks and mark the motion as interrupted. The caller halts the robot and calls the listeners."""
        with self._changed:
            self._ledger.end_all(result)
            removals = self._remove(lambda order: True)
            self._interrupt(result)
            if stopping:
                if self._action is not None:
                    self._action, self._action_problem = None, "stopped"
                if self._acting is not None:
                    self._acting.interrupted.set()
            self._changed.notify_all()
        return removals

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop and end the motion thread; False if a motion did not end within ``timeout_s``."""
        with self._changed:
            self._closed = True
        why = SegmentResult("cancelled", ErrorCode.DRIVER_STOPPED, "the driver is shutting down")
        removals = self._end_everything(why)
        self._halter.halt()
        _finish_robot_segments(removals, why)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def state(self) -> ExecutorState:
        with self._changed:
            current, last = self._current, self._last
            counts = self._counts
            state = ExecutorState(
                executing=current is not None,
                stopped=self._store.stop_reason is not None,
                task_id=last.task_id if last else "",
                segment=last.index if last else 0,
                queued_segments=len(self._queue),
                rested_s=self._rested_s,
                task_over=last is not None and self._ledger.has_ended(last.task_id),
                done_segments=counts["done"],
                failed_segments=counts["failed"],
                refused_segments=counts["refused"],
            )
            if current is None:
                return state
            expected_s = current.item.order.execution_s
            elapsed_s = self._clock.now() - current.motion.start_s
            return replace(
                state, rested_s=math.nan, progress=min(1.0, elapsed_s / expected_s) if expected_s > 0 else 0.0
            )

    def _admit(self, order: SegmentOrder, listener: SegmentListener) -> SegmentResult | None:
        def refuse(code: int, message: str) -> SegmentResult:
            return SegmentResult("refused", code, message)

        problem: MotionError | None = None
        try:
            # Slow, so without the lock.
            language.check_robot_segment(order, self._robot.profile)
        except MotionError as error:
            problem = error
        with self._changed:
            if self._closed:
                return refuse(ErrorCode.DRIVER_INACTIVE, "the driver is shutting down")
            if self._store.stop_reason is not None:
                return refuse(
                    ErrorCode.DRIVER_STOPPED, f"the robot was stopped; call {self._reset_service} first"
                )
            if self._action is not None or self._acting is not None:
                return refuse(ErrorCode.FAILSAFE, f"a failsafe action is in progress: {self._action_cause}")
            if (refusal := self._ledger.refusal(order)) is not None:
                return refusal
            if len(self._queue) >= self._queue_limit:
                return refuse(ErrorCode.QUEUE_FULL, f"{self._queue_limit} segments wait already")
            live = {item.order.task_id for item in self._queue}
            if self._current is not None:
                live.add(self._current.item.order.task_id)
            self._ledger.take(order, live)
            if problem is not None:
                end = refuse(problem.code, problem.message)
                self._ledger.end(order.task_id, end)
                return end
            self._queue.append(_QueueItem(order, listener))
            self._changed.notify_all()
        return None

    def _remove(self, which: Callable[[SegmentOrder], bool]) -> list[_QueueItem]:
        out = [item for item in self._queue if which(item.order)]
        if out:
            self._queue = deque(item for item in self._queue if not which(item.order))
        return out

    def _interrupt(self, why: SegmentResult) -> bool:
        """Mark the motion as interrupted; True if the caller must halt the robot, without the lock."""
        if self._current is None or self._current.interruption is not None:
            return False
        self._current.interruption = why
        self._current.motion.interrupted.set()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed and self._action is None:
                    self._changed.wait(IDLE_WAIT_S)
                action, self._action = self._action, None
                if action is not None:
                    order = SegmentOrder("", 0, "", "")
                    self._acting = Motion(order, SilentListener(), self._clock, self._report_every_s)
                elif not self._queue:
                    return
            if action is not None:
                self._run_action(action)
                continue
            with self._changed:
                if not self._queue:
                    continue
                item = self._queue.popleft()
                motion = Motion(item.order, item.listener, self._clock, self._report_every_s)
                self._current = current = _Current(item, motion)
                self._last = item.order
            problem = self._begin(item.order)
            item.listener.on_start()
            result = self._execute(current, problem)
            with self._changed:
                self._current = None
                self._rested_s = result.end_s
                self._counts["done" if result.outcome == "done" else "failed"] += 1
                removals: Sequence[_QueueItem] = ()
                why = result
                if result.outcome == "done":
                    self._ledger.finish(item.order)
                else:
                    reason = f"segment {item.order.index} did not succeed"
                    why = SegmentResult("cancelled", ErrorCode.SEGMENT_CANCELLED, reason)
                    self._ledger.end(item.order.task_id, why)
                    removals = self._remove(lambda order: order.task_id == item.order.task_id)  # noqa: B023
            item.listener.on_end(result)
            _finish_robot_segments(removals, why)

    def _run_action(self, action: Callable[[Motion], None]) -> None:
        motion, problem = self._acting, ""
        assert motion is not None
        try:
            # Before the action, because a halt that comes later would end it.
            self._halter.halt_again()
            self._halter.wait(motion)
            action(motion)
        except MotionCancelled:
            problem = "stopped"
        except Exception as error:  # a failing action must leave the robot at rest and the thread alive
            problem = str(error) or type(error).__name__
        if problem:
            self._halter.halt_again()
        self._action_problem = problem
        with self._changed:
            self._acting = None
            self._rested_s = self._clock.now()

    def _begin(self, order: SegmentOrder) -> MotionError | None:
        """Write a task's beginning to the disk, before its first motion is announced."""
        try:
            if order.index == 0 and not self._store.begin_task(order.task_id):
                return MotionError("the task has begun before", ErrorCode.DUPLICATE)
        except InvalidInput as error:
            return MotionError(str(error), ErrorCode.STORAGE_FAILED)
        return None

    def _execute(self, current: _Current, problem: MotionError | None) -> SegmentResult:
        motion, calls = current.motion, list[str]()
        value: str | None = None
        outcome: Outcome = "done"
        code: int = ErrorCode.NONE
        message = ""
        try:
            if problem is not None:
                raise problem
            self._halter.wait(motion)
            with ros_task_log_fields(motion.order.task_id, segment=motion.order.index):
                value = self._perform_segment(motion, calls)
        except MotionCancelled:
            outcome, code, message = "cancelled", ErrorCode.SEGMENT_CANCELLED, "cancelled"
        except MotionError as error:
            outcome, code, message = "failed", error.code, error.message
        except Exception as error:  # a defect of a driver must end as a typed failure, with the robot at rest
            code = ErrorCode.STORAGE_FAILED if is_driver_storage_error(error) else ErrorCode.DRIVER_INTERNAL
            outcome, message = "failed", f"{type(error).__name__}: {error}"
        unforeseen = (ErrorCode.DRIVER_INTERNAL, ErrorCode.STORAGE_FAILED)
        if code in unforeseen or (outcome != "done" and current.interruption is not None):
            self._halter.halt_again()
        end_s = self._clock.now()
        if outcome != "done" and current.interruption is not None:
            # An interrupted motion often ends in an error of the robot; the reason of the interruption counts.
            outcome, code, message = "cancelled", current.interruption.code, current.interruption.message
        return SegmentResult(outcome, code, message, ";".join(calls), motion.start_s, end_s, value)

    def _perform_segment(self, motion: Motion, calls: list[str]) -> str | None:
        """Make the calls of a segment one by one; the value of its last query, or None."""
        plan = self._plans.with_segment(motion.order)
        last: SkillValue = None
        while (call := plan.next()) is not None:
            value = self._perform(call, motion, calls)
            plan.answer(value)
            last = last if value is None else value
        return None if last is None else str(last)

    def _perform(self, call: SkillCall, motion: Motion, calls: list[str]) -> SkillValue:
        motion.check()
        skills = language.robot_executor_skill_set(motion.order.skill_set)
        call = language.approve_robot_call(call, skills, self._robot.profile)
        if self._guard is not None:
            self._guard(call, motion)
            motion.permit = partial(self._guard.permit, motion)
        calls.append(call.text)
        return self._robot.perform(call, motion)
