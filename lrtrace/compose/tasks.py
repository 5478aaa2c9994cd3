"""The 11 benchmark tasks of TimelyLLM's Table 2, each with several plans as segments.

The paper names the tasks and the lengths of their plans (about 20 tokens for drones, 100 for arms) and shows a few
plans. Those are the first variants here; the others are in the same language. Task 2 calls only skills of about a
millisecond, like the paper's task type 1. A segment ends with a complete skill: after the ``;`` of its statement, the
``}`` that closes its block, or the ``{`` of its condition. A tail like ``->False`` executes nothing and is left out.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lrtrace.errors import UnknownName
from lrtrace.job import NORMAL, URGENT, TraceSegment, Tuf
from lrtrace.models import How
from lrtrace.plan_text import count_trace_tokens, robot_profile_execution_s
from lrtrace.robot_profile import RobotProfile
from lrtrace.yaml_file import read_lrtrace_yaml


@dataclass(frozen=True, slots=True)
class WorkloadPlanVariant:
    """One plan for a task: its scene and its segments.

    ``untaken`` are the indices of segments in a branch that does not run in this scene.
    """

    scene: str
    segments: tuple[str, ...]
    untaken: frozenset[int] = frozenset()

    @property
    def text(self) -> str:
        return "".join(self.segments)


@dataclass(frozen=True, slots=True)
class WorkloadTask:
    """One row of Table 2.

    Attributes:
        trace_id: its number in the table, from 1.
        title: its description in the table.
        task: the user's request in words.
        kind: ``normal drone``, ``urgent drone`` or ``complex arm``.
        skill_set: skill set of its plans.
        robot: default profile.
        urgency: 0 (most) to 4.
    """

    trace_id: int
    title: str
    task: str
    kind: str
    skill_set: str
    robot: str
    tuf: Tuf
    urgency: int
    variants: tuple[WorkloadPlanVariant, ...]

    def plan(
        self,
        variant: int,
        profile: RobotProfile,
        *,
        how: How = "sample",
        rng: np.random.Generator | None = None,
        count: Callable[[str], int] = count_trace_tokens,
    ) -> tuple[TraceSegment, ...]:
        """One plan as segments of a trace, with execution times (seconds) from ``profile``.

        A segment whose time differs from the scheduler's estimate has the estimate in the extra field ``estimate_s``.
        That holds for random runs and for branches that do not run.

        Raises:
            IndexError: no such variant. UnknownName: the robot lacks a skill of the plan.
        """
        plan_variant = self.variants[variant]
        segments = []
        for index, text in enumerate(plan_variant.segments):
            estimate = round(robot_profile_execution_s(text, profile, "estimate"), 6)
            actual = (
                0.0
                if index in plan_variant.untaken
                else round(robot_profile_execution_s(text, profile, how, rng), 6)
            )
            extra = {} if actual == estimate else {"estimate_s": estimate}
            segments.append(TraceSegment(text, count(text), actual, extra))
        return tuple(segments)


def _workload_task_segments(entries: Sequence[str | tuple[str, str]]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            thing, place = entry
            yield from (
                f"move_to('{thing}');",
                f"take('{thing}');",
                f"move_to('{place}');",
                f"drop('{place}');",
            )


def _read_workload_tasks() -> Iterator[WorkloadTask]:
    rows = read_lrtrace_yaml(Path(__file__).with_name("tasks.yaml")).value
    numbers = itertools.count(1)
    for skill_set, robot in (("drone", "tello"), ("arm", "indy7")):
        for row in rows[skill_set]:
            urgent = row["urgency"] < 3
            kind = "complex arm" if skill_set == "arm" else "urgent drone" if urgent else "normal drone"
            variants = tuple(
                WorkloadPlanVariant(
                    plan["scene"],
                    tuple(_workload_task_segments(plan["segments"])),
                    frozenset(plan.get("untaken", ())),
                )
                for plan in row["plans"]
            )
            tuf = URGENT if urgent else NORMAL
            yield WorkloadTask(
                next(numbers),
                row["title"],
                row["task"],
                kind,
                skill_set,
                robot,
                tuf,
                row["urgency"],
                variants,
            )


TASKS: dict[int, WorkloadTask] = {task.trace_id: task for task in _read_workload_tasks()}
"""The benchmark tasks by trace id, 1 to 11."""


def find_workload_task(trace_id: int) -> WorkloadTask:
    """The task of that trace id.

    Raises:
        UnknownName: not 1 to 11.
    """
    try:
        return TASKS[trace_id]
    except KeyError:
        raise UnknownName("trace id", trace_id, map(str, TASKS)) from None
