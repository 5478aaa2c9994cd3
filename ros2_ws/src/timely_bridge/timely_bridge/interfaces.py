"""The two sides that the bridge connects, as interfaces: a plan at the server and a robot's driver.

The coroutine that runs a plan (``plan_run``) knows only these, so that fakes can take their place in tests. Segments
go from one to the other directly: ``BridgeDriver.forward`` reads the stream. It asks the plan
before it sends a segment.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from timely.client import Segment
from timely.core.reports import ExecutionReport
from timely_bridge.error_codes import BridgeTaskError


class BridgePlanStream(Protocol):
    """The segments of a plan as they come, ``timely.client.AsyncTaskStream``."""

    task_id: str
    token: str | None

    @property
    def result(self) -> Any: ...
    @property
    def outage(self) -> str:
        """Why no connection to the server could be made lately; empty if nothing is known to be wrong."""

    def __aiter__(self) -> AsyncIterator[Segment]: ...
    async def report(self, *reports: ExecutionReport) -> Any: ...
    async def close(self) -> None: ...


ClientFactory = Callable[[str], Any]
"""Server URL -> client; called on the loop's thread."""


@dataclass(frozen=True, slots=True)
class SegmentExecution:
    """The end of a segment at the driver. Seconds on the bridge's clock; ``elapsed_s`` is the driver's own."""

    outcome: Literal["done", "failed", "cancelled", "refused"]
    code: int = 0
    message: str = ""
    elapsed_s: float = 0.0
    end_s: float = 0.0
    value: str | None = None


def _new_bridge_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class BridgeSegment:
    """A segment on its way to the driver, or there; both futures belong to the loop and never fail.

    Attributes:
        on_sent: runs right after the segment was sent, on the thread that sent it.
        again: an earlier life of the bridge may have sent it. It is followed if the driver has it.
        started: when execution began, seconds on the bridge's clock; stays open if it never does.
        ended: the end of the execution.
        progress: is called with (elapsed_s, remaining_s) now and then.
    """

    segment: Segment
    skill_set: str
    on_sent: Callable[[], None]
    again: bool = False
    started: asyncio.Future[float] = field(default_factory=_new_bridge_future)
    ended: asyncio.Future[SegmentExecution] = field(default_factory=_new_bridge_future)
    progress: Callable[[float, float], None] | None = None

    @property
    def ended_motion(self) -> SegmentExecution | None:
        """Its end, if it moved the robot; None before the end, and without a motion."""
        execution = self.ended.result() if self.ended.done() else None
        return execution if execution is not None and execution.elapsed_s > 0.0 else None


Admit = Callable[[Segment], Awaitable[BridgeSegment]]
"""Waits until a plan may send a segment, and returns it as the driver gets it; one that has ended is not sent."""


class BridgeDriver(Protocol):
    """A robot's driver, as seen from the loop."""

    @property
    def alive(self) -> bool:
        """It takes segments: its state was received lately, this bridge has its lease, and it reaches its robot."""

    @property
    def refusal(self) -> BridgeTaskError | None:
        """Why this bridge cannot move the robot although its driver answers; None if it can."""

    @property
    def holding(self) -> str:
        """The object in the robot's gripper; empty if there is none, or if it is unknown."""

    @property
    def session(self) -> int:
        """Differs for each start of the driver; 0 if it is unknown."""

    @property
    def stopped(self) -> bool: ...

    async def ready(self, timeout_s: float) -> bool:
        """Wait until segments can be sent; False when that takes longer than ``timeout_s``."""

    async def forward(self, segments: AsyncIterable[Segment], admit: Admit) -> None:
        """Send every segment of a plan as it comes, once it is admitted; raises what ``segments`` or ``admit`` raise.

        One loop reads and sends, so no segment waits for a later one.
        """

    def awaits_operator(self, segment: Segment) -> bool:
        """A skill of the segment waits for an operator's confirmation."""

    def cancel_task(self, task_id: str) -> None:
        """End the segment of a task that is in motion, and the rest of the task."""

    def cancel(self, sent_segment: BridgeSegment) -> None:
        """End a segment, queued or in motion; its ``ended`` is set when that has happened."""
