"""Tells everybody of a robot's tasks and segments: its driver, which executes only for the living, and recorders."""

from __future__ import annotations

import math
from typing import Any

from rclpy.lifecycle import LifecycleNode
from timely_interfaces.msg import Segment, Task, TimeUtility
from timely_robots.ros.rclpy_utils import TASKS

from timely_bridge.plan_run import TaskEnd, TaskRun

SEGMENTS_DEPTH = 50


class Herald:
    """Topics ``<robot>/task`` (the last few are kept for who comes late) and ``<robot>/segments``.

    May be called on any thread; a publisher that is gone is nobody's business any more.
    """

    def __init__(self, node: LifecycleNode, robot: str) -> None:
        self._node = node
        self._robot = robot
        self._tasks = node.create_publisher(Task, f"{robot}/task", TASKS)
        self._segments = node.create_publisher(Segment, f"{robot}/segments", SEGMENTS_DEPTH)
        self._closed = False

    def task(self, run: TaskRun, end: TaskEnd | None = None) -> None:
        """How a task stands; ``end`` when it is over."""
        if self._closed:
            return
        goal, utility = run.goal, run.goal.utility
        phase = Task.PLANNED if run.planned else Task.PLANNING
        message = Task(
            task_id=run.task_id,
            robot=self._robot,
            phase=phase if end is None else Task.ENDED,
            segments=len(run.sent),
            task=goal.task,
            scene=goal.scene,
            skill_set=goal.skill_set,
            tuf=TimeUtility(ert_s=utility.ert_s, alpha=utility.alpha, beta=utility.beta),
            agent=goal.agent,
            app=goal.app or "",
            replaces=run.replaces.task_id if run.replaces is not None else "",
            response=math.nan,
            waiting=math.nan,
            utility=math.nan,
        )
        if end is not None:
            message.outcome, message.error_code, message.error_msg = end.outcome, end.code, end.message
            message.response, message.waiting, message.utility = end.response, end.waiting, end.utility
        message.stamp = self._stamp()
        self._tasks.publish(message)

    def segment(self, segment: Segment) -> None:
        """A segment that went to the driver."""
        if not self._closed:
            self._segments.publish(segment)

    def destroy(self) -> None:
        """Fall silent."""
        self._closed = True
        self._node.destroy_publisher(self._tasks)
        self._node.destroy_publisher(self._segments)

    def _stamp(self) -> Any:
        return self._node.get_clock().now().to_msg()
