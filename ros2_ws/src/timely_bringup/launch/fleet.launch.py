"""A fleet from a YAML file: the bridge, and a driver for each robot in its namespace, by ``timely_fleet``.

ros2 launch timely_bringup fleet.launch.py fleet:=/path/fleet.yaml server_url:=http://... one_process:=true

Each driver has a process of its own, which is started again when it ends. With ``one_process:=true`` all nodes share a
process: discovery among many processes limits a fleet on one machine. Stop and goals are kept in a folder for each
fleet file, and the whole is started again when it ends.
"""

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

RESPAWN_S = 2.0
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


def fleet_launch_nodes(context: LaunchContext) -> list[Node]:
    """The fleet as one program; its nodes configure and activate themselves."""
    value = {
        name: LaunchConfiguration(name).perform(context) for name in ("fleet", "server_url", "one_process")
    }
    arguments = ["--fleet", value["fleet"]]
    if value["server_url"]:
        arguments += ["--server-url", value["server_url"]]
    one_process = value["one_process"].lower()
    if one_process in TRUE:
        arguments.append("--one-process")
    elif one_process not in FALSE:
        raise ValueError(f"one_process must be true or false, got {value['one_process']!r}")
    return [
        Node(
            package="timely_bridge",
            executable="timely_fleet",
            arguments=arguments,
            parameters=[PathJoinSubstitution([FindPackageShare("timely_bringup"), "config", "bridge.yaml"])],
            output="screen",
            respawn=True,
            respawn_delay=RESPAWN_S,
        )
    ]


def generate_launch_description() -> LaunchDescription:
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
            OpaqueFunction(function=fleet_launch_nodes),
        ]
    )
