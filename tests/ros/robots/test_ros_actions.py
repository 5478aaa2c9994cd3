"""Actions end while messages for them come in, and tasks raise; their process goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.process]

RAISES = """
import sys

import rclpy
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

context = isolated_ros_context(int(sys.argv[2]))
spinner = RosSpinner(context, [rclpy.create_node(f"node{n}", context=context) for n in range(int(sys.argv[1]))])
spinner.start().call(lambda: 1 / 0)
spinner.call_and_wait(lambda: None, 20.0)
assert spinner.errors == 1
assert spinner.close()
print("it went on")
"""

ENDS = """
import sys, threading, time

import rclpy
from rclpy.action import ActionClient, ActionServer
from timely_interfaces.action import ExecuteSegment
from timely_robots.ros.actions import assumed_goal_handle, destroy_ros_action
from timely_robots.ros.rclpy_utils import LATCHED_QOS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from unique_identifier_msgs.msg import UUID

LIMIT_S = 20.0
kind, domain_id = sys.argv[1], int(sys.argv[2])
contexts = [isolated_ros_context(domain_id) for _ in range(2)]
mine, witness = (rclpy.create_node(name, context=contexts[0]) for name in ("mine", "witness"))
peer = rclpy.create_node("peer", context=contexts[1])
server_node, client_node = (mine, peer) if kind == "server" else (peer, mine)
server = ActionServer(server_node, ExecuteSegment, "move", execute_callback=lambda goal: ExecuteSegment.Result())
client = ActionClient(client_node, ExecuteSegment, "move")
action = server if kind == "server" else client
# The witness has its own executor, and the participant of the action: what it has received, the action has, too.
received = threading.Semaphore(0)
if kind == "server":
    service = ExecuteSegment.Impl.SendGoalService
    witness.create_service(service, "move/_action/send_goal", lambda request, response: received.release() or response)
    send = lambda: client.send_goal_async(ExecuteSegment.Goal())
else:
    status = ExecuteSegment.Impl.GoalStatusMessage
    witness.create_subscription(status, "move/_action/status", lambda message: received.release(), 10)
    publisher = peer.create_publisher(status, "move/_action/status", LATCHED_QOS)
    send = lambda: publisher.publish(status())
spinners = [
    RosSpinner(contexts[0], [mine], owns_context=False).start(),
    RosSpinner(contexts[0], [witness]).start(),
    RosSpinner(contexts[1], [peer]).start(),
]
assert client.wait_for_server(LIMIT_S)
while not received.acquire(timeout=0.1):
    send()
results = []

def send_all():
    if kind == "server":
        goal = assumed_goal_handle(client, UUID())
        goal.get_result_async().add_done_callback(lambda future: results.append(future.result()))
    for _ in range(3):
        send()
    for _ in range(3):
        assert received.acquire(timeout=LIMIT_S)

def destroy():
    send_all()
    destroy_ros_action(action)
    send_all()

spinners[0].call_and_wait(destroy, LIMIT_S)

def wait_for_removal():
    until = time.monotonic() + LIMIT_S
    while action in list(mine.waitables) or (kind == "server" and not results):
        assert time.monotonic() < until, "it was not destroyed, or did not answer"
        spinners[2].call_and_wait(lambda: None, LIMIT_S)

for _ in range(3):
    spinners[0].call_and_wait(lambda: None, LIMIT_S)
wait_for_removal()
assert spinners[0].errors == 0
assert all(spinner.close() for spinner in spinners)
print("it went on")
"""


def run(program: str, *arguments: object) -> None:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "it went on\n"), ended.stderr


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_a_process_goes_on_when_a_task_raises(nodes: int, domain_id: int) -> None:
    """With exactly one node rclpy's events executor ended it with a segmentation fault."""
    run(RAISES, nodes, domain_id)


@pytest.mark.parametrize("kind", ["client", "server"])
def test_a_process_goes_on_when_an_action_ends_that_has_messages(kind: str, domain_id: int) -> None:
    """rclpy's events executor ended it with a segmentation fault if the last message came behind the removal.

    A server answers what had come before.
    """
    run(ENDS, kind, domain_id)
