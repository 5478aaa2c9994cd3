"""Who may use a robot: one plan at a time, whatever is being generated meanwhile. Pure asyncio, one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from timely_interfaces.msg import ErrorCode

from timely.core.errors import InvalidInput
from timely_bridge.error_codes import TaskEnded

OnBusy = Literal["queue", "preempt", "reject"]
POLICIES: tuple[OnBusy, ...] = get_args(OnBusy)


@dataclass(eq=False, slots=True)
class Turn:
    """One task's claim on the robot. ``cut`` ends the task that holds the robot when a more urgent one preempts."""

    urgent: bool
    cut: Callable[[int, str], None]
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class Turnstile:
    """Lets one task at a time drive a robot.

    ``queue``: the others wait, urgent ones first, then in the order in which their first segment came. ``preempt``: an
    urgent task ends the normal one that holds the robot (PREEMPTED). ``reject``: a second task is refused (ROBOT_BUSY).
    """

    def __init__(self, policy: str = "queue") -> None:
        if policy not in POLICIES:
            raise InvalidInput(f"must be one of {', '.join(POLICIES)}, got {policy!r}", where="on_busy")
        self.policy = policy
        self._holder: Turn | None = None
        self._waiting: list[Turn] = []

    @property
    def busy(self) -> bool:
        """A task holds the robot."""
        return self._holder is not None

    @property
    def waiting(self) -> int:
        """Tasks that have segments and wait for the robot."""
        return len(self._waiting)

    def holds(self, turn: Turn) -> bool:
        """Whether the robot is this task's."""
        return self._holder is turn

    def next(self, turn: Turn) -> bool:
        """Whether the robot comes to this task as it is now: no other task will have changed it before."""
        holder = self._holder
        pushes = self.policy == "preempt" and turn.urgent
        return holder is None or holder is turn or (pushes and not holder.urgent)

    async def enter(self, turn: Turn) -> None:
        """Return when the robot is this task's; at once if it is already.

        Raises:
            TaskEnded: the robot is busy and the policy is ``reject``.
        """
        if self._holder is turn:
            return
        if self._holder is None:
            self._grant(turn)
            return
        if self.policy == "reject":
            raise TaskEnded(ErrorCode.ROBOT_BUSY, "the robot is executing another task")
        behind = [other for other in self._waiting if other.urgent or not turn.urgent]
        self._waiting.insert(len(behind), turn)
        if self.policy == "preempt" and turn.urgent and not self._holder.urgent:
            self._holder.cut(ErrorCode.PREEMPTED, "an urgent task took the robot")
        try:
            await turn.granted.wait()
        except asyncio.CancelledError:
            self.leave(turn)
            raise

    def leave(self, turn: Turn) -> None:
        """Give the robot back, or stop waiting for it; safe to call at any time."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        if self._holder is turn:
            self._holder = None
            if self._waiting:
                self._grant(self._waiting.pop(0))

    def _grant(self, turn: Turn) -> None:
        self._holder = turn
        turn.granted.set()
