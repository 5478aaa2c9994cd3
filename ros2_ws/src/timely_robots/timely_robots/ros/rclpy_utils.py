"""Small things of rclpy that every node here needs: qualities of service, ranged parameters, times."""

from typing import Any

import rclpy
from builtin_interfaces.msg import Time
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.clock import Clock, ClockType
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

LATCHED_QOS = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
"""Late subscribers get the last message: for state and status."""

TASKS = QoSProfile(depth=20, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
"""Late subscribers get the last few: several tasks of a robot may live at once."""

SENSOR_QOS = QoSProfile(depth=1, reliability=QoSReliabilityPolicy.BEST_EFFORT)
"""Of a sensor's subscriber: it gets the newest value, and also those of publishers that repeat nothing."""

GOALS = QoSProfile(depth=256)
"""Requests of an action that wait in the middleware, for an executor that is held up or a network that is cut.

rclpy keeps ten. The first segments of a longer plan would be dropped, and the driver would refuse the rest.
"""
GOAL_SERVICES = {f"{service}_service_qos_profile": GOALS for service in ("goal", "result", "cancel")}
"""Arguments of action clients and servers."""


def steady_ros_clock() -> Clock:
    """The clock of a timer. On a node's own clock a timer stands still while the computer's time is set back."""
    return Clock(clock_type=ClockType.STEADY_TIME)


def create_ros_helper_node(name: str, namespace: str, context: Context) -> Node:
    """A node without parameters beside the main one of a process.

    ``-r __node:=`` names every node of a process, and a launch file gives it for the main one. A rule of its own keeps
    this node's name.
    """
    return rclpy.create_node(
        name,
        namespace=namespace,
        context=context,
        start_parameter_services=False,
        cli_args=["--ros-args", "-r", f"__node:={name}"],
    )


def describe_ros_parameter(
    text: str, *, read_only: bool = False, low: Any = None, high: Any = None
) -> ParameterDescriptor:
    """A parameter descriptor with an inclusive range, so that rclpy itself refuses values outside it."""
    descriptor = ParameterDescriptor(description=text, read_only=read_only)
    if isinstance(low, float):
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=float(high), step=0.0)]
    elif isinstance(low, int):
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=int(high), step=1)]
    return descriptor


def to_ros_time(seconds: float) -> Time:
    """ROS time of ``seconds`` since its epoch; zero for NaN or less."""
    if not seconds > 0.0:
        return Time()
    whole = int(seconds)
    return Time(sec=whole, nanosec=int((seconds - whole) * 1e9))
