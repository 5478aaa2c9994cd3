"""Converts between the units that skill sets and robot profiles are written in."""

import math

from lrtrace.robot_profile import NO_UNITS, RobotProfile
from timely.core.errors import InvalidInput
from timely.plans.language.syntax import PlanCall, Value
from timely.plans.skill_set import Skill, SkillArgument

_SCALES: tuple[dict[str, float], ...] = (
    {"m": 1.0, "cm": 0.01, "mm": 0.001},
    {"rad": 1.0, "deg": math.pi / 180.0},
    {"s": 1.0, "ms": 0.001, "min": 60.0},
    {"m/s": 1.0, "cm/s": 0.01, "mm/s": 0.001},
    {"rad/s": 1.0, "deg/s": math.pi / 180.0},
)


def convert_plan_unit(value: float, unit: str, to: str) -> float | None:
    """Convert ``value`` from ``unit`` into ``to``; None if they measure different quantities.

    A missing unit stands for the other one.
    """
    if unit == to or unit in NO_UNITS or to in NO_UNITS:
        return value
    for scale in _SCALES:
        if unit in scale and to in scale:
            # 0.2 m is 20 cm, not 20.000000000000004.
            return round(value * (scale[unit] / scale[to]), 9)
    return None


def plan_robot_argument_unit(argument: SkillArgument, skill: Skill, profile: RobotProfile) -> str:
    """The unit in which a robot takes an argument: that of its profile, else that of the skill set.

    Raises:
        UnknownName: the profile lacks the skill.
    """
    return profile.skills[profile.skill_name(skill.name)].unit(argument.name) or argument.unit


def plan_robot_arguments(call: PlanCall, skill: Skill, profile: RobotProfile) -> dict[str, Value]:
    """The arguments of a call by name, in the order and the units of the robot's profile.

    Raises:
        InvalidInput: a number is in a unit of another quantity. UnknownName: the profile lacks the skill.
    """
    limits = profile.limits(skill.name)
    values: dict[str, Value] = {}
    for argument, value in zip(skill.arguments, call.args, strict=False):
        values[argument.name] = value
        unit = plan_robot_argument_unit(argument, skill, profile)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            converted_value = convert_plan_unit(value, argument.unit, unit)
            if converted_value is None:
                raise InvalidInput(f"{argument.name} is in {argument.unit}, the robot's limit in {unit}")
            values[argument.name] = converted_value
    return {name: values[name] for name in (*limits, *values) if name in values}
