"""A fleet from a YAML file: one driver a robot, each in its namespace, and one bridge.

ros2 launch timely_bringup fleet.launch.py fleet:=/path/fleet.yaml server_url:=http://... one_process:=true

With ``one_process:=true`` all nodes share a process: discovery among many processes limits a fleet on one machine.
"""

from __future__ import annotations

from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from launch.substitutions import FindExecutable, LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode
from launch_ros.substitutions import FindPackageShare
from timely_bridge.fleet import load_bridge_fleet


def parts(context: LaunchContext) -> list[Any]:
    """All nodes of the fleet; they configure and activate themselves."""
    value = {
        name: LaunchConfiguration(name).perform(context) for name in ("fleet", "server_url", "one_process")
    }
    if value["one_process"].lower() in ("true", "1", "yes"):
        url = ["--server-url", value["server_url"]] if value["server_url"] else []
        python = FindExecutable(name="python3")
        command = [python, "-m", "timely_bridge.run_fleet", "--fleet", value["fleet"], *url]
        return [ExecuteProcess(cmd=command, output="screen")]
    fleet = load_bridge_fleet(value["fleet"])
    bridge = fleet.bridge_parameters()
    if value["server_url"]:
        bridge["server_url"] = value["server_url"]
    config = PathJoinSubstitution([FindPackageShare("timely_bringup"), "config", "bridge.yaml"])
    drivers = [
        LifecycleNode(
            package="timely_robots",
            executable="timely_driver",
            name="driver",
            namespace=robot.name,
            arguments=["--kind", robot.driver],
            parameters=[{**fleet.driver_parameters(robot), "autostart": True}],
            output="screen",
        )
        for robot in fleet.robots
    ]
    door = LifecycleNode(
        package="timely_bridge",
        executable="timely_bridge",
        name="timely_bridge",
        namespace="",
        parameters=[config, {**bridge, "autostart": True}],
        output="screen",
    )
    return [*drivers, door]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    default = PathJoinSubstitution([FindPackageShare("timely_bringup"), "config", "fleet.yaml"])
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "fleet", default_value=default, description="YAML file that names the robots"
            ),
            DeclareLaunchArgument("server_url", default_value="", description="overrides the file's"),
            DeclareLaunchArgument(
                "one_process", default_value="false", description="all nodes in one process"
            ),
            OpaqueFunction(function=parts),
        ]
    )
