"""The bridge as a ROS 2 lifecycle node: ``<robot>/execute_task`` for each robot, diagnostics, stop for the fleet."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.context import Context
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from std_msgs.msg import String
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, RobotState, Segment, SegmentReport
from timely_robots.ros.rclpy_utils import described, finish_goal, mark_executing, without_debug_lines

from timely.client import AsyncTimelyClient
from timely.core import cpu_latency
from timely.core.clock import Clock, SystemClock
from timely.core.errors import InvalidInput, TimelyError
from timely_bridge.driver_port import LOOK_PERIOD_S, DriverPort
from timely_bridge.error_codes import code_of, name_of
from timely_bridge.goal_run import Mission
from timely_bridge.goals import NAME, GoalLimits, RobotEntry, checked
from timely_bridge.interfaces import ClientFactory, Order
from timely_bridge.loop_thread import LoopThread
from timely_bridge.plan_run import Deadlines, Replan, TaskEnd, TaskRun
from timely_bridge.robot_lock import POLICIES, Turnstile
from timely_bridge.server_health import Heartbeat
from timely_bridge.task_publisher import Herald

CLOSE_S = 5.0
SEGMENT_QOS_DEPTH = 50
TASK_PERIOD_S = 1.0
"""How often drivers are told that a task lives."""


class _Robot:
    """One robot's door: action server, driver, turnstile, tasks in progress."""

    def __init__(self, entry: RobotEntry, port: DriverPort, turnstile: Turnstile, herald: Herald) -> None:
        self.entry = entry
        self.port = port
        self.herald = herald
        self.turnstile = turnstile
        self.server: ActionServer | None = None
        self.reports: Any = None
        self.scenes: Any = None
        self.runs: dict[str, Mission] = {}
        """By task id; the loop's."""
        self.outcomes: Counter[str] = Counter()
        self.last_error = ""


# mypy: disallow-subclassing-any=False
class BridgeNode(LifecycleNode):
    """Takes tasks from ROS 2 to the server and plan segments to the robots.

    For each robot of ``robots``: action ``<robot>/execute_task``, topics ``<robot>/task``, ``<robot>/segments`` and
    ``<robot>/segment_reports``; it sends to ``<robot>/execute_segment`` and listens to ``<robot>/state``. Services
    ``~/stop`` and ``~/reset`` are for the whole fleet. Goals run concurrently; a robot executes one plan at a time
    (``on_busy``).

    After a failed motion another, urgent plan is asked for (``replan_attempts``), and so it is when a new scene comes
    on ``<robot>/new_scene``. Its segments have a task id of their own and count from 0 again.

    A goal that cannot be served is accepted and then aborted at once with ``error_code`` and ``error_msg``, because a
    rejected ROS 2 goal carries no reason.

    Args:
        overrides: parameter values.
        client_factory: server URL -> client; another one in tests.
    """

    def __init__(
        self,
        name: str = "timely_bridge",
        *,
        namespace: str = "",
        context: Context | None = None,
        overrides: dict[str, Any] | None = None,
        client_factory: ClientFactory = AsyncTimelyClient,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            name,
            namespace=namespace,
            context=context,
            automatically_declare_parameters_from_overrides=False,
            parameter_overrides=[Parameter(key, value=value) for key, value in (overrides or {}).items()],
        )
        self._clock_s: Clock = clock or SystemClock()
        self._client_factory = client_factory
        self._loop: LoopThread | None = None
        self._client: Any = None
        self._heartbeat: Heartbeat | None = None
        self._robots: dict[str, _Robot] = {}
        self._taking = False
        self._url = ""
        self._limits = GoalLimits()
        self._deadlines = Deadlines()
        self._timers_of_work: list[Any] = []
        self._wakeful = cpu_latency.Wakeful()
        self._declare()
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_service(Trigger, "~/stop", self._on_stop)
        self.create_service(Trigger, "~/reset", self._on_reset)
        self._autostart: Any = None
        if self.get_parameter("autostart").value:
            self._autostart = self.create_timer(0.0, self._start_by_itself)

    def _declare(self) -> None:
        declare: Callable[..., Any] = self.declare_parameter
        fixed = {"read_only": True}
        declare("server_url", "http://127.0.0.1:8000", described("of the Timely server", **fixed))
        declare("robots", [""], described("names of the robots; each is a namespace", **fixed))
        declare("autostart", False, described("configure and activate without being asked", **fixed))
        declare(
            "on_busy", "queue", described(f"a second task for a robot: one of {', '.join(POLICIES)}", **fixed)
        )
        declare(
            "replan_attempts",
            2,
            described("plans that may follow a failed motion; 0 lets the task fail", low=0, high=100),
        )
        declare("max_tasks", 256, described("most tasks at once, over all robots", low=1, high=100_000))
        declare("max_task_chars", 4_000, described("longest task [characters]", low=1, high=1_000_000))
        declare("max_scene_chars", 20_000, described("longest scene [characters]", low=1, high=1_000_000))
        seconds = partial(described, low=0.05, high=86_400.0)
        limits = Deadlines()
        declare("submit_timeout_s", limits.submit_s, seconds("until the server has accepted a task [s]"))
        declare(
            "segment_timeout_s", limits.segment_s, seconds("until the next segment when the robot idles [s]")
        )
        declare("task_timeout_s", limits.task_s, seconds("for a whole task [s]"))
        declare(
            "driver_timeout_s", limits.driver_s, seconds("until a driver appears or begins a segment [s]")
        )
        declare("driver_silence_s", 3.0, seconds("a driver that is silent for so long is lost [s]"))
        declare("cancel_timeout_s", limits.cancel_s, seconds("until a cancelled motion must have ended [s]"))
        declare(
            "execution_factor",
            limits.execution_factor,
            described(
                "a segment may take its expected time times this plus the margin", low=1.0, high=1000.0
            ),
        )
        declare("execution_margin_s", limits.execution_margin_s, seconds("see execution_factor [s]"))
        declare("progress_period_s", limits.progress_every_s, seconds("progress reports to the server [s]"))
        declare(
            "heartbeat_period_s",
            1.0,
            described("between questions after the server [s]", low=0.05, high=60.0),
        )
        declare("heartbeat_misses", 3, described("unanswered ones until it counts as lost", low=1, high=100))
        declare(
            "wake_latency_us",
            cpu_latency.AS_THEY_LIKE,
            described(cpu_latency.MEANING, low=cpu_latency.AS_THEY_LIKE, high=cpu_latency.LONGEST_US),
        )

    # --- Life cycle ---

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Read the parameters, begin to ask after the server, open the robots' doors (which refuse until active)."""
        try:
            entries = self._entries()
            policy = str(self.get_parameter("on_busy").value)
            Turnstile(policy)
        except InvalidInput as error:
            self.get_logger().error(f"cannot configure: {error}")
            return TransitionCallbackReturn.FAILURE

        def value(name: str) -> Any:
            return self.get_parameter(name).value

        self._url = str(value("server_url"))
        self._limits = GoalLimits(int(value("max_task_chars")), int(value("max_scene_chars")))
        self._deadlines = Deadlines(
            submit_s=value("submit_timeout_s"),
            segment_s=value("segment_timeout_s"),
            task_s=value("task_timeout_s"),
            driver_s=value("driver_timeout_s"),
            cancel_s=value("cancel_timeout_s"),
            execution_factor=value("execution_factor"),
            execution_margin_s=value("execution_margin_s"),
            progress_every_s=value("progress_period_s"),
        )
        self._wakeful = cpu_latency.Wakeful(int(value(cpu_latency.PARAMETER)))
        if self._wakeful.problem:
            self.get_logger().warning(f"{cpu_latency.PARAMETER}: {self._wakeful.problem}")
        self._loop = loop = LoopThread("timely bridge")

        async def connect() -> tuple[Any, Heartbeat]:
            client = self._client_factory(self._url)
            heartbeat = Heartbeat(client, value("heartbeat_period_s"), int(value("heartbeat_misses")))
            self._pulse = asyncio.get_running_loop().create_task(heartbeat.run(), name="heartbeat")
            return client, heartbeat

        self._client, self._heartbeat = loop.submit(connect()).result(CLOSE_S)
        for entry in entries:
            self._robots[entry.name] = self._open(entry, loop, policy)
        self._timers_of_work = [
            self.create_timer(1.0, self._publish_diagnostics),
            self.create_timer(LOOK_PERIOD_S, self._look),
            self.create_timer(TASK_PERIOD_S, self._repeat_tasks),
        ]
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take goals."""
        self._taking = True
        self.get_logger().info(f"serving {', '.join(self._robots)} from {self._url}")
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End every task and take no more."""
        self._taking = False
        self._cut_all(ErrorCode.BRIDGE_INACTIVE, "the bridge was deactivated")
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Close the doors and the connection."""
        self._release()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """As cleanup."""
        self._release()
        return super().on_shutdown(state)

    def destroy_node(self) -> None:
        """As cleanup, for a node that nobody shut down."""
        self._release()
        super().destroy_node()

    def settle(self, timeout_s: float) -> bool:
        """End every task and wait until robots and server know; False if that took longer.

        Not on the executor's thread, which has to run meanwhile.
        """
        loop = self._loop
        self._taking = False
        if loop is None:
            return True
        self._cut_all(ErrorCode.BRIDGE_INACTIVE, "the bridge is shutting down")

        async def idle() -> None:
            while any(robot.runs for robot in self._robots.values()):  # noqa: ASYNC110 - once, at the end
                await asyncio.sleep(0.01)

        try:
            loop.submit(asyncio.wait_for(idle(), timeout_s)).result(timeout_s + 1.0)
        except TimeoutError:
            return False
        return True

    def _start_by_itself(self) -> None:
        self.destroy_timer(self._autostart)
        if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()

    def _release(self) -> None:
        self._taking = False
        while self._timers_of_work:
            self.destroy_timer(self._timers_of_work.pop())
        self._wakeful.want(False)
        loop, self._loop = self._loop, None
        if loop is not None:
            client = self._client

            async def close() -> None:
                for robot in self._robots.values():
                    for run in list(robot.runs.values()):
                        run.cut(ErrorCode.BRIDGE_INACTIVE, "the bridge is shutting down")
                self._pulse.cancel()
                await client.close()

            try:
                loop.submit(close()).result(CLOSE_S)
            except TimeoutError:
                self.get_logger().warning("the connection to the server did not close in time")
        for robot in self._robots.values():
            robot.port.destroy()
            if robot.server is not None:
                robot.server.destroy()
            self.destroy_publisher(robot.reports)
            robot.herald.destroy()
            self.destroy_subscription(robot.scenes)
        self._robots = {}
        if loop is not None and not loop.close(CLOSE_S):
            self.get_logger().error("the bridge's loop did not end in time")

    @property
    def drivers_alive(self) -> int:
        """How many of its robots' drivers it hears from."""
        return sum(robot.port.alive for robot in list(self._robots.values()))

    def _entries(self) -> list[RobotEntry]:
        names = [name for name in self.get_parameter("robots").value if name]
        if not names:
            raise InvalidInput("names no robot", where="robots")
        if len(set(names)) != len(names):
            raise InvalidInput("names a robot twice", where="robots")
        entries = []
        for name in names:
            if not name.isidentifier() or not name.isascii():
                raise InvalidInput(f"{name!r} cannot be a ROS namespace", where="robots")
            values = []
            for part, default in (("profile", ""), ("skill_set", ""), ("driver_node", "driver")):
                if not self.has_parameter(f"{name}.{part}"):
                    self.declare_parameter(f"{name}.{part}", default, described(f"{part} of {name}"))
                values.append(str(self.get_parameter(f"{name}.{part}").value))
            profile, skill_set, driver_node = values
            if profile and not NAME.fullmatch(profile):
                raise InvalidInput(f"{profile!r} is no profile name", where=f"{name}.profile")
            entries.append(RobotEntry(name, profile, skill_set, driver_node))
        return entries

    def _open(self, entry: RobotEntry, loop: LoopThread, policy: str) -> _Robot:
        silence_s = float(self.get_parameter("driver_silence_s").value)
        robot = _Robot(
            entry,
            DriverPort(self, loop, entry.name, entry.driver_node, silence_s),
            Turnstile(policy),
            Herald(self, entry.name),
        )
        robot.reports = self.create_publisher(
            SegmentReport, f"{entry.name}/segment_reports", SEGMENT_QOS_DEPTH
        )
        robot.scenes = self.create_subscription(
            String, f"{entry.name}/new_scene", partial(self._on_scene, robot), 1
        )
        robot.server = ActionServer(
            self,
            ExecuteTask,
            f"{entry.name}/execute_task",
            execute_callback=lambda handle: ExecuteTask.Result(),
            goal_callback=lambda goal: GoalResponse.ACCEPT,
            handle_accepted_callback=partial(self._on_goal, robot),
            cancel_callback=partial(self._on_cancel, robot),
        )
        without_debug_lines(robot.server)
        return robot

    # --- Goals (executor's thread) ---

    def _on_goal(self, robot: _Robot, handle: ServerGoalHandle) -> None:
        loop, heartbeat = self._loop, self._heartbeat
        refuse = partial(self._refuse, robot, handle)
        if not self._taking or loop is None or heartbeat is None:
            refuse(ErrorCode.BRIDGE_INACTIVE, "the bridge is not active")
            return
        try:
            goal = checked(handle.request, robot.entry, self._limits)
        except TimelyError as error:
            refuse(code_of(error), str(error))
            return
        if heartbeat.lost:
            refuse(ErrorCode.SERVER_UNREACHABLE, f"{self._url}: {heartbeat.reason}")
            return
        if sum(len(other.runs) for other in self._robots.values()) >= int(
            self.get_parameter("max_tasks").value
        ):
            refuse(ErrorCode.OVERLOADED, "too many tasks at once")
            return
        mark_executing(handle)
        self._wakeful.want(True)
        mission = Mission(
            task_id=f"ros-{bytes(handle.goal_id.uuid).hex()}",
            goal=goal,
            turnstile=robot.turnstile,
            make_run=partial(self._task_run, robot, handle),
            attempts=int(self.get_parameter("replan_attempts").value),
        )
        loop.call(self._start, robot, handle, mission)

    def _task_run(
        self, robot: _Robot, handle: ServerGoalHandle, mission: Mission, task_id: str, what: Replan | None
    ) -> TaskRun:
        return TaskRun(
            task_id=task_id,
            goal=mission.goal,
            client=self._client,
            driver=robot.port,
            turnstile=robot.turnstile,
            deadlines=self._deadlines,
            clock=self._clock_s,
            announce=partial(self._announce, robot, handle),
            note=partial(self._note, robot),
            tell=robot.herald.task,
            server_url=self._url,
            replaces=what,
            turn=mission.turn,
            timeline=mission.timeline,
        )

    def _on_scene(self, robot: _Robot, message: String) -> None:
        """The robot sees something else now: what it is doing is planned anew."""
        if self._loop is None:
            return
        if len(message.data) > self._limits.scene_chars:
            self.get_logger().warning(
                f"{robot.entry.name}: a new scene of {len(message.data)} characters; the limit is "
                f"{self._limits.scene_chars}"
            )
            return
        self._loop.call(self._replan, robot, message.data)

    def _on_cancel(self, robot: _Robot, handle: ServerGoalHandle) -> CancelResponse:
        if self._loop is not None:
            task_id = f"ros-{bytes(handle.goal_id.uuid).hex()}"
            self._loop.call(self._cut, robot, task_id, ErrorCode.CANCELLED, "cancelled by the client")
        return CancelResponse.ACCEPT

    def _refuse(self, robot: _Robot, handle: ServerGoalHandle, code: int, message: str) -> None:
        self._finish(robot, handle, TaskEnd("refused", int(code), message))

    def _finish(self, robot: _Robot, handle: ServerGoalHandle, end: TaskEnd) -> None:
        robot.outcomes[end.outcome] += 1
        if end.code:
            robot.last_error = f"{name_of(end.code)}: {end.message}"
            self.get_logger().info(f"{robot.entry.name}: {end.outcome}, {robot.last_error}")
        if robot.server is None or not self._robots:
            return
        result = ExecuteTask.Result(
            plan=end.plan,
            outcome=end.outcome,
            error_code=end.code,
            error_msg=end.message,
            response=end.response,
            waiting=end.waiting,
            utility=end.utility,
        )
        ends = {"complete": "succeeded", "cancelled": "canceled"}
        finish_goal(robot.server, handle, ends.get(end.outcome, "aborted"), result)

    def _announce(self, robot: _Robot, handle: ServerGoalHandle, order: Order) -> Callable[[], None]:
        def publish() -> None:
            segment = Segment(
                task_id=order.task_id,
                index=order.index,
                text=order.text,
                tokens=order.tokens,
                execution_s=order.execution_s,
                blocking=order.blocking,
            )
            segment.stamp = self.get_clock().now().to_msg()
            if handle.is_active:
                handle.publish_feedback(ExecuteTask.Feedback(segment=segment))
            robot.herald.segment(segment)

        return publish

    # --- Tasks (loop's thread) ---

    def _replan(self, robot: _Robot, scene: str) -> None:
        for run in list(robot.runs.values()):
            if robot.turnstile.holds(run.turn):
                run.replan("the scene has changed", scene)

    def _start(self, robot: _Robot, handle: ServerGoalHandle, run: Mission) -> None:
        robot.runs[run.task_id] = run

        async def work() -> None:
            end = TaskEnd("failed", int(ErrorCode.BRIDGE_INTERNAL), "the task was abandoned")
            try:
                end = await run.run()
            finally:
                del robot.runs[run.task_id]
                executor = self.executor
                if executor is not None:
                    executor.create_task(self._finish, robot, handle, end)

        # The run holds itself: it is in ``runs`` until its end.
        run.keeper = asyncio.get_running_loop().create_task(work(), name=run.task_id)

    def _cut(self, robot: _Robot, task_id: str, code: int, message: str) -> None:
        run = robot.runs.get(task_id)
        if run is not None:
            run.cut(code, message)

    def _note(self, robot: _Robot, report: SegmentReport) -> None:
        executor = self.executor
        if executor is not None:
            executor.create_task(self._publish_report, robot, report)

    def _publish_report(self, robot: _Robot, report: SegmentReport) -> None:
        if self._robots:
            report.stamp = self.get_clock().now().to_msg()
            robot.reports.publish(report)

    # --- The fleet ---

    def _cut_all(self, code: int, message: str) -> None:
        if self._loop is None:
            return
        for robot in self._robots.values():
            self._loop.call(self._cut_robot, robot, code, message)

    def _cut_robot(self, robot: _Robot, code: int, message: str) -> None:
        for run in list(robot.runs.values()):
            run.cut(code, message)

    def _on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Robots first: their drivers stop by themselves, whatever server and tasks do."""
        missed = [name for name, robot in self._robots.items() if not robot.port.stop()]
        self._cut_all(ErrorCode.FLEET_STOPPED, "the fleet was stopped")
        response.success = not missed
        response.message = f"no driver: {', '.join(missed)}" if missed else "stopped; call ~/reset to go on"
        return response

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        missed = [name for name, robot in self._robots.items() if not robot.port.reset()]
        response.success = not missed
        response.message = f"no driver: {', '.join(missed)}" if missed else "ready"
        return response

    def _repeat_tasks(self) -> None:
        if self._loop is not None:
            self._loop.call(self._repeat)

    def _repeat(self) -> None:
        """Drivers hear that their tasks live; on the loop's thread, so that a loop that hangs is silent."""
        for robot in self._robots.values():
            for mission in robot.runs.values():
                if mission.current is not None and not mission.current.over:
                    robot.herald.task(mission.current)

    def _look(self) -> None:
        for robot in self._robots.values():
            robot.port.look()
        self._wakeful.want(any(robot.runs for robot in self._robots.values()))

    def _publish_diagnostics(self) -> None:
        array = DiagnosticArray()
        array.header.stamp = self.get_clock().now().to_msg()
        array.status.append(self._server_status())
        array.status.extend(self._robot_status(robot) for robot in self._robots.values())
        self._diagnostics.publish(array)

    def _server_status(self) -> DiagnosticStatus:
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat.lost:
            level, message = DiagnosticStatus.ERROR, heartbeat.reason if heartbeat else "not configured"
        elif math.isnan(heartbeat.round_trip_s) or heartbeat.failed:
            level, message = DiagnosticStatus.WARN, heartbeat.reason
        else:
            level, message = DiagnosticStatus.OK, f"answers in {1e3 * heartbeat.round_trip_s:.1f} ms"
        return _status(self, "server", level, message, {"url": self._url})

    def _robot_status(self, robot: _Robot) -> DiagnosticStatus:
        state = robot.port.state
        level, message = DiagnosticStatus.OK, "driver is there"
        if not robot.port.alive:
            level, message = DiagnosticStatus.ERROR, "no driver"
        elif state is not None and state.mode == RobotState.FAULT:
            level, message = DiagnosticStatus.ERROR, state.detail or "fault"
        elif state is not None and state.mode == RobotState.STOPPED:
            level, message = DiagnosticStatus.WARN, "stopped"
        values = {
            "tasks": len(robot.runs),
            "waiting for the robot": robot.turnstile.waiting,
            **{f"tasks {outcome}": count for outcome, count in sorted(robot.outcomes.items())},
            "last error": robot.last_error,
        }
        return _status(self, robot.entry.name, level, message, values)


def _status(
    node: LifecycleNode, name: str, level: Any, message: str, values: dict[str, Any]
) -> DiagnosticStatus:
    return DiagnosticStatus(
        level=level,
        name=f"{node.get_name()}: {name}",
        message=message,
        hardware_id=name,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )
