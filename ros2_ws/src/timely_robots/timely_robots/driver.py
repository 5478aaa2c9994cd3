"""The base class of all robot drivers: the ROS 2 side of executing segments, the same for every robot."""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import Pose
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.context import Context
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import ErrorCode, RobotState, Task

from lrtrace.errors import LRTraceError
from lrtrace.profiles import load_profile
from lrtrace.robot_profile import RobotProfile
from timely.core import cpu_latency
from timely_robots import hand, language
from timely_robots.clock import Pacer, SystemPacer
from timely_robots.execution import (
    Motion,
    MotionError,
    SegmentDone,
    SegmentExecutor,
    SegmentOrder,
    SkillCall,
    Snapshot,
)
from timely_robots.language import Interpreter, Returned
from timely_robots.ros.rclpy_utils import (
    LATCHED,
    TASKS,
    EagerActionServer,
    described,
    finish_goal,
    mark_executing,
    to_time,
)
from timely_robots.task_watchdog import Lifeline

RESULT_KEPT_S = 3
"""Results wait so long for whoever asks."""

LOW_BATTERY = 0.2
HELD_LONG_S = 1.0
"""A robot that has held for so long is worth a warning."""

MOST_ACCEPTING = 256
REMEMBERED_TASKS = 64
"""Tasks whose variables and open blocks are kept."""


@dataclass(frozen=True, slots=True)
class Sensed:
    """What a robot knows of itself, in SI units: position in metres, quaternion (x, y, z, w); battery 0..1 or NaN.

    ``holding`` is what its gripper holds, by the name that plans have for it; the next plan is told.
    """

    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    orientation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    battery: float = math.nan
    detail: str = ""
    holding: str = ""


class RobotDriver(LifecycleNode):
    """A robot as a lifecycle node: action ``execute_segment``, topic ``state``, services ``~/stop`` and ``~/reset``.

    One driver a robot, in the robot's namespace, with relative names. What holds for every driver, and is tested for
    every registered one (``timely_robots.registry``):

    * configure connects to the robot with a deadline; activate begins to take segments; deactivate and cleanup end all
      motion first. A goal for a driver that is not active is aborted with DRIVER_INACTIVE.
    * A segment is checked as a whole against skill set and profile before anything moves, and each call again before it
      runs, because a plan can compute arguments. What must not run is aborted with a code of the 2000 range.
    * Segments of a task are executed in order, each at most once, the next the moment the previous is done; they may
      be sent ahead and wait here. A failure or cancellation ends the rest of the task.
    * Feedback with progress 0 says that execution has begun. The result says what was *done*: the calls that began,
      when the robot began and when it was at rest again, the value a query returned.
    * Cancelling a goal stops the motion at once, whatever the robot is doing.
    * ``~/stop`` works at any time and stops all motion; then nothing moves until ``~/reset``.
    * ``state`` is published every ``state_period_s`` and at every change; whoever misses it for long may take the
      driver for dead.
    * It listens to ``task``. When a segment is done and the next of its task has not come, the robot rests and says
      HOLDING; ``/diagnostics`` says so, too, once a second. A task that nobody has spoken of for ``task_silence_s``
      (the bridge died, the network is cut) is orphaned: the robot finishes the segment it is at and executes no more
      of it.

    A new robot overrides ``connect``, ``disconnect``, ``perform``, ``halt`` and ``sense``, declares its own parameters
    in ``declare``, and is entered in ``timely_robots.registry``. Those five know nothing of ROS.
    Arguments of calls come in the units of the robot's profile (cm and degrees for a Tello); what leaves through ROS is
    in metres, radians and seconds.

    Args:
        name: of the node, by convention ``driver``.
        namespace: the robot's name.
        overrides: parameter values.
        pacer: time; virtual in tests.
    """

    kind: ClassVar[str] = ""
    """What the registry calls it."""

    def __init__(
        self,
        name: str = "driver",
        *,
        namespace: str = "",
        context: Context | None = None,
        overrides: dict[str, Any] | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        super().__init__(
            name,
            namespace=namespace,
            context=context,
            parameter_overrides=[Parameter(key, value=value) for key, value in (overrides or {}).items()],
        )
        self.pacer: Pacer = pacer or SystemPacer()
        self.on_order: Callable[[SegmentOrder, float], None] | None = None
        """Is told of each order and when it came (seconds on the monotonic clock): for measurements."""
        # Before anything can fail: a node that is not finished is destroyed, too.
        self._profile: RobotProfile | None = None
        self._work: SegmentExecutor | None = None
        self._server: ActionServer | None = None
        self._interpreters: OrderedDict[str, Interpreter] = OrderedDict()
        self._motion: tuple[Motion, list[str]] | None = None
        self._accepting: OrderedDict[int, tuple[Any, _GoalListener]] = OrderedDict()
        self._fault = ""
        self._session = secrets.randbits(63)
        self._connected = False
        self._timers_of_work: list[Any] = []
        self._looked_s = time.monotonic()
        self._wakeful = cpu_latency.Wakeful()
        self.declare_parameter(
            "profile", "", described("robot profile: a name or a YAML file", read_only=True)
        )
        self.declare_parameter(
            "skill_set", "", described("plan language of goals that name none", read_only=True)
        )
        self.declare_parameter(
            "state_period_s", 0.5, described("how often the state is published [s]", low=0.05, high=2.0)
        )
        self.declare_parameter(
            "progress_period_s",
            0.5,
            described("at most one progress report in so long [s]", low=0.05, high=60.0),
        )
        self.declare_parameter(
            "task_silence_s",
            3.0,
            described("a task nobody speaks of for so long is executed no further [s]", low=0.2, high=3600.0),
        )
        self.declare_parameter("queue_limit", 64, described("most segments that wait", low=1, high=10_000))
        self.declare_parameter(
            "connect_timeout_s",
            10.0,
            described("deadline of connecting to the robot [s]", low=0.1, high=300.0),
        )
        self.declare_parameter(
            "autostart", False, described("configure and activate without being asked", read_only=True)
        )
        self.declare_parameter(
            "wake_latency_us",
            cpu_latency.AS_THEY_LIKE,
            described(cpu_latency.MEANING, low=cpu_latency.AS_THEY_LIKE, high=cpu_latency.LONGEST_US),
        )
        self.declare()
        self._lifeline = Lifeline(Task.PLANNED, Task.ENDED, float(self.get_parameter("task_silence_s").value))
        self._state_publisher = self.create_publisher(RobotState, "state", LATCHED)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_subscription(Task, "task", self._on_task, TASKS)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self._autostart: Any = None
        if self.get_parameter("autostart").value:
            self._autostart = self.create_timer(0.0, self._start_by_itself)

    # --- What a robot overrides ---

    def declare(self) -> None:
        """Declare the parameters of this kind of robot."""

    def connect(self, timeout_s: float) -> None:
        """Connect to the robot within ``timeout_s``; raises MotionError (CONNECTION_LOST) if that fails."""

    def disconnect(self) -> None:
        """Let go of the robot; safe to call twice, and when never connected."""

    def perform(self, call: SkillCall, motion: Motion) -> Returned:
        """Execute one call and return when the robot is at rest; the value of a query, None for a motion.

        On the motion thread, one at a time. Waits only through ``motion.sleep``, or looks at ``motion.check()`` often
        enough to end within 50 ms of a cancellation. Raises MotionError if the robot did not do it.
        """
        raise NotImplementedError

    def halt(self) -> None:
        """Stop any motion now: from any thread, at any time, as often as wanted, and without waiting."""

    def sense(self) -> Sensed:
        """The robot's state as last known; must not block."""
        return Sensed()

    # --- For those that override ---

    @property
    def profile(self) -> RobotProfile:
        """The robot's limits and execution times; there once the node is configured."""
        if self._profile is None:
            raise MotionError("the driver is not configured", ErrorCode.DRIVER_INACTIVE)
        return self._profile

    # --- Robot, as the executor sees it ---

    def check(self, order: SegmentOrder) -> None:
        """See ``execution.Robot``."""
        language.check(order, self.profile)

    def execute(self, motion: Motion, executed: list[str]) -> str | None:
        """See ``execution.Robot``."""
        order = motion.order
        self._motion = (motion, executed)
        try:
            if order.index == 0:
                self._interpreters[order.task_id] = language.interpreter(order.skill_set, self._perform)
                while len(self._interpreters) > REMEMBERED_TASKS:
                    self._interpreters.popitem(last=False)
            plan = self._interpreters.get(order.task_id)
            if plan is None:
                raise MotionError(f"task {order.task_id!r} is too old to go on with", ErrorCode.OUT_OF_ORDER)
            value = plan.run(order.text)
        finally:
            self._motion = None
        return None if value is None else str(value)

    def _perform(self, call: SkillCall) -> Returned:
        if self._motion is None:
            raise MotionError("no segment is being executed", ErrorCode.DRIVER_INTERNAL)
        motion, executed = self._motion
        motion.check()
        call = language.approve(call, language.skill_set(motion.order.skill_set), self.profile)
        executed.append(call.text)
        return self.perform(call, motion)

    # --- Life cycle ---

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the profile, connect to the robot, offer the action."""
        self._fault = ""
        try:
            self._profile = load_profile(str(self.get_parameter("profile").value))
            if name := str(self.get_parameter("skill_set").value):
                language.skill_set(name)
            self.connect(float(self.get_parameter("connect_timeout_s").value))
        except (LRTraceError, MotionError) as error:
            self._fault = str(error)
            self.get_logger().error(f"cannot configure: {error}")
            self._publish_state()
            return TransitionCallbackReturn.FAILURE
        self._connected = True
        self._wakeful = cpu_latency.Wakeful(int(self.get_parameter(cpu_latency.PARAMETER).value))
        if self._wakeful.problem:
            self.get_logger().warning(f"{cpu_latency.PARAMETER}: {self._wakeful.problem}")
        self._server = EagerActionServer(
            self,
            ExecuteSegment,
            "execute_segment",
            on_goal=self._on_goal,
            on_accepted=self._on_accepted,
            on_cancel=self._on_cancel,
            # Status messages name every goal that is kept; a bridge fetches results at once.
            result_timeout=RESULT_KEPT_S,
        )
        self._timers_of_work = [
            self.create_timer(float(self.get_parameter("state_period_s").value), self._look),
            self.create_timer(1.0, self._publish_diagnostics),
        ]
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin to take segments."""
        self._session = secrets.randbits(63)
        self._work = SegmentExecutor(
            self,
            self.pacer,
            queue_limit=int(self.get_parameter("queue_limit").value),
            report_every_s=float(self.get_parameter("progress_period_s").value),
            name=self.get_namespace(),
        )
        self._publish_state()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End all motion and take no more segments."""
        self._end_work()
        self._publish_state()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let go of the robot."""
        self._release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End all motion and let go of the robot."""
        self._release()
        return super().on_shutdown(state)

    def destroy_node(self) -> None:
        """As ``on_shutdown``, for a node that nobody shut down."""
        self._release()
        super().destroy_node()

    def _end_work(self) -> None:
        work, self._work = self._work, None
        if work is not None and not work.close():
            self.get_logger().error("a motion did not end within 5 s of the order to stop")
        self._interpreters.clear()

    def _release(self) -> None:
        self._end_work()
        if self._connected:
            self._connected = False
            self.disconnect()
        if self._server is not None:
            self._server.destroy()
            self._server = None
        while self._timers_of_work:
            self.destroy_timer(self._timers_of_work.pop())
        self._wakeful.want(False)

    def _start_by_itself(self) -> None:
        self.destroy_timer(self._autostart)
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    # --- Goals ---

    def _on_goal(self, goal: Any) -> None:
        """Begin at once: rclpy answers and announces the goal only after this, and gives its handle last of all."""
        order = SegmentOrder(
            task_id=goal.task_id,
            index=goal.index,
            text=goal.text,
            skill_set=goal.skill_set or str(self.get_parameter("skill_set").value),
            execution_s=goal.execution_s if math.isfinite(goal.execution_s) else 0.0,
            blocking=goal.blocking,
        )
        if self.on_order is not None:
            self.on_order(order, time.monotonic())
        listener = _GoalListener(self, order)
        self._accepting[id(goal)] = (goal, listener)
        while len(self._accepting) > MOST_ACCEPTING:
            # rclpy refused it, because it knew one of that name: there is nobody to answer.
            self._accepting.popitem(last=False)
        work = self._work
        if work is None:
            listener.finished(SegmentDone("refused", ErrorCode.DRIVER_INACTIVE, "the driver is not active"))
        elif self._lifeline.ended(order.task_id):
            listener.finished(SegmentDone("refused", ErrorCode.SEGMENT_CANCELLED, "its task has ended"))
        else:
            work.submit(order, listener)

    def _on_accepted(self, handle: ServerGoalHandle) -> None:
        _, listener = self._accepting.pop(id(handle.request), (None, None))
        if listener is None:
            self.get_logger().error("rclpy accepted a goal that was never taken")
            handle.abort()
            return
        listener.bind(handle)

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        work = self._work
        if work is not None:
            # Not from here: the goal turns "canceling" only after this callback, and its end must come after that.
            self.executor.create_task(work.cancel, handle.request.task_id, handle.request.index)
        return CancelResponse.ACCEPT

    def _finish(self, handle: ServerGoalHandle, done: SegmentDone) -> None:
        result = ExecuteSegment.Result(
            outcome=done.outcome,
            error_code=int(done.code),
            error_msg=done.message,
            executed=done.executed,
            start=self._stamp(done.start_s),
            end=self._stamp(done.end_s),
            elapsed_s=done.elapsed_s,
            has_value=done.value is not None,
            value=done.value or "",
        )
        server = self._server
        if server is None:
            return
        ends = {"done": "succeeded", "cancelled": "canceled"}
        finish_goal(server, handle, ends.get(done.outcome, "aborted"), result)
        if (work := self._work) is None or not work.snapshot().executing:
            # Otherwise the start of the next segment has just said more.
            self._publish_state()

    def _stamp(self, when_s: float) -> Any:
        """ROS time of a moment on the pacer's clock."""
        ago = self.pacer.now() - when_s
        return to_time(self.get_clock().now().nanoseconds * 1e-9 - ago)

    # --- Services and state ---

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        work = self._work
        if work is not None:
            work.stop("~/stop was called")
        elif self._connected:
            self.halt()
        response.success = True
        response.message = "stopped; call ~/reset to go on" if work is not None else "nothing to stop"
        self._publish_state()
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        work = self._work
        if work is not None:
            work.reset()
        response.success = work is not None
        response.message = "ready" if work is not None else "the driver is not active"
        self._publish_state()
        return response

    def _on_task(self, task: Task) -> None:
        held = self._held_s()
        self._lifeline.hear(task.task_id, task.phase, task.segments, time.monotonic())
        self._keep_awake()
        if (self._held_s() is None) != (held is None):
            self._publish_state()

    def _look(self) -> None:
        """End what is orphaned, and say how things are."""
        work, now_s = self._work, time.monotonic()
        period_s = float(self.get_parameter("state_period_s").value)
        if (late_s := now_s - self._looked_s - period_s) > period_s:
            # It was this process that did not listen, not the others that did not speak.
            self._lifeline.excuse(late_s)
        self._looked_s = now_s
        if work is not None:
            for task_id in work.tasks:
                if self._lifeline.orphaned(task_id, now_s):
                    silent_s = self._lifeline.silence_of(task_id, now_s)
                    dropped = work.abandon(task_id, f"nobody has spoken of the task for {silent_s:.1f} s")
                    if dropped:
                        self.get_logger().warning(
                            f"task {task_id}: orphaned, {dropped} segments are not executed"
                        )
        self._keep_awake()
        self._publish_state()

    def _keep_awake(self) -> None:
        work = self._work
        if work is None:
            # It still hears of tasks, but executes none, and after a cleanup no timer would let go again.
            self._wakeful.want(False)
            return
        now = work.snapshot()
        self._wakeful.want(now.executing or now.queued > 0 or self._lifeline.any_lives(time.monotonic()))

    def _held_s(self) -> float | None:
        """How long the robot has waited for the next segment of a task that lives, seconds; None if it does not."""
        work = self._work
        if work is None:
            return None
        now = work.snapshot()
        if now.executing or now.queued or now.stopped or now.over or math.isnan(now.rested_s):
            return None
        if not self._lifeline.wants_more(now.task_id, now.segment, time.monotonic()):
            return None
        return max(0.0, self.pacer.now() - now.rested_s)

    def _publish_state(self) -> None:
        work, profile = self._work, self._profile
        now = work.snapshot() if work is not None else Snapshot()
        held_s = self._held_s()
        sensed = self.sense() if self._connected else Sensed()
        detail = hand.tell(self._fault or sensed.detail, sensed.holding)
        if held_s is not None and not self._fault:
            detail = f"holds: segment {now.segment + 1} has not come for {held_s:.1f} s" + (
                f"; {detail}" if detail else ""
            )
        message = RobotState(
            robot=profile.name if profile is not None else "",
            driver=self.kind,
            session=self._session,
            mode=self._mode(now, held_s),
            task_id=now.task_id,
            segment=now.segment,
            progress=now.progress,
            queued=now.queued,
            pose=_pose(sensed),
            battery=sensed.battery,
            detail=detail,
        )
        message.stamp = self.get_clock().now().to_msg()
        self._state_publisher.publish(message)

    def _mode(self, now: Snapshot, held_s: float | None) -> int:
        if self._fault:
            return int(RobotState.FAULT)
        if self._work is None:
            return int(RobotState.UNCONFIGURED)
        if now.stopped:
            return int(RobotState.STOPPED)
        if held_s is not None:
            return int(RobotState.HOLDING)
        return int(RobotState.EXECUTING if now.executing else RobotState.READY)

    def _publish_diagnostics(self) -> None:
        work = self._work
        now = work.snapshot() if work is not None else Snapshot()
        held_s = self._held_s()
        sensed = self.sense() if self._connected else Sensed()
        mode = self._mode(now, held_s)
        level, message = DiagnosticStatus.OK, MODE_NAMES[mode]
        if mode == RobotState.FAULT:
            level, message = DiagnosticStatus.ERROR, self._fault
        elif mode == RobotState.STOPPED:
            level, message = DiagnosticStatus.WARN, "stopped; call ~/reset to go on"
        elif held_s is not None and held_s > HELD_LONG_S:
            level, message = DiagnosticStatus.WARN, f"holds: no segment for {held_s:.1f} s"
        elif sensed.battery < LOW_BATTERY:
            level, message = DiagnosticStatus.WARN, f"battery at {sensed.battery:.0%}"
        values = {
            "mode": MODE_NAMES[mode],
            "kind": self.kind,
            "profile": self._profile.name if self._profile is not None else "",
            "task": now.task_id,
            "segment": now.segment,
            "waiting segments": now.queued,
            "segments done": now.done,
            "segments failed": now.failed,
            "segments refused": now.refused,
            "battery": "unknown" if math.isnan(sensed.battery) else f"{sensed.battery:.2f}",
            "detail": sensed.detail,
            "holds": sensed.holding,
        }
        name = self.get_fully_qualified_name().removeprefix("/")
        status = DiagnosticStatus(
            level=level,
            name=name,
            message=message,
            hardware_id=self.get_namespace().removeprefix("/"),
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)


MODE_NAMES = {
    int(RobotState.UNCONFIGURED): "inactive",
    int(RobotState.READY): "ready",
    int(RobotState.EXECUTING): "executing",
    int(RobotState.HOLDING): "holding",
    int(RobotState.STOPPED): "stopped",
    int(RobotState.FAULT): "fault",
}


class _GoalListener:
    """Takes what the executor says about one goal to the ROS thread; kept back until the goal has its handle."""

    def __init__(self, driver: RobotDriver, order: SegmentOrder) -> None:
        self._driver = driver
        self._order = order
        self._handle: ServerGoalHandle | None = None
        self._early: list[Callable[[ServerGoalHandle], None]] = []

    def bind(self, handle: ServerGoalHandle) -> None:
        """Name the goal, on the ROS thread."""
        self._handle = handle
        early, self._early = self._early, []
        for tell in early:
            tell(handle)

    def started(self) -> None:
        """See ``execution.Listener``."""
        self._soon(self._begin)

    def progressed(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        """See ``execution.Listener``."""
        self._soon(lambda handle: self._feedback(handle, fraction, elapsed_s, remaining_s))

    def finished(self, done: SegmentDone) -> None:
        """See ``execution.Listener``."""
        self._soon(lambda handle: self._driver._finish(handle, done))

    def _soon(self, tell: Callable[[ServerGoalHandle], None]) -> None:
        executor = self._driver.executor
        if executor is not None:
            executor.create_task(self._tell, tell)

    def _tell(self, tell: Callable[[ServerGoalHandle], None]) -> None:
        if self._handle is None:
            self._early.append(tell)
        else:
            tell(self._handle)

    def _begin(self, handle: ServerGoalHandle) -> None:
        mark_executing(handle)
        self._feedback(handle, 0.0, 0.0, self._order.execution_s)
        # Behind the goals of other robots in this process that may have come meanwhile.
        if (executor := self._driver.executor) is not None:
            executor.create_task(self._driver._publish_state)

    def _feedback(
        self, handle: ServerGoalHandle, fraction: float, elapsed_s: float, remaining_s: float
    ) -> None:
        if handle.is_active:
            handle.publish_feedback(
                ExecuteSegment.Feedback(progress=fraction, elapsed_s=elapsed_s, remaining_s=remaining_s)
            )


def _pose(sensed: Sensed) -> Pose:
    pose = Pose()
    pose.position.x, pose.position.y, pose.position.z = sensed.position
    pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w = sensed.orientation
    return pose
