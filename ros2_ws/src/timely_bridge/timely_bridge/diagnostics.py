"""What the bridge publishes on ``/diagnostics``: the server and each robot."""

import math
from collections.abc import Sequence

from diagnostic_msgs.msg import DiagnosticStatus
from timely_interfaces.msg import RobotState
from timely_robots.ros.state_messages import ROS_LINK_LOST, ros_diagnostic_status

from timely_bridge.robot_server import BridgeRobotServer
from timely_bridge.server_health import BridgeServerHealth


def bridge_own_status(node: str, problems: Sequence[str]) -> DiagnosticStatus:
    """Whether the bridge keeps its stop and its goals, and whether a stop's answer is for all robots."""
    level = DiagnosticStatus.WARN if problems else DiagnosticStatus.OK
    return ros_diagnostic_status(
        f"{node}: bridge", "bridge", level, "; ".join(problems) or "keeps stop and goals", {}
    )


def bridge_server_status(
    node: str, health: BridgeServerHealth | None, url: str, stop_refusal: str = ""
) -> DiagnosticStatus:
    """Whether the server answers, lets the bridge follow its stop, and takes the acknowledgements.

    Args:
        stop_refusal: which of the two it refuses, and why; empty if neither.
    """
    if health is None or health.lost:
        level, message = DiagnosticStatus.ERROR, health.reason if health else "not configured"
    elif stop_refusal:
        level, message = DiagnosticStatus.ERROR, stop_refusal
    elif math.isnan(health.round_trip_s) or health.misses:
        level, message = DiagnosticStatus.WARN, health.reason
    else:
        level, message = DiagnosticStatus.OK, f"answers in {1e3 * health.round_trip_s:.1f} ms"
    return ros_diagnostic_status(f"{node}: server", "server", level, message, {"url": url})


def bridge_robot_status(node: str, robot: BridgeRobotServer) -> DiagnosticStatus:
    state, profile = robot.port.state, robot.entry.profile
    level, message = DiagnosticStatus.OK, "driver is there"
    if not robot.port.present:
        level, message = DiagnosticStatus.ERROR, "no driver"
    elif robot.port.refusal:
        level, message = DiagnosticStatus.ERROR, robot.port.refusal.message
    elif state is not None and state.mode == RobotState.FAULT:
        level, message = DiagnosticStatus.ERROR, state.detail or "fault"
    elif state is not None and ROS_LINK_LOST in state.detail:
        level, message = DiagnosticStatus.ERROR, state.detail
    elif state is not None and state.mode == RobotState.UNCONFIGURED:
        level, message = DiagnosticStatus.WARN, "the driver is inactive"
    elif state is not None and state.mode == RobotState.STOPPED:
        level, message = DiagnosticStatus.WARN, "stopped"
    elif state is not None and "" not in (state.robot, profile) and state.robot != profile:
        level, message = (
            DiagnosticStatus.WARN,
            f"plans are for {profile}, the driver has profile {state.robot}",
        )
    values = {
        "tasks": len(robot.runs),
        "waiting for the robot": robot.lock.queue_length,
        **{f"tasks {outcome}": count for outcome, count in sorted(robot.outcomes.items())},
        "last error": robot.last_error,
    }
    return ros_diagnostic_status(f"{node}: {robot.entry.name}", robot.entry.name, level, message, values)
