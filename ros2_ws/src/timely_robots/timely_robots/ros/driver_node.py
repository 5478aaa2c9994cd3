"""A robot behind ROS 2: the lifecycle node that takes segments for it, the same for every robot."""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.context import Context
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import RobotState, Task

from lrtrace.errors import LRTraceError
from lrtrace.profiles import load_profile
from timely_robots import language
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import ExecutorState, SegmentExecutor
from timely_robots.plan_runner import PlanRunner
from timely_robots.robot import Robot, RobotStatus
from timely_robots.ros.goal_listener import GoalListener
from timely_robots.ros.lifecycle import ManagedNode
from timely_robots.ros.rclpy_utils import (
    LATCHED,
    TASKS,
    EagerActionServer,
    describe_parameter,
    finish_goal,
    to_time,
)
from timely_robots.ros.state_messages import DriverState, diagnostic_status, state_message
from timely_robots.segments import MotionError, SegmentOrder, SegmentResult
from timely_robots.task_watchdog import TaskWatchdog

RESULT_KEPT_S = 3
"""A client has this long to fetch a goal's result; it is a field of every status message meanwhile."""
MAX_UNBOUND_GOALS = 256
"""Goals that wait for their handle; rclpy never gives one to a goal whose id it knows already."""


class DriverNode(ManagedNode):
    """A robot as a lifecycle node: action ``execute_segment``, topic ``state``, services ``~/stop`` and ``~/reset``.

    One node a robot, in the robot's namespace, with relative names. What holds for every registered robot is tested:

    * Configure connects to the robot with a deadline. Activate begins to take segments. Deactivate and cleanup end all
      motion first. A goal for a driver that is not active is aborted with DRIVER_INACTIVE.
    * A segment is checked as a whole against skill set and profile before anything moves. Each call is checked again
      before it runs, because a plan can compute arguments. A refusal has a code of the 2000 range.
    * Segments of a task are executed in order, each at most once, the next when the previous ends. They may be sent
      ahead and wait here. A failure or cancellation ends the rest of the task.
    * Feedback with progress 0 says that execution has begun. The result says what was *done*: the calls that began,
      when the robot began and when it was at rest again, and the value of a query.
    * Cancelling a goal stops the motion at once, whatever the robot is doing.
    * ``~/stop`` works at any time and stops all motion; then nothing moves until ``~/reset``.
    * ``state`` is published every ``state_period_s`` and at every change. A driver without it for long is lost.
    * The node listens to ``task``. When a segment is done and the next has not come, the robot rests and the state is
      HOLDING; ``/diagnostics`` says so once a second. A task without a message for ``task_silence_s`` is orphaned (the
      bridge died, the network is cut): the robot finishes its segment and executes no more of the task.

    The robot's settings are parameters of the node. What leaves through ROS is in metres, radians and seconds.

    Args:
        robot: what moves.
        namespace: the robot's name.
        overrides: parameter values.
    """

    def __init__(
        self,
        robot: Robot,
        name: str = "driver",
        *,
        namespace: str = "",
        context: Context | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        # Before anything can fail: a node whose constructor fails is destroyed, too.
        self.robot = robot
        self._segment_executor: SegmentExecutor | None = None
        self._server: ActionServer | None = None
        self._unbound: OrderedDict[int, tuple[Any, GoalListener]] = OrderedDict()
        self._fault = ""
        self._session = secrets.randbits(63)
        self._connected = False
        self._checked_s = time.monotonic()
        self.on_order: Callable[[SegmentOrder, float], None] | None = None
        """Called with each order and its time on the monotonic clock, seconds: for measurements."""
        super().__init__(name, namespace=namespace, context=context, overrides=overrides)
        robot.log = self.get_logger()
        self._declare()
        self._watchdog = TaskWatchdog(Task.PLANNED, Task.ENDED, float(self.value("task_silence_s")))
        self._state_publisher = self.create_publisher(RobotState, "state", LATCHED)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_subscription(Task, "task", self._on_task, TASKS)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.start_automatically()

    def _declare(self) -> None:
        declare: Callable[..., Any] = self.declare_parameter
        declare("profile", "", describe_parameter("robot profile: a name or a YAML file", read_only=True))
        declare("skill_set", "", describe_parameter("plan language of goals without one", read_only=True))
        declare("state_period_s", 0.5, describe_parameter("between two states [s]", low=0.05, high=2.0))
        declare(
            "progress_period_s",
            0.5,
            describe_parameter("least time between two progress reports [s]", low=0.05, high=60.0),
        )
        declare(
            "task_silence_s",
            3.0,
            describe_parameter("a task without a message for so long is orphaned [s]", low=0.2, high=3600.0),
        )
        declare("queue_limit", 64, describe_parameter("most segments that wait", low=1, high=10_000))
        declare(
            "connect_timeout_s",
            10.0,
            describe_parameter("deadline of connecting to the robot [s]", low=0.1, high=300.0),
        )
        for setting in self.robot.SETTINGS:
            declare(
                setting.name,
                self.robot.settings[setting.name],
                describe_parameter(setting.text, read_only=setting.fixed, low=setting.low, high=setting.high),
            )
            self.robot.settings[setting.name] = self._setting(setting.name)
        self.add_post_set_parameters_callback(self._on_parameters)

    def _setting(self, name: str) -> Any:
        value = self.value(name)
        return value if isinstance(value, (bool, int, float, str)) else list(value)

    def _on_parameters(self, parameters: list[Any]) -> None:
        for parameter in parameters:
            if parameter.name in self.robot.settings:
                self.robot.settings[parameter.name] = self._setting(parameter.name)

    @property
    def segments(self) -> ExecutorState:
        """What the driver is executing."""
        return self._segment_executor.state() if self._segment_executor is not None else ExecutorState()

    # --- Life cycle ---

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the profile, connect to the robot, offer the action."""
        self._fault = ""
        try:
            self.robot.profile = load_profile(str(self.value("profile")))
            if name := str(self.value("skill_set")):
                language.skill_set(name)
            self.robot.connect(float(self.value("connect_timeout_s")))
        except (LRTraceError, MotionError) as error:
            self._fault = str(error)
            self.get_logger().error(f"cannot configure: {error}")
            self.publish_state()
            return TransitionCallbackReturn.FAILURE
        self._connected = True
        self._server = EagerActionServer(
            self,
            ExecuteSegment,
            "execute_segment",
            on_goal=self._on_goal,
            on_accepted=self._on_accepted,
            on_cancel=self._on_cancel,
            result_timeout=RESULT_KEPT_S,
        )
        self.begin_work({self._check: float(self.value("state_period_s")), self._publish_diagnostics: 1.0})
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin to take segments."""
        self._session = secrets.randbits(63)
        self._segment_executor = SegmentExecutor(
            PlanRunner(self.robot),
            self.robot.clock,
            queue_limit=int(self.value("queue_limit")),
            report_every_s=float(self.value("progress_period_s")),
            name=self.get_namespace(),
        )
        self.publish_state()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End all motion and take no more segments."""
        self._end_work()
        self.publish_state()
        return super().on_deactivate(state)

    def release(self) -> None:
        """See ``ManagedNode``: end all motion, and release the robot."""
        self._end_work()
        if self._connected:
            self._connected = False
            self.robot.disconnect()
        if self._server is not None:
            self._server.destroy()
            self._server = None
        super().release()

    def _end_work(self) -> None:
        executor, self._segment_executor = self._segment_executor, None
        if executor is not None and not executor.close():
            self.get_logger().error("a motion did not end within 5 s of the order to stop")

    # --- Goals ---

    def _on_goal(self, goal: Any) -> None:
        """Queue the segment at once: rclpy answers the goal after this, and gives its handle last."""
        order = SegmentOrder(
            task_id=goal.task_id,
            index=goal.index,
            text=goal.text,
            skill_set=goal.skill_set or str(self.value("skill_set")),
            execution_s=goal.execution_s if math.isfinite(goal.execution_s) else 0.0,
            blocking=goal.blocking,
        )
        if self.on_order is not None:
            self.on_order(order, time.monotonic())
        listener = GoalListener(self, order)
        self._unbound[id(goal)] = (goal, listener)
        while len(self._unbound) > MAX_UNBOUND_GOALS:
            self._unbound.popitem(last=False)
        executor = self._segment_executor
        if executor is None:
            listener.finished(SegmentResult("refused", ErrorCode.DRIVER_INACTIVE, "the driver is not active"))
        elif self._watchdog.ended(order.task_id):
            listener.finished(SegmentResult("refused", ErrorCode.SEGMENT_CANCELLED, "its task has ended"))
        else:
            executor.submit(order, listener)

    def _on_accepted(self, handle: ServerGoalHandle) -> None:
        _, listener = self._unbound.pop(id(handle.request), (None, None))
        if listener is None:
            self.get_logger().error("rclpy accepted a goal that was never taken")
            handle.abort()
            return
        listener.bind(handle)

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        executor = self._segment_executor
        if executor is not None:
            # Later: the goal turns "canceling" after this callback, and its end must come after that.
            self.executor.create_task(executor.cancel, handle.request.task_id, handle.request.index)
        return CancelResponse.ACCEPT

    def finish(self, handle: ServerGoalHandle, result: SegmentResult) -> None:
        """Give a goal its result; on the executor's thread."""
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
        server = self._server
        if server is None:
            return
        ends = {"done": "succeeded", "cancelled": "canceled"}
        finish_goal(server, handle, ends.get(result.outcome, "aborted"), message)
        if not self.segments.executing:
            # Otherwise the start of the next segment has just published it.
            self.publish_state()

    def _stamp(self, when_s: float) -> Any:
        """ROS time of a moment on the robot's clock."""
        ago = self.robot.clock.now() - when_s
        return to_time(self.get_clock().now().nanoseconds * 1e-9 - ago)

    # --- Services and state ---

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        executor = self._segment_executor
        if executor is not None:
            executor.stop("~/stop was called")
        elif self._connected:
            self.robot.halt()
        response.success = True
        response.message = "stopped; call ~/reset to go on" if executor is not None else "nothing to stop"
        self.publish_state()
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        executor = self._segment_executor
        if executor is not None:
            executor.reset()
        response.success = executor is not None
        response.message = "ready" if executor is not None else "the driver is not active"
        self.publish_state()
        return response

    def _on_task(self, task: Task) -> None:
        waited = self._segment_wait_s() is not None
        self._watchdog.observe(task.task_id, task.phase, task.segments, time.monotonic())
        self._limit_cpu_latency()
        if (self._segment_wait_s() is not None) != waited:
            self.publish_state()

    def _check(self) -> None:
        """End orphaned tasks and publish the state; every ``state_period_s``."""
        executor, now_s = self._segment_executor, time.monotonic()
        period_s = float(self.value("state_period_s"))
        if (late_s := now_s - self._checked_s - period_s) > period_s:
            # This process did not run, so it could not receive messages either.
            self._watchdog.forgive(late_s)
        self._checked_s = now_s
        if executor is not None:
            for task_id in executor.tasks:
                if self._watchdog.orphaned(task_id, now_s):
                    silent_s = self._watchdog.silence_s_of(task_id, now_s)
                    dropped = executor.abandon(task_id, f"no message of the task for {silent_s:.1f} s")
                    if dropped:
                        self.get_logger().warning(
                            f"task {task_id}: orphaned, {dropped} segments are not executed"
                        )
        self._limit_cpu_latency()
        self.publish_state()

    def _limit_cpu_latency(self) -> None:
        # An inactive driver receives tasks, too, but executes none, and has no timer that would end the limit.
        active, segments = self._segment_executor is not None, self.segments
        busy = segments.executing or segments.queued > 0 or self._watchdog.any_alive(time.monotonic())
        self.cpu_latency.want(active and busy)

    def _segment_wait_s(self) -> float | None:
        """How long the robot has waited for the next segment of a live task, seconds; None if it does not wait."""
        segments = self.segments
        if self._segment_executor is None or segments.executing or segments.queued or segments.stopped:
            return None
        if segments.task_over or math.isnan(segments.rested_s):
            return None
        if not self._watchdog.expects_more(segments.task_id, segments.segment, time.monotonic()):
            return None
        return max(0.0, self.robot.clock.now() - segments.rested_s)

    def _state(self) -> DriverState:
        return DriverState(
            kind=self.robot.kind,
            profile=self.robot.profile_name,
            session=self._session,
            active=self._segment_executor is not None,
            fault=self._fault,
            executor=self.segments,
            robot=self.robot.status() if self._connected else RobotStatus(),
            segment_wait_s=self._segment_wait_s(),
        )

    def publish_state(self) -> None:
        """Publish ``state`` now."""
        message = state_message(self._state())
        message.stamp = self.get_clock().now().to_msg()
        self._state_publisher.publish(message)

    def _publish_diagnostics(self) -> None:
        name = self.get_fully_qualified_name().removeprefix("/")
        status = diagnostic_status(self._state(), name, self.get_namespace().removeprefix("/"))
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)
