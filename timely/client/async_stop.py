"""The stop of all robots, as a bridge follows it."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from timely.client.async_connection import AsyncConnection, AsyncEventResponse
from timely.client.events import StopOrder, client_stop_order
from timely.client.protocol import LONGEST_RECONNECT_S
from timely.core.errors import EngineFailed, Overloaded

FIRST_RECONNECT_S = 0.05


class AsyncStopStream:
    """Iterate for ``StopOrder``; it ends only with ``close``.

    Attributes:
        connected: the event stream is open. A bridge may show that the server cannot reach it.
    """

    def __init__(self, connection: AsyncConnection, agents: Sequence[str]) -> None:
        self.connected = False
        self._connection = connection
        self._agents = agents
        self._url = str(httpx.URL("/v1/stop/events", params={"agent": list(agents)}))
        self._events: AsyncEventResponse | None = None
        self._delay_s = FIRST_RECONNECT_S
        self._closed = False

    def __aiter__(self) -> AsyncStopStream:
        return self

    async def __anext__(self) -> StopOrder:
        """The next order.

        Raises:
            TimelyError: the server refuses the stream, for example with NotAllowed.
        """
        while not self._closed:
            try:
                if self._events is None:
                    self._events = await self._connection.open("GET", self._url, None, {})
                async for event in self._events:
                    self.connected, self._delay_s = True, FIRST_RECONNECT_S
                    if "stream_token" in event.data:
                        tokens = dict.fromkeys(self._agents, str(event.data["stream_token"]))
                        self._connection.stop_tokens.update(tokens)
                    order = client_stop_order(event)
                    if order is not None:
                        return order
            except (httpx.TransportError, EngineFailed, Overloaded):
                pass
            await self._disconnect()
            if not self._closed:
                await self._connection.sleep(self._delay_s)
                self._delay_s = min(2 * self._delay_s, LONGEST_RECONNECT_S)
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the iteration."""
        self._closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        events, self._events = self._events, None
        self.connected = False
        if events is not None:
            await events.close()
