# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""The stop of all robots, as a bridge follows it."""

import math
from collections.abc import Sequence
from typing import Self

import httpx

from timely.client.events import StopOrder, client_stop_order
from timely.client.protocol import LONGEST_RECONNECT_S, ClientBackoff
from timely.client.sync_connection import ClientConnection, ClientEventResponse
from timely.core.errors import EngineFailed, Overloaded


class ClientStopStream:
    """Iterate for ``StopOrder``; it ends only with ``close``.

    Attributes:
        connected: the event stream is open. A bridge may show that the server cannot reach it.
    """

    def __init__(self, connection: ClientConnection, agents: Sequence[str], bridge: str = "") -> None:
        self.connected = False
        self._connection = connection
        self._agents = agents
        params = {"agent": list(agents)} | ({"bridge": [bridge]} if bridge else {})
        self._url = str(httpx.URL("/v1/stop/events", params=params))
        self._events: ClientEventResponse | None = None
        self._backoff = ClientBackoff(math.inf, " ".join(agents), connection.backoffs)
        self._closed = False

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
                    self.connected = True
                    self._backoff.reset()
                    if "stream_token" in event.data:
                        tokens = dict.fromkeys(self._agents, str(event.data["stream_token"]))
                        connection.stop_tokens.update(tokens)
                    order = client_stop_order(event)
                    if order is not None:
                        return order
            except httpx.RequestError as error:
                cause = str(error)
            except (EngineFailed, Overloaded) as error:
                # The server is there, and has no time for attempts in short succession.
                cause, shortest_s = str(error), LONGEST_RECONNECT_S
            self._disconnect()
            if not self._closed:
                delay_s = self._backoff.delay_s(connection.clock.now(), cause, connection.url)
                connection.sleep(max(delay_s, shortest_s))
        raise StopIteration

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._backoff.reset()
        self._disconnect()

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        self.connected = False
        if events is not None:
            events.close()
