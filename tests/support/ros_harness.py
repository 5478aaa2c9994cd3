"""What the ROS 2 tests share: a robot program's side of actions, topics and services, every wait with a deadline."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.qos import QoSProfile
from timely_robots.ros.actions import RosActionCall, assumed_goal_handle, new_ros_goal_id
from timely_robots.ros.rclpy_utils import LATCHED_QOS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

LIMIT_S = 20.0
"""Longest wait for anything; a healthy run needs a fraction of a second."""

PROBE_S = 0.1
AT_ONCE_S = 2.0
"""What is at once in a test: a shared machine stands still for a second now and then; benchmarks have the timings."""


def eventually(
    what: Callable[[], Any], message: str = "it never came to that", timeout_s: float = LIMIT_S
) -> Any:
    """The first true value of ``what``."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline, message
        time.sleep(0.005)


def principals(*entries: tuple[str, ...]) -> str:
    """A file of principals: each entry is (name, role, token, patterns of robots ...)."""
    return json.dumps(
        [
            {"name": name, "roles": [role], "token_sha256": [hashlib.sha256(token.encode()).hexdigest()]}
            | ({"agents": patterns} if patterns else {})
            for name, role, token, *patterns in entries
        ]
    )


class Goal:
    """A goal on its way."""

    def __init__(self, program: Program, client: ActionClient, goal: Any) -> None:
        self._program = program
        self._ended = threading.Event()
        self.sent_s = time.monotonic()
        self.ended_s = 0.0
        self.feedback: list[Any] = []
        self._call = RosActionCall(client, goal, self._on_response, self._on_feedback)
        program.spinner.call(self._call.send)

    @property
    def goal_id(self) -> Any:
        """Its name in ROS 2."""
        return self._call.goal_id

    def _on_feedback(self, message: Any) -> None:
        self.feedback.append(message.feedback)

    def _on_response(self, response: Any) -> None:
        self.ended_s = time.monotonic()
        self._ended.set()

    def _insist(self) -> None:
        """The acceptance of the very first goal may get lost in discovery: see ``assumed_goal_handle``."""
        eventually(lambda: self._call.handle is not None or self._call.unanswered)
        if self._call.handle is None:
            self._program.spinner.call(self._call.insist)

    def cancel(self) -> float:
        """Cancel it; when that was, on the monotonic clock."""
        self._insist()
        eventually(lambda: self._call.handle is not None, "the goal was never accepted")
        now = time.monotonic()
        self._program.spinner.call(self._call.cancel)
        return now

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def result(self, timeout_s: float = LIMIT_S) -> Any:
        """Its result."""
        self._insist()
        assert self._ended.wait(timeout_s), "the goal never ended"
        return self._call.response.result

    @property
    def status(self) -> int:
        """Of the ended goal; see action_msgs/GoalStatus."""
        assert self._ended.wait(LIMIT_S), "the goal never ended"
        return int(self._call.response.status)


class Program:
    """A robot program: one node with its own context, in the domain of the test."""

    def __init__(self, domain_id: int) -> None:
        self.context = isolated_ros_context(domain_id)
        self.node = rclpy.create_node("program", context=self.context)
        self.spinner = RosSpinner(self.context, [self.node], name="program").start()
        self._clients: dict[str, ActionClient] = {}

    def send(self, action: Any, name: str, **fields: Any) -> Goal:
        """Send a goal, once its server is there."""
        client = self.client(action, name)
        eventually(client.server_is_ready, f"no server of {name}")
        return Goal(self, client, action.Goal(**fields))

    def client(self, action: Any, name: str) -> ActionClient:
        """The client of an action, once its server is there and knows it."""
        client = self._clients.get(name)
        if client is None:
            client = self.spinner.call_and_wait(lambda: ActionClient(self.node, action, name), LIMIT_S)
            self._clients[name] = client
            self.spinner.executor.wake()
            eventually(client.server_is_ready, f"no server of {name}")
            self._wait_until_known(client, name)
        return client

    def _wait_until_known(self, client: ActionClient, name: str) -> None:
        """Return when the server knows where to send responses: else the acceptance of the first goal may be lost.

        The result of a goal that does not exist is answered at once.
        """
        answered = threading.Event()
        requests: list[Any] = []

        def probe() -> None:
            request = assumed_goal_handle(client, new_ros_goal_id()).get_result_async()
            request.add_done_callback(lambda done: None if done.cancelled() else answered.set())
            requests.append(request)

        deadline = time.monotonic() + LIMIT_S
        while not answered.is_set():
            assert time.monotonic() < deadline, f"{name} answers nothing"
            self.spinner.call(probe)
            answered.wait(PROBE_S)
        self.spinner.call_and_wait(lambda: [one.cancel() for one in requests if not one.done()], LIMIT_S)

    def ask(self, action: Any, name: str, goal_id: Any, *, cancel: bool = False) -> Any:
        """The result of a goal that another process accepted, perhaps cancelled first."""
        client = self.client(action, name)
        responses: list[Any] = []

        def ask() -> None:
            handle = assumed_goal_handle(client, goal_id)
            if cancel:
                handle.cancel_goal_async()
            handle.get_result_async().add_done_callback(lambda done: responses.append(done.result()))

        self.spinner.call(ask)
        return eventually(lambda: responses, "the goal never ended")[0].result

    def listen(
        self, kind: Any, topic: str, *, latched: bool = False, qos: QoSProfile | None = None
    ) -> list[Any]:
        """All messages of a topic from now on."""
        heard: list[Any] = []
        qos = qos or (LATCHED_QOS if latched else QoSProfile(depth=200))
        self.spinner.call_and_wait(
            lambda: self.node.create_subscription(kind, topic, heard.append, qos), LIMIT_S
        )
        self.spinner.executor.wake()
        return heard

    def call(self, kind: Any, name: str, request: Any = None) -> Any:
        """Call a service, once it is there."""
        client = self.spinner.call_and_wait(lambda: self.node.create_client(kind, name), LIMIT_S)
        self.spinner.executor.wake()
        eventually(client.service_is_ready, f"no service {name}")
        answer: list[Any] = []

        def ask() -> None:
            client.call_async(request or kind.Request()).add_done_callback(
                lambda future: answer.append(future.result())
            )

        self.spinner.call(ask)
        eventually(lambda: answer, f"{name} never answered")
        return answer[0]

    def close(self) -> None:
        assert self.spinner.close(), "the program's executor did not end"
