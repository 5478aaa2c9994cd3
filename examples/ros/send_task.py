"""Send one task to a robot and print its plan as it arrives: ``python send_task.py drone1 "Find the scissors"``."""

import atexit
import sys

import rclpy.action
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import TimeUtility
from timely_robots.error_codes import ErrorCode
from timely_robots.ros.discovery import end_ros_discovery

if len(sys.argv) != 3 or not sys.argv[1].isidentifier():
    sys.exit('usage: send_task.py ROBOT "TASK", with a robot of the fleet file')
robot, task = sys.argv[1:]
rclpy.init()
node = rclpy.create_node("send_task")
atexit.register(end_ros_discovery, [node])  # a program that ends beside others may hang without it
client = rclpy.action.ActionClient(node, ExecuteTask, f"/{robot}/execute_task")
if not client.wait_for_server(timeout_sec=10.0):
    sys.exit(f"no bridge serves {robot}")
# Full worth within 0.2 s, nothing left after half a second: an urgent task.
goal = ExecuteTask.Goal(task=task, tuf=TimeUtility(ert_s=0.2, beta=2.0, cutoff_s=0.5))
goal_future = client.send_goal_async(goal, lambda message: print("segment:", message.feedback.segment.text))
rclpy.spin_until_future_complete(node, goal_future, timeout_sec=10.0)
if (handle := goal_future.result()) is None or not handle.accepted:
    sys.exit("the goal was not taken")
answer, seconds = handle.get_result_async(), 300
try:
    while not answer.done() and client.server_is_ready() and (seconds := seconds - 1):
        rclpy.spin_until_future_complete(node, answer, timeout_sec=1.0)
except KeyboardInterrupt:
    rclpy.spin_until_future_complete(node, handle.cancel_goal_async(), timeout_sec=5.0)
if not answer.done():
    sys.exit("no result; the task may go on, as its bridge does not answer")
result = answer.result().result
print(f"{result.outcome}: {result.plan or 'no plan'}", flush=True)
if result.error_code:
    sys.exit(f"error {result.error_code}, {ErrorCode(result.error_code).name}: {result.error_msg}")
print(f"response {result.response:.2f} s, waiting {result.waiting:.2f} s, utility {result.utility:.2f}")
