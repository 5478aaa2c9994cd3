"""Checks an ExecuteTask goal, and makes the request to the server from it."""

import math
import re
from dataclasses import dataclass
from typing import Any

from timely.core.errors import InvalidInput, TooLarge
from timely.core.utility import TimeUtility

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LABEL = re.compile(r"[^\x00-\x1f\x7f]{0,128}")


@dataclass(frozen=True, slots=True)
class TaskGoal:
    """A checked goal. ``profile`` is the robot profile, ``agent`` names what sent the goal."""

    task: str
    scene: str
    skill_set: str
    profile: str
    utility: TimeUtility
    agent: str
    app: str | None
    urgency: int | None


@dataclass(frozen=True, slots=True)
class RobotEntry:
    name: str
    profile: str
    skill_set: str
    driver_node: str = "driver"


@dataclass(frozen=True, slots=True)
class GoalLimits:
    """Longest texts, characters."""

    task_chars: int = 4_000
    scene_chars: int = 20_000


def read_bridge_goal(goal: Any, robot: RobotEntry, limits: GoalLimits) -> TaskGoal:
    """The checked content of an ``ExecuteTask.Goal``.

    Raises:
        InvalidInput: a field is unusable; ``where`` names it. TooLarge: a text is over its limit.
    """
    task = goal.task.strip()
    if not task:
        raise InvalidInput("is empty", where="task")
    for name, text, limit in (
        ("task", goal.task, limits.task_chars),
        ("scene", goal.scene, limits.scene_chars),
    ):
        if len(text) > limit:
            raise TooLarge(f"has {len(text)} characters; the limit is {limit}", where=name)
    skill_set = goal.skill_set or robot.skill_set
    if not NAME.fullmatch(skill_set):
        raise InvalidInput(f"{skill_set!r} is no name", where="skill_set")
    for name, text in (("agent", goal.agent), ("app", goal.app)):
        if not LABEL.fullmatch(text):
            raise InvalidInput("must be at most 128 printable characters", where=name)
    if not -1 <= goal.urgency <= 4:
        raise InvalidInput(f"must be 0 (most) to 4, or -1, got {goal.urgency}", where="urgency")
    return TaskGoal(
        task=task,
        scene=goal.scene,
        skill_set=skill_set,
        profile=robot.profile,
        utility=_bridge_goal_utility(goal.tuf),
        agent=goal.agent or robot.name,
        app=goal.app or None,
        urgency=None if goal.urgency < 0 else int(goal.urgency),
    )


def bridge_scene_with_object(scene: str, holding: str) -> str:
    """The scene with the object in the robot's gripper, because the next plan depends on it.

    An arm may have been preempted in the middle of a plan, or its last task was to pick something up.
    """
    if not holding:
        return scene
    note = f"{holding} in your gripper"
    things = [part.strip() for part in scene.strip().rstrip(".").split(",")]
    return ", ".join([part for part in things if part and part.lower() != holding.lower()] + [note])


def _bridge_goal_utility(tuf: Any) -> TimeUtility:
    if not math.isfinite(tuf.cutoff_s) or tuf.cutoff_s < 0.0:
        raise InvalidInput(f"must be a time in seconds, or 0, got {tuf.cutoff_s}", where="tuf.cutoff_s")
    if tuf.cutoff_s > 0.0:
        # The other two are checked first: a cutoff computed from NaN would blame the wrong field.
        TimeUtility(tuf.ert_s, 0.0, tuf.beta)
        return TimeUtility.from_cutoff(tuf.ert_s, tuf.cutoff_s, tuf.beta)
    return TimeUtility(tuf.ert_s, tuf.alpha, tuf.beta)
