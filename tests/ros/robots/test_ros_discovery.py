"""The end of a context's discovery: without it Fast DDS sometimes hangs at the end of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from ros_harness import eventually
from std_msgs.msg import String
from timely_robots.ros import discovery, spinner
from timely_robots.ros.discovery import end_ros_discovery
from timely_robots.ros.lifecycle import ManagedRosNode
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

pytestmark = [pytest.mark.ros]

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nodes(domain_id: int) -> Iterator[list[Any]]:
    """Three nodes, each in its context."""
    with ExitStack() as ending:
        made = []
        for name in ("one", "two", "three"):
            context = isolated_ros_context(domain_id)
            ending.callback(context.try_shutdown)
            made.append(rclpy.create_node(name, context=context))
            ending.callback(made[-1].destroy_node)
        ending.callback(lambda: [end_ros_discovery([node]) for node in made])
        yield made


def test_what_comes_later_is_not_discovered_and_what_is_connected_stays(nodes: list[Any]) -> None:
    one, two, three = nodes
    heard: list[Any] = []
    one.create_subscription(String, "early", heard.append, 1)
    publisher = two.create_publisher(String, "early", 1)
    eventually(
        lambda: publisher.get_subscription_count() and one.count_publishers("early"), "never connected"
    )
    assert end_ros_discovery([one])
    assert end_ros_discovery([one]), "it may be called again"
    two.create_publisher(String, "late", 1)
    eventually(lambda: three.count_publishers("late"), "discovered by none")
    publisher.publish(String(data="still here"))
    executor = SingleThreadedExecutor(context=one.context)
    eventually(lambda: rclpy.spin_once(one, timeout_sec=0.01, executor=executor) or heard, "cut")
    executor.shutdown()
    assert one.count_publishers("late") == 0


def test_another_middleware_or_version_is_left_alone(
    nodes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not end_ros_discovery([])
    with monkeypatch.context() as other:
        other.setattr(rclpy, "get_rmw_implementation_identifier", lambda: "rmw_zenoh_cpp")
        assert discovery._fast_dds.__wrapped__() is None
    with monkeypatch.context() as other:
        other.setattr(discovery, "_SET_LISTENER", "_ZN5other7versionEv")
        assert discovery._fast_dds.__wrapped__() is None


@pytest.mark.parametrize("owns_context", [True, False])
def test_a_spinner_ends_the_discovery_of_its_own_context_before_its_nodes(
    nodes: list[Any], monkeypatch: pytest.MonkeyPatch, owns_context: bool
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(spinner, "end_ros_discovery", lambda nodes: calls.append("discovery"))
    destroy = nodes[0].destroy_node

    def record_and_destroy() -> None:
        calls.append("node")
        destroy()

    monkeypatch.setattr(nodes[0], "destroy_node", record_and_destroy)
    assert RosSpinner(nodes[0].context, [nodes[0]], owns_context=owns_context).start().close()
    assert calls == (["discovery", "node"] if owns_context else ["node"])


def test_a_robot_comes_to_rest_before_discovery_ends(domain_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of discovery may wait for a callback."""
    calls: list[str] = []

    class Driver(ManagedRosNode):
        def release(self) -> None:
            calls.append("release")
            super().release()

    monkeypatch.setattr(spinner, "end_ros_discovery", lambda nodes: calls.append("discovery"))
    context = isolated_ros_context(domain_id)
    assert RosSpinner(context, [Driver("driver", context=context)]).start().close()
    assert calls[:2] == ["release", "discovery"]


EXAMPLE = """
import runpy, sys
from rclpy.action import ActionClient
from timely_robots.ros import discovery

end = discovery.end_ros_discovery
discovery.end_ros_discovery = lambda nodes: print(f"discovery ended: {end(nodes)}")
ActionClient.wait_for_server = lambda *arguments, **options: False
sys.argv = ["send_task.py", "drone1", "Go round"]
runpy.run_path(EXAMPLE, run_name="__main__")
"""


def run_example(program: str, domain_id: int) -> subprocess.CompletedProcess[str]:
    """Run a program that runs ``EXAMPLE``, the path of the example."""
    script = f"EXAMPLE = {str(ROOT / 'examples/ros/send_task.py')!r}\n{program}"
    environment = {**os.environ, "ROS_DOMAIN_ID": str(domain_id)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.process
def test_the_example_ends_its_discovery_wherever_it_ends(domain_id: int) -> None:
    ended = run_example(EXAMPLE, domain_id)
    assert (ended.stdout, ended.stderr) == ("discovery ended: True\n", "no bridge serves drone1\n")


LOST = """
import runpy, sys
from types import SimpleNamespace
import rclpy.action
from rclpy.task import Future

accepted = Future()
accepted.set_result(SimpleNamespace(accepted=True, get_result_async=Future))
rclpy.action.ActionClient = lambda *arguments: SimpleNamespace(
    wait_for_server=lambda timeout_sec: True,
    send_goal_async=lambda goal, feedback: accepted,
    server_is_ready=lambda: False,
)
sys.argv = ["send_task.py", "drone1", "Go round"]
runpy.run_path(EXAMPLE, run_name="__main__")
"""


@pytest.mark.process
def test_the_example_does_not_wait_for_a_bridge_that_is_gone(domain_id: int) -> None:
    ended = run_example(LOST, domain_id)
    assert ended.stderr == "no result; the task may go on, as its bridge does not answer\n"


ENDS = """
import random, sys, time
import rclpy
from std_msgs.msg import String
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

name, domain_id, ends = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(ends):
    context = isolated_ros_context(domain_id)
    node = rclpy.create_node(name, context=context)
    for index in range(40):
        node.create_publisher(String, f"{name}_{index}", 1)
    spinner = RosSpinner(context, [node]).start()
    time.sleep(2.0 - time.time() % 2.0 + random.uniform(0.0, 0.03))  # all end together
    assert spinner.close()
"""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_programs_that_end_together_all_end(domain_id: int) -> None:
    """Without the end of discovery 2 of 288 hung."""
    with ExitStack() as ending:
        programs = []
        for index in range(8):
            command = [sys.executable, "-c", ENDS, f"program{index}", str(domain_id), "40"]
            programs.append(subprocess.Popen(command))
            ending.callback(programs[-1].wait)
            ending.callback(programs[-1].kill)
        assert [program.wait(300) for program in programs] == [0] * len(programs)
