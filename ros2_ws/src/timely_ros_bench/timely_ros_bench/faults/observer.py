"""A robot program that sends tasks to all robots and keeps the states that they publish."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.action import ActionClient
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from std_msgs.msg import String
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import RobotState, Task
from timely_robots.ros.actions import RosActionCall
from timely_robots.ros.rclpy_utils import TASKS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

from timely.core.errors import EngineFailed
from timely_ros_bench.faults.judge import FaultObservedState


@dataclass(slots=True, eq=False)
class FaultErrand:
    robot: str
    plans: list[list[str]]
    call: RosActionCall
    sent_s: float
    end_s: list[float]
    """When its result came; empty before."""

    @property
    def task_id(self) -> str:
        return f"ros-{bytes(self.call.goal_id.uuid).hex()}"

    @property
    def ended(self) -> bool:
        return self.call.response is not None

    @property
    def result(self) -> Any:
        return self.call.response.result


class FaultObserver:
    """Sends tasks and keeps the states of robots, the ends of tasks, and the owners of leases."""

    def __init__(self, robots: Sequence[str], domain: int) -> None:
        self.states: dict[str, list[FaultObservedState]] = {name: [] for name in robots}
        self.ends: dict[str, tuple[str, int, float]] = {}
        """Plan -> outcome, code and time of its end, as the bridge published it."""
        self.plans: dict[str, list[str]] = {}
        """Task -> its plans in order, as the bridge published them."""
        self.leases: dict[str, list[tuple[float, str]]] = {name: [] for name in robots}
        """Robot -> times and owners of its lease, by its driver."""
        context = isolated_ros_context(domain)
        self.node = rclpy.create_node("faults", context=context)
        self._clients = {
            name: ActionClient(self.node, ExecuteTask, f"/{name}/execute_task") for name in robots
        }
        keep = QoSProfile(depth=50, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        for name in robots:
            self.node.create_subscription(
                RobotState, f"/{name}/state", lambda state, name=name: self._take_state(name, state), keep
            )
            self.node.create_subscription(Task, f"/{name}/task", self._take_task, TASKS)
        self._scenes = {name: self.node.create_publisher(String, f"/{name}/new_scene", 1) for name in robots}
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._take_diagnostics, 50)
        self._server_s = -math.inf
        self._services: dict[str, Any] = {}
        self.handed_over_s = 0.0
        """When the middleware had the last request of ``call``, on the monotonic clock."""
        self._spinner = RosSpinner(context, [self.node], name="faults").start()

    def _take_state(self, name: str, state: RobotState) -> None:
        stamp_s = state.stamp.sec + 1e-9 * state.stamp.nanosec
        report = FaultObservedState(
            state.mode,
            state.session,
            stamp_s,
            time.monotonic(),
            state.task_id,
            state.segment,
            state.battery,
            state.detail,
        )
        self.states[name].append(report)
        leases = self.leases[name]
        if not leases or leases[-1][1] != state.lease_owner:
            leases.append((report.received_s, state.lease_owner))

    def _take_task(self, task: Task) -> None:
        plans = self.plans.setdefault(task.task_id.partition("-r")[0], [])
        if task.task_id not in plans:
            plans.append(task.task_id)
        if task.phase == Task.ENDED:
            self.ends.setdefault(task.task_id, (task.outcome, task.error_code, time.monotonic()))

    def _take_diagnostics(self, array: DiagnosticArray) -> None:
        if any(part.hardware_id == "server" and part.level == DiagnosticStatus.OK for part in array.status):
            self._server_s = time.monotonic()

    def served_since(self, when_s: float) -> bool:
        """The bridge has published since then that its server answers."""
        return self._server_s > when_s

    def reachable(self, name: str) -> bool:
        """The bridge's action for the robot is there."""
        return bool(self._clients[name].server_is_ready())

    def last(self, name: str) -> FaultObservedState | None:
        states = self.states[name]
        return states[-1] if states else None

    def send(self, name: str, task: str, plans: list[list[str]]) -> FaultErrand:
        end_s: list[float] = []
        call = RosActionCall(
            self._clients[name],
            ExecuteTask.Goal(task=task),
            on_response=lambda response: end_s.append(time.monotonic()),
        )
        sent_s = time.monotonic()
        self._spinner.call(call.send)
        return FaultErrand(name, plans, call, sent_s, end_s)

    def change_scene(self, name: str) -> None:
        """Publish another scene for a robot, so that its task is re-planned."""
        self._scenes[name].publish(String(data="the table has been moved"))

    def insist(self, errand: FaultErrand) -> None:
        """Request the result by the goal's id: after a bridge was started again, or an answer was lost."""
        self._spinner.call(errand.call.insist)

    def cancel(self, errand: FaultErrand) -> None:
        self._spinner.call(errand.call.cancel)

    def connect(self, kind: Any, name: str, timeout_s: float = 30.0) -> None:
        """Find a service, so that a later call does not wait for the discovery.

        Raises:
            EngineFailed: it did not appear in time.
        """
        if name not in self._services:
            self._services[name] = self._spinner.call_and_wait(
                lambda: self.node.create_client(kind, name), timeout_s
            )
        if not self._services[name].wait_for_service(timeout_s):
            raise EngineFailed(f"{name} did not appear", where="bench")

    def call(self, kind: Any, name: str, request: Any = None, timeout_s: float = 30.0) -> Any:
        """Call a service; raises EngineFailed without an answer."""
        answered, answers = threading.Event(), []

        def answer(future: Any) -> None:
            answers.append(future.result())
            answered.set()

        self.connect(kind, name, timeout_s)
        future = self._services[name].call_async(request or kind.Request())
        self.handed_over_s = time.monotonic()
        future.add_done_callback(answer)
        if not answered.wait(timeout_s):
            raise EngineFailed(f"{name} did not answer", where="bench")
        return answers[0]

    def close(self) -> None:
        self._spinner.close()
