"""The buffered events of one task, encoded for the wire.

Any reader can start at any event and misses none. The buffer is bounded by the length of a plan. A slow reader delays
neither the engine nor other readers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from timely.core.errors import EngineFailed

KEEPALIVE = b": keep-alive\n\n"

_body = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def server_task_event_bytes(event_id: int, name: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event; ASCII only, since some readers split lines at other characters too."""
    return f"id: {event_id}\nevent: {name}\ndata: {_body(data)}\n\n".encode("ascii")


class TaskEvents:
    """Events numbered from 1, without gaps."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._events: list[bytes] = []
        self.closed = False
        self._change = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def append(self, name: str, data: Mapping[str, Any], *, last: bool = False) -> int:
        """Add an event and return its id; raises EngineFailed when the buffer is full."""
        if self.closed:
            raise EngineFailed("an event after the last one", where="events")
        if len(self._events) >= self._limit and not last:
            raise EngineFailed(f"more than {self._limit} events for one task", where="events")
        self._events.append(server_task_event_bytes(len(self._events) + 1, name, data))
        self.closed = last
        old_change, self._change = self._change, asyncio.Event()
        old_change.set()
        return len(self._events)

    async def follow(self, after: int, keepalive_s: float) -> AsyncIterator[bytes]:
        """Events with ids over ``after`` until the last; a comment after each silence of ``keepalive_s``."""
        position = after
        while True:
            change = self._change
            while position < len(self._events):
                position += 1
                yield self._events[position - 1]
            if self.closed:
                if position > len(self._events):
                    # The machine lost events that the reader has: the end must be a new event for it.
                    _, _, event = self._events[-1].partition(b"\n")
                    yield b"id: %d\n%b" % (position + 1, event)
                return
            if change is not self._change:
                continue
            try:
                async with asyncio.timeout(keepalive_s):
                    await change.wait()
            except TimeoutError:
                yield KEEPALIVE
