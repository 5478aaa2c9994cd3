"""The order of a driver's segments, task by task: each index once and in turn, none after the task's end."""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from timely_robots.driver_store import DriverStore
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import SegmentOrder, SegmentResult


@dataclass(slots=True)
class _RobotLedgerTask:
    next_index: int = 0
    done_segments: int = 0
    """Segments that were executed to their end."""
    end: SegmentResult | None = None
    """Why the rest of the task is not executed; None while it is."""


class RobotTaskLedger:
    """Tasks with the index that each expects next. The caller has a lock around it.

    Args:
        max_tasks: tasks that are kept; the oldest are dropped.
        store: the tasks that have begun, also before the driver was restarted.
    """

    def __init__(self, store: DriverStore, max_tasks: int) -> None:
        self._store, self._max_tasks = store, max_tasks
        self._tasks: OrderedDict[str, _RobotLedgerTask] = OrderedDict()

    def refusal(self, order: SegmentOrder) -> SegmentResult | None:
        """Why a segment is not the next of its task; None if it is."""
        task, name = self._tasks.get(order.task_id), f"segment {order.index} of task {order.task_id!r}"
        next_index = task.next_index if task is not None else 0
        if task is None and self._store.has_begun(order.task_id):
            code = ErrorCode.DUPLICATE if order.index == 0 else ErrorCode.DRIVER_LOST
            return _robot_segment_refusal(code, f"task {order.task_id!r} began before the driver restarted")
        if order.index > next_index:
            return _robot_segment_refusal(ErrorCode.OUT_OF_ORDER, f"{name} came, {next_index} is next")
        if task is not None and task.end is not None and order.index >= task.done_segments:
            # A repeat so shows a restarted client which of its segments were not executed to their end.
            return _robot_segment_refusal(task.end.code, f"the task has ended: {task.end.message}")
        if order.index < next_index:
            return _robot_segment_refusal(ErrorCode.DUPLICATE, f"{name} was taken before")
        return None

    def take(self, order: SegmentOrder, live: Collection[str]) -> None:
        """Expect the index after this one; drop the oldest tasks but those in ``live``."""
        task = self._tasks.setdefault(order.task_id, _RobotLedgerTask())
        self._tasks.move_to_end(order.task_id)
        task.next_index = order.index + 1
        for task_id in list(self._tasks):
            if len(self._tasks) <= self._max_tasks:
                break
            if task_id != order.task_id and task_id not in live:
                del self._tasks[task_id]

    def finish(self, order: SegmentOrder) -> None:
        task = self._tasks.get(order.task_id)
        if task is not None:
            task.done_segments = order.index + 1

    def end(self, task_id: str, result: SegmentResult) -> bool:
        """End a task; the first reason counts. False if it is unknown or has ended."""
        task = self._tasks.get(task_id)
        if task is None or task.end is not None:
            return False
        task.end = result
        return True

    def end_all(self, result: SegmentResult) -> None:
        for task_id in self._tasks:
            self.end(task_id, result)

    def has_ended(self, task_id: str) -> bool:
        task = self._tasks.get(task_id)
        return task is not None and task.end is not None


def _robot_segment_refusal(code: int, message: str) -> SegmentResult:
    return SegmentResult("refused", code, message)
