"""The parameters of the bridge: declared with ranges, read once when the node is configured."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rclpy.lifecycle import LifecycleNode
from timely_robots.ros.rclpy_utils import describe_ros_parameter

from timely.core.errors import InvalidInput
from timely_bridge.goals import NAME, GoalLimits, RobotEntry
from timely_bridge.outcome import Deadlines
from timely_bridge.robot_lock import POLICIES


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """What the bridge was configured with; times in seconds."""

    server_url: str
    robots: tuple[RobotEntry, ...]
    on_busy: str
    limits: GoalLimits
    deadlines: Deadlines
    driver_silence_s: float
    heartbeat_period_s: float
    heartbeat_misses: int
    take_up_s: float
    state_folder: Path | None
    """Where the stop's latch and the goals are kept; None keeps them in memory only."""


def declare_bridge_parameters(node: LifecycleNode) -> None:
    """Declare all parameters but those of the robots, whose names are a parameter themselves."""
    declare = node.declare_parameter
    fixed = {"read_only": True}
    declare("server_url", "http://127.0.0.1:8000", describe_ros_parameter("of the Timely server", **fixed))
    declare("robots", [""], describe_ros_parameter("names of the robots; each is a namespace", **fixed))
    declare(
        "on_busy",
        "queue",
        describe_ros_parameter(f"a second task for a robot: one of {', '.join(POLICIES)}", **fixed),
    )
    declare(
        "state_folder",
        "",
        describe_ros_parameter(
            "keeps stop and goals across restarts; empty: not kept, `run_fleet` chooses one", **fixed
        ),
    )
    declare(
        "take_up_s",
        10.0,
        describe_ros_parameter(
            "goals of a bridge that died longer ago are ended; 0: all are [s]", low=0.0, high=86_400.0
        ),
    )
    declare(
        "principals",
        "",
        describe_ros_parameter(
            "file of principals: ~/reset needs an operator's token; empty: $TIMELY_PRINCIPALS, or none is needed",
            **fixed,
        ),
    )
    declare(
        "replan_attempts",
        2,
        describe_ros_parameter(
            "plans that may follow a failed motion; 0 lets the task fail", low=0, high=100
        ),
    )
    declare(
        "max_tasks", 256, describe_ros_parameter("most tasks at once, over all robots", low=1, high=100_000)
    )
    declare(
        "max_task_chars", 4_000, describe_ros_parameter("longest task [characters]", low=1, high=1_000_000)
    )
    declare(
        "max_scene_chars", 20_000, describe_ros_parameter("longest scene [characters]", low=1, high=1_000_000)
    )
    seconds = partial(describe_ros_parameter, low=0.05, high=86_400.0)
    limits = Deadlines()
    declare("submit_timeout_s", limits.submit_s, seconds("until the server has accepted a task [s]"))
    declare("segment_timeout_s", limits.segment_s, seconds("until the next segment when the robot idles [s]"))
    declare("task_timeout_s", limits.task_s, seconds("for a whole task [s]"))
    declare("driver_timeout_s", limits.driver_s, seconds("until a driver appears or begins a segment [s]"))
    declare("driver_silence_s", 3.0, seconds("a driver without a state for so long is lost [s]"))
    declare("cancel_timeout_s", limits.cancel_s, seconds("until a cancelled motion must have ended [s]"))
    declare(
        "execution_factor",
        limits.execution_factor,
        describe_ros_parameter(
            "a segment may take its expected time times this plus the margin", low=1.0, high=1000.0
        ),
    )
    declare("execution_margin_s", limits.execution_margin_s, seconds("see execution_factor [s]"))
    declare("progress_period_s", limits.progress_every_s, seconds("progress reports to the server [s]"))
    declare(
        "heartbeat_period_s",
        1.0,
        describe_ros_parameter("between checks of the server's health [s]", low=0.05, high=60.0),
    )
    declare(
        "heartbeat_misses",
        3,
        describe_ros_parameter("failed checks until the server counts as lost", low=1, high=100),
    )


def read_bridge_parameters(node: LifecycleNode) -> BridgeSettings:
    """The values of all parameters.

    Raises:
        InvalidInput: one is unusable; ``where`` names it.
    """

    def number(name: str) -> float:
        return float(node.get_parameter(name).value)

    on_busy = str(node.get_parameter("on_busy").value)
    if on_busy not in POLICIES:
        raise InvalidInput(f"must be one of {', '.join(POLICIES)}, got {on_busy!r}", where="on_busy")
    folder = str(node.get_parameter("state_folder").value)
    return BridgeSettings(
        server_url=str(node.get_parameter("server_url").value),
        robots=tuple(_robots(node)),
        on_busy=on_busy,
        limits=GoalLimits(int(number("max_task_chars")), int(number("max_scene_chars"))),
        deadlines=Deadlines(
            submit_s=number("submit_timeout_s"),
            segment_s=number("segment_timeout_s"),
            task_s=number("task_timeout_s"),
            driver_s=number("driver_timeout_s"),
            cancel_s=number("cancel_timeout_s"),
            execution_factor=number("execution_factor"),
            execution_margin_s=number("execution_margin_s"),
            progress_every_s=number("progress_period_s"),
        ),
        driver_silence_s=number("driver_silence_s"),
        heartbeat_period_s=number("heartbeat_period_s"),
        heartbeat_misses=int(number("heartbeat_misses")),
        take_up_s=number("take_up_s"),
        state_folder=Path(folder).expanduser() if folder else None,
    )


def _robots(node: LifecycleNode) -> list[RobotEntry]:
    names = [name for name in node.get_parameter("robots").value if name]
    if not names:
        raise InvalidInput("names no robot", where="robots")
    if len(set(names)) != len(names):
        raise InvalidInput("names a robot twice", where="robots")
    entries = []
    for name in names:
        if not name.isidentifier() or not name.isascii():
            raise InvalidInput(f"{name!r} cannot be a ROS namespace", where="robots")
        values = []
        for key, default in (("profile", ""), ("skill_set", ""), ("driver_node", "driver")):
            if not node.has_parameter(f"{name}.{key}"):
                node.declare_parameter(f"{name}.{key}", default, describe_ros_parameter(f"{key} of {name}"))
            values.append(str(node.get_parameter(f"{name}.{key}").value))
        profile, skill_set, driver_node = values
        if profile and not NAME.fullmatch(profile):
            raise InvalidInput(f"{profile!r} is no profile name", where=f"{name}.profile")
        entries.append(RobotEntry(name, profile, skill_set, driver_node))
    return entries
