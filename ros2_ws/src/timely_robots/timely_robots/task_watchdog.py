"""Watches the tasks that a driver's segments belong to: alive, planned to the end, ended, orphaned."""

import math
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

MAX_TASKS = 64
FRESH_SHARE = 2.0 / 3.0
"""Of the silence that orphans a task: after a pause its next announcement may take so long."""


@dataclass(slots=True)
class _WatchedRobotTask:
    phase: int
    segments: int
    seen_s: float


class RobotTaskWatchdog:
    """Keeps when each task was last announced. Times are seconds on the caller's monotonic clock.

    A task that was never announced is not watched: a test or another program may send segments without a bridge.

    Args:
        planned_phase, ended_phase: the phases of ``timely_interfaces/Task``.
        silence_s: a task without an announcement for so long is orphaned.
    """

    def __init__(self, planned_phase: int, ended_phase: int, silence_s: float) -> None:
        self._planned_phase, self._ended_phase = planned_phase, ended_phase
        self.silence_s = silence_s
        self._tasks: OrderedDict[str, _WatchedRobotTask] = OrderedDict()
        self._doubt_s = -math.inf
        """What was received before may have been sent long before."""

    def observe(
        self, task_id: str, phase: int, segments: int, now_s: float, keep: Collection[str] = ()
    ) -> None:
        """Take an announcement of the bridge; an ended task stays ended.

        Args:
            keep: tasks in execution, which others never displace.
        """
        if self.has_ended(task_id):
            return
        self._tasks[task_id] = _WatchedRobotTask(
            phase, segments, now_s if now_s >= self._doubt_s else self._doubted_s
        )
        self._tasks.move_to_end(task_id)
        excess = max(0, len(self._tasks) - MAX_TASKS)
        for oldest in [task for task in self._tasks if task not in keep][:excess]:
            del self._tasks[oldest]

    def forgive(self, seconds: float) -> None:
        """Extend every task by a time in which this process could receive nothing."""
        for task in self._tasks.values():
            task.seen_s += seconds

    def doubt(self, until_s: float) -> None:
        """This process could receive nothing, and what it receives until then may be old.

        Whether a task still has a bridge is known from its first announcement after that. Without one it is orphaned.
        """
        self._doubt_s = until_s
        for task in self._tasks.values():
            task.seen_s = self._doubted_s

    def doubtful(self, task_id: str, now_s: float) -> bool:
        """It is alive by old announcements only."""
        return self.alive(task_id, now_s) and self._tasks[task_id].seen_s < self._doubt_s

    def has_ended(self, task_id: str) -> bool:
        task = self._tasks.get(task_id)
        return task is not None and task.phase == self._ended_phase

    def alive(self, task_id: str, now_s: float) -> bool:
        """It was announced lately, and has not ended."""
        task = self._tasks.get(task_id)
        return task is not None and task.phase != self._ended_phase and not self._silent(task, now_s)

    def any_alive(self, now_s: float) -> bool:
        return any(self.alive(task_id, now_s) for task_id in self._tasks)

    def is_orphaned(self, task_id: str, now_s: float) -> bool:
        """It was announced and has not ended, and the last announcement is old."""
        task = self._tasks.get(task_id)
        return task is not None and task.phase != self._ended_phase and self._silent(task, now_s)

    def expects_more(self, task_id: str, last: int, now_s: float) -> bool:
        """It is alive, and a segment after ``last`` is still to come."""
        if not self.alive(task_id, now_s):
            return False
        task = self._tasks[task_id]
        return task.phase != self._planned_phase or last + 1 < task.segments

    def silence_s_of(self, task_id: str, now_s: float) -> float:
        """The age of its last announcement, seconds; 0 for a task that was never announced."""
        task = self._tasks.get(task_id)
        return 0.0 if task is None else now_s - task.seen_s

    @property
    def _doubted_s(self) -> float:
        """What counts as the last announcement of a task until its first one after a pause."""
        return self._doubt_s - (1.0 - FRESH_SHARE) * self.silence_s

    def _silent(self, task: _WatchedRobotTask, now_s: float) -> bool:
        return now_s - task.seen_s > self.silence_s
