"""Brings what happens to a segment from the motion thread to its ROS 2 goal, on the executor's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rclpy.action.server import ServerGoalHandle
from timely_interfaces.action import ExecuteSegment

from timely_robots.ros.rclpy_utils import mark_executing
from timely_robots.segments import SegmentOrder, SegmentResult


class GoalOwner(Protocol):
    """The node whose goals these are."""

    @property
    def executor(self) -> Any: ...
    def finish(self, handle: ServerGoalHandle, result: SegmentResult) -> None: ...
    def publish_state(self) -> None: ...


class GoalListener:
    """The ``SegmentListener`` of one goal. Calls wait until the goal has its handle."""

    def __init__(self, owner: GoalOwner, order: SegmentOrder) -> None:
        self._owner = owner
        self._order = order
        self._handle: ServerGoalHandle | None = None
        self._waiting: list[Callable[[ServerGoalHandle], None]] = []

    def bind(self, handle: ServerGoalHandle) -> None:
        """Give the goal its handle; on the executor's thread."""
        self._handle = handle
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(handle)

    def started(self) -> None:
        """See ``SegmentListener``."""
        self._soon(self._begin)

    def progressed(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        """See ``SegmentListener``."""
        self._soon(lambda handle: _feedback(handle, fraction, elapsed_s, remaining_s))

    def finished(self, result: SegmentResult) -> None:
        """See ``SegmentListener``."""
        self._soon(lambda handle: self._owner.finish(handle, result))

    def _soon(self, call: Callable[[ServerGoalHandle], None]) -> None:
        executor = self._owner.executor
        if executor is not None:
            executor.create_task(self._run, call)

    def _run(self, call: Callable[[ServerGoalHandle], None]) -> None:
        if self._handle is None:
            self._waiting.append(call)
        else:
            call(self._handle)

    def _begin(self, handle: ServerGoalHandle) -> None:
        mark_executing(handle)
        _feedback(handle, 0.0, 0.0, self._order.execution_s)
        # After the goals of other robots in this process that may have come meanwhile.
        if (executor := self._owner.executor) is not None:
            executor.create_task(self._owner.publish_state)


def _feedback(handle: ServerGoalHandle, fraction: float, elapsed_s: float, remaining_s: float) -> None:
    if handle.is_active:
        handle.publish_feedback(
            ExecuteSegment.Feedback(progress=fraction, elapsed_s=elapsed_s, remaining_s=remaining_s)
        )
