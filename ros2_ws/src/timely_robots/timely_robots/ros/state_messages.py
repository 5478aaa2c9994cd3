"""What a driver publishes of itself: ``RobotState`` for programs, a diagnostic status for people."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import Pose
from timely_interfaces.msg import RobotState

from timely_robots.lease import DriverLeaseState
from timely_robots.robot import RobotStatus
from timely_robots.segments import ExecutorState

LOW_BATTERY = 0.2
HOLDING_WARNING_S = 1.0
"""A robot that has waited longer than this for a segment is worth a warning."""
MAX_HOLDING_CHARS = 200
ROS_LINK_LOST = "the link to the robot is lost"
"""In the ``detail`` of a RobotState for as long as it holds."""

MODE_NAMES = {
    RobotState.UNCONFIGURED: "inactive",
    RobotState.READY: "ready",
    RobotState.EXECUTING: "executing",
    RobotState.HOLDING: "holding",
    RobotState.STOPPED: "stopped",
    RobotState.FAULT: "fault",
}


@dataclass(frozen=True, slots=True)
class RosDriverState:
    """Everything that the messages are made from. Times are seconds."""

    kind: str
    profile: str = ""
    session: int = 0
    active: bool = False
    fault: str = ""
    executor: ExecutorState = field(default_factory=ExecutorState)
    robot: RobotStatus = field(default_factory=RobotStatus)
    stop_id: str = ""
    """Of the latched stop; empty if there is none."""
    halted: bool = False
    """The stop is latched, and the robot's halt has returned since."""
    lease: DriverLeaseState = field(default_factory=DriverLeaseState)
    failsafe: str = ""
    awaiting: str = ""
    segment_wait_s: float | None = None
    """How long the robot has waited for the next segment of a live task; None if it does not wait."""

    @property
    def mode(self) -> int:
        if self.fault or self.robot.fault:
            return RobotState.FAULT
        if not self.active:
            return RobotState.UNCONFIGURED
        if self.stop_id:
            return RobotState.STOPPED
        if self.segment_wait_s is not None:
            return RobotState.HOLDING
        return RobotState.EXECUTING if self.executor.executing else RobotState.READY

    @property
    def problem(self) -> str:
        """Why the robot cannot be commanded; empty if it can.

        A robot that does not answer is not seen at rest either, and the cause comes with that fault.
        """
        robot = self.robot
        if self.fault or not robot.link_lost:
            return self.fault or robot.fault
        reason = "; ".join(filter(None, (robot.fault, robot.detail)))
        return f"{ROS_LINK_LOST}: {reason}" if reason else ROS_LINK_LOST

    @property
    def detail(self) -> str:
        """The ``detail`` of RobotState: words for people."""
        parts = [self.problem or self.robot.detail]
        if self.segment_wait_s is not None and not self.fault:
            parts.insert(
                0, f"holds: segment {self.executor.segment + 1} has not come for {self.segment_wait_s:.1f} s"
            )
        return "; ".join(part for part in parts if part)


def ros_driver_state_message(state: RosDriverState) -> RobotState:
    """The state, without its stamp."""
    return RobotState(
        robot=state.profile,
        driver=state.kind,
        session=state.session,
        mode=state.mode,
        task_id=state.executor.task_id,
        segment=state.executor.segment,
        progress=state.executor.progress,
        queued=state.executor.queued_segments,
        pose=_ros_pose(state.robot),
        battery=state.robot.battery,
        detail=state.detail,
        stop_id=state.stop_id,
        halted=state.halted,
        at_rest=state.robot.at_rest,
        lease_owner=state.lease.owner,
        lease_epoch=state.lease.epoch,
        failsafe=state.failsafe,
        awaiting=state.awaiting,
        holding=" ".join(state.robot.holding.split())[:MAX_HOLDING_CHARS],
    )


def ros_driver_diagnostic_status(state: RosDriverState, node: str, hardware_id: str) -> DiagnosticStatus:
    mode, battery, wait_s = state.mode, state.robot.battery, state.segment_wait_s
    level, message = DiagnosticStatus.OK, MODE_NAMES[mode]
    if state.problem:
        level, message = DiagnosticStatus.ERROR, state.problem
    elif mode == RobotState.STOPPED:
        level, message = DiagnosticStatus.WARN, f"stopped; call /{node}/reset to go on"
    elif wait_s is not None and wait_s > HOLDING_WARNING_S:
        level, message = DiagnosticStatus.WARN, f"holds: no segment for {wait_s:.1f} s"
    elif battery < LOW_BATTERY:
        level, message = DiagnosticStatus.WARN, f"battery at {battery:.0%}"
    values = {
        "mode": MODE_NAMES[mode],
        "kind": state.kind,
        "profile": state.profile,
        "task": state.executor.task_id,
        "segment": state.executor.segment,
        "waiting segments": state.executor.queued_segments,
        "segments done": state.executor.done_segments,
        "segments failed": state.executor.failed_segments,
        "segments refused": state.executor.refused_segments,
        "battery": "unknown" if math.isnan(battery) else f"{battery:.2f}",
        "detail": state.robot.detail,
        "holds": state.robot.holding,
    }
    return ros_diagnostic_status(node, hardware_id, level, message, values)


def ros_diagnostic_status(
    name: str, hardware_id: str, level: bytes, message: str, values: Mapping[str, object]
) -> DiagnosticStatus:
    return DiagnosticStatus(
        level=level,
        name=name,
        message=message,
        hardware_id=hardware_id,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
    )


def _ros_pose(status: RobotStatus) -> Pose:
    pose = Pose()
    pose.position.x, pose.position.y, pose.position.z = status.position
    pose.orientation.x, pose.orientation.y, pose.orientation.z, pose.orientation.w = status.orientation
    return pose
