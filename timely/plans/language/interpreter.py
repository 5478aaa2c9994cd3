"""Interprets a plan while its segments arrive: yields the next skill and takes the skill's value.

The interpreter executes no skill itself. Its caller asks for the next invocation, lets a robot or a simulated world
execute it, and answers with the value. So it serves blocking drivers, asynchronous drivers and tests. Segments may
end inside blocks; the interpreter walks to the end of the tree. Semantics are TypeFly's (arXiv 2312.14950): ``->``
ends the whole plan, and ``&`` and ``|`` evaluate their right side only if needed.
"""

import operator
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from timely.core.errors import Conflict, InvalidInput, TimelyError
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import (
    Assign,
    Block,
    If,
    Loop,
    Operation,
    PlanCall,
    Return,
    Statement,
    Value,
    Variable,
)
from timely.plans.skill_set import SkillSet

Plain: TypeAlias = "int | float | bool | str | None"
_T = TypeVar("_T")

MAX_NUMBER = 1e15
"""Largest absolute operand. A loop of squares would otherwise take all memory."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_COUNT: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


_FALSE_TEXTS = ("", "false", "none", "no")


class SkillFailed(TimelyError):
    """The robot could not execute the skill. The plan ends, and a re-plan may follow."""

    code = "skill_failed"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One skill to execute now.

    Attributes:
        skill: full name.
        at: offset of the call in the plan.
    """

    skill: str
    args: tuple[Plain, ...] = ()
    text: str = ""
    at: int = 0


_Walk: TypeAlias = Generator["Invocation | None", Plain, _T]
"""Yields the next invocation, or None when more text is needed; is sent the value."""


class PlanWorld(Protocol):
    """Executes skills: a robot or a simulated one."""

    def do(self, invocation: Invocation) -> Plain:
        """Execute one skill; returns its value, None without one.

        Raises:
            SkillFailed: the skill failed.
        """


class Interpreter:
    """Runs one plan as its segments arrive.

    Args:
        skill_set: defines language and skills. Prose is not supported.
    """

    def __init__(self, skill_set: SkillSet) -> None:
        self._parser = SegmentParser(skill_set)
        self._variables: dict[str, Plain] = {}
        self._walk = self._block(self._parser.program.body)
        self._pending: Invocation | None = None
        self._answer: Plain = None
        self.finished = False
        """The plan is over. Further text executes nothing."""
        self.return_value: Plain = None
        """The value of ``->``."""

    def feed(self, segment: str) -> None:
        """Take the next segment.

        Raises:
            InvalidInput: the segment does not parse, or the plan may run too long. UnknownName: a skill does not exist.
        """
        self._parser.feed(segment)

    def end(self) -> None:
        """End the plan: no more segments follow.

        Raises:
            InvalidInput: a block is still open.
        """
        self._parser.finish()

    def next(self) -> Invocation | None:
        """The next invocation; None when more text is needed or the plan is over.

        Raises:
            Conflict: the last invocation has no answer.
            InvalidInput: a computation is impossible.
        """
        if self._pending is not None:
            raise Conflict("the last skill has no answer yet", where=self._pending.text)
        if self.finished:
            return None
        answer, self._answer = self._answer, None
        try:
            invocation = self._walk.send(answer)
        except StopIteration:
            self.finished = True
            return None
        self._pending = invocation
        return invocation

    def answer(self, value: Plain = None) -> None:
        """Pass the value of the last invocation.

        Raises:
            Conflict: no invocation waits for an answer.
        """
        if self._pending is None:
            raise Conflict("no skill waits for an answer", where="plan")
        self._pending, self._answer = None, value

    def run(self, world: PlanWorld) -> None:
        """Execute in ``world`` until more text is needed or the plan is over.

        Raises:
            SkillFailed: a skill failed in the world. InvalidInput: see ``next``.
        """
        while (invocation := self.next()) is not None:
            self.answer(world.do(invocation))

    # ------------------------------------------------------------------ walking the tree

    def _block(self, block: Block) -> _Walk[bool]:
        """Run the block as it grows; True if the plan returned in it."""
        index = 0
        while True:
            while index < len(block.statements):
                if (yield from self._statement(block.statements[index])):
                    return True
                index += 1
            if block.closed:
                return False
            yield None

    def _statement(self, statement: Statement) -> _Walk[bool]:
        if isinstance(statement, PlanCall):
            yield from self._call(statement)
        elif isinstance(statement, Assign):
            self._variables[statement.name] = yield from self._value(statement.value)
        elif isinstance(statement, Return):
            self.return_value = None if statement.value is None else (yield from self._value(statement.value))
            return True
        elif isinstance(statement, Loop):
            for _ in range(statement.count):
                if (yield from self._block(statement.body)):
                    return True
        else:
            return (yield from self._branches(statement))
        return False

    def _branches(self, statement: If) -> _Walk[bool]:
        index = 0
        while True:
            while index < len(statement.branches):
                branch = statement.branches[index]
                if branch.condition is None or _plan_truth((yield from self._value(branch.condition))):
                    return (yield from self._block(branch.body))
                index += 1
            if statement.closed:
                return False
            # Another arm may follow until the next statement starts or the plan ends.
            yield None

    def _call(self, call: PlanCall) -> _Walk[Plain]:
        args = []
        for argument in call.args:
            args.append((yield from self._value(argument)))
        return (yield Invocation(call.skill, tuple(args), call.text, call.at))

    def _value(self, value: Value) -> _Walk[Plain]:
        if isinstance(value, PlanCall):
            return (yield from self._call(value))
        if isinstance(value, Variable):
            if value.name not in self._variables:
                raise InvalidInput(f"{value.name} was not assigned before its use", where="plan")
            return self._variables[value.name]
        if isinstance(value, Operation):
            return (yield from self._operation(value))
        return value

    def _operation(self, operation: Operation) -> _Walk[Plain]:
        left = yield from self._value(operation.left)
        if operation.op in "&|":
            if _plan_truth(left) == (operation.op == "|"):
                return operation.op == "|"
            return _plan_truth((yield from self._value(operation.right)))
        right = yield from self._value(operation.right)
        if operation.op in ("==", "!="):
            return _plan_values_equal(left, right) == (operation.op == "==")
        a, b = _plan_number(left, operation.op), _plan_number(right, operation.op)
        if operation.op in _COMPARE:
            return _COMPARE[operation.op](a, b)
        if operation.op == "/" and not b:
            raise InvalidInput("divides by zero", where="plan")
        return _COUNT[operation.op](a, b)


def _plan_truth(value: Plain) -> bool:
    """A value as a condition. The texts ``False``, ``None`` and ``no`` from a robot are false."""
    return value.strip(" .!").lower() not in _FALSE_TEXTS if isinstance(value, str) else bool(value)


def _plan_values_equal(left: Plain, right: Plain) -> bool:
    """Equality. A text or number compared with True or False counts as a condition."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _plan_truth(left) == _plan_truth(right)
    return left == right


def _plan_number(value: Plain, op: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"{value!r} is no number for {op!r}", where="plan")
    if not abs(value) <= MAX_NUMBER:  # also NaN
        raise InvalidInput(f"a number for {op!r} is over {MAX_NUMBER:g} or none", where="plan")
    return value


def interpret_plan(text: str, skill_set: SkillSet, world: PlanWorld) -> Interpreter:
    """Execute a whole plan in ``world``.

    Raises:
        InvalidInput: the plan does not parse, or a computation is impossible. SkillFailed: a skill failed.
    """
    interpreter = Interpreter(skill_set)
    interpreter.feed(text)
    interpreter.end()
    interpreter.run(world)
    return interpreter
