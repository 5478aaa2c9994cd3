"""Responses of server-sent events. A stream ends when its reader leaves or stops reading."""

import asyncio
import logging
import math
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from timely.core.clock import first_done_on_clock
from timely.core.errors import InvalidInput
from timely.server.tasks.service import TaskService
from timely.server.tasks.task import Task
from timely.server.tasks.task_events import TaskEvents

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {EVENT_STREAM: {}}}
}
"""The OpenAPI of a stream."""


class _HttpStream(Response):
    """Sends chunks as they come."""

    media_type = EVENT_STREAM

    def __init__(self, service: TaskService, headers: dict[str, str]) -> None:
        # No proxy may keep events back, to compress them for example.
        own = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
        super().__init__(headers={**own, **headers})
        # The length of a stream is not known in advance.
        del self.headers["content-length"]
        self._service = service

    @abstractmethod
    def chunks(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The encoded events, open as long as the reader is there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with (
            self.chunks() as chunks,
            first_done_on_clock(self._send(chunks, send), _wait_for_http_disconnect(receive)) as (sender, _),
        ):
            pass
        with suppress(OSError, asyncio.CancelledError):
            sender.result()

    async def _send(self, chunks: AsyncIterator[bytes], send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class HttpEventStream(_HttpStream):
    """Streams a task's events from ``after`` on.

    Args:
        first: sent in place of event ``after``; only this reader may see it.
    """

    def __init__(
        self, service: TaskService, task: Task, *, with_token: bool, after: int = 0, first: bytes = b""
    ) -> None:
        super().__init__(service, {"Timely-Task-Id": task.name})
        self._task, self._with_token, self._after, self._first = task, with_token, after, first

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        async with (
            self._service.lifecycle.reading(self._task, with_token=self._with_token) as events,
            aclosing(self._all(events)) as chunks,
        ):
            yield chunks

    async def _all(self, events: TaskEvents) -> AsyncGenerator[bytes, None]:
        if self._first:
            yield self._first
        async for event in events.follow(self._after, self._service.settings.keepalive_s):
            yield event


class HttpStopEvents(_HttpStream):
    """Streams the stop and the reset of the fleet to a bridge with these robots."""

    def __init__(self, service: TaskService, principal: str, agents: Collection[str], bridge: str) -> None:
        super().__init__(service, {})
        self._principal, self._agents, self._bridge = principal, agents, bridge

    @asynccontextmanager
    async def chunks(self) -> AsyncIterator[AsyncIterator[bytes]]:
        fleet_stop = self._service.fleet_stop.latch
        with fleet_stop.following(self._principal, self._agents, self._bridge) as follower:
            async with aclosing(fleet_stop.events(follower, self._service.settings.keepalive_s)) as chunks:
                yield chunks


def sse_resume_point(header: str | None, task: Task) -> int:
    """The event id after which a reader continues, from its ``Last-Event-ID``.

    A server that lost its last records with its machine sends events again, with the same ids. A reader may be ahead.

    Raises:
        InvalidInput: no event of this task has that id.
    """
    if header is None or header == "":
        return 0
    is_number = header.isascii() and header.isdigit() and len(header) < 10
    may_be_ahead = math.isfinite(task.recovered_s)
    if not (is_number and (may_be_ahead or int(header) <= len(task.events))):
        raise InvalidInput(f"{header[:40]!r} is no event id of this task", where="Last-Event-ID")
    return int(header)


async def _wait_for_http_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
