"""Goals are checked field by field, and the answer names the field."""

from __future__ import annotations

import math
from typing import Any

import pytest
from timely_bridge.goals import GoalLimits, RobotEntry, read_bridge_goal
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import TimeUtility as Tuf

from timely.core.errors import InvalidInput, TooLarge
from timely.core.utility import TimeUtility

ROBOT = RobotEntry("drone1", "sim-drone", "drone")
LIMITS = GoalLimits(task_chars=100, scene_chars=200)


def goal(**fields: Any) -> ExecuteTask.Goal:
    return ExecuteTask.Goal(**({"task": "Find the dog"} | fields))


def test_defaults_come_from_the_robot_and_the_message() -> None:
    result = read_bridge_goal(goal(), ROBOT, LIMITS)
    assert (result.skill_set, result.profile, result.agent, result.app, result.urgency) == (
        "drone", "sim-drone", "drone1", None, None,
    )  # fmt: skip
    assert result.utility == TimeUtility(1.0, -2.0, 1.0)


def test_what_the_goal_says_goes_first() -> None:
    result = read_bridge_goal(
        goal(skill_set="arm", agent="me", app="game", urgency=0, scene="a table"), ROBOT, LIMITS
    )
    assert (result.skill_set, result.agent, result.app, result.urgency, result.scene) == (
        "arm",
        "me",
        "game",
        0,
        "a table",
    )


def test_cutoff_stands_for_alpha() -> None:
    result = read_bridge_goal(goal(tuf=Tuf(ert_s=0.2, beta=2.0, cutoff_s=0.5)), ROBOT, LIMITS)
    assert result.utility.alpha == pytest.approx(-2.0 / 0.3)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"task": "  \n"}, "task"),
        ({"skill_set": "../secret"}, "skill_set"),
        ({"skill_set": "x" * 65}, "skill_set"),
        ({"agent": "a\nb"}, "agent"),
        ({"app": "x" * 129}, "app"),
        ({"urgency": 5}, "urgency"),
        ({"urgency": -2}, "urgency"),
        ({"tuf": Tuf(alpha=0.1)}, "tuf.alpha"),
        ({"tuf": Tuf(alpha=math.nan)}, "tuf.alpha"),
        ({"tuf": Tuf(beta=0.0)}, "tuf.beta"),
        ({"tuf": Tuf(beta=math.inf)}, "tuf.beta"),
        ({"tuf": Tuf(ert_s=-0.1)}, "tuf.ert_s"),
        ({"tuf": Tuf(ert_s=math.nan, cutoff_s=1.0)}, "tuf.ert_s"),
        ({"tuf": Tuf(cutoff_s=-1.0)}, "tuf.cutoff_s"),
        ({"tuf": Tuf(cutoff_s=math.nan)}, "tuf.cutoff_s"),
        ({"tuf": Tuf(ert_s=2.0, cutoff_s=1.0)}, "tuf.cutoff_s"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_bridge_goal(goal(**fields), ROBOT, LIMITS)
    assert caught.value.where == where


@pytest.mark.parametrize(("name", "length"), [("task", 101), ("scene", 201)])
def test_enormous_texts_are_too_large(name: str, length: int) -> None:
    with pytest.raises(TooLarge) as caught:
        read_bridge_goal(goal(**{name: "x" * length}), ROBOT, LIMITS)
    assert caught.value.where == name


def test_a_robot_without_a_skill_set_needs_one_in_the_goal() -> None:
    bare = RobotEntry("drone1", "sim-drone", "")
    with pytest.raises(InvalidInput, match="skill_set"):
        read_bridge_goal(goal(), bare, LIMITS)
    assert read_bridge_goal(goal(skill_set="drone"), bare, LIMITS).skill_set == "drone"
