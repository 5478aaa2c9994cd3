"""The syntax tree of a plan: calls, conditionals, loops, variables and returns, as plain data.

Segments arrive one by one, so the tree can grow. The ``statements`` of an open block grow in place, and ``closed``
turns true at the block's closing brace. An interpreter walks to the end of the tree and waits there.

A value is a Python literal (``int``, ``float``, ``bool``, ``str``) or a ``Variable``, ``PlanCall`` or ``Operation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Role = Literal["statement", "condition", "value"]
Operator = Literal["|", "&", "==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Variable:
    """``_1``: a variable that an assignment set."""

    name: str


@dataclass(frozen=True, slots=True)
class PlanCall:
    """One use of a skill. Two calls are equal when skill and arguments are.

    Attributes:
        skill: full name (``move_forward``), also if the plan has the abbreviation.
        at: offset of its first character in the plan.
        depth: number of blocks around it.
        role: a statement, part of a condition, or a value (assigned, returned or an argument).
    """

    skill: str
    args: tuple[Value, ...] = ()
    text: str = field(default="", compare=False)
    at: int = field(default=0, compare=False)
    depth: int = field(default=0, compare=False)
    role: Role = field(default="statement", compare=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """``left op right``. ``&`` binds tighter than ``|``; comparisons bind tighter than both."""

    op: Operator
    left: Value
    right: Value


Value: TypeAlias = "int | float | bool | str | Variable | PlanCall | Operation"


@dataclass(frozen=True, slots=True)
class Assign:
    """``_1=ox('cat')``."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Return:
    """``->True``: the plan ends here with this value; None without a value."""

    value: Value | None


@dataclass(slots=True)
class Block:
    """Statements in braces, or the whole plan. A block grows while ``closed`` is false."""

    statements: list[Statement] = field(default_factory=list)
    closed: bool = False


@dataclass(slots=True)
class Branch:
    """One arm of a conditional. ``condition`` is None for the final ``:{...}``."""

    condition: Value | None
    body: Block


@dataclass(slots=True)
class If:
    """``?a{...}:?b{...}:{...}``. Arms may follow while ``closed`` is false."""

    branches: list[Branch]
    closed: bool = False


@dataclass(slots=True)
class Loop:
    """``4{...}``."""

    count: int
    body: Block


Statement: TypeAlias = "PlanCall | Assign | Return | If | Loop"


@dataclass(slots=True)
class Program:
    """A whole plan, or the start of one while ``body.closed`` is false."""

    body: Block = field(default_factory=Block)

    def calls(self) -> Iterator[PlanCall]:
        yield from plan_node_calls(self.body)


def plan_node_calls(node: Block | Statement | Value | None) -> Iterator[PlanCall]:
    """Every call inside a node, in the order written; the calls in arguments precede their call."""
    if isinstance(node, Block):
        for statement in node.statements:
            yield from plan_node_calls(statement)
    elif isinstance(node, PlanCall):
        for argument in node.args:
            yield from plan_node_calls(argument)
        yield node
    elif isinstance(node, Operation):
        yield from plan_node_calls(node.left)
        yield from plan_node_calls(node.right)
    elif isinstance(node, (Assign, Return)):
        yield from plan_node_calls(node.value)
    elif isinstance(node, Loop):
        yield from plan_node_calls(node.body)
    elif isinstance(node, If):
        for branch in node.branches:
            yield from plan_node_calls(branch.condition)
            yield from plan_node_calls(branch.body)
