"""Publishes a robot's tasks, segments and reports, for its driver and for recorders."""

import math
from typing import Any

from rclpy.lifecycle import LifecycleNode
from timely_interfaces.msg import Segment as SegmentMessage
from timely_interfaces.msg import SegmentReport, Task, TimeUtility
from timely_robots.ros.rclpy_utils import TASKS

from timely.client import Segment
from timely_bridge.outcome import TaskEnd
from timely_bridge.plan_run import BridgePlanRun

SEGMENTS_DEPTH = 50


class BridgeTaskPublisher:
    """Topics ``<robot>/task`` (the last few are latched), ``<robot>/segments`` and ``<robot>/segment_reports``.

    May be called on any thread; after ``destroy`` it publishes nothing.
    """

    def __init__(self, node: LifecycleNode, robot: str) -> None:
        self._node = node
        self._robot = robot
        self._tasks = node.create_publisher(Task, f"{robot}/task", TASKS)
        self._segments = node.create_publisher(SegmentMessage, f"{robot}/segments", SEGMENTS_DEPTH)
        self._reports = node.create_publisher(SegmentReport, f"{robot}/segment_reports", SEGMENTS_DEPTH)
        self._closed = False

    def task(self, run: BridgePlanRun, end: TaskEnd | None = None) -> None:
        goal, utility = run.goal, run.goal.utility
        phase = Task.PLANNED if run.planned else Task.PLANNING
        message = Task(
            task_id=run.task_id,
            robot=self._robot,
            phase=phase if end is None else Task.ENDED,
            segments=len(run.sent_segments),
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
        self._publish(message, end)

    def ended(self, task_id: str, end: TaskEnd) -> None:
        """Publish the end of a task of an earlier life of the bridge."""
        self._publish(Task(task_id=task_id, robot=self._robot, phase=Task.ENDED), end)

    def _publish(self, message: Task, end: TaskEnd | None) -> None:
        if end is not None:
            message.outcome, message.error_code, message.error_msg = end.outcome, end.code, end.message
            message.response, message.waiting, message.utility = end.response, end.waiting, end.utility
        message.stamp = self._stamp()
        if not self._closed:
            self._tasks.publish(message)

    def segment(self, segment: Segment) -> SegmentMessage:
        """Publish a segment that went to the driver, and return its message."""
        message = SegmentMessage(
            task_id=segment.task_id,
            index=segment.index,
            text=segment.text,
            tokens=segment.tokens,
            execution_s=segment.execution_s,
            blocking=segment.blocking,
        )
        message.stamp = self._stamp()
        if not self._closed:
            self._segments.publish(message)
        return message

    def report(self, report: SegmentReport) -> None:
        if not self._closed:
            report.stamp = self._stamp()
            self._reports.publish(report)

    def destroy(self) -> None:
        self._closed = True
        for publisher in (self._tasks, self._segments, self._reports):
            self._node.destroy_publisher(publisher)

    def _stamp(self) -> Any:
        return self._node.get_clock().now().to_msg()
