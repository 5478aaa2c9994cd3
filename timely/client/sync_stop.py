# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""The stop of all robots, as a bridge follows it."""

from typing import Self

import httpx

from timely.client.endpoints import ClientStopOrders
from timely.client.events import StopOrder
from timely.client.protocol import LONGEST_RECONNECT_S
from timely.client.sync_connection import ClientConnection, ClientEventResponse
from timely.core.errors import EngineFailed, Overloaded


class ClientStopStream(ClientStopOrders):
    """Iterate for ``StopOrder``; it ends only with ``close``."""

    _connection: ClientConnection
    _events: ClientEventResponse | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StopOrder:
        """The next order.

        Raises:
            TimelyError: the server refuses the stream, for example with NotAllowed.
        """
        connection = self._connection
        while not self._closed:
            cause, shortest_s = "it ended", 0.0
            try:
                if self._events is None:
                    self._events = connection.open("GET", self._url, None, {})
                for event in self._events:
                    order = self._read_order(event)
                    if order is not None:
                        return order
            except httpx.RequestError as error:
                cause = f"{type(error).__name__}: {error}"
            except (EngineFailed, Overloaded) as error:
                # The server is there, and has no time for attempts in short succession.
                cause, shortest_s = str(error), LONGEST_RECONNECT_S
            self._disconnect()
            if not self._closed:
                self.outage = cause
                connection.pause(self._backoff, cause, shortest_s)
        raise StopIteration

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._backoff.reset()
        self._disconnect()

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()
