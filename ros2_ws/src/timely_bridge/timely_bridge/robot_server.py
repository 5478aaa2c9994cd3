"""One robot of the fleet: its action server, its driver, its lock, and the goals in progress."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.lifecycle import LifecycleNode
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import String
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, SegmentReport
from timely_robots.disk_thread import DriverDiskThread
from timely_robots.ros.actions import (
    adopt_ros_goal,
    destroy_ros_action,
    finish_ros_goal,
    mark_ros_goal_executing,
    without_ros_debug_lines,
)
from timely_robots.ros.executor_calls import RosExecutorCalls

from timely.client import Segment
from timely.core.clock import Clock
from timely.core.errors import TimelyError
from timely.core.json_log import log_fields, ros_task_log_fields
from timely.core.traces import TraceExporter
from timely_bridge.driver_port import BridgeDriverPort
from timely_bridge.error_codes import BridgeTaskError, bridge_error_code, bridge_error_name
from timely_bridge.goal_journal import BridgeGoalEntry, BridgeGoalJournal
from timely_bridge.goal_run import BridgeGoalRun, PastBridgeGoal
from timely_bridge.goal_trace import bridge_goal_span, bridge_traceparent
from timely_bridge.goals import RobotEntry, TaskGoal, read_bridge_goal
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.loop_thread import BridgeLoopThread
from timely_bridge.outcome import BridgeTimeline, TaskEnd
from timely_bridge.past_plan import PastBridgePlan
from timely_bridge.plan_run import BridgePlanRun, Replan, RunContext
from timely_bridge.robot_lease import BridgeRobotLease
from timely_bridge.robot_lock import BridgeRobotLock
from timely_bridge.settings import BridgeSettings
from timely_bridge.task_publisher import BridgeTaskPublisher

MAX_QUEUED_HEARTBEATS = 8
"""Queued tasks that are published again; their drivers have no segments of them."""
TASK_PREFIX = "ros-"
"""Before the id of a ROS 2 goal, in the id of its task."""
SAVE_S = 2.0
"""A goal's result waits so long for the disk, so that another life of the bridge does not go on with the goal."""
CANCEL_SAVE_S = 0.1
"""The answer to a cancellation waits so long for loop and disk, on the executor's thread."""
RESULT_STATES = {"complete": "succeeded", "cancelled": "canceled"}
"""Outcome -> state of the ROS 2 goal; all others are aborted."""


@dataclass(frozen=True, slots=True)
class BridgeServerConnection:
    """What all robots of the bridge share.

    Attributes:
        owner: the name of the bridge's leases. Goals of an earlier life are taken up under the name of that life.
        journal: of the goals; all its calls go through ``disk``, so that none of them holds up the loop.
        admit: raises BridgeTaskError when the bridge takes no further goal.
        on_task: is called when a goal begins.
        active: the bridge takes goals.
        server_problem: why the server's health could not be checked last; empty if it could.
        traces: exports the spans of goals, on the loop's thread; None exports none.
    """

    settings: BridgeSettings
    loop: BridgeLoopThread
    client: Any
    clock: Clock
    owner: str
    journal: BridgeGoalJournal
    disk: DriverDiskThread
    admit: Callable[[], None]
    on_task: Callable[[], None]
    active: Callable[[], bool]
    fleet_stopped: Callable[[], bool]
    server_problem: Callable[[], str]
    traces: TraceExporter | None = None


class BridgeRobotServer:
    """Action ``<robot>/execute_task`` and topic ``<robot>/new_scene``. Made and destroyed on the executor's thread."""

    def __init__(self, node: LifecycleNode, entry: RobotEntry, connection: BridgeServerConnection) -> None:
        self.entry = entry
        self.lock = BridgeRobotLock(connection.settings.on_busy)
        self.runs: dict[str, BridgeGoalRun] = {}
        """Goals in progress by task id; changed on the loop's thread."""
        self.outcomes: Counter[str] = Counter()
        self.last_error = ""
        self.publisher = BridgeTaskPublisher(node, entry.name)
        self._cancelled = threading.Event()
        """Set when the loop has taken the latest cancellation; one that it is late with holds the executor up once."""
        self._cancelled.set()
        self._node = node
        self._calls = RosExecutorCalls(node)
        self._connection = connection
        settings = connection.settings
        lease = BridgeRobotLease(node, entry.name, entry.driver_node, connection.owner)
        self.port = BridgeDriverPort(node, connection.loop, entry.name, settings.driver_silence_s, lease)
        self._context = RunContext(
            robot=entry.name,
            client=connection.client,
            driver=self.port,
            lock=self.lock,
            deadlines=settings.deadlines,
            clock=connection.clock,
            server_url=settings.server_url,
            fleet_stopped=connection.fleet_stopped,
            server_problem=connection.server_problem,
        )
        self._scenes = node.create_subscription(String, f"{entry.name}/new_scene", self._on_scene, 1)
        self._server: ActionServer | None = ActionServer(
            node,
            ExecuteTask,
            f"{entry.name}/execute_task",
            execute_callback=lambda handle: ExecuteTask.Result(),
            goal_callback=lambda goal: GoalResponse.REJECT if self._server is None else GoalResponse.ACCEPT,
            handle_accepted_callback=self._on_goal,
            cancel_callback=self._on_cancel,
        )
        without_ros_debug_lines(self._server)

    # --- Executor's thread ---

    def cancel_all(self, code: int, message: str) -> None:
        """End every goal; from any thread. None of them sends a segment from now on, however late the loop is."""
        for run in list(self.runs.values()):
            run.claim.end = BridgeTaskError(code, message)
        self._connection.loop.call(self._cancel_runs, code, message)

    def destroy(self) -> None:
        self._calls.run_all()
        self.port.destroy()
        server, self._server = self._server, None
        if server is not None:
            destroy_ros_action(server)
        self.publisher.destroy()
        self._node.destroy_subscription(self._scenes)

    def _on_goal(self, handle: ServerGoalHandle) -> None:
        connection = self._connection
        try:
            goal = read_bridge_goal(handle.request, self.entry, connection.settings.limits)
        except TimelyError as error:
            self._finish(handle, TaskEnd("refused", bridge_error_code(error), str(error)))
            return
        mark_ros_goal_executing(handle)
        self._begin(handle, goal)

    def take_up(self, name: str, entry: BridgeGoalEntry) -> bool:
        """Take up a goal of an earlier life of the bridge; False if that is not possible."""
        connection, server = self._connection, self._server
        if server is None or not entry.request or not entry.plans or entry.cancelled:
            return False
        try:
            request = deserialize_message(entry.request, ExecuteTask.Goal)
            goal = read_bridge_goal(request, self.entry, connection.settings.limits)
            task_id, plan = list(entry.plans.items())[-1]
            replaces = Replan(**plan.replaces) if plan.replaces is not None else None
            handle = adopt_ros_goal(server, bytes.fromhex(name.removeprefix(TASK_PREFIX)), request)
        except Exception as error:  # the journal may be of another version
            with self._log_fields(name):
                self._node.get_logger().warning(f"{self.entry.name}: {name} cannot be taken up: {error}")
            return False
        if handle is None:
            return False
        past = PastBridgePlan(plan.token, plan.began, plan.session, plan.executions, connection.active)
        self._begin(
            handle,
            goal,
            PastBridgeGoal(task_id, len(entry.plans) - 1, replaces, past, plan.before, entry.began),
        )
        return True

    def _begin(self, handle: ServerGoalHandle, goal: TaskGoal, past: PastBridgeGoal | None = None) -> None:
        connection = self._connection
        connection.on_task()
        run = BridgeGoalRun(
            task_id=_bridge_handle_task_id(handle),
            goal=goal,
            lock=self.lock,
            make_run=partial(self._make_plan_run, _BridgeGoalObserver(self, connection, handle)),
            attempts=int(self._node.get_parameter("replan_attempts").value),
            on_cancel=partial(
                connection.disk.submit, connection.journal.cancel, _bridge_handle_task_id(handle)
            ),
            past=past,
            timeline=past.before if past is not None else BridgeTimeline(),
        )
        connection.loop.call(self._start, handle, run)

    def _on_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        """End the motion first. Then the answer waits for the disk, so that no other life goes on with the goal.

        Driver and server may already have given the plan up, and such a life would request another one.
        """
        if self._server is None:
            return CancelResponse.REJECT  # it is being released, and has ended every goal
        self.port.cancel_goal(_bridge_handle_task_id(handle))
        is_loop_late = not self._cancelled.is_set()
        self._cancelled = cancelled = threading.Event()
        self._connection.loop.call(self._cancel_run, _bridge_handle_task_id(handle), cancelled)
        if is_loop_late or not (cancelled.wait(CANCEL_SAVE_S) and self._connection.disk.wait(CANCEL_SAVE_S)):
            with self._log_fields(_bridge_handle_task_id(handle)):
                self._node.get_logger().warning(f"{self.entry.name}: a cancellation is not on the disk yet")
        return CancelResponse.ACCEPT

    def _on_scene(self, message: String) -> None:
        """Re-plan the goal that holds the robot, because the scene has changed."""
        limit = self._connection.settings.limits.scene_chars
        if len(message.data) > limit:
            with log_fields({"robot": self.entry.name}):
                self._node.get_logger().warning(
                    f"{self.entry.name}: a new scene of {len(message.data)} characters; the limit is {limit}"
                )
            return
        self._connection.loop.call(self._replan, message.data)

    def _finish(self, handle: ServerGoalHandle, end: TaskEnd) -> None:
        self.outcomes[end.outcome] += 1
        if end.code:
            self.last_error = f"{bridge_error_name(end.code)}: {end.message}"
            with self._log_fields(_bridge_handle_task_id(handle)):
                self._node.get_logger().info(f"{self.entry.name}: {end.outcome}, {self.last_error}")
        if self._server is None:
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
        finish_ros_goal(self._server, handle, RESULT_STATES.get(end.outcome, "aborted"), result)

    def _log_fields(self, task_id: str) -> AbstractContextManager[None]:
        return ros_task_log_fields(task_id, robot=self.entry.name)

    # --- Loop's thread ---

    def publish_tasks(self) -> None:
        """Renew the lease, and publish again that tasks live; the one that the robot executes comes last.

        The topic keeps the last few messages. So the driver gets the heartbeat of the task that it executes, however
        many others are queued.
        """
        self.port.lease.renew()
        runs = [run for run in self.runs.values() if run.plan is not None and not run.plan.over]
        queued_runs = [run for run in runs if not self.lock.held_by(run.claim)][:MAX_QUEUED_HEARTBEATS]
        for run in (*queued_runs, *(run for run in runs if self.lock.held_by(run.claim))):
            if run.plan is not None:
                self.publisher.task(run.plan)

    def _make_plan_run(
        self,
        observer: _BridgeGoalObserver,
        run: BridgeGoalRun,
        task_id: str,
        replaces: Replan | None,
        past: PastBridgePlan | None,
    ) -> BridgePlanRun:
        return BridgePlanRun(
            task_id=task_id,
            goal=run.goal,
            context=self._context,
            observer=observer,
            claim=run.claim,
            replaces=replaces,
            timeline=run.timeline,
            past=past,
        )

    def _start(self, handle: ServerGoalHandle, run: BridgeGoalRun) -> None:
        def finish(end: TaskEnd) -> None:
            self._calls.soon(self._finish, handle, end)
            # After the result, which it must not hold up.
            self._export_span(run, end)

        if run.past is None:
            try:
                # On this thread, on which a stop of the fleet ends the goals: none begins after it.
                self._connection.admit()
            except BridgeTaskError as error:
                finish(TaskEnd("refused", error.code, error.message))
                return
        self.runs[run.task_id] = run

        async def work() -> None:
            end = TaskEnd("failed", int(ErrorCode.BRIDGE_INTERNAL), "the task was abandoned")
            try:
                end = await run.run()
            finally:
                journal, disk = self._connection.journal, self._connection.disk
                ending = asyncio.wrap_future(disk.submit(journal.end, run.task_id))
                try:
                    await asyncio.wait((ending,), timeout=SAVE_S)
                finally:
                    del self.runs[run.task_id]
                    finish(end)

        with self._log_fields(run.task_id):
            run.task = asyncio.get_running_loop().create_task(work(), name=run.task_id)

    def _export_span(self, run: BridgeGoalRun, end: TaskEnd) -> None:
        traces, traceparent = self._connection.traces, bridge_traceparent(run.task_id)
        if traces is not None and traceparent is not None:
            span = bridge_goal_span(run, self.entry.name, end, self._connection.clock.now())
            traces.export_as(span, traceparent)

    def _replan(self, scene: str) -> None:
        for run in list(self.runs.values()):
            if self.lock.held_by(run.claim):
                run.replan("the scene has changed", scene)

    def _cancel_run(self, task_id: str, cancelled: threading.Event) -> None:
        if (run := self.runs.get(task_id)) is not None:
            run.cancel(ErrorCode.CANCELLED, "cancelled by the client")
        cancelled.set()

    def _cancel_runs(self, code: int, message: str) -> None:
        for run in list(self.runs.values()):
            run.cancel(code, message)


@dataclass(frozen=True, slots=True)
class _BridgeGoalObserver:
    """Publishes what happens to one goal's plans, and keeps their names in the journal."""

    robot: BridgeRobotServer
    connection: BridgeServerConnection
    handle: ServerGoalHandle

    def plan_changed(self, run: BridgePlanRun, end: TaskEnd | None) -> None:
        if end is None and not run.planned and not run.cancelled:
            put = partial(
                self.connection.journal.put,
                request=serialize_message(self.handle.request),
                replaces=asdict(run.replaces) if run.replaces is not None else None,
                before=deepcopy(run.timeline),
            )
            self._keep(put, self.robot.entry.name, run.task_id, run.token)
        self.robot.publisher.task(run, end)

    def beginning(self, run: BridgePlanRun) -> None:
        self._keep(self.connection.journal.begin, run.task_id, self.robot.port.session)

    async def flush(self) -> None:
        # What waits for the disk may be cancelled, and the disk goes on.
        await asyncio.shield(asyncio.wrap_future(self.connection.disk.submit(int)))

    def segment_sent(self, segment: Segment) -> None:
        message = self.robot.publisher.segment(segment)
        if self.handle.is_active:
            self.handle.publish_feedback(ExecuteTask.Feedback(segment=message))

    def reported(self, report: SegmentReport) -> None:
        self.robot.publisher.report(report)
        if report.kind in (SegmentReport.DONE, SegmentReport.VALUE):
            end_s = self.connection.clock.now()
            execution = SegmentExecution("done", elapsed_s=report.elapsed_s, end_s=end_s, value=report.value)
            self._keep(self.connection.journal.finish, report.task_id, report.segment, execution)

    def _keep(self, write: Callable[..., None], *arguments: Any) -> None:
        self.connection.disk.submit(write, _bridge_handle_task_id(self.handle), *arguments)


def _bridge_handle_task_id(handle: ServerGoalHandle) -> str:
    return TASK_PREFIX + bytes(handle.goal_id.uuid).hex()
