"""The parameters of a driver: declared with ranges, the robot's own settings among them."""

from collections.abc import Callable
from typing import Any

from rclpy.lifecycle import LifecycleNode

from timely.core.errors import InvalidInput
from timely.core.files import default_state_folder
from timely_robots.driver_parameters import DRIVER_PARAMETERS
from timely_robots.driver_store import DriverStore, robot_store_path
from timely_robots.robot import Robot
from timely_robots.ros.rclpy_utils import describe_ros_parameter


def ros_driver_parameters(robot: Robot) -> dict[str, tuple[Any, Any]]:
    """The parameters of a driver, the robot's settings among them: name -> default and descriptor.

    Raises:
        InvalidInput: a setting has the name of a parameter of every driver.
    """
    parameters: dict[str, tuple[Any, Any]] = {}
    values = {setting.name: setting.default for setting in DRIVER_PARAMETERS} | robot.settings
    for setting in (*DRIVER_PARAMETERS, *robot.SETTINGS):
        if setting.name in parameters:
            raise InvalidInput("every driver has a parameter of this name", where=f"setting {setting.name}")
        descriptor = describe_ros_parameter(
            setting.text, read_only=setting.fixed, low=setting.low, high=setting.high
        )
        parameters[setting.name] = (values[setting.name], descriptor)
    return parameters


def declare_ros_driver_parameters(node: LifecycleNode, robot: Robot) -> None:
    """Declare all parameters, and keep the robot's settings equal to those that have their names."""
    declare: Callable[..., Any] = node.declare_parameter
    for name, (default, descriptor) in ros_driver_parameters(robot).items():
        declare(name, default, descriptor)

    def copy_settings(parameters: list[Any]) -> None:
        for parameter in parameters:
            if parameter.name in robot.settings:
                value = parameter.value
                plain = isinstance(value, (bool, int, float, str))
                robot.settings[parameter.name] = value if plain else list(value)

    copy_settings([node.get_parameter(name) for name in robot.settings])
    node.add_post_set_parameters_callback(copy_settings)


def ros_driver_store(node: LifecycleNode, robot: Robot) -> DriverStore:
    """The driver's memory: on the disk for a robot that moves, or where ``state_dir`` names a folder.

    Raises:
        InvalidInput: the folder cannot be used, or a file in it is damaged.
    """
    folder = str(node.get_parameter("state_dir").value)
    if not folder and not robot.simulated:
        folder = str(default_state_folder())
    return DriverStore(robot_store_path(folder, node.get_namespace()) if folder else None)
