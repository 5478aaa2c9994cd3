"""The action ``execute_segment``: a goal becomes a segment in the executor's queue; its end becomes the result.

Segments are executed on the motion thread. What happens to them is brought to their goals on the executor's thread.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rclpy.action import CancelResponse
from rclpy.action.server import ServerGoalHandle
from timely_interfaces.action import ExecuteSegment

from timely.core.json_log import ros_task_log_fields
from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import SegmentExecutor
from timely_robots.ros.actions import (
    EagerRosActionServer,
    destroy_ros_action,
    finish_ros_goal,
    mark_ros_goal_executing,
)
from timely_robots.ros.executor_calls import RosExecutorCalls
from timely_robots.ros.rclpy_utils import to_ros_time
from timely_robots.segments import MotionError, SegmentOrder, SegmentResult

RESULT_KEPT_S = 3
"""A client has this long to fetch a goal's result; it is a field of every status message meanwhile."""
MAX_UNBOUND_GOALS = 256
"""Goals that wait for their handle; rclpy never gives one to a goal whose id it knows already."""
GOAL_STATES = {"done": "succeeded", "cancelled": "canceled"}
"""Outcome -> state of the ROS 2 goal; all others are aborted."""


class RosSegmentServer:
    """The action server of one driver. Made and destroyed on the executor's thread.

    Args:
        node: the driver node; its executor runs everything here.
        skill_set: of goals that name none.
        clock: the robot's time.
        executor: the segment executor now; None while the driver is inactive.
        admit: raises MotionError if the sender may not send segments.
        on_change: is called when the driver's state has changed.
        on_order: is called with each order and its time on the monotonic clock, seconds.
    """

    def __init__(
        self,
        node: Any,
        skill_set: str,
        clock: RobotClock,
        executor: Callable[[], SegmentExecutor | None],
        admit: Callable[[SegmentOrder], None],
        on_change: Callable[[], None],
        on_order: Callable[[SegmentOrder, float], None],
    ) -> None:
        self._node, self._skill_set, self._clock = node, skill_set, clock
        self._segment_executor, self._admit, self.on_change, self._on_order = (
            executor,
            admit,
            on_change,
            on_order,
        )
        calls = RosExecutorCalls(node)
        self._calls, self.call_soon = calls, calls.soon
        self._unbound: OrderedDict[int, tuple[Any, RosGoalListener]] = OrderedDict()
        self._server: EagerRosActionServer | None = EagerRosActionServer(
            node,
            ExecuteSegment,
            "execute_segment",
            on_goal=self._on_goal,
            on_accepted=self._on_accepted,
            on_cancel=self._on_cancel,
            result_timeout=RESULT_KEPT_S,
        )

    def destroy(self) -> None:
        """Send the results that are there, and offer the action no longer."""
        self._calls.run_all()
        server, self._server = self._server, None
        if server is not None:
            destroy_ros_action(server)

    def _on_goal(self, goal: Any) -> None:
        """Queue the segment at once: rclpy answers the goal after this, and gives its handle last."""
        order = SegmentOrder(
            task_id=goal.task_id,
            index=goal.index,
            text=goal.text,
            skill_set=goal.skill_set or self._skill_set,
            execution_s=goal.execution_s if math.isfinite(goal.execution_s) else 0.0,
            blocking=goal.blocking,
            owner=goal.owner,
            epoch=goal.epoch,
            skill_set_fingerprint=goal.skill_set_fingerprint,
        )
        self._on_order(order, time.monotonic())
        listener = RosGoalListener(self, order)
        self._unbound[id(goal)] = (goal, listener)
        while len(self._unbound) > MAX_UNBOUND_GOALS:
            self._unbound.popitem(last=False)
        executor = self._segment_executor()
        if executor is None:
            listener.on_end(SegmentResult("refused", ErrorCode.DRIVER_INACTIVE, "the driver is not active"))
            return
        try:
            self._admit(order)
        except MotionError as error:
            listener.on_end(SegmentResult("refused", error.code, error.message))
        else:
            executor.submit(order, listener)

    def _on_accepted(self, handle: ServerGoalHandle) -> None:
        _, listener = self._unbound.pop(id(handle.request), (None, None))
        if listener is None:
            self._node.get_logger().error("rclpy accepted a goal that was never taken")
            handle.abort()
            return
        listener.bind(handle)

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        executor = self._segment_executor()
        if executor is not None:
            # Later: the goal turns "canceling" after this callback, and its end must come after that.
            self.call_soon(executor.cancel, handle.request.task_id, handle.request.index)
        return CancelResponse.ACCEPT

    def finish(self, handle: ServerGoalHandle, result: SegmentResult) -> None:
        message = ExecuteSegment.Result(
            outcome=result.outcome,
            error_code=int(result.code),
            error_msg=result.message,
            executed=result.executed,
            start=self._stamp(result.start_s),
            end=self._stamp(result.end_s),
            elapsed_s=result.elapsed_s,
            has_value=result.value is not None,
            value=result.value or "",
        )
        if self._server is not None:
            finish_ros_goal(self._server, handle, GOAL_STATES.get(result.outcome, "aborted"), message)
        if result.outcome != "done":
            order = handle.request
            with ros_task_log_fields(order.task_id, segment=order.index):
                self._node.get_logger().info(
                    f"task {order.task_id}: segment {order.index} {result.outcome}: {result.message}"
                )
        if self._server is None:
            return
        executor = self._segment_executor()
        if executor is None or not executor.state().executing:
            # Otherwise the start of the next segment has just published it.
            self.on_change()

    def _stamp(self, when_s: float) -> Any:
        """ROS time of a moment on the robot's clock."""
        ago_s = self._clock.now() - when_s
        return to_ros_time(self._node.get_clock().now().nanoseconds * 1e-9 - ago_s)


class RosGoalListener:
    """The ``SegmentListener`` of one goal. Calls wait until the goal has its handle."""

    def __init__(self, server: RosSegmentServer, order: SegmentOrder) -> None:
        self._server = server
        self._order = order
        self._handle: ServerGoalHandle | None = None
        self._waiting: list[Callable[[ServerGoalHandle], None]] = []

    def bind(self, handle: ServerGoalHandle) -> None:
        """Give the goal its handle; on the executor's thread."""
        self._handle = handle
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(handle)

    def on_start(self) -> None:
        self._server.call_soon(self._run, self._begin)

    def on_progress(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        self._server.call_soon(
            self._run, lambda handle: _publish_ros_feedback(handle, fraction, elapsed_s, remaining_s)
        )

    def on_end(self, result: SegmentResult) -> None:
        self._server.call_soon(self._run, lambda handle: self._server.finish(handle, result))

    def _run(self, call: Callable[[ServerGoalHandle], None]) -> None:
        if self._handle is None:
            self._waiting.append(call)
        else:
            call(self._handle)

    def _begin(self, handle: ServerGoalHandle) -> None:
        mark_ros_goal_executing(handle)
        _publish_ros_feedback(handle, 0.0, 0.0, self._order.execution_s)
        # After the goals of other robots in this process that may have come meanwhile.
        self._server.call_soon(self._server.on_change)


def _publish_ros_feedback(
    handle: ServerGoalHandle, fraction: float, elapsed_s: float, remaining_s: float
) -> None:
    if handle.is_active:
        handle.publish_feedback(
            ExecuteSegment.Feedback(progress=fraction, elapsed_s=elapsed_s, remaining_s=remaining_s)
        )
