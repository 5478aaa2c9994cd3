"""The syntax tree of a plan while it grows, with its open blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely.core.errors import InvalidInput
from timely.plans.language.syntax import Block, Branch, If, Loop, Program, Statement, Value

MAX_BLOCKS = 16

MAX_CALLS = 10_000
"""Most calls of a plan with all rounds of its loops: nested loops could otherwise run for days."""

MAX_STEPS = 100_000
"""Most statements, rounds and operators of a plan: 0.3 s, in which a robot's motion thread can do nothing else."""


@dataclass(slots=True)
class _Open:
    """A block without its closing brace, and the statement it belongs to; None for the plan itself."""

    block: Block
    owner: If | Loop | None


class PlanTree:
    """A plan as far as it is parsed."""

    def __init__(self, *, fragment: bool = False) -> None:
        self.program = Program()
        self.variables: set[str] = set()
        """Variables with a value so far."""
        self.statements = 0
        """Number of statements so far, block headers included."""
        self._calls = self._steps = 0
        """Number of calls, and of statements, rounds and operators, with all rounds of all loops."""
        self.just_closed: list[Loop] = []
        """Loops that the last segment closed, inner loops first."""
        self.fragment = fragment
        self._open = [_Open(self.program.body, None)]
        self._if: If | None = None

    @property
    def depth(self) -> int:
        """Number of open blocks."""
        return len(self._open) - 1

    def finish(self) -> Program:
        """The whole plan.

        Raises:
            InvalidInput: a block is still open.
        """
        if self.depth:
            raise InvalidInput(f"ends inside {self.depth} open block(s)", where="end of the plan")
        self.end_conditional()
        for entry in self._open:
            entry.block.closed = True
        return self.program

    def add(self, statement: Statement) -> None:
        self.end_conditional()
        self._open[-1].block.statements.append(statement)
        self.statements += 1
        self.count_steps(1 + (statement.count if isinstance(statement, Loop) else 0))

    def count_steps(self, steps: int) -> None:
        """Count steps in the innermost open block; raises InvalidInput if the plan may take too many."""
        self._steps += self._rounds * steps
        if self._steps > MAX_STEPS:
            raise InvalidInput(f"takes more than {MAX_STEPS} steps", where="plan")

    def count_call(self) -> None:
        """Count a call in the innermost open block; raises InvalidInput if the plan may make too many.

        So a plan is refused before the first of its calls that could be one too many, and never fails half-way.
        """
        self._calls += self._rounds
        if self._calls > MAX_CALLS:
            raise InvalidInput(f"makes more than {MAX_CALLS} calls", where="plan")

    @property
    def _rounds(self) -> int:
        """How often a statement in the innermost open block may run."""
        return math.prod(entry.owner.count for entry in self._open if isinstance(entry.owner, Loop))

    def push(self, block: Block, owner: If | Loop) -> None:
        """Open a block; raises InvalidInput if it is nested too deep."""
        if self.depth >= MAX_BLOCKS:
            raise InvalidInput(f"blocks nested deeper than {MAX_BLOCKS}", where="plan")
        self._open.append(_Open(block, owner))

    def pop(self) -> bool:
        """Close the innermost block; False if no block is open."""
        self.end_conditional()
        if not self.depth:
            return self.fragment
        entry = self._open.pop()
        entry.block.closed = True
        if isinstance(entry.owner, If):
            self._if = entry.owner
        elif isinstance(entry.owner, Loop):
            self.just_closed.append(entry.owner)
        return True

    def add_branch(self, condition: Value | None) -> bool:
        """Add an arm to the conditional that closed last; False if there is none."""
        owner = self._if
        if owner is None:
            if not self.fragment:
                return False
            owner = If([])
            self.add(owner)
        self._if = None
        branch = Branch(condition, Block())
        owner.branches.append(branch)
        self.push(branch.body, owner)
        return True

    def end_conditional(self) -> None:
        """No further arm follows the conditional that closed last."""
        if self._if is not None:
            self._if.closed = True
            self._if = None
