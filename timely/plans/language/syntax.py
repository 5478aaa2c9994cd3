"""The tree of a plan: calls, conditionals, loops, variables, returns. Plain data that may still be growing.

Segments arrive one by one, so a block can be open: its ``statements`` list grows in place and ``closed`` turns
true when its brace has come. An interpreter may walk as far as the tree is known and wait there.

Values are Python's own (``int``, ``float``, ``bool``, ``str``) or one of ``Variable``, ``Call``, ``Operation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Role = Literal["statement", "condition", "value"]
Operator = Literal["|", "&", "==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Variable:
    """``_1``: what an assignment kept."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a skill. Two calls are equal when skill and arguments are.

    Attributes:
        skill: full name (``move_forward``), whatever the plan wrote.
        args: in order.
        text: the call as written.
        at: where it starts, characters from the start of the plan.
        depth: how many blocks it stands in.
        loops: how many of those are loops.
        role: a statement of its own, part of a condition, or a value (assigned, returned, an argument).
    """

    skill: str
    args: tuple[Value, ...] = ()
    text: str = field(default="", compare=False)
    at: int = field(default=0, compare=False)
    depth: int = field(default=0, compare=False)
    loops: int = field(default=0, compare=False)
    role: Role = field(default="statement", compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """``left op right``. ``&`` binds tighter than ``|``; comparisons bind tighter than both."""

    op: Operator
    left: Value
    right: Value


Value: TypeAlias = "int | float | bool | str | Variable | Call | Operation"


@dataclass(frozen=True, slots=True)
class Assign:
    """``_1=ox('cat')``."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Return:
    """``->True``: the plan ends here with this value (None when none is written)."""

    value: Value | None


@dataclass(slots=True)
class Block:
    """Statements in braces, or the whole plan. Grows while ``closed`` is false."""

    statements: list[Statement] = field(default_factory=list)
    closed: bool = False


@dataclass(slots=True)
class Branch:
    """One arm of a conditional; ``condition`` is None for the ``:{...}`` that takes the rest."""

    condition: Value | None
    body: Block


@dataclass(slots=True)
class If:
    """``?a{...}:?b{...}:{...}``. Another arm may follow until ``closed``."""

    branches: list[Branch]
    closed: bool = False


@dataclass(slots=True)
class Loop:
    """``4{...}``."""

    count: int
    body: Block


Statement: TypeAlias = "Call | Assign | Return | If | Loop"


@dataclass(slots=True)
class Program:
    """A whole plan, or as much of it as has arrived (``body.closed`` false)."""

    body: Block = field(default_factory=Block)

    def calls(self) -> Iterator[Call]:
        """Every call, in the order written."""
        yield from calls_of(self.body)


def calls_of(node: Block | Statement | Value | None) -> Iterator[Call]:
    """Every call inside a node, in the order written; a call's arguments come before it."""
    if isinstance(node, Block):
        for statement in node.statements:
            yield from calls_of(statement)
    elif isinstance(node, Call):
        for argument in node.args:
            yield from calls_of(argument)
        yield node
    elif isinstance(node, Operation):
        yield from calls_of(node.left)
        yield from calls_of(node.right)
    elif isinstance(node, (Assign, Return)):
        yield from calls_of(node.value)
    elif isinstance(node, Loop):
        yield from calls_of(node.body)
    elif isinstance(node, If):
        for branch in node.branches:
            yield from calls_of(branch.condition)
            yield from calls_of(branch.body)
