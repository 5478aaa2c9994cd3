"""The bridge as a ROS 2 lifecycle node: ``<robot>/execute_task`` for each robot, diagnostics, stop for the fleet."""

import asyncio
import math
import secrets
import time
from concurrent.futures import Future
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from rclpy.context import Context
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from timely_interfaces.msg import ErrorCode, RobotState
from timely_robots.disk_thread import DriverDiskThread
from timely_robots.operators import RobotOperators
from timely_robots.ros.lifecycle import ManagedRosNode
from timely_robots.ros.realtime import mark_ros_stop_thread

from timely.client import AsyncTimelyClient
from timely.core.clock import SystemClock
from timely.core.errors import TimelyError
from timely.core.files import default_state_folder
from timely.core.json_log import log_fields, ros_task_log_fields
from timely.core.traces import TraceExporter
from timely_bridge.diagnostics import bridge_own_status, bridge_robot_status, bridge_server_status
from timely_bridge.driver_port import CHECK_PERIOD_S
from timely_bridge.error_codes import AWAY, BridgeTaskError
from timely_bridge.fleet_stop import BridgeFleetStop
from timely_bridge.goal_journal import BridgeGoalJournal, read_bridge_identity
from timely_bridge.interfaces import ClientFactory
from timely_bridge.loop_thread import BridgeLoopThread
from timely_bridge.outcome import TaskEnd
from timely_bridge.plan_cancellation import cancel_bridge_plan
from timely_bridge.robot_server import BridgeRobotServer, BridgeServerConnection
from timely_bridge.server_health import BridgeServerHealth
from timely_bridge.server_stop import BridgeServerStop
from timely_bridge.settings import BridgeSettings, declare_bridge_parameters, read_bridge_parameters
from timely_bridge.stop_latch import BridgeStopLatch

CLOSE_S = 5.0
DISK_LATE_S = 1.0
NAMESAKE_S = 30.0
"""ROS 2 still names a process that was killed for a part of this time."""
TRACES_CLOSE_S = 1.0
"""At the end of the bridge: a collector that does not take the last spans by then loses them."""
MAX_LIVES = 5
"""A goal that so many starts of the bridge did not end is ended: it may be what kills the bridge."""
TASK_PERIOD_S = 1.0
"""How often the task in execution is published again, so that its driver knows that it lives."""


def bridge_client(url: str, **options: Any) -> AsyncTimelyClient:
    """The bridge's client of a server. Its streams wait for a lost server without limit: a plan has its own deadlines.

    Args:
        options: of the client, in tests.
    """
    return AsyncTimelyClient(url, reconnect_s=math.inf, **options)


class BridgeNode(ManagedRosNode):
    """Takes tasks from ROS 2 to the server and plan segments to the robots.

    For each robot of ``robots``: action ``<robot>/execute_task``, topics ``<robot>/task``, ``<robot>/segments`` and
    ``<robot>/segment_reports``. It sends to ``<robot>/execute_segment`` and reads ``<robot>/state``. Services
    ``~/stop`` and ``~/reset`` are for the whole fleet. Goals run concurrently; a robot executes one plan at a time
    (``on_busy``).

    Another, urgent plan is requested after a failed motion (``replan_attempts``) and for a new scene on
    ``<robot>/new_scene``. Its segments have a task id of their own and count from 0 again.

    A goal that cannot be served is accepted and then aborted at once with ``error_code`` and ``error_msg``.
    A rejected ROS 2 goal would carry no reason.

    Args:
        overrides: parameter values.
        client_factory: server URL -> client; another one in tests.
    """

    def __init__(
        self,
        name: str = "timely_bridge",
        *,
        context: Context | None = None,
        overrides: dict[str, Any] | None = None,
        client_factory: ClientFactory = bridge_client,
    ) -> None:
        # Before anything can fail: a node whose constructor fails is destroyed, too.
        self._fleet_stop: BridgeFleetStop | None = None
        self._system_clock = SystemClock()
        self._client_factory = client_factory
        self._settings: BridgeSettings | None = None
        self._loop: BridgeLoopThread | None = None
        self._stop_loop: BridgeLoopThread | None = None
        self._server_stop: BridgeServerStop | None = None
        self._client: Any = None
        self._health: BridgeServerHealth | None = None
        self._traces: TraceExporter | None = None
        self._server_tasks: list[Future[None]] = []
        self._robots: dict[str, BridgeRobotServer] = {}
        self._active = False
        self._journal = BridgeGoalJournal()
        self._disk = DriverDiskThread("bridge disk")
        self._living: Future[None] | None = None
        """The last note in the journal that the bridge lives, perhaps on its way to the disk."""
        self._living_s = 0.0
        self._alone_s = self._system_clock.now()
        """When no other node had the same name, on the system clock."""
        self._owner = ""
        super().__init__(name, context=context, overrides=overrides)
        declare_bridge_parameters(self)
        self.start_automatically()
        self._fleet_stop = BridgeFleetStop(
            self.context,
            self.get_fully_qualified_name(),
            self._on_fleet_stop,
            self._on_driver_stop,
            RobotOperators(str(self.get_parameter("principals").value)),
            self._disk,
        )

    @property
    def fleet_stop(self) -> BridgeFleetStop:
        """The stop of all robots, which is there as long as the node."""
        # For the type checker: only a constructor that failed leaves it out.
        assert self._fleet_stop is not None
        return self._fleet_stop

    # --- Life cycle ---

    def configure(self) -> None:
        """Read the parameters, connect to the server, and offer the actions, which refuse goals until activation."""
        self._settings = settings = read_bridge_parameters(self)
        if settings.otlp_endpoint:
            self._traces = TraceExporter(
                settings.otlp_endpoint, self._system_clock, service="timely_bridge", where="otlp_endpoint"
            )
        self._journal = journal = BridgeGoalJournal(settings.state_folder, self._system_clock.now())
        self._loop = loop = BridgeLoopThread("timely bridge")
        # Nothing here waits for the loop, whose thread may start late on a busy machine.
        self._client = self._client_factory(settings.server_url)
        self._health = health = BridgeServerHealth(
            self._client, settings.heartbeat_period_s, settings.heartbeat_misses
        )
        self._server_tasks = [loop.submit(health.run())]
        latch = BridgeStopLatch(self._disk, settings.state_folder)
        own_name = f"{self.get_name()}-{secrets.token_hex(8)}"
        take_up = bool(journal.unfinished_goals) and journal.silence_s < settings.take_up_s and not latch.set
        self._owner = journal.owner if take_up else own_name
        connection = BridgeServerConnection(
            settings,
            loop,
            self._client,
            self._system_clock,
            owner=self._owner,
            journal=journal,
            disk=self._disk,
            admit=self._admit,
            on_task=lambda: self.cpu_latency.want(True),
            active=lambda: self._active,
            fleet_stopped=lambda: self.fleet_stop.latch.set,
            server_problem=lambda: health.reason,
            traces=self._traces,
        )
        self.fleet_stop.set_robots(settings.robots, settings.driver_silence_s, latch)
        if hasattr(self._client, "stop_orders"):
            self._stop_loop = BridgeLoopThread("server stop")
            mark_ros_stop_thread(self._stop_loop.thread)
            # The identity of a state folder whose disk refuses it is none: that of another folder has other bridges.
            identity = journal.identity if settings.state_folder is not None else self._read_identity()
            self._stop_loop.submit(self._follow_server_stop(settings, identity))
        for entry in settings.robots:
            self._robots[entry.name] = BridgeRobotServer(self, entry, connection)
        self._note_life()
        goals_to_end = self._take_up_goals(journal, own_name) if take_up else list(journal.unfinished_goals)
        if latch.set:
            # A stop that came meanwhile has ended the goals that were there then.
            self._on_fleet_stop()
        self._server_tasks.append(loop.submit(self._end_unfinished_goals(journal, goals_to_end)))
        self.begin_work(
            {
                self._publish_diagnostics: 1.0,
                self._check_drivers: CHECK_PERIOD_S,
                self._repeat_tasks: TASK_PERIOD_S,
            }
        )

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._active = True
        url = self._settings.server_url if self._settings else ""
        self.get_logger().info(f"serving {', '.join(self._robots)} from {url}")
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End every task and take no more."""
        self._active = False
        self._cancel_all(ErrorCode.BRIDGE_INACTIVE, "the bridge was deactivated")
        return super().on_deactivate(state)

    def destroy_node(self) -> None:
        """Also end the threads of the fleet's stop."""
        super().destroy_node()
        if self._fleet_stop is not None and not self._fleet_stop.close():
            self.get_logger().error("a thread of the fleet's stop did not end in time")
        self._disk.close(CLOSE_S)

    def settle(self, timeout_s: float) -> bool:
        """End every task and wait until robots and server know; False if that took longer.

        Not on the executor's thread, which has to run meanwhile.
        """
        loop = self._loop
        self._active = False
        if loop is None:
            return True
        self._cancel_all(ErrorCode.BRIDGE_INACTIVE, "the bridge is shutting down")
        return self._wait_for_goals(loop, timeout_s)

    def _wait_for_goals(self, loop: BridgeLoopThread, timeout_s: float) -> bool:
        """Wait until every goal has ended; False if that took longer."""

        async def idle() -> None:
            async with asyncio.timeout(timeout_s):
                while any(robot.runs for robot in self._robots.values()):  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(0.01)

        try:
            loop.submit(idle()).result(timeout_s + 1.0)
        except TimeoutError:
            return False
        return True

    def release(self) -> None:
        """End every task, close the connection to the server and let go of the drivers."""
        self._active = False
        super().release()
        loop, self._loop = self._loop, None
        self._cancel_all(ErrorCode.BRIDGE_INACTIVE, "the bridge is shutting down")
        if loop is not None:
            if not self._give_up_goals(loop):
                self.get_logger().warning("not every task ended in time")
            try:
                loop.submit(self._disconnect()).result(CLOSE_S)
            except TimeoutError:
                self.get_logger().warning("the connection to the server did not close in time")
        stop_loop, self._stop_loop = self._stop_loop, None
        if stop_loop is not None and not stop_loop.close(CLOSE_S):
            self.get_logger().error("the loop that follows the server's stop did not end in time")
        if self._fleet_stop is not None:
            self._fleet_stop.clear_robots()
        for robot in self._robots.values():
            robot.destroy()
        self._robots = {}
        if loop is not None and not loop.close(CLOSE_S):
            self.get_logger().error("the bridge's loop did not end in time")
        try:
            self._disk.submit(self._journal.close).result(CLOSE_S)
        except TimeoutError:
            self.get_logger().error("the disk did not take the bridge's last lines in time")
        traces, self._traces = self._traces, None
        if traces is not None:
            traces.close(TRACES_CLOSE_S)

    def _give_up_goals(self, loop: BridgeLoopThread) -> bool:
        """End every goal without its driver's answer; False if that took long.

        The executor, which would take the answers, has to wait here. A goal may send a segment until it is told.
        """
        end_s = time.monotonic() + CLOSE_S
        while time.monotonic() < end_s:
            for robot in self._robots.values():
                robot.port.give_up()
            if self._wait_for_goals(loop, CHECK_PERIOD_S):
                return True
        return False

    async def _follow_server_stop(self, settings: BridgeSettings, identity: str) -> None:
        """Follow the server's stop with a loop and a connection of its own, so that no goal can hold it up."""
        client: Any = self._client_factory(settings.server_url)
        try:
            robots = [robot.name for robot in settings.robots]
            self._server_stop = BridgeServerStop(client, self.fleet_stop, robots, identity)
            await self._server_stop.run()
        finally:
            self._server_stop = None
            await client.close()

    def _read_identity(self) -> str:
        """The identity of a bridge without a state folder: one for each user, domain and name of a node."""
        name = self.get_fully_qualified_name().replace("/", ".")
        try:
            return read_bridge_identity(
                default_state_folder() / "bridges" / f"{self.context.get_domain_id()}{name}"
            )
        except (OSError, TimelyError) as error:
            self.get_logger().warning(f"the bridge has no identity: {error}")
            return ""

    def _take_up_goals(self, journal: BridgeGoalJournal, own_name: str) -> list[str]:
        """Take the goals of an earlier life of the bridge up; returns those that cannot be.

        The lease of that life goes on, so that the drivers go on with its segments. On a robot that may have segments
        of a goal that cannot be taken up, a lease of another name ends them. Such goals come first.
        """
        goals_to_end = []
        goals = sorted(journal.unfinished_goals.items(), key=lambda item: not item[1].began)
        for name, goal in goals:
            robot = self._robots.get(goal.robot)
            if robot is not None and goal.lives <= MAX_LIVES and robot.take_up(name, goal):
                with ros_task_log_fields(name, robot=goal.robot):
                    self.get_logger().warning(
                        f"{goal.robot}: {name} of an earlier start of the bridge goes on"
                    )
                continue
            goals_to_end.append(name)
            if robot is not None and goal.began:
                robot.port.lease.owner = own_name
        return goals_to_end

    async def _end_unfinished_goals(self, journal: BridgeGoalJournal, names: list[str]) -> None:
        """End goals of an earlier life of the bridge: their plans at the server, then for all who follow them.

        The drivers end their segments, because this life of the bridge has another lease.
        """
        end = TaskEnd("failed", int(ErrorCode.BRIDGE_INACTIVE), AWAY)
        goals = {name: journal.unfinished_goals[name] for name in names}
        for name, goal in goals.items():
            if (robot := self._robots.get(goal.robot)) is not None:
                for task_id in goal.plans:
                    robot.publisher.ended(task_id, end)
            with ros_task_log_fields(name, robot=goal.robot):
                self.get_logger().warning(f"{goal.robot}: {name} of an earlier start of the bridge was ended")
        for name, goal in goals.items():
            for task_id, plan in goal.plans.items():
                await cancel_bridge_plan(self._client, task_id, plan.token)
            self._disk.submit(journal.end, name)

    async def _disconnect(self) -> None:
        for task in self._server_tasks:
            task.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- The fleet (executor's thread) ---

    def drivers_ready(self) -> dict[str, bool]:
        """Robot -> its driver takes segments, or keeps a stop."""
        return {name: robot.port.ready_now for name, robot in list(self._robots.items())}

    def driver_faults(self) -> dict[str, str]:
        """Robot -> the fault of its driver; empty if there is none."""
        faults = {}
        for name, robot in list(self._robots.items()):
            state = robot.port.state
            is_broken = state is not None and state.mode == RobotState.FAULT
            faults[name] = (state.detail or "fault") if is_broken and state is not None else ""
        return faults

    def _admit(self) -> None:
        """Raises BridgeTaskError when no further goal is taken now."""
        settings, health = self._settings, self._health
        if not self._active or settings is None or health is None:
            raise BridgeTaskError(ErrorCode.BRIDGE_INACTIVE, "the bridge is not active")
        if self.fleet_stop.latch.set:
            reset = f"call {self.fleet_stop.reset_service}"
            if self.fleet_stop.server_stop and not self.fleet_stop.latch.own:
                reset = f"POST {settings.server_url}/v1/stop/reset"
            raise BridgeTaskError(ErrorCode.FLEET_STOPPED, f"the fleet is stopped; {reset} to go on")
        if health.lost:
            raise BridgeTaskError(ErrorCode.SERVER_UNREACHABLE, f"{settings.server_url}: {health.reason}")
        if sum(len(robot.runs) for robot in self._robots.values()) >= int(
            self.get_parameter("max_tasks").value
        ):
            raise BridgeTaskError(ErrorCode.OVERLOADED, "too many tasks at once")

    def _cancel_all(self, code: int, message: str) -> None:
        for robot in list(self._robots.values()):
            robot.cancel_all(code, message)

    def _on_fleet_stop(self) -> None:
        """End every goal; on a thread of ``fleet_stop``, after the drivers were called."""
        self._cancel_all(ErrorCode.FLEET_STOPPED, "the fleet was stopped")
        if (loop := self._loop) is not None:
            loop.call(self._log_stop, "the fleet was stopped", {"stop_id": self.fleet_stop.stop_id})

    def _on_driver_stop(self, robot: str, stop_id: str, driver_stop_id: str) -> None:
        """Join the ids, which the driver's lines do not; on a thread of ``fleet_stop``."""
        if (loop := self._loop) is not None:  # another thread may release it
            fields = {"stop_id": stop_id, "robot": robot, "driver_stop_id": driver_stop_id}
            loop.call(self._log_stop, f"the driver of {robot} is stopped", fields)

    def _log_stop(self, message: str, fields: dict[str, str]) -> None:
        with log_fields(fields):
            self.get_logger().warning(message)

    def _repeat_tasks(self) -> None:
        if self._loop is not None:
            self._note_life()
            self.fleet_stop.latch.catch_up()
            for robot in self._robots.values():
                # On the loop's thread, so that drivers get no heartbeat from a loop that hangs.
                self._loop.call(robot.publish_tasks)

    def _note_life(self) -> None:
        if self._living is None or self._living.done():
            self._living_s = now_s = self._system_clock.now()
            self._living = self._disk.submit(self._journal.live, self._owner, now_s)

    def _check_drivers(self) -> None:
        for robot in self._robots.values():
            robot.port.check()
        self.cpu_latency.want(any(robot.runs for robot in self._robots.values()))

    def _publish_diagnostics(self) -> None:
        name, url = self.get_name(), self._settings.server_url if self._settings else ""
        bridge = bridge_own_status(name, self._problems())
        robots = [bridge_robot_status(name, robot) for robot in self._robots.values()]
        refusal = ""
        if (server_stop := self._server_stop) is not None:  # its own thread may end it
            refusal = server_stop.refusal
            server_stop.problems = {
                status.hardware_id: status.message for status in robots if status.level != DiagnosticStatus.OK
            }
        server = bridge_server_status(name, self._health, url, refusal)
        self.publish_diagnostics([server, *robots, bridge])

    def _problems(self) -> list[str]:
        """What an operator should know of the bridge itself."""
        now_s = self._system_clock.now()
        problems = [problem for problem in (self.fleet_stop.latch.problem, self._journal.problem) if problem]
        if self._living is not None and not self._living.done() and now_s - self._living_s > DISK_LATE_S:
            problems.append(f"the disk has not answered for {now_s - self._living_s:.0f} s")
        # Each lifecycle node has one such publisher.
        if self.count_publishers("~/transition_event") <= 1:
            self._alone_s = now_s
        elif now_s - self._alone_s > NAMESAKE_S:
            problems.append(
                "another bridge has the same name: one of them answers a stop, for its own robots"
            )
        return problems
