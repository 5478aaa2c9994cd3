"""Lets one goal at a time use a robot, whatever is being generated meanwhile. Pure asyncio, one loop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from timely_interfaces.msg import ErrorCode

from timely.core.errors import InvalidInput
from timely_bridge.error_codes import BridgeTaskError

OnBusy = Literal["queue", "preempt", "reject"]
POLICIES: tuple[OnBusy, ...] = get_args(OnBusy)


@dataclass(eq=False, slots=True)
class BridgeRobotClaim:
    """One goal's claim on the robot. ``cancel`` ends the goal that holds the robot when an urgent one preempts it.

    Attributes:
        end: why the loop is about to end the goal, which sends nothing more; set by any thread.
    """

    urgent: bool
    cancel: Callable[[int, str], None]
    end: BridgeTaskError | None = None
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class BridgeRobotLock:
    """The lock of one robot.

    ``queue``: other goals wait, urgent ones first, then in the order of their first segments. ``preempt``: an urgent
    goal ends the normal one that holds the robot (PREEMPTED). ``reject``: a second goal is refused (ROBOT_BUSY).
    """

    def __init__(self, policy: str = "queue") -> None:
        if policy not in POLICIES:
            raise InvalidInput(f"must be one of {', '.join(POLICIES)}, got {policy!r}", where="on_busy")
        self.policy = policy
        self._holder: BridgeRobotClaim | None = None
        self._queue: list[BridgeRobotClaim] = []

    @property
    def busy(self) -> bool:
        return self._holder is not None

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    def held_by(self, claim: BridgeRobotClaim) -> bool:
        return self._holder is claim

    def next_for(self, claim: BridgeRobotClaim) -> bool:
        """No other goal will move the robot before this one."""
        holder = self._holder
        preempts = self.policy == "preempt" and claim.urgent
        return holder is None or holder is claim or (preempts and not holder.urgent)

    async def acquire(self, claim: BridgeRobotClaim) -> None:
        """Return when the claim holds the robot; at once if it does already.

        Raises:
            BridgeTaskError: the robot is busy and the policy is ``reject``.
        """
        if self._holder is claim:
            return
        if self._holder is None:
            self._grant(claim)
            return
        if self.policy == "reject":
            raise BridgeTaskError(ErrorCode.ROBOT_BUSY, "the robot is executing another task")
        ahead = [other for other in self._queue if other.urgent or not claim.urgent]
        self._queue.insert(len(ahead), claim)
        if self.policy == "preempt" and claim.urgent and not self._holder.urgent:
            self._holder.cancel(ErrorCode.PREEMPTED, "an urgent task took the robot")
        try:
            await claim.granted.wait()
        except asyncio.CancelledError:
            self.release(claim)
            raise

    def release(self, claim: BridgeRobotClaim) -> None:
        """Give the robot back, or leave the queue; safe to call at any time."""
        if claim in self._queue:
            self._queue.remove(claim)
        if self._holder is claim:
            self._holder = None
            claim.granted.clear()
            if self._queue:
                self._grant(self._queue.pop(0))

    def _grant(self, claim: BridgeRobotClaim) -> None:
        self._holder = claim
        claim.granted.set()
