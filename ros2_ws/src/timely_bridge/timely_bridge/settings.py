"""The parameters of the bridge: declared with ranges, read once when the node is configured."""

from dataclasses import dataclass
from pathlib import Path

from rclpy.lifecycle import LifecycleNode
from timely_robots.robot_names import check_robot_names
from timely_robots.ros.rclpy_utils import describe_ros_parameter

from timely.core.errors import InvalidInput
from timely.core.http_url import check_http_url
from timely_bridge.goals import NAME, GoalLimits, RobotEntry
from timely_bridge.outcome import Deadlines
from timely_bridge.robot_lock import POLICIES

DEADLINES = {
    "submit_timeout_s": "submit_s", "segment_timeout_s": "segment_s", "task_timeout_s": "task_s",
    "driver_timeout_s": "driver_s", "cancel_timeout_s": "cancel_s", "execution_factor": "execution_factor",
    "execution_margin_s": "execution_margin_s", "progress_period_s": "progress_every_s",
}  # fmt: skip
"""Parameter and field of each of the ``Deadlines``."""
OTLP_EXAMPLE = "http://127.0.0.1:4318/v1/traces"


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
    otlp_endpoint: str = ""
    """URL that receives OpenTelemetry traces of goals by OTLP over HTTP; empty: none are sent."""


def declare_bridge_parameters(node: LifecycleNode) -> None:
    """Declare all parameters but those of the robots, whose names are a parameter themselves."""
    limits, ever, day_s = Deadlines(), {"read_only": True}, {"low": 0.05, "high": 86_400.0}
    for name, default, text, bounds in (
        ("server_url", "http://127.0.0.1:8000", "of the Timely server", ever),
        ("robots", [""], "names of the robots; each is a namespace", ever),
        ("on_busy", "queue", f"a second task for a robot: one of {', '.join(POLICIES)}", ever),
        ("state_folder", "", "keeps stop and goals across restarts; empty: not kept, `run_fleet` chooses one", ever),
        ("otlp_endpoint", "", f"traces of goals go there by OTLP, like {OTLP_EXAMPLE}; empty: none are sent", ever),
        ("take_up_s", 10.0, "goals of a bridge that died longer ago are ended; 0: all are [s]",
         {"low": 0.0, "high": 86_400.0}),
        ("principals", "", "file of principals: ~/reset needs an operator's token; empty: $TIMELY_PRINCIPALS, or none"
         " is needed", ever),
        ("replan_attempts", 2, "plans that may follow a failed motion; 0 lets the task fail", {"low": 0, "high": 100}),
        ("max_tasks", 256, "most tasks at once, over all robots", {"low": 1, "high": 100_000}),
        ("max_task_chars", 4_000, "longest task [characters]", {"low": 1, "high": 1_000_000}),
        ("max_scene_chars", 20_000, "longest scene [characters]", {"low": 1, "high": 1_000_000}),
        ("submit_timeout_s", limits.submit_s, "until the server has accepted a task [s]", day_s),
        ("segment_timeout_s", limits.segment_s, "until the next segment when the robot idles [s]", day_s),
        ("task_timeout_s", limits.task_s, "for a whole task [s]", day_s),
        ("driver_timeout_s", limits.driver_s, "until a driver appears or begins a segment [s]", day_s),
        ("driver_silence_s", 3.0, "a driver without a state for so long is lost [s]", day_s),
        ("cancel_timeout_s", limits.cancel_s, "until a cancelled motion must have ended [s]", day_s),
        ("execution_factor", limits.execution_factor, "a segment may take its expected time times this plus the margin",
         {"low": 1.0, "high": 1000.0}),
        ("execution_margin_s", limits.execution_margin_s, "see execution_factor [s]", day_s),
        ("progress_period_s", limits.progress_every_s, "progress reports to the server [s]", day_s),
        ("heartbeat_period_s", 1.0, "between checks of the server's health [s]", {"low": 0.05, "high": 60.0}),
        ("heartbeat_misses", 3, "failed checks until the server counts as lost", {"low": 1, "high": 100}),
    ):  # fmt: skip
        node.declare_parameter(name, default, describe_ros_parameter(text, **bounds))


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
    otlp_endpoint = str(node.get_parameter("otlp_endpoint").value)
    if otlp_endpoint:
        check_http_url(otlp_endpoint, OTLP_EXAMPLE, where="otlp_endpoint")
    folder = str(node.get_parameter("state_folder").value)
    return BridgeSettings(
        server_url=str(node.get_parameter("server_url").value),
        robots=tuple(_read_bridge_robots(node)),
        on_busy=on_busy,
        limits=GoalLimits(int(number("max_task_chars")), int(number("max_scene_chars"))),
        deadlines=Deadlines(**{field: number(name) for name, field in DEADLINES.items()}),
        driver_silence_s=number("driver_silence_s"),
        heartbeat_period_s=number("heartbeat_period_s"),
        heartbeat_misses=int(number("heartbeat_misses")),
        take_up_s=number("take_up_s"),
        state_folder=Path(folder).expanduser() if folder else None,
        otlp_endpoint=otlp_endpoint,
    )


def _read_bridge_robots(node: LifecycleNode) -> list[RobotEntry]:
    names = [name for name in node.get_parameter("robots").value if name]
    if not names:
        raise InvalidInput("names no robot", where="robots")
    check_robot_names(names, "robots")
    entries = []
    for name in names:
        values = []
        for key, default in (("profile", ""), ("skill_set", ""), ("driver_node", "driver")):
            if not node.has_parameter(f"{name}.{key}"):
                node.declare_parameter(f"{name}.{key}", default, describe_ros_parameter(f"{key} of {name}"))
            values.append(str(node.get_parameter(f"{name}.{key}").value))
        profile, skill_set, driver_node = values
        if profile and not NAME.fullmatch(profile):
            raise InvalidInput(f"{profile!r} is no profile name", where=f"{name}.profile")
        check_robot_names([driver_node], f"{name}.driver_node")
        entries.append(RobotEntry(name, profile, skill_set, driver_node))
    return entries
