"""A task's events as a response of server-sent events. It ends when its reader leaves or stops reading."""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from timely.core.errors import InvalidInput
from timely.server.tasks.service import TaskService
from timely.server.tasks.task import Task
from timely.server.tasks.task_events import TaskEvents

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"


class EventStream(Response):
    """Streams a task's events from ``after`` on.

    Args:
        first: sent in place of event ``after``; only this reader may see it.
    """

    media_type = EVENT_STREAM

    def __init__(self, service: TaskService, task: Task, *, after: int = 0, first: bytes = b"") -> None:
        super().__init__(
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Timely-Task-Id": task.task_id}
        )
        # The length of a stream is not known in advance.
        del self.headers["content-length"]
        self._service, self._task = service, task
        self._after, self._first = after, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._service.lifecycle.reading(self._task) as events:
            sender = asyncio.create_task(self._send(events, send))
            watcher = asyncio.create_task(_disconnected(receive))
            try:
                await asyncio.wait((sender, watcher), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sender.cancel()
                watcher.cancel()
                results = await asyncio.gather(sender, watcher, return_exceptions=True)
        error = results[0]
        if isinstance(error, TimeoutError):
            log.info("task %s: a reader has not read for %s s", self._task.task_id, self._limit_s)
        elif isinstance(error, Exception) and not isinstance(error, OSError):
            raise error

    @property
    def _limit_s(self) -> float:
        return self._service.settings.send_timeout_s

    async def _send(self, events: TaskEvents, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._first:
            await self._chunk(send, self._first)
        async for event in events.follow(self._after, self._service.settings.keepalive_s):
            await self._chunk(send, event)
        async with asyncio.timeout(self._limit_s):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunk(self, send: Send, data: bytes) -> None:
        # ``send`` waits while the connection is full, so a reader that does not read ends here.
        async with asyncio.timeout(self._limit_s):
            await send({"type": "http.response.body", "body": data, "more_body": True})


def resume_point(header: str | None, events: TaskEvents) -> int:
    """The event id after which a reader continues, from its ``Last-Event-ID``.

    Raises:
        InvalidInput: no event of this task has that id.
    """
    if header is None or header == "":
        return 0
    if not (header.isascii() and header.isdigit() and len(header) < 10 and int(header) <= len(events)):
        raise InvalidInput(f"{header[:40]!r} is no event id of this task", where="Last-Event-ID")
    return int(header)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
