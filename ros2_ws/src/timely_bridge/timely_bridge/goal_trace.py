"""The span of a goal in a trace: from its acceptance to its result, with the motions of its segments inside."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from timely.core.traces import TraceSpan
from timely_bridge.error_codes import bridge_error_name
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.outcome import TaskEnd

if TYPE_CHECKING:
    from timely_bridge.goal_run import BridgeGoalRun

GOAL_ID = re.compile(r"[0-9a-f]{32}")
"""Of a ROS 2 goal, in a task's id."""


def bridge_traceparent(task_id: str) -> str | None:
    """The W3C trace context of a goal's span, whose trace has the goal's id; None for a task that has no goal."""
    trace = task_id.removeprefix("ros-")
    return f"00-{trace}-{trace[:16]}-01" if GOAL_ID.fullmatch(trace) else None


def bridge_goal_span(run: BridgeGoalRun, robot: str, end: TaskEnd, now_s: float) -> TraceSpan:
    """The span of a goal that ends now, seconds on the bridge's clock."""
    measures = {"response_s": end.response, "waiting_s": end.waiting, "utility": end.utility}
    return TraceSpan(
        "goal",
        now_s if math.isnan(run.timeline.arrival_s) else run.timeline.arrival_s,
        now_s,
        {
            "timely.task_id": run.task_id,
            "timely.robot": robot,
            "timely.agent": run.goal.agent,
            "timely.skill_set": run.goal.skill_set,
            "timely.outcome": end.outcome,
            "timely.code": end.code,
            "timely.replans": run.plans,
            **{f"timely.{name}": value for name, value in measures.items() if math.isfinite(value)},
        },
        _bridge_span_error(end.outcome, end.code, end.message),
        children=tuple(
            _bridge_motion_span(task_id, index, execution) for task_id, index, execution in run.executions
        ),
    )


def _bridge_motion_span(task_id: str, index: int, execution: SegmentExecution) -> TraceSpan:
    return TraceSpan(
        "motion",
        execution.end_s - execution.elapsed_s,
        execution.end_s,
        {"timely.task_id": task_id, "timely.segment": index, "timely.outcome": execution.outcome},
        _bridge_span_error(execution.outcome, execution.code, execution.message),
    )


def _bridge_span_error(outcome: str, code: int, message: str) -> str:
    return f"{bridge_error_name(code)}: {message}" if outcome in ("failed", "refused") else ""
