"""The result of a goal and what it is computed from, and the deadlines of its waits."""

import math
from dataclasses import dataclass, field

from timely_interfaces.msg import ErrorCode

from timely.core.execution import waiting_time_s
from timely.core.utility import TimeUtility
from timely_bridge.error_codes import BridgeTakeUpError, BridgeTaskError, bridge_error_owner

CANCEL_CODES = (ErrorCode.CANCELLED, ErrorCode.PREEMPTED, ErrorCode.FLEET_STOPPED, ErrorCode.BRIDGE_INACTIVE)
"""The goal was ended on request; nothing failed."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each wait may take, seconds.

    Attributes:
        submit_s: until the server has accepted the task.
        segment_s: until the next segment, from when the robot has nothing left to do. A bridge that was started again
            waits so long for the server, too.
        task_s: for the whole task; the server gets this deadline, too.
        driver_s: until a driver appears, and until it begins a segment.
        cancel_s: until a driver says that a cancelled motion has ended.
        report_s: of one request with reports to the server.
        report_limit_s: after the end of a plan, until reports that the server did not take are dropped.
        execution_factor, execution_margin_s: a segment may take its expected time times the factor plus the margin.
        progress_every_s: least time between progress reports to the server.
    """

    submit_s: float = 15.0
    segment_s: float = 60.0
    task_s: float = 900.0
    driver_s: float = 5.0
    cancel_s: float = 2.0
    report_s: float = 10.0
    report_limit_s: float = 60.0
    execution_factor: float = 4.0
    execution_margin_s: float = 30.0
    progress_every_s: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The result of a task: fields as in ``ExecuteTask``; times in seconds, NaN if there is nothing to measure."""

    outcome: str
    code: int = 0
    message: str = ""
    plan: str = ""
    response: float = math.nan
    waiting: float = math.nan
    utility: float = math.nan
    began: bool = False
    """A segment of this plan went to the driver."""


@dataclass(slots=True)
class BridgeTimeline:
    """What was planned and executed for a goal, in one plan or several; seconds on the bridge's clock."""

    arrival_s: float = math.nan
    first_start_s: float = math.nan
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each execution."""
    plan: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)
    """Texts of the segments that were executed to their end."""

    def start(self, start_s: float) -> None:
        """A segment began; the first one counts."""
        if math.isnan(self.first_start_s):
            self.first_start_s = start_s

    def end(self, end_s: float, elapsed_s: float) -> None:
        self.spans.append((end_s - elapsed_s, end_s))
        self.start(end_s - elapsed_s)

    def result(self, utility: TimeUtility, early_end: BridgeTaskError | None, began: bool) -> TaskEnd:
        """The result of a plan; ``early_end`` is why it ended early, ``began`` whether its driver got a segment."""
        response_s = self.first_start_s - self.arrival_s
        return TaskEnd(
            _bridge_outcome_text(early_end, began),
            early_end.code if early_end else 0,
            early_end.message if early_end else "",
            "".join(self.plan),
            response_s,
            waiting_time_s(self.arrival_s, self.spans),
            utility.value(response_s) if math.isfinite(response_s) else math.nan,
            began,
        )


def _bridge_outcome_text(early_end: BridgeTaskError | None, began: bool) -> str:
    if early_end is None:
        return "complete"
    if early_end.code in CANCEL_CODES and not isinstance(early_end, BridgeTakeUpError):
        return "cancelled"
    return "refused" if bridge_error_owner(early_end.code) == "goal" and not began else "failed"
