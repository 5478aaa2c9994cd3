"""A robot program that sends tasks to all robots and hears what they say of themselves."""

from __future__ import annotations

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
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import RobotState
from timely_robots.ros.rclpy_utils import (
    Spinner,
    assumed_goal_handle,
    isolated_context,
    new_goal_id,
    send_goal,
)

from timely.core.errors import EngineFailed
from timely_ros_bench.faults.judge import Said


@dataclass(slots=True, eq=False)
class Errand:
    """A task on its way."""

    robot: str
    plan: list[str]
    goal_id: Any
    result: Any = None
    status: int = -1
    handle: Any = None

    @property
    def task_id(self) -> str:
        """The bridge's name of it."""
        return f"ros-{bytes(self.goal_id.uuid).hex()}"

    @property
    def ended(self) -> bool:
        """Its result is there."""
        return self.result is not None


class Observer:
    """Sends tasks and keeps what robots say of themselves."""

    def __init__(self, robots: Sequence[str], domain: int) -> None:
        self.said: dict[str, list[Said]] = {name: [] for name in robots}
        context = isolated_context(domain)
        self.node = rclpy.create_node("faults", context=context)
        self._clients = {
            name: ActionClient(self.node, ExecuteTask, f"/{name}/execute_task") for name in robots
        }
        keep = QoSProfile(depth=50, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        for name in robots:
            self.node.create_subscription(
                RobotState, f"/{name}/state", lambda state, name=name: self._hear(name, state), keep
            )
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnosed, 50)
        self._server_s = -math.inf
        self._services: dict[str, Any] = {}
        self._spinner = Spinner(context, [self.node], name="faults").start()

    def _hear(self, name: str, state: RobotState) -> None:
        stamp_s = state.stamp.sec + 1e-9 * state.stamp.nanosec
        heard = Said(
            state.mode,
            state.session,
            stamp_s,
            time.monotonic(),
            state.task_id,
            state.segment,
            state.battery,
            state.detail,
        )
        self.said[name].append(heard)

    def _diagnosed(self, array: DiagnosticArray) -> None:
        if any(part.hardware_id == "server" and part.level == DiagnosticStatus.OK for part in array.status):
            self._server_s = time.monotonic()

    def served_since(self, when_s: float) -> bool:
        """The bridge has said since then that its server answers."""
        return self._server_s > when_s

    def reachable(self, name: str) -> bool:
        """The bridge's action for the robot is there."""
        return bool(self._clients[name].server_is_ready())

    def last(self, name: str) -> Said | None:
        """What the robot said last."""
        said = self.said[name]
        return said[-1] if said else None

    def send(self, name: str, task: str, plan: list[str]) -> Errand:
        """Send a task."""
        errand = Errand(name, plan, new_goal_id())

        def begin() -> None:
            sent = send_goal(self._clients[name], ExecuteTask.Goal(task=task), None, errand.goal_id)
            sent.add_done_callback(lambda future: self._follow(errand, future.result()))

        self._spinner.call(begin)
        return errand

    def _follow(self, errand: Errand, handle: Any) -> None:
        errand.handle = handle
        handle.get_result_async().add_done_callback(lambda future: self._ended(errand, future))

    @staticmethod
    def _ended(errand: Errand, future: Any) -> None:
        response = future.result()
        if response is not None and not errand.ended:
            errand.status, errand.result = int(response.status), response.result

    def insist(self, errand: Errand) -> None:
        """Ask for the result by the goal's name: after a bridge was started again, or an answer was lost."""
        self._spinner.call(
            lambda: self._follow(errand, assumed_goal_handle(self._clients[errand.robot], errand.goal_id))
        )

    def cancel(self, errand: Errand) -> None:
        """Cancel a task."""
        if errand.handle is not None:
            self._spinner.call(errand.handle.cancel_goal_async)

    def call(self, kind: Any, name: str, request: Any = None, timeout_s: float = 30.0) -> Any:
        """Call a service; raises EngineFailed without an answer."""
        answered, answers = threading.Event(), []

        def answer(future: Any) -> None:
            answers.append(future.result())
            answered.set()

        def begin() -> None:
            if name not in self._services:
                self._services[name] = self.node.create_client(kind, name)
            client = self._services[name]
            client.wait_for_service(timeout_s)
            client.call_async(request or kind.Request()).add_done_callback(answer)

        self._spinner.call(begin)
        self._spinner.executor.wake()
        if not answered.wait(timeout_s):
            raise EngineFailed(f"{name} did not answer", where="bench")
        return answers[0]

    def close(self) -> None:
        """Let go."""
        self._spinner.close()
