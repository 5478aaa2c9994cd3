"""The parameters of a driver: declared with ranges, the robot's own settings among them."""

import os
from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode

from timely.core.errors import InvalidInput
from timely_robots.driver_store import DriverStore, robot_store_path
from timely_robots.operators import PRINCIPALS_VARIABLE
from timely_robots.robot import Robot
from timely_robots.ros.rclpy_utils import describe_ros_parameter

STATE_DIR_VARIABLE = "TIMELY_STATE_DIR"
DEFAULT_STATE_DIR = "~/.local/state/timely"


def driver_parameters(robot: Robot) -> dict[str, tuple[Any, Any]]:
    """The parameters of a driver, the robot's settings among them: name -> default and descriptor.

    Raises:
        InvalidInput: a setting has the name of a parameter of every driver.
    """
    parameters: dict[str, tuple[Any, Any]] = {}

    def number(name: str, default: float, text: str, low: float, high: float, *, fixed: bool = True) -> None:
        parameters[name] = (default, describe_ros_parameter(text, low=low, high=high, read_only=fixed))

    for name, text in (
        ("profile", "robot profile: a name or a YAML file"),
        ("skill_set", "plan language of goals without one"),
        ("state_dir", f"folder of stop latch, begun tasks and lease epoch; empty: ${STATE_DIR_VARIABLE} or "
         f"{DEFAULT_STATE_DIR}, in memory for simulated robots"),
        ("principals", "file of principals: reset, take-over and confirmation need an operator's token; "
         f"empty: ${PRINCIPALS_VARIABLE}, or no token is needed"),
    ):  # fmt: skip
        parameters[name] = ("", describe_ros_parameter(text, read_only=True))
    number("state_period_s", 0.5, "between two states [s]", 0.05, 2.0)
    number("progress_period_s", 0.5, "least time between two progress reports [s]", 0.05, 60.0, fixed=False)
    number("task_silence_s", 3.0, "a task without a message for so long is orphaned [s]", 0.2, 3600.0)
    number("queue_limit", 64, "most segments that wait", 1, 10_000, fixed=False)
    number("connect_timeout_s", 10.0, "deadline of connecting to the robot [s]", 0.1, 300.0, fixed=False)
    number("lease_lapse_s", 3.0, "a lease without renewal for so long lapses [s]", 0.2, 3600.0)
    number("proximity_stop_m", 0.0, "no motion with an obstacle nearer than this [m]; 0: no gate", 0.0, 100.0)
    number("proximity_slow_m", 0.0, "slower motion with an obstacle nearer than this [m]", 0.0, 100.0)
    number("confirm_timeout_s", 30.0, "longest wait for an operator's confirmation [s]", 0.1, 3600.0)
    for setting in robot.SETTINGS:
        if setting.name in parameters:
            raise InvalidInput("every driver has a parameter of this name", where=f"setting {setting.name}")
        descriptor = describe_ros_parameter(
            setting.text, read_only=setting.fixed, low=setting.low, high=setting.high
        )
        parameters[setting.name] = (robot.settings[setting.name], descriptor)
    return parameters


def declare_driver_parameters(node: LifecycleNode, robot: Robot) -> None:
    """Declare all parameters, and keep the robot's settings equal to those that have their names."""
    declare: Callable[..., Any] = node.declare_parameter
    for name, (default, descriptor) in driver_parameters(robot).items():
        declare(name, default, descriptor)

    def copy_settings(parameters: list[Any]) -> None:
        for parameter in parameters:
            if parameter.name in robot.settings:
                value = parameter.value
                plain = isinstance(value, (bool, int, float, str))
                robot.settings[parameter.name] = value if plain else list(value)

    copy_settings([node.get_parameter(name) for name in robot.settings])
    node.add_post_set_parameters_callback(copy_settings)


def driver_store(node: LifecycleNode, robot: Robot) -> DriverStore:
    """The driver's memory: on the disk for a robot that moves, or where ``state_dir`` names a folder.

    Raises:
        InvalidInput: the folder cannot be used, or a file in it is damaged.
    """
    folder = str(node.get_parameter("state_dir").value)
    if not folder and not robot.simulated:
        folder = os.environ.get(STATE_DIR_VARIABLE, DEFAULT_STATE_DIR)
    return DriverStore(robot_store_path(folder, node.get_namespace()) if folder else None)
