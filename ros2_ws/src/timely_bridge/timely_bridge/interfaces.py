"""What the bridge needs from the two sides it connects, as interfaces: the server's client and a robot's driver.

The coroutine that runs a task (``task_run``) knows only these, so it can be tested with fakes that behave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility


class PlanSegment(Protocol):
    """A segment as ``timely.client`` gives it; times are seconds."""

    @property
    def index(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def execution_s(self) -> float: ...
    @property
    def blocking(self) -> bool: ...


class PlanStream(Protocol):
    """A plan on its way, ``timely.client.AsyncTaskStream``."""

    task_id: str
    token: str | None

    def __aiter__(self) -> AsyncIterator[Any]: ...
    async def report(self, *reports: ExecutionReport) -> Any: ...
    async def cancel(self) -> None: ...
    async def close(self) -> None: ...


class PlanClient(Protocol):
    """The server, ``timely.client.AsyncTimelyClient``."""

    def submit(
        self,
        task: str,
        *,
        skill_set: str,
        robot: str | None = None,
        scene: str = "",
        utility: TimeUtility,
        agent: str | None = None,
        app: str | None = None,
        urgency: int | None = None,
        deadline_s: float | None = None,
        id: str | None = None,
    ) -> Awaitable[Any]: ...
    def replan(
        self,
        task_id: str,
        reason: str = "",
        *,
        scene: str | None = None,
        executed: str | None = None,
        utility: TimeUtility,
        deadline_s: float | None = None,
        agent: str | None = None,
        token: str | None = None,
        id: str | None = None,
    ) -> Awaitable[Any]: ...
    async def cancel(self, task_id: str) -> Any: ...
    async def health(self) -> dict[str, Any]: ...
    async def close(self) -> None: ...


ClientFactory = Callable[[str], Any]
"""Server URL -> client; called on the loop's thread."""


@dataclass(frozen=True, slots=True)
class Order:
    """A segment for a driver; ``execution_s`` is the expected time, seconds."""

    task_id: str
    index: int
    text: str
    skill_set: str
    tokens: int
    execution_s: float
    blocking: bool


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of an order: times are seconds on the bridge's monotonic clock, ``elapsed_s`` is the driver's own."""

    outcome: Literal["done", "failed", "cancelled", "refused"]
    code: int = 0
    message: str = ""
    elapsed_s: float = 0.0
    end_s: float = 0.0
    value: str | None = None


@dataclass(slots=True, eq=False)
class Sent:
    """An order on its way; both futures belong to the loop and never fail.

    Attributes:
        started: when execution began, seconds on the bridge's clock; stays open if it never does.
        ended: what became of it.
        progress: is told (elapsed_s, remaining_s) now and then.
    """

    order: Order
    started: asyncio.Future[float]
    ended: asyncio.Future[Execution]
    progress: Callable[[float, float], None] | None = None


class Driver(Protocol):
    """A robot's driver, as seen from the loop."""

    @property
    def alive(self) -> bool:
        """It has been heard of lately."""
        ...

    @property
    def holding(self) -> str:
        """What the robot's gripper holds, as it said last; empty if nothing, or if nobody knows."""
        ...

    async def ready(self, timeout_s: float) -> bool:
        """Wait until it can be sent to; False when it cannot within ``timeout_s``."""
        ...

    def send(self, order: Order, announce: Callable[[], None]) -> Sent:
        """Send an order at once; ``announce`` runs right after, on the thread that sent it."""
        ...

    def cancel(self, sent: Sent) -> None:
        """End an order, queued or in motion; its ``ended`` says when that has happened."""
        ...
