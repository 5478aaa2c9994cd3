"""Judges what robots did against what they were sent: pure functions over logs, for ``timely bench faults``."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timely_bridge.error_codes import NAMES
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, RobotState

LATE_HOLD = "late_hold"
VIOLATIONS = (
    *(LATE_HOLD, "lost", "untyped", "false_complete", "repeated", "out_of_order", "unsent", "out_of_limits"),
    *("after_end", "after_orphan", "after_stop", "wrong_owner", "unreadable"),
)
"""``history.py`` describes all but the first, and judges them."""
HOLD_WITHIN_S = 1.0
SETTLED_S = 0.5
"""The state of a driver and the log of its robot are this far apart at most."""
OUTCOMES = tuple(getattr(ExecuteTask.Result, name) for name in ("COMPLETE", "CANCELLED", "FAILED", "REFUSED"))
DEFECTS = (ErrorCode.BRIDGE_INTERNAL, ErrorCode.DRIVER_INTERNAL, ErrorCode.SERVER_ERROR)
"""Codes that say no more than that something is broken: no type of outcome."""
LIMITS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(
        ("forward", "back", "left", "right", "up", "down", "mf", "mb", "ml", "mr", "mu", "md"), (20, 500)
    ),
    **dict.fromkeys(("cw", "ccw", "tc", "tu"), (1, 360)),
}
"""Of the motions in the plans, cm and degrees; an arm's places are checked as places."""
NUMBER = re.compile(r"([a-z]+)[ (]([-+]?\d+(?:\.\d+)?)")


Violation = tuple[str, str]
"""Kind, one of ``VIOLATIONS``, and case."""


@dataclass(frozen=True, slots=True)
class FaultRobotMotion:
    """A motion out of a robot's own log; seconds on the monotonic clock."""

    what: str
    start_s: float
    end_s: float
    done: bool = True
    """It came to its end; false if it was stopped."""


@dataclass(frozen=True, slots=True)
class FaultObservedState:
    """A ``RobotState``; ``received_s`` on the monotonic clock, ``stamp_s`` on the driver's own."""

    mode: int
    session: int
    stamp_s: float
    received_s: float
    task_id: str = ""
    segment: int = 0
    battery: float = math.nan
    detail: str = ""

    @property
    def executing(self) -> bool:
        """The robot is executing a segment, by its driver."""
        return bool(self.mode == RobotState.EXECUTING)


def fault_bench_out_of_limits(motion: str) -> bool:
    """A motion is longer or shorter than its robot allows."""
    match = NUMBER.match(motion)
    low, high = LIMITS.get(match[1] if match else "", (-math.inf, math.inf))
    return bool(match and not low <= float(match[2]) <= high)


def judge_ros_fault_holding(
    states: Sequence[FaultObservedState],
    motions: Sequence[FaultRobotMotion],
    plan: Sequence[str],
    violations: list[Violation],
    who: str,
    died_s: float = math.inf,
) -> int:
    """Within a second of a segment's end the robot is no longer EXECUTING, and it moves only while it is.

    Whether a segment has ended is the robot's own log; one segment of ``plan`` is one motion.

    Args:
        died_s: when the robot itself was killed. Its driver cannot know whether the motion before it had ended.

    Returns:
        How often the next segment was late and the robot published HOLDING.
    """
    limit_s = HOLD_WITHIN_S + SETTLED_S
    for before, after in itertools.pairwise(states):
        silent_s = after.stamp_s - before.stamp_s
        if before.session == after.session and before.executing and silent_s > limit_s:
            violations.append((LATE_HOLD, f"{who}: said nothing for {silent_s:.1f} s after EXECUTING"))
    holds = 0
    for position, motion in enumerate(motions):
        following = (
            motions[position + 1].start_s if position + 1 < len(motions) else motion.end_s + 2.0 * limit_s
        )
        between = [one for one in states if motion.end_s < one.received_s < following]
        index = plan.index(motion.what) if motion.what in plan else -1
        stale = [one for one in between if one.executing and one.segment == index]
        is_known = not motion.end_s <= died_s <= motion.end_s + limit_s
        if is_known and stale and stale[-1].received_s > motion.end_s + limit_s:
            late_s = stale[-1].received_s - motion.end_s
            violations.append(
                (LATE_HOLD, f"{who}: still said EXECUTING {late_s:.1f} s after the end of {motion.what}")
            )
        is_holding = any(one.mode == RobotState.HOLDING for one in between)
        holds += is_holding
        late = following > motion.end_s + limit_s and position + 1 < len(motions)
        if late and between and not is_holding and not any(one.executing for one in between):
            violations.append((LATE_HOLD, f"{who}: waited after {motion.what} and never said HOLDING"))
        around = [one for one in states if abs(one.received_s - motion.start_s) <= SETTLED_S]
        earlier = next((one for one in reversed(states) if one.received_s < motion.start_s - SETTLED_S), None)
        if earlier is not None and around and not any(one.executing for one in [earlier, *around]):
            violations.append((LATE_HOLD, f"{who}: {motion.what} began while it said mode {earlier.mode}"))
    return holds


def fault_bench_untyped_outcome(outcome: str, code: int) -> str:
    """Why the end of a task does not say what became of it; empty if it does."""
    if outcome not in OUTCOMES:
        return f"outcome {outcome!r}"
    if outcome == ExecuteTask.Result.COMPLETE:
        return "" if code == ErrorCode.NONE else f"complete with code {code}"
    is_typed = code in NAMES and code != ErrorCode.NONE and code not in DEFECTS
    return "" if is_typed else f"{outcome} with code {NAMES.get(code, code)}"
