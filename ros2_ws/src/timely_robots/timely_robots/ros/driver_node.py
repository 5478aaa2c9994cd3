"""A robot behind ROS 2: the lifecycle node that takes segments for it, the same for every robot."""

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rclpy.context import Context
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from timely_interfaces.msg import RobotState, Task

from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import Failsafe
from timely.core.json_log import ros_task_log_fields
from timely_robots import language
from timely_robots.driver_store import DriverStore
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import SegmentExecutor
from timely_robots.failsafe import Conditions, FailsafeMonitor
from timely_robots.lease import DriverLease
from timely_robots.operators import RobotOperators
from timely_robots.robot import Robot, RobotStatus
from timely_robots.robot_names import robot_name_of
from timely_robots.ros.driver_settings import declare_ros_driver_parameters, ros_driver_store
from timely_robots.ros.json_log import ROS_LOGGER_FIELDS
from timely_robots.ros.lifecycle import ManagedRosNode
from timely_robots.ros.rclpy_utils import LATCHED_QOS, TASKS
from timely_robots.ros.safety_services import RosSafetyServices
from timely_robots.ros.segment_server import RosSegmentServer
from timely_robots.ros.state_messages import (
    RosDriverState,
    ros_driver_diagnostic_status,
    ros_driver_state_message,
)
from timely_robots.safety import Confirmation, PauseGate, ProximityGate, SafetyGuard
from timely_robots.segments import ExecutorState, MotionError, SegmentOrder, SegmentResult
from timely_robots.task_watchdog import RobotTaskWatchdog


class DriverNode(ManagedRosNode):
    """A robot as a lifecycle node: action ``execute_segment``, topic ``state``, services ``~/stop`` and ``~/reset``.

    One node a robot, in the robot's namespace, with relative names. What holds for every registered robot is tested:

    * Configure connects to the robot with a deadline. Activate begins to take segments. Deactivate and cleanup end all
      motion first. A goal for a driver that is not active is aborted with DRIVER_INACTIVE. The failsafe of the profile
      acts from configure to cleanup, so a drone that is deactivated in the air lands.
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
      dead bridge or a cut network. The robot then finishes its motion and executes no more of the task.

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
        self._safety_services: RosSafetyServices | None = None
        self._store = DriverStore()
        self._server: RosSegmentServer | None = None
        self._status = RobotStatus()
        self._session = secrets.randbits(63)
        self._connected = self._active = False
        self.on_order: Callable[[SegmentOrder, float], None] = lambda order, when_s: None
        """Called with each order and its time on the monotonic clock, seconds; set it before configuring."""
        super().__init__(name, namespace=namespace, context=context, overrides=overrides)
        robot.log = self.get_logger()
        ROS_LOGGER_FIELDS[self.get_logger().name] = {"robot": robot_name_of(self.get_namespace())}
        declare_ros_driver_parameters(self, robot)
        self.start_automatically()
        self._store = ros_driver_store(self, robot)
        self._watchdog = RobotTaskWatchdog(Task.PLANNED, Task.ENDED, float(self.value("task_silence_s")))
        self._failsafe = FailsafeMonitor(Failsafe())
        self._safety = SafetyGuard(
            self._store,
            DriverLease(self._store.next_epoch, float(self.value("lease_lapse_s"))),
            self._watchdog,
            self._failsafe,
            ProximityGate(float(self.value("proximity_stop_m")), float(self.value("proximity_slow_m"))),
            Confirmation(float(self.value("confirm_timeout_s"))),
            PauseGate(float(self.value("state_period_s"))),
            lambda: self.robot.status().battery,
            str(self.value("skill_set")),
        )
        self._state_publisher = self.create_publisher(RobotState, "state", LATCHED_QOS)
        self.create_subscription(Task, "task", self._on_task, TASKS)
        self._safety_services = RosSafetyServices(
            self,
            robot,
            self._safety,
            RobotOperators(str(self.value("principals"))),
            executor=lambda: self._segment_executor,
            active=lambda: self._active,
            is_connected=lambda: self._connected,
            on_change=self.publish_state,
        )

    @property
    def segments(self) -> ExecutorState:
        return self._segment_executor.state() if self._segment_executor is not None else ExecutorState()

    # --- Life cycle ---

    def configure(self) -> None:
        """Load the profile, connect to the robot, offer the action."""
        skill_set = str(self.value("skill_set"))
        self.robot.profile = profile = load_robot_profile(str(self.value("profile")))
        if profile.failsafe.then not in {"hold", *self.robot.FAILSAFES}:
            raise MotionError(f"failsafe: this robot cannot {profile.failsafe.then}", ErrorCode.INVALID_INPUT)
        self._failsafe = self._safety.failsafe = FailsafeMonitor(profile.failsafe)
        if skill_set:
            skills = language.robot_executor_skill_set(skill_set).skills
            if skills and not any(profile.allows(skill.name) for skill in skills):
                raise MotionError(
                    f"profile {profile.name} has no skill of the set {skill_set}", ErrorCode.INVALID_INPUT
                )
        self.robot.connect(float(self.value("connect_timeout_s")))
        self._connected = True
        self._replace_executor()
        if self._safety_services is not None:
            self._safety_services.halt_if_stopped()
        self._server = RosSegmentServer(
            self,
            skill_set,
            self.robot.clock,
            lambda: self._segment_executor if self._active else None,
            self._safety.receive,
            self.publish_state,
            self.on_order,
        )
        self._safety.pauses.restart()
        self.begin_work({self._check: float(self.value("state_period_s")), self._publish_diagnostics: 1.0})

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """See ``configure``; a fault is published."""
        done = super().on_configure(state)
        self.publish_state()
        return done

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._session = secrets.randbits(63)
        if self._segment_executor is not None:
            self._segment_executor.set_limits(
                int(self.value("queue_limit")), float(self.value("progress_period_s"))
            )
        self._active = True
        self.publish_state()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End all motion and take no more segments. The failsafe goes on."""
        self._active = False
        self._replace_executor()
        self.publish_state()
        return super().on_deactivate(state)

    def release(self) -> None:
        """See ``ManagedRosNode``: end all motion, and release the robot. The service ``~/stop`` stays."""
        self._active = False
        self._end_work()
        server, self._server = self._server, None
        if server is not None:
            server.destroy()
        if self._connected:
            self._connected = False
            try:
                self.robot.disconnect()
            except (
                Exception
            ) as error:  # of a vendor's library; the node lets go of everything else all the same
                self.get_logger().error(f"the robot could not be released: {error}")
        if server is not None:
            self.publish_state()  # the last one, which late subscribers get
        super().release()

    def destroy_node(self) -> None:
        """See ``ManagedRosNode``; also ends the service ``~/stop`` and gives the driver's memory up."""
        services, self._safety_services = self._safety_services, None
        if services is not None:
            services.close()
        super().destroy_node()
        self._store.close()

    def _replace_executor(self) -> None:
        """End all motion; a new executor is there for failsafe actions, and for segments once the driver is active."""
        self._end_work()
        self._segment_executor = SegmentExecutor(
            self.robot,
            self._safety,
            name=self.get_namespace(),
            store=self._store,
            reset_service=f"{self.get_fully_qualified_name()}/reset",
        )

    def _end_work(self) -> None:
        executor, self._segment_executor = self._segment_executor, None
        if executor is None:
            return
        if not (is_closed := executor.close()):
            self.get_logger().error("a motion did not end within 5 s of the order to stop")
        if executor.take_action_problem() or not is_closed:
            # A landing that a deactivation interrupts must be begun again.
            self._failsafe.retry()

    # --- Task, failsafe and state ---

    def _on_task(self, task: Task) -> None:
        was_waiting = self._segment_wait_s() is not None
        executor, now_s = self._segment_executor, time.monotonic()
        in_execution = executor.tasks if executor is not None else ()
        self._watchdog.observe(task.task_id, task.phase, task.segments, now_s, in_execution)
        if task.phase == Task.ENDED and executor is not None:
            # A cancellation may have been lost, or may come later.
            executor.end_tasks(
                lambda order: order.task_id == task.task_id,
                SegmentResult("cancelled", ErrorCode.SEGMENT_CANCELLED, "its task has ended"),
            )
        self._limit_cpu_latency()
        if (self._segment_wait_s() is not None) != was_waiting:
            self.publish_state()

    def _check(self) -> None:
        """End orphaned tasks and publish the state; every ``state_period_s``."""
        executor, now_s = self._segment_executor, time.monotonic()
        self._safety.check(now_s)
        if executor is not None:
            for task_id in executor.tasks:
                if self._watchdog.is_orphaned(task_id, now_s):
                    silent_s = self._watchdog.silence_s_of(task_id, now_s)
                    dropped_segments = executor.abandon(
                        task_id, f"no message of the task for {silent_s:.1f} s"
                    )
                    if dropped_segments:
                        with ros_task_log_fields(task_id):
                            self.get_logger().warning(
                                f"task {task_id}: orphaned, {dropped_segments} segments are not executed"
                            )
            self._run_failsafe(executor, now_s)
            distance_m = self._read_proximity()
            if distance_m is not None and self._safety_services is not None:
                self._safety_services.observe_proximity(distance_m)
            if problem := self._safety.proximity.problem(now_s):
                executor.interrupt(ErrorCode.OBSTACLE, problem)
        self._limit_cpu_latency()
        self.publish_state()

    def _run_failsafe(self, executor: SegmentExecutor, now_s: float) -> None:
        if problem := executor.take_action_problem():
            self.get_logger().error(f"the failsafe action failed: {problem}")
            self._failsafe.fail(now_s)
        status, segments = self._read_status(), executor.state()
        conditions = Conditions(
            away=status.away,
            plan_wait_s=self._segment_wait_s() or 0.0,
            bridge_lost=self._watchdog.is_orphaned(segments.task_id, now_s),
            idle=self._idle(now_s),
            lease_lapsed=self._safety.lease.state(now_s).lapsed,
            link_lost=status.link_lost,
            battery=status.battery,
            stopped=segments.stopped,
        )
        action = self._failsafe.update(conditions, now_s)
        if not action:
            return
        cause = self._failsafe.cause
        if executor.act(
            cause, lambda motion: self.robot.failsafe(action, motion), also_stopped=conditions.stopped
        ):
            self.get_logger().warning(f"failsafe: {action}, because {cause}")
        else:
            self._failsafe.retry()

    def _read_status(self) -> RobotStatus:
        """The robot's state. A state that cannot be read is a lost link, so that the failsafe does not depend on it."""
        try:
            self._status = self.robot.status()
        except Exception as error:  # of a vendor's library
            fault = f"its state cannot be read: {error}"
            self._status = replace(
                self._status, at_rest=False, link_lost=True, battery=math.nan, fault=fault, detail=""
            )
        return self._status

    def _read_proximity(self) -> float | None:
        try:
            return self.robot.proximity_m()
        except Exception:  # of a robot's own code; an unknown distance stops the robot
            return math.nan

    def _idle(self, now_s: float) -> bool:
        """Nothing is executed, and no task that is alive could bring a segment."""
        segments = self.segments
        return not (segments.executing or segments.queued_segments or self._watchdog.any_alive(now_s))

    def _limit_cpu_latency(self) -> None:
        # An inactive driver receives tasks, too, but executes none.
        self.cpu_latency.want(self._active and not self._idle(time.monotonic()))

    def _segment_wait_s(self) -> float | None:
        """How long the robot has waited for the next segment of a live task, seconds; None if it does not wait."""
        segments = self.segments
        if not self._active or segments.executing or segments.queued_segments or segments.stopped:
            return None
        if segments.task_over or math.isnan(segments.rested_s):
            return None
        if not self._watchdog.expects_more(segments.task_id, segments.segment, time.monotonic()):
            return None
        return max(0.0, self.robot.clock.now() - segments.rested_s)

    def _state(self) -> RosDriverState:
        return RosDriverState(
            kind=self.robot.kind,
            profile=self.robot.profile_name,
            session=self._session,
            active=self._active,
            fault=self._fault,
            executor=self.segments,
            robot=self._read_status() if self._connected else RobotStatus(),
            segment_wait_s=self._segment_wait_s(),
            stop_id=self._store.stop_id,
            halted=self._safety_services is not None and self._safety_services.halted,
            lease=self._safety.lease.state(time.monotonic()),
            failsafe=self._failsafe.active,
            awaiting=self._safety.confirmation.awaiting,
        )

    def publish_state(self) -> None:
        message = ros_driver_state_message(self._state())
        message.stamp = self.get_clock().now().to_msg()
        self._state_publisher.publish(message)

    def _publish_diagnostics(self) -> None:
        self._store.catch_up()
        name = self.get_fully_qualified_name().removeprefix("/")
        hardware_id = self.get_namespace().removeprefix("/")
        self.publish_diagnostics([ros_driver_diagnostic_status(self._state(), name, hardware_id)])
