"""The stop of all robots, as a bridge follows it."""

from typing import Self

import httpx

from timely.client.async_connection import AsyncClientConnection, AsyncClientEventResponse
from timely.client.endpoints import ClientStopOrders
from timely.client.events import StopOrder
from timely.client.protocol import LONGEST_RECONNECT_S
from timely.core.errors import EngineFailed, Overloaded


class AsyncClientStopStream(ClientStopOrders):
    """Iterate for ``StopOrder``; it ends only with ``close``."""

    _connection: AsyncClientConnection
    _events: AsyncClientEventResponse | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StopOrder:
        """The next order.

        Raises:
            TimelyError: the server refuses the stream, for example with NotAllowed.
        """
        connection = self._connection
        while not self._closed:
            cause, shortest_s = "it ended", 0.0
            try:
                if self._events is None:
                    self._events = await connection.open("GET", self._url, None, {})
                async for event in self._events:
                    order = self._read_order(event)
                    if order is not None:
                        return order
            except httpx.RequestError as error:
                cause = f"{type(error).__name__}: {error}"
            except (EngineFailed, Overloaded) as error:
                # The server is there, and has no time for attempts in short succession.
                cause, shortest_s = str(error), LONGEST_RECONNECT_S
            await self._disconnect()
            if not self._closed:
                self.outage = cause
                await connection.pause(self._backoff, cause, shortest_s)
        raise StopAsyncIteration

    async def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._backoff.reset()
        await self._disconnect()

    async def _disconnect(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            await events.close()
