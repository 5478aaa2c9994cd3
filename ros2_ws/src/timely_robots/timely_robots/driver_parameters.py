"""The ROS parameters that every driver has beside its robot's settings. Nothing here knows ROS 2."""

from collections.abc import Collection, Iterable

from timely.core import cpu_latency
from timely.core.errors import UnknownName
from timely.core.files import DEFAULT_STATE_DIR, STATE_DIR_VARIABLE
from timely_robots.operators import PRINCIPALS_VARIABLE
from timely_robots.robot import Setting

MANAGED_PARAMETERS = ("autostart", "use_sim_time", cpu_latency.PARAMETER)
"""Parameters of every node here."""

PROXIMITY_PARAMETERS = (
    Setting("proximity_stop_m", 0.0, "no motion with an obstacle nearer than this [m]; 0: no gate", 0.0, 100.0,
            fixed=True),
    Setting("proximity_slow_m", 0.0, "slower motion with an obstacle nearer than this [m]", 0.0, 100.0, fixed=True),
)  # fmt: skip

DRIVER_PARAMETERS = (
    Setting("profile", "", "robot profile: a name or a YAML file", fixed=True),
    Setting("skill_set", "", "plan language of goals without one", fixed=True),
    Setting("state_dir", "", "folder of stop latch, begun tasks and lease epoch; empty: "
            f"${STATE_DIR_VARIABLE} or {DEFAULT_STATE_DIR}, in memory for simulated robots", fixed=True),
    Setting("principals", "", "file of principals: reset, take-over and confirmation need an operator's token; "
            f"empty: ${PRINCIPALS_VARIABLE}, or no token is needed", fixed=True),
    Setting("state_period_s", 0.5, "between two states [s]", 0.05, 2.0, fixed=True),
    Setting("progress_period_s", 0.5, "least time between two progress reports [s]", 0.05, 60.0),
    Setting("task_silence_s", 3.0, "a task without a message for so long is orphaned [s]", 0.2, 3600.0, fixed=True),
    Setting("queue_limit", 64, "most segments that wait", 1, 10_000),
    Setting("connect_timeout_s", 10.0, "deadline of connecting to the robot [s]", 0.1, 300.0),
    Setting("lease_lapse_s", 3.0, "a lease without renewal for so long lapses [s]", 0.2, 3600.0, fixed=True),
    *PROXIMITY_PARAMETERS,
    Setting("confirm_timeout_s", 30.0, "longest wait for an operator's confirmation [s]", 0.1, 3600.0, fixed=True),
)  # fmt: skip


def check_ros_parameter_names(names: Iterable[str], declared: Collection[str], where: str) -> None:
    """Raise UnknownName at the first name that no node would read; one with a dot may be declared later."""
    for name in names:
        if "." not in name and name not in declared:
            raise UnknownName("parameter", name, declared, where=where)
