"""A response whose client is still being discovered is sent again."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import rclpy
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from rclpy.service import Service
from ros_harness import LIMIT_S, Program, eventually
from std_srvs.srv import Trigger
from timely_robots.ros import services
from timely_robots.ros.services import MATCH_S, WAITS_S, create_ros_service
from timely_robots.ros.spinner import EXECUTOR_VARIABLE, RosSpinner, isolated_ros_context

DEAF = QoSProfile(depth=10, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
"""Of a client whose requests come, and for whose responses the middleware finds no reader."""


class DroppingNode:
    """A node and its service; the middleware drops the first responses, on a clock of its own."""

    def __init__(self, drops: int) -> None:
        self.drops, self.sends, self.now_s = drops, 0, 0.0

    def create_service(self, kind: Any, name: str, answer: Any) -> DroppingNode:
        return self

    def send_response(self, response: Any, header: Any) -> None:
        self.sends += 1
        if self.sends <= self.drops:
            self.now_s += 2 * MATCH_S

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s


class ThreadAtOnce:
    """A thread that has ended when its start returns."""

    refused = False

    def __init__(self, *, target: Any, **options: Any) -> None:
        self.start = target
        if self.refused:
            raise RuntimeError("can't start new thread")


def dropping_service(drops: int, monkeypatch: pytest.MonkeyPatch) -> tuple[DroppingNode, Any]:
    node: Any = DroppingNode(drops)
    monkeypatch.setattr(services, "time", node)
    monkeypatch.setattr(services, "threading", SimpleNamespace(Thread=ThreadAtOnce, Lock=threading.Lock))
    return node, create_ros_service(node, Trigger, "x", lambda request, response: response)


@pytest.mark.parametrize(("drops", "sends"), [(0, 1), (1, 2), (3, 4), (99, 1 + len(WAITS_S))])
def test_a_response_is_sent_until_it_is_not_dropped(
    drops: int, sends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, service = dropping_service(drops, monkeypatch)
    for _ in range(2):
        node.sends = 0
        service.send_response(Trigger.Response(), None)
        assert node.sends == sends


def test_without_threads_a_response_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node, service = dropping_service(2, monkeypatch)
    monkeypatch.setattr(ThreadAtOnce, "refused", True)
    service.send_response(Trigger.Response(), None)
    assert node.sends == 1
    monkeypatch.setattr(ThreadAtOnce, "refused", False)
    service.send_response(Trigger.Response(), None)
    assert node.sends == 4, "the one before, too"


def test_responses_that_are_dropped_together_are_all_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of two clients that start at once, beside one that never has a reader."""
    received: list[str] = []
    node, service = dropping_service(0, monkeypatch)
    threads: list[Any] = []

    def thread(*, target: Any, **options: Any) -> Any:
        threads.append(target)
        return SimpleNamespace(start=lambda: None)

    def send(response: Any, header: Any) -> None:
        node.sends += 1
        if header == "deaf" or node.sends <= 3:
            node.now_s += 2 * MATCH_S
        else:
            received.append(header)

    monkeypatch.setattr(services, "threading", SimpleNamespace(Thread=thread, Lock=threading.Lock))
    service = create_ros_service(
        SimpleNamespace(create_service=lambda *arguments: SimpleNamespace(send_response=send)),
        Trigger,
        "x",
        lambda request, response: response,
    )
    for header in ("deaf", "one", "two"):
        service.send_response(Trigger.Response(), header)
    assert (received, len(threads)) == ([], 1)
    threads[0]()
    assert sorted(received) == ["one", "two"]
    assert node.sends == 3 + 2 + len(WAITS_S)


@pytest.mark.ros
@pytest.mark.parametrize("executor", ["events", "single"])
def test_a_client_gets_a_response_that_was_not_sent_at_first(
    executor: str, domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends: list[str] = []
    send = Service.send_response

    def drop_first(service: Any, response: Any, header: Any) -> None:
        sends.append(response.message)
        if len(sends) > 1:
            send(service, response, header)

    monkeypatch.setenv(EXECUTOR_VARIABLE, executor)
    monkeypatch.setattr(services, "MATCH_S", -1.0)
    monkeypatch.setattr(services, "WAITS_S", (0.0,))
    monkeypatch.setattr(Service, "send_response", drop_first)
    context = isolated_ros_context(domain_id)
    node = rclpy.create_node("served", context=context)
    create_ros_service(node, Trigger, "/x", lambda request, response: Trigger.Response(message="yes"))
    spinner = RosSpinner(context, [node], name="served").start()
    program = Program(domain_id)
    try:
        assert program.call(Trigger, "/x").message == "yes"
        assert sends == ["yes", "yes"]
    finally:
        program.close()
        assert spinner.close()


@pytest.mark.ros
@pytest.mark.parametrize("executor", ["events", "single"])
@pytest.mark.parametrize("is_deaf", [True, False])
def test_the_middleware_drops_responses_and_a_client_takes_the_first(
    is_deaf: bool, executor: str, domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each response is sent three times: since the client has no reader, or for the client to ignore two of them."""
    requests: list[Any] = []
    sends: list[str] = []
    send = Service.send_response

    def note(service: Any, response: Any, header: Any) -> None:
        send(service, response, header)
        sends.append(response.message)

    def answer(request: Any, response: Any) -> Any:
        requests.append(request)
        response.message = str(len(requests) - 1)
        return response

    monkeypatch.setenv(EXECUTOR_VARIABLE, executor)
    monkeypatch.setattr(services, "WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(services, "MATCH_S", MATCH_S if is_deaf else -1.0)
    monkeypatch.setattr(Service, "send_response", note)
    context = isolated_ros_context(domain_id)
    node = rclpy.create_node("served", context=context)
    create_ros_service(node, Trigger, "/x", answer)
    spinner = RosSpinner(context, [node], name="served").start()
    program = Program(domain_id)
    try:
        if is_deaf:
            client = program.spinner.call_and_wait(
                lambda: program.node.create_client(Trigger, "/x", qos_profile=DEAF), LIMIT_S
            )
            eventually(lambda: requests or (client.call_async(Trigger.Request()) and None))
            eventually(lambda: sends.count("0") == 3)
        else:
            for number in ("0", "1", "2"):
                assert program.call(Trigger, "/x").message == number
                eventually(lambda: sends.count(number) == 3)  # noqa: B023
        assert (spinner.errors, program.spinner.errors) == (0, 0)
    finally:
        program.close()
        assert spinner.close()
