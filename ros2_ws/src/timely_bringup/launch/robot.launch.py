"""One robot: its driver in its namespace, and the bridge that serves it.

ros2 launch timely_bringup robot.launch.py name:=drone1 profile:=sim-drone skill_set:=drone server_url:=http://...

``params_file:=FILE`` names a ROS 2 parameter file with more parameters of the two nodes, such as the robot's address.
"""

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import LifecycleNode
from launch_ros.substitutions import FindPackageShare
from timely_bridge.run_fleet import bridge_state_folder

RESPAWN_S = 2.0

ARGUMENTS = {
    "name": ("drone1", "of the robot; its namespace"),
    "driver": ("sim", "kind of driver"),
    "profile": ("sim-drone", "robot profile: limits and execution times"),
    "skill_set": ("drone", "plan language"),
    "server_url": ("http://127.0.0.1:8000", "of the Timely server"),
    "params_file": ("", "ROS 2 parameter file with further parameters of driver and bridge"),
}


def robot_launch_nodes(context: LaunchContext) -> list[LifecycleNode]:
    """The two nodes; both configure and activate themselves, and are started again when they end."""
    value = {name: LaunchConfiguration(name).perform(context) for name in ARGUMENTS}
    name = value["name"]
    robot = {"profile": value["profile"], "skill_set": value["skill_set"]}
    more = [value["params_file"]] if value["params_file"] else []
    config = PathJoinSubstitution([FindPackageShare("timely_bringup"), "config", "bridge.yaml"])
    return [
        LifecycleNode(
            package="timely_robots",
            executable="timely_driver",
            name="driver",
            namespace=name,
            arguments=["--kind", value["driver"]],
            parameters=[*more, {**robot, "autostart": True}],
            output="screen",
            respawn=True,
            respawn_delay=RESPAWN_S,
        ),
        LifecycleNode(
            package="timely_bridge",
            executable="timely_bridge",
            name="timely_bridge",
            namespace="",
            parameters=[
                config,
                *more,
                {"robots": [name], "server_url": value["server_url"], "autostart": True},
                {"state_folder": str(bridge_state_folder(f"/{name}"))},
                {f"{name}.{key}": item for key, item in robot.items()},
            ],
            output="screen",
            respawn=True,
            respawn_delay=RESPAWN_S,
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    arguments = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=robot_launch_nodes)])
