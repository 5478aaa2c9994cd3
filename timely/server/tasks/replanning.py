"""A new plan after a failure or a change: what the model is told about the plan that went before.

TimelyLLM's tasks 6 to 8 (Table 2): "you gave me plan ..., I failed because ..., executed so far ...". The fixed part of
the prompt and the scene come first in it, so their KV cache is used again.
"""

from __future__ import annotations

from dataclasses import dataclass

from timely.core.utility import URGENT, TimeUtility
from timely.server.tasks.task import Task, TaskRequest

NOTHING = "nothing"
INTERRUPTED = "it was interrupted"
CUT = "... "


@dataclass(frozen=True, slots=True)
class ReplanRequest:
    """What a client asks for. Fields: see the schema of ``POST /v1/tasks/{id}/replan``; None keeps the old task's."""

    reason: str = ""
    scene: str | None = None
    task: str | None = None
    executed: str | None = None
    utility: TimeUtility = URGENT
    urgency: int | None = 0
    deadline_s: float | None = None
    task_id: str | None = None
    report_token: str | None = None
    agent: str | None = None


def follow_up(old: Task, wanted: ReplanRequest, max_history_chars: int) -> TaskRequest:
    """The request for the new plan: the old one's words and robot, with the history of what was tried."""
    was = old.request
    return TaskRequest(
        task=wanted.task or was.task,
        skill_set=was.skill_set,
        robot=was.robot,
        scene=was.scene if wanted.scene is None else wanted.scene,
        history=history_of(old, wanted, max_history_chars),
        utility=wanted.utility,
        agent=was.agent,
        app=was.app,
        urgency=wanted.urgency,
        priority=was.priority,
        max_tokens=was.max_tokens,
        temperature=was.temperature,
        seed=was.seed,
        network_s=was.network_s,
        deadline_s=wanted.deadline_s,
        task_id=wanted.task_id,
        report_token=wanted.report_token,
        replans=old.task_id,
        executed_before=_executed(old, wanted),
    )


def history_of(old: Task, wanted: ReplanRequest, max_chars: int) -> str:
    """What was planned, why it ended and what was done of it, in the words the shipped planner was trained on."""
    reason = wanted.reason.strip() or _failure(old) or INTERRUPTED
    executed = _executed(old, wanted) or NOTHING
    plan = "".join(segment.text for segment in old.track.segments) or NOTHING
    # What was done last says more about where the robot is than what it did at first.
    room = max(0, (max_chars - len(reason) - 64) // 2)
    return f"plan {_tail(plan, room)} failed because {reason}; executed so far: {_tail(executed, room)}"


def _failure(old: Task) -> str:
    """What the robot said when it failed."""
    if old.ending is None or old.ending.code != "execution_failed":
        return ""
    return old.ending.detail.partition(": ")[2]


def _executed(old: Task, wanted: ReplanRequest) -> str:
    """What was carried out of the plan, and of those that it replaced."""
    if wanted.executed is not None:
        return wanted.executed
    done = "".join(
        segment.text for segment in old.track.segments if segment.done and segment.index != old.track.failed
    )
    return old.request.executed_before + done


def _tail(text: str, chars: int) -> str:
    return text if len(text) <= chars else CUT + text[len(text) - max(0, chars - len(CUT)) :]
