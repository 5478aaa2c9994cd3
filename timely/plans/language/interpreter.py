"""Executes a plan while it is still being written: says which skill comes next, takes its value, waits for more text.

The interpreter does nothing itself. Whoever holds it asks for the next invocation, has a robot (or a simulated scene)
carry it out, and answers with what came back; so one interpreter serves blocking drivers, asynchronous ones and tests.
Segments may end anywhere a skill is complete, inside blocks too: it walks as far as the tree is known. Semantics are
TypeFly's (arXiv 2312.14950): ``->`` ends the whole plan, ``&`` and ``|`` look at their right side only if they must.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from timely.core.errors import Conflict, InvalidInput, TimelyError
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import (
    Assign,
    Block,
    Call,
    If,
    Loop,
    Operation,
    Return,
    Statement,
    Value,
    Variable,
)
from timely.plans.skill_set import SkillSet

Plain: TypeAlias = "int | float | bool | str | None"
_T = TypeVar("_T")

MAX_CALLS = 1000
"""Loops within loops could otherwise run for days."""

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


class SkillFailed(TimelyError):
    """The robot could not do it; the plan ends here and a new one may be asked for."""

    code = "skill_failed"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One skill to carry out now.

    Attributes:
        skill: full name. args: plain values, in order.
        text: as the plan wrote it. at: where, characters from the start of the plan.
    """

    skill: str
    args: tuple[Plain, ...] = ()
    text: str = ""
    at: int = 0


_Walk: TypeAlias = Generator["Invocation | None", Plain, _T]
"""Yields what to do (None: more text is needed), is sent what it gave."""


class World(Protocol):
    """What carries skills out: a robot, or a model of one."""

    def do(self, invocation: Invocation) -> Plain:
        """Carry one skill out; its value, None if it gives none.

        Raises:
            SkillFailed: it could not be done.
        """


class Interpreter:
    """Runs one plan as its segments arrive.

    Args:
        skill_set: gives language and skills; not one of prose.
        max_calls: most skills carried out, loops unrolled.
    """

    def __init__(self, skill_set: SkillSet, *, max_calls: int = MAX_CALLS) -> None:
        self._parser = SegmentParser(skill_set)
        self._max_calls = max_calls
        self._variables: dict[str, Plain] = {}
        self._walk = self._run()
        self._pending: Invocation | None = None
        self._answer: Plain = None
        self.calls = 0
        """Skills carried out so far."""
        self.finished = False
        """Nothing more will be done, whatever text may follow."""
        self.returned: Plain = None
        """What ``->`` gave."""

    def feed(self, segment: str) -> None:
        """Take the next segment.

        Raises:
            InvalidInput: it does not parse. UnknownName: a skill that does not exist.
        """
        self._parser.feed(segment)

    def end(self) -> None:
        """No more segments will come.

        Raises:
            InvalidInput: a block is still open.
        """
        self._parser.finish()

    def next(self) -> Invocation | None:
        """What to do now; None when more text is needed or the plan is finished.

        Raises:
            Conflict: the last invocation has not been answered.
            InvalidInput: the plan computes what cannot be computed, or does more than ``max_calls``.
        """
        if self._pending is not None:
            raise Conflict("the last skill has not been answered", where=self._pending.text)
        if self.finished:
            return None
        answer, self._answer = self._answer, None
        try:
            found = self._walk.send(answer)
        except StopIteration:
            self.finished = True
            return None
        if found is None:
            return None
        if self.calls >= self._max_calls:
            raise InvalidInput(f"makes more than {self._max_calls} calls", where=f"character {found.at}")
        self.calls += 1
        self._pending = found
        return found

    def answer(self, value: Plain = None) -> None:
        """What the last invocation gave back.

        Raises:
            Conflict: there is none to answer.
        """
        if self._pending is None:
            raise Conflict("no skill awaits an answer", where="plan")
        self._pending, self._answer = None, value

    def run(self, world: World) -> None:
        """Have ``world`` do everything that is known to come; returns when more text is needed or all is done.

        Raises:
            SkillFailed: of the world. InvalidInput: see ``next``.
        """
        while (invocation := self.next()) is not None:
            self.answer(world.do(invocation))

    # ------------------------------------------------------------------ walking the tree

    def _run(self) -> _Walk[None]:
        yield from self._block(self._parser.program.body)

    def _block(self, block: Block) -> _Walk[bool]:
        """Run the block as it grows; True when the plan returned in it."""
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
        if isinstance(statement, Call):
            yield from self._call(statement)
        elif isinstance(statement, Assign):
            self._variables[statement.name] = yield from self._value(statement.value)
        elif isinstance(statement, Return):
            self.returned = None if statement.value is None else (yield from self._value(statement.value))
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
                if branch.condition is None or _truth((yield from self._value(branch.condition))):
                    return (yield from self._block(branch.body))
                index += 1
            if statement.closed:
                return False
            # Another arm may follow; that none does is known when the next statement begins or the plan ends.
            yield None

    def _call(self, call: Call) -> _Walk[Plain]:
        args = []
        for argument in call.args:
            args.append((yield from self._value(argument)))
        return (yield Invocation(call.skill, tuple(args), call.text, call.at))

    def _value(self, value: Value) -> _Walk[Plain]:
        if isinstance(value, Call):
            return (yield from self._call(value))
        if isinstance(value, Variable):
            if value.name not in self._variables:
                raise InvalidInput(f"{value.name} was never assigned on the way here", where="plan")
            return self._variables[value.name]
        if isinstance(value, Operation):
            return (yield from self._operation(value))
        return value

    def _operation(self, operation: Operation) -> _Walk[Plain]:
        left = yield from self._value(operation.left)
        if operation.op in "&|":
            if _truth(left) == (operation.op == "|"):
                return operation.op == "|"
            return _truth((yield from self._value(operation.right)))
        right = yield from self._value(operation.right)
        if operation.op in ("==", "!="):
            return _same(left, right) == (operation.op == "==")
        a, b = _number(left, operation.op), _number(right, operation.op)
        if operation.op in _COMPARE:
            return _COMPARE[operation.op](a, b)
        if operation.op == "/" and not b:
            raise InvalidInput("divides by zero", where="plan")
        return _COUNT[operation.op](a, b)


def _truth(value: Plain) -> bool:
    """A value as a condition; a robot that says ``"False"`` means it."""
    return value not in ("False", "false", "None") and bool(value)


def _same(left: Plain, right: Plain) -> bool:
    """Equality; compared with True or False, a text or number is judged as a condition."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _truth(left) == _truth(right)
    return left == right


def _number(value: Plain, op: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"{value!r} is no number for {op!r}", where="plan")
    return value


def run_plan(text: str, skill_set: SkillSet, world: World) -> Interpreter:
    """Have ``world`` carry out a whole plan.

    Raises:
        InvalidInput: it does not parse, or computes the impossible. SkillFailed: of the world.
    """
    interpreter = Interpreter(skill_set)
    interpreter.feed(text)
    interpreter.end()
    interpreter.run(world)
    return interpreter
