"""A new plan after a failure or a change: the part of its prompt that describes the plan before.

TimelyLLM's tasks 6 to 8 (Table 2): "you gave me plan ..., I failed because ..., executed so far ...". The fixed part of
the prompt and the scene precede it, so their KV cache is used again.
"""

from timely.server.tasks.request import MAX_HISTORY_CHARS, ReplanRequest, TaskRequest
from timely.server.tasks.task import Task

NOTHING = "nothing"
INTERRUPTION = "it was interrupted"
CUT = "... "


def replan_task_request(old: Task, change: ReplanRequest, task_id: str) -> TaskRequest:
    """The request for the new plan: the old one with the changes, and the history of the attempt."""
    updates = {
        "task": change.task or old.request.task,
        "scene": old.request.scene if change.scene is None else change.scene,
        "history": replan_task_history(old, change),
        "tuf": change.tuf,
        "urgency": change.urgency,
        "deadline_s": change.deadline_s,
        "id": task_id,
        "report_token": change.report_token,
        # The numbers of requests and tokens were those of the first plan.
        "app_requests": None,
        "expected_tokens": None,
    }
    return old.request.model_copy(update=updates)


def replan_task_history(old: Task, change: ReplanRequest) -> str:
    """What was planned, why it ended and what was executed, in the words the shipped planner was trained on."""
    reason = change.reason.strip() or _replanned_task_failure(old) or INTERRUPTION
    executed_text = task_executed_segments(old, change) or NOTHING
    plan = "".join(segment.text for segment in old.track.segments) or NOTHING
    # The end says more about where the robot is than the beginning.
    room = max(0, (MAX_HISTORY_CHARS - len(reason) - 64) // 2)
    plan_tail, executed_tail = (_replanned_task_text_tail(text, room) for text in (plan, executed_text))
    return f"plan {plan_tail} failed because {reason}; executed so far: {executed_tail}"


def sent_task_plan_history(task: Task, reason: str) -> str:
    """The history of a task that goes on with another plan: the robot executes what was sent.

    A last segment whose value has not come is left out, so that the new plan asks again.
    """
    segments = task.track.segments
    if segments and segments[-1].blocking and segments[-1].index not in task.track.values:
        segments = segments[:-1]
    executed_text = task.executed_before + "".join(segment.text for segment in segments)
    return replan_task_history(task, ReplanRequest(reason=reason, executed=executed_text))


def task_executed_segments(old: Task, change: ReplanRequest) -> str:
    """What was executed of the plan and of those that it replaced."""
    if change.executed is not None:
        return change.executed
    executed_text = "".join(
        segment.text for segment in old.track.segments if segment.done and segment.index != old.track.failed
    )
    return old.executed_before + executed_text


def _replanned_task_failure(old: Task) -> str:
    """The robot's reason when it failed."""
    if old.ending is None or old.ending.code != "execution_failed":
        return ""
    return old.ending.detail.partition(": ")[2]


def _replanned_task_text_tail(text: str, chars: int) -> str:
    return text if len(text) <= chars else CUT + text[len(text) - max(0, chars - len(CUT)) :]
