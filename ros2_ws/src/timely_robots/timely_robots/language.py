"""Between plan text and motion: checks a segment against the robot, and interprets the segments of one task.

Segments arrive one by one and may end inside a block, so an interpreter keeps variables and open blocks for the whole
task and goes as far as the plan is known. It runs on the robot's motion thread and calls skills one at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from typing import Any, Protocol, cast

from timely_interfaces.msg import ErrorCode

from lrtrace.profiles import RobotProfile
from timely.core.errors import InvalidInput, TimelyError
from timely.plans.check import check_call, check_segment
from timely.plans.library import load_skill_set
from timely.plans.parser import SegmentParser, calls_in
from timely.plans.skillset import SkillSet
from timely.plans.syntax import (
    Assign,
    Block,
    Branch,
    Call,
    If,
    Loop,
    Operation,
    Return,
    Statement,
    Value,
    Variable,
)
from timely.plans.units import convert
from timely_robots.execution import MotionError, SegmentOrder, SkillCall

Returned = bool | int | float | str | None
"""What a skill gives back to the plan; None for a plain motion."""

Perform = Callable[[SkillCall], Returned]

MAX_CALLS = 10_000
"""Nested loops of a plan that nobody checked could run for ever; no honest plan comes near."""


class Interpreter(Protocol):
    """Executes the segments of one task, in order."""

    def run(self, text: str) -> Returned:
        """Execute the next segment; the value of its last query, or None. Raises what ``perform`` raises."""
        ...


@lru_cache(maxsize=64)
def skill_set(name: str) -> SkillSet:
    """The skill set of that name.

    Raises:
        MotionError: there is none.
    """
    try:
        return load_skill_set(name)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.UNKNOWN_NAME) from error


def check(order: SegmentOrder, profile: RobotProfile) -> None:
    """Refuse a segment that is not in its language or leaves the robot's limits, before anything moves.

    Raises:
        MotionError: with the code that says which.
    """
    skills = skill_set(order.skill_set)
    try:
        calls = calls_in(order.text, skills)
    except InvalidInput as error:
        raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
    for call in calls:
        _allowed(call.skill, call.text, profile)
    try:
        check_segment(order.text, skills, profile)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.OUT_OF_LIMITS) from error


def approve(call: SkillCall, skills: SkillSet, profile: RobotProfile) -> SkillCall:
    """One call as the robot takes it: checked once more, arguments in the units of the robot's profile.

    A plan can compute arguments, so what the whole segment was checked for may not be what runs.

    Raises:
        MotionError: with the code that says why it must not run.
    """
    _allowed(call.skill, call.text, profile)
    skill = skills.find(call.skill)
    if skill is None:  # prose: one text
        return call
    try:
        check_call(Call(call.skill, cast("tuple[Value, ...]", call.args), call.text), skills, profile)
    except TimelyError as error:
        raise MotionError(str(error), ErrorCode.OUT_OF_LIMITS) from error
    limits = profile.limits(call.skill)
    args: list[Any] = []
    for argument, value in zip(skill.arguments, call.args, strict=True):
        unit = limits[argument.name].unit if argument.name in limits else argument.unit
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            args.append(convert(value, argument.unit, unit))
        else:
            args.append(value)
    return SkillCall(call.skill, tuple(args), call.text)


def _allowed(skill: str, text: str, profile: RobotProfile) -> None:
    if not profile.allows(skill):
        raise MotionError(
            f"{text or skill}: {skill} may not run on {profile.name}", ErrorCode.SKILL_FORBIDDEN
        )


def interpreter(name: str, perform: Perform) -> Interpreter:
    """A fresh interpreter for a task in the skill set of that name."""
    skills = skill_set(name)
    return ProseReader(skills, perform) if skills.language == "text" else PlanInterpreter(skills, perform)


class ProseReader:
    """A plan in prose: each segment is one thing to read out."""

    def __init__(self, skills: SkillSet, perform: Perform) -> None:
        self._skill = skills.text_rules.unit
        self._perform = perform

    def run(self, text: str) -> Returned:
        """See ``Interpreter``."""
        return self._perform(SkillCall(self._skill, (text.strip(),), text.strip()))


class PlanInterpreter:
    """TypeFly's MiniSpec and flat lists of calls (``timely.plans.syntax``)."""

    def __init__(self, skills: SkillSet, perform: Perform) -> None:
        self._parser = SegmentParser(skills)
        self._perform = perform
        self._variables: dict[str, Returned] = {}
        self._last: Returned = None
        self._calls = 0
        self.ended = False
        """A ``->`` was executed: the rest of the plan is not."""
        self.returned: Returned = None
        self._walk = self._block(self._parser.program.body)

    def run(self, text: str) -> Returned:
        """See ``Interpreter``."""
        try:
            self._parser.feed(text)
        except TimelyError as error:
            raise MotionError(str(error), ErrorCode.SEGMENT_INVALID) from error
        self._last = None
        if not self.ended:
            next(self._walk, None)
        return self._last

    # Each generator runs as far as the tree is known and yields where it needs more of it.

    def _block(self, block: Block) -> Generator[None, None, None]:
        at = 0
        while not self.ended:
            if at < len(block.statements):
                yield from self._statement(block.statements[at])
                at += 1
            elif block.closed:
                return
            else:
                yield

    def _statement(self, statement: Statement) -> Generator[None, None, None]:
        if isinstance(statement, Call):
            self._call(statement)
        elif isinstance(statement, Assign):
            self._variables[statement.name] = self._value(statement.value)
        elif isinstance(statement, Return):
            self.returned = None if statement.value is None else self._value(statement.value)
            self.ended = True
        elif isinstance(statement, Loop):
            for _ in range(statement.count):
                if self.ended:
                    return
                yield from self._block(statement.body)
        else:
            yield from self._conditional(statement)

    def _conditional(self, statement: If) -> Generator[None, None, None]:
        at = 0
        while True:
            if at < len(statement.branches):
                branch: Branch = statement.branches[at]
                if branch.condition is None or self._value(branch.condition):
                    yield from self._block(branch.body)
                    return
                at += 1
            elif statement.closed:
                return
            else:
                yield

    def _value(self, value: Value) -> Returned:
        if isinstance(value, Variable):
            if value.name not in self._variables:
                raise MotionError(f"{value.name} has no value", ErrorCode.SEGMENT_INVALID)
            return self._variables[value.name]
        if isinstance(value, Call):
            return self._call(value)
        if isinstance(value, Operation):
            return self._operation(value)
        return value

    def _call(self, call: Call) -> Returned:
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise MotionError(f"the plan makes more than {MAX_CALLS} calls", ErrorCode.SEGMENT_INVALID)
        args = tuple(self._value(argument) for argument in call.args)
        value = self._perform(SkillCall(call.skill, args, call.text))
        if value is not None:
            self._last = value
        return value

    def _operation(self, node: Operation) -> Returned:
        left = self._value(node.left)
        if node.op == "&":
            return bool(left) and bool(self._value(node.right))
        if node.op == "|":
            return bool(left) or bool(self._value(node.right))
        right = self._value(node.right)
        if node.op in ("==", "!="):
            return bool(_OPERATORS[node.op](left, right))
        numbers = all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (left, right))
        texts = isinstance(left, str) and isinstance(right, str)
        if not (numbers or (texts and node.op in ("+", "<", ">", "<=", ">="))):
            raise MotionError(f"cannot take {left!r} {node.op} {right!r}", ErrorCode.SEGMENT_INVALID)
        try:
            result: Returned = _OPERATORS[node.op](left, right)
        except ZeroDivisionError as error:
            raise MotionError("the plan divides by zero", ErrorCode.SEGMENT_INVALID) from error
        return result


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
