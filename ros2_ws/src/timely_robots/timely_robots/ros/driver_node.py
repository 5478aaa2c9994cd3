"""A robot behind ROS 2: the lifecycle node that takes segments for it, the same for every robot."""

from __future__ import annotations

import math
import os
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
from std_msgs.msg import Float32
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import Lease as LeaseMessage
from timely_interfaces.msg import RobotState, Task
from timely_interfaces.srv import AcquireLease, ConfirmSkill

from lrtrace.errors import LRTraceError
from lrtrace.profiles import load_profile
from lrtrace.robot_profile import Failsafe
from timely.core.errors import InvalidInput
from timely_robots import language
from timely_robots.driver_store import DriverStore, store_path
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import ExecutorState, SegmentExecutor
from timely_robots.failsafe import Conditions, FailsafeMonitor
from timely_robots.lease import Lease
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
    to_ros_time,
)
from timely_robots.ros.state_messages import DriverState, diagnostic_status, state_message
from timely_robots.ros.stop_service import StopService
from timely_robots.safety import Confirmation, ProximityGate, SafetyGuard
from timely_robots.segments import MotionError, SegmentOrder, SegmentResult
from timely_robots.task_watchdog import TaskWatchdog

STATE_DIR_VARIABLE = "TIMELY_STATE_DIR"
DEFAULT_STATE_DIR = "~/.local/state/timely"
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
    * Feedback with progress 0 says that execution has begun. The result reports what was *done*: the calls that
      began, when the robot moved and rested, and the value of a query.
    * Cancelling a goal stops the motion at once, whatever the robot is doing.
    * ``~/stop`` works at any time and stops all motion; then nothing moves until ``~/reset``.
    * ``state`` is published every ``state_period_s`` and at every change. A driver without it for long is lost.
    * The node listens to ``task``. When a segment is done and the next has not come, the robot rests and the state is
      HOLDING; ``/diagnostics`` says so once a second. A task without a message for ``task_silence_s`` is orphaned, by a
      dead bridge or a cut network. The robot then finishes its segment and executes no more of the task.

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
        self._stop_service: StopService | None = None
        self._halted = False
        self._store = DriverStore()
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
        self._make_safety()
        self._state_publisher = self.create_publisher(RobotState, "state", LATCHED)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_subscription(Task, "task", self._on_task, TASKS)
        self.create_subscription(LeaseMessage, "lease", self._on_lease, 10)
        self.create_subscription(Float32, "proximity", self._on_proximity, 10)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_service(AcquireLease, "~/acquire_lease", self._on_acquire_lease)
        self.create_service(ConfirmSkill, "~/confirm", self._on_confirm)
        self._stop_service = StopService(self.get_name(), self.get_namespace(), self.context, self.stop)
        self.start_automatically()

    def _make_safety(self) -> None:
        folder = str(self.value("state_dir"))
        if not folder and not self.robot.simulated:
            folder = os.environ.get(STATE_DIR_VARIABLE, DEFAULT_STATE_DIR)
        if folder:
            self._store = DriverStore(store_path(folder, self.get_namespace()))
        self._halted = False
        self._watchdog = TaskWatchdog(Task.PLANNED, Task.ENDED, float(self.value("task_silence_s")))
        self._failsafe = FailsafeMonitor(Failsafe())
        self._safety = SafetyGuard(
            self._store,
            Lease(self._store.next_epoch, float(self.value("lease_lapse_s"))),
            self._watchdog,
            self._failsafe,
            ProximityGate(float(self.value("proximity_stop_m")), float(self.value("proximity_slow_m"))),
            Confirmation(float(self.value("confirm_timeout_s"))),
            lambda: self.robot.status().battery,
        )

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
        declare(
            "state_dir",
            "",
            describe_parameter(
                f"folder of stop latch, begun tasks and lease epoch; empty: ${STATE_DIR_VARIABLE} or "
                f"{DEFAULT_STATE_DIR}, in memory for simulated robots",
                read_only=True,
            ),
        )
        declare(
            "lease_lapse_s",
            3.0,
            describe_parameter("a lease without renewal for so long lapses [s]", low=0.2, high=3600.0),
        )
        declare(
            "proximity_stop_m",
            0.0,
            describe_parameter(
                "no motion with an obstacle nearer than this [m]; 0: no gate", low=0.0, high=100.0
            ),
        )
        declare(
            "proximity_slow_m",
            0.0,
            describe_parameter("slower motion with an obstacle nearer than this [m]", low=0.0, high=100.0),
        )
        declare(
            "confirm_timeout_s",
            30.0,
            describe_parameter("longest wait for an operator's confirmation [s]", low=0.1, high=3600.0),
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
            self.robot.profile = profile = load_profile(str(self.value("profile")))
            if profile.failsafe.then not in {"hold", *self.robot.FAILSAFES}:
                raise MotionError(
                    f"failsafe: this robot cannot {profile.failsafe.then}", ErrorCode.INVALID_INPUT
                )
            self._failsafe = self._safety.failsafe = FailsafeMonitor(profile.failsafe)
            if name := str(self.value("skill_set")):
                language.robot_skill_set(name)
            self.robot.connect(float(self.value("connect_timeout_s")))
        except (LRTraceError, MotionError) as error:
            self._fault = str(error)
            self.get_logger().error(f"cannot configure: {error}")
            self.publish_state()
            return TransitionCallbackReturn.FAILURE
        self._connected = True
        if self._store.stop_reason is not None:
            self.robot.halt()
            self._halted = True
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
            PlanRunner(self.robot, self._safety),
            self.robot.clock,
            queue_limit=int(self.value("queue_limit")),
            report_every_s=float(self.value("progress_period_s")),
            name=self.get_namespace(),
            store=self._store,
        )
        self.publish_state()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End all motion and take no more segments."""
        self._end_work()
        self.publish_state()
        return super().on_deactivate(state)

    def release(self) -> None:
        """See ``ManagedNode``: end all motion, and release the robot. The service ``~/stop`` stays."""
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
            owner=goal.owner,
            epoch=goal.epoch,
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
        else:
            try:
                self._safety.admit(order)
            except MotionError as error:
                listener.finished(SegmentResult("refused", error.code, error.message))
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
        return to_ros_time(self.get_clock().now().nanoseconds * 1e-9 - ago)

    # --- Services and state ---

    def stop(self) -> None:
        """Halt the robot and latch the stop; from any thread. Raises an exception if it is not certain that it did."""
        executor, reason = self._segment_executor, "~/stop was called"
        self._halted = False
        if executor is not None:
            executor.stop(reason)
        else:
            if self._connected:
                self.robot.halt()
            self._store.set_stop(reason)
            self._store.save()
        self._halted = True
        if (ros_executor := self.executor) is not None:
            ros_executor.create_task(self.publish_state)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        try:
            self._store.clear_stop()
        except InvalidInput as error:
            response.message = str(error)
        else:
            self._halted = False
            response.success = True
            response.message = "ready" if self._segment_executor is not None else "the driver is not active"
        self.publish_state()
        return response

    def _on_acquire_lease(
        self, request: AcquireLease.Request, response: AcquireLease.Response
    ) -> AcquireLease.Response:
        lease = self._safety.lease
        try:
            epoch = lease.acquire(request.owner, time.monotonic(), take_over=request.take_over)
        except InvalidInput as error:
            epoch, response.message = None, str(error)
        response.granted = epoch is not None
        response.epoch = epoch or 0
        response.owner = lease.state(time.monotonic()).owner
        response.lapse_s = lease.lapse_s
        if epoch is None and not response.message:
            response.message = f"the lease is of {response.owner!r}" if request.owner else "owner is empty"
        if epoch is not None:
            self._drop_segments_of_others()
        self.publish_state()
        return response

    def _drop_segments_of_others(self) -> None:
        """A new lease ends the tasks of earlier owners."""
        executor = self._segment_executor
        if executor is None:
            return
        executor.end_tasks(
            lambda order: not self._safety.lease.permits(order.owner, order.epoch, time.monotonic()),
            SegmentResult("cancelled", ErrorCode.NOT_OWNER, "another client acquired the lease"),
        )

    def _on_lease(self, message: LeaseMessage) -> None:
        self._safety.lease.renew(message.owner, message.epoch, time.monotonic(), release=message.released)

    def _on_proximity(self, message: Any) -> None:
        gate, now_s = self._safety.proximity, time.monotonic()
        gate.observe(float(message.data), now_s)
        self.robot.speed_share = gate.speed_share
        if (problem := gate.problem(now_s)) and (executor := self._segment_executor) is not None:
            executor.interrupt(ErrorCode.OBSTACLE, problem)

    def _on_confirm(
        self, request: ConfirmSkill.Request, response: ConfirmSkill.Response
    ) -> ConfirmSkill.Response:
        answer = self._safety.confirmation.answer
        response.success = answer(request.task_id, request.segment, request.call, request.allow)
        response.message = "" if response.success else "this call does not wait for a confirmation"
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
            self._safety.lease.forgive(late_s)
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
            self._run_failsafe(executor, now_s)
            if problem := self._safety.proximity.problem(now_s):
                executor.interrupt(ErrorCode.OBSTACLE, problem)
        self._limit_cpu_latency()
        self.publish_state()

    def _run_failsafe(self, executor: SegmentExecutor, now_s: float) -> None:
        status, segments = self.robot.status(), executor.state()
        conditions = Conditions(
            away=status.away,
            plan_wait_s=self._segment_wait_s() or 0.0,
            bridge_lost=self._watchdog.orphaned(segments.task_id, now_s),
            lease_lapsed=self._safety.lease.state(now_s).lapsed,
            link_lost=status.link_lost,
            battery=status.battery,
        )
        action = self._failsafe.update(conditions, now_s)
        if not action:
            return
        cause = self._failsafe.cause
        if executor.act(cause, lambda motion: self.robot.failsafe(action, motion)):
            self.get_logger().warning(f"failsafe: {action}, because {cause}")
        else:
            self._failsafe.retry()

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
            stopped=self._store.stop_reason is not None,
            halted=self._halted and self._store.stop_reason is not None,
            lease=self._safety.lease.state(time.monotonic()),
            failsafe=self._failsafe.active,
            awaiting=self._safety.confirmation.awaiting,
        )

    def destroy_node(self) -> None:
        """See ``ManagedNode``; also ends the service ``~/stop``."""
        if self._stop_service is not None:
            self._stop_service.close()
            self._stop_service = None
        super().destroy_node()

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
