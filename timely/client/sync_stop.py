# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""The stop of all robots, as a bridge follows it."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from timely.client.events import StopOrder, client_stop_order
from timely.client.protocol import LONGEST_RECONNECT_S
from timely.client.sync_connection import Connection, EventResponse
from timely.core.errors import EngineFailed, Overloaded

FIRST_RECONNECT_S = 0.05


class StopStream:
    """Iterate for ``StopOrder``; it ends only with ``close``.

    Attributes:
        connected: the event stream is open. A bridge may show that the server cannot reach it.
    """

    def __init__(self, connection: Connection, agents: Sequence[str]) -> None:
        self.connected = False
        self._connection = connection
        self._agents = agents
        self._url = str(httpx.URL("/v1/stop/events", params={"agent": list(agents)}))
        self._events: EventResponse | None = None
        self._delay_s = FIRST_RECONNECT_S
        self._closed = False

    def __iter__(self) -> StopStream:
        return self

    def __next__(self) -> StopOrder:
        """The next order.

        Raises:
            TimelyError: the server refuses the stream, for example with NotAllowed.
        """
        while not self._closed:
            try:
                if self._events is None:
                    self._events = self._connection.open("GET", self._url, None, {})
                for event in self._events:
                    self.connected, self._delay_s = True, FIRST_RECONNECT_S
                    if "stream_token" in event.data:
                        tokens = dict.fromkeys(self._agents, str(event.data["stream_token"]))
                        self._connection.stop_tokens.update(tokens)
                    order = client_stop_order(event)
                    if order is not None:
                        return order
            except (httpx.TransportError, EngineFailed, Overloaded):
                pass
            self._disconnect()
            if not self._closed:
                self._connection.sleep(self._delay_s)
                self._delay_s = min(2 * self._delay_s, LONGEST_RECONNECT_S)
        raise StopIteration

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        self.connected = False
        if events is not None:
            events.close()
