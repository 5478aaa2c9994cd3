"""Decides whether a generated segment may go to a robot. A segment that is not provably safe is refused."""

import unicodedata

from lrtrace.errors import BadInput
from lrtrace.robot_profile import RobotProfile
from timely.core.errors import InvalidInput, UnsafeSegment
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import Operation, PlanCall, Value, Variable
from timely.plans.skill_set import NUMERIC, OBJECT_NAME, Skill, SkillArgument, SkillSet
from timely.plans.units import plan_robot_arguments
from timely.plans.untrusted_text import hidden_prompt_character

MAX_SEGMENT_CHARS = 4_000
"""About 1,000 tokens; a segment is one skill or a block. The parser takes some 10 ms for so much."""


def check_plan_segment(
    text: str, skill_set: SkillSet, profile: RobotProfile, *, parser_state: SegmentParser | None = None
) -> list[PlanCall]:
    """Validate one segment before it is released.

    Every skill must exist, be allowed on the robot and stand in a permitted place. Every argument must have its type
    and lie in the ranges of the skill set *and* of the profile, units converted. Object arguments must be object
    names. A number with a range must be a literal, since a variable's value exists only at run time.

    Args:
        parser_state: the plan's parser after the segments before this one. The segment is parsed inside the open
            blocks, and the parser advances. Without it the segment is parsed as a fragment.

    Returns:
        The calls in the order written, arguments before their call; none for prose.

    Raises:
        UnsafeSegment: the segment must not reach the robot; the message says what and where. The plan is over, since
            the parser's state is then undefined.
    """
    if not text.strip():
        raise UnsafeSegment("the segment is empty", where="segment")
    if len(text) > MAX_SEGMENT_CHARS:
        raise UnsafeSegment(f"the segment is longer than {MAX_SEGMENT_CHARS} characters", where="segment")
    if (problem := _bad_plan_character(text)) is not None:
        raise UnsafeSegment(problem[1], where=f"character {problem[0]}")
    if skill_set.language == "text":
        _check_plan_prose(text, skill_set.text_rules.unit, profile)
        return []
    parser = parser_state or SegmentParser(skill_set, fragment=True)
    try:
        calls = parser.feed(text)
    except InvalidInput as error:
        raise UnsafeSegment(error.message, where=error.where or "segment") from error
    for call in calls:
        check_plan_call(call, skill_set, profile)
    return calls


def check_plan_call(call: PlanCall, skill_set: SkillSet, profile: RobotProfile) -> None:
    """Validate one call; see ``check_plan_segment``.

    Raises:
        UnsafeSegment: the call must not run.
    """
    where = f"character {call.at}, {call.text or call.skill}"
    skill = skill_set.find(call.skill)
    if skill is None:
        raise UnsafeSegment(f"skill set {skill_set.name} has no skill {call.skill!r}", where=where)
    problem = (
        _bad_plan_call_place(call, skill)
        or _bad_plan_argument_count(call, skill)
        or next((why for why in map(_bad_plan_argument, skill.arguments, call.args) if why), None)
        or _bad_plan_pattern(call, skill)
        or _bad_plan_limit(call, skill, profile)
    )
    if problem:
        raise UnsafeSegment(problem, where=where)


def _bad_plan_character(text: str) -> tuple[int, str] | None:
    """The place of a character that must not reach a robot, and which it is."""
    if text.isascii() and text.isprintable():
        return None
    for at, char in enumerate(text):
        # A terminal, a log or a robot's text protocol could act on a control character.
        if unicodedata.category(char) in ("Cc", "Cs", "Co") and char not in "\n\t\r":
            return at, f"control character U+{ord(char):04X}"
    hidden_at = hidden_prompt_character(text)
    if hidden_at is None:
        return None
    # A person would read or hear another text than the robot has.
    return hidden_at, f"invisible character U+{ord(text[hidden_at]):04X}"


def _check_plan_prose(text: str, unit: str, profile: RobotProfile) -> None:
    """A robot without an entry for prose is read to as a person is; an entry binds as that of a skill."""
    if unit in profile.skills and (problems := profile.violations(unit, [text])):
        raise UnsafeSegment(f"robot {profile.name}: {'; '.join(problems)}", where="segment")


def _bad_plan_call_place(call: PlanCall, skill: Skill) -> str | None:
    if skill.blocks and call.depth:
        return f"{skill.name} returns a value that generation waits for, but in a block it might not run"
    if call.role != "statement" and skill.returns == "none":
        return f"{skill.name} returns nothing that could be used as a value"
    return None


def _bad_plan_argument_count(call: PlanCall, skill: Skill) -> str | None:
    if len(call.args) == len(skill.arguments):
        return None
    names = ", ".join(argument.name for argument in skill.arguments)
    return f"{skill.name} takes {len(skill.arguments)} argument(s) ({names}), got {len(call.args)}"


def _bad_plan_argument(argument: SkillArgument, value: Value) -> str | None:
    why = (
        _bad_computed_plan_value(argument, value)
        if isinstance(value, (Variable, PlanCall, Operation))
        else _bad_plan_value(argument, value)
    )
    return f"{argument.name} {why}" if why else None


def _bad_computed_plan_value(argument: SkillArgument, value: Variable | PlanCall | Operation) -> str | None:
    """The error of a value that exists only at run time."""
    if argument.type in NUMERIC or argument.choices is not None:
        return (
            "must be a plain value: one computed while the plan runs cannot be checked before it is released"
        )
    if isinstance(value, Operation):
        return "must not be computed"
    return None


def _bad_plan_value(argument: SkillArgument, value: int | float | bool | str) -> str | None:
    kind = argument.type
    if kind in NUMERIC:
        if isinstance(value, (bool, str)) or (kind == "int" and not isinstance(value, int)):
            return f"must be {'a whole number' if kind == 'int' else 'a number'}, got {value!r}"
        low, high = argument.min, argument.max
        if (low is not None and value < low) or (high is not None and value > high):
            return f"must be {'' if low is None else low}..{'' if high is None else high} {argument.unit}, got {value}"
    elif kind == "bool":
        if not isinstance(value, bool):
            return f"must be True or False, got {value!r}"
    else:
        if not isinstance(value, str):
            return f"must be a text, got {value!r}"
        if len(value) > argument.chars:
            return f"must be at most {argument.chars} characters, got {len(value)}"
        if (problem := _bad_plan_character(value)) is not None:
            return f"must not have the {problem[1]}"
        if kind == "object" and OBJECT_NAME.fullmatch(value) is None:
            return f"must name an object, got {value!r}"
    if argument.choices is not None and value not in argument.choices:
        return f"must be one of {', '.join(map(str, argument.choices))}, got {value!r}"
    return None


def _bad_plan_pattern(call: PlanCall, skill: Skill) -> str | None:
    if skill.pattern and not skill.matches(call.text):
        return f"does not match the pattern of {skill.name}"
    return None


def _bad_plan_limit(call: PlanCall, skill: Skill, profile: RobotProfile) -> str | None:
    """The error by the robot's profile. Only the other rules judge a value that exists only at run time."""
    try:
        limits = profile.limits(skill.name)
        values: dict[str, object] = dict(plan_robot_arguments(call, skill, profile))
        for name, value in values.items():
            if isinstance(value, (Variable, PlanCall, Operation)):
                limit = limits.get(name)
                if limit is not None and (limit.numeric or limit.choices is not None):
                    return f"{name} must be a plain value: its limit cannot be checked before release"
                values[name] = ""
        problems = profile.violations(skill.name, values)
    except InvalidInput as error:
        return error.message
    except BadInput as error:
        return f"robot {profile.name}: {error}"
    return f"robot {profile.name}: {'; '.join(problems)}" if problems else None
