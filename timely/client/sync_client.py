# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""The client of one server."""

import ssl
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import httpx

from timely.client.endpoints import Answer, TimelyClientMethods
from timely.client.pool import client_pool_options, client_tls_errors
from timely.client.sync_connection import ClientConnection
from timely.client.sync_stop import ClientStopStream
from timely.client.sync_stream import TaskStream
from timely.core.clock import Clock, SystemClock


class TimelyClient(TimelyClientMethods[Answer, TaskStream]):
    """Talks to one server; may be shared by threads.

    Args:
        url: of the server, ``http://HOST:PORT``.
        agent: name of this robot, unless a task names another.
        timeout_s: longest wait for a response, seconds; for the first event of a stream it is ``silence_s``.
        silence_s: longest silence of an event stream before the connection counts as lost, seconds; more than the
            server's keep-alive interval.
        reconnect_s: how long a stream tries to reconnect, and a report that the robot needs is repeated, seconds.
            It is longer than the server needs to start again. The last attempt takes up to ``timeout_s`` more.
            With 0 there is one attempt.
        token: bearer token of this program's principal; by default the environment variable ``TIMELY_TOKEN``.
        verify: certificates for TLS, as for httpx; by default with those of the environment, as ``client_tls`` says.
        transport: replaces the network in tests.

    Raises:
        InvalidInput: no server can be at the URL, no header can carry the token, or a file for TLS cannot be used.
    """

    _connection: ClientConnection
    _stream = TaskStream

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        agent: str = "",
        timeout_s: float = 10.0,
        silence_s: float = 30.0,
        reconnect_s: float = 60.0,
        token: str | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.agent = agent
        self.url = url
        with client_tls_errors():
            http = httpx.Client(transport=transport, **client_pool_options(url, timeout_s, verify, token))
        self._connection = ClientConnection(url, http, silence_s, reconnect_s, clock or SystemClock(), sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the server cancels unread plans after a few seconds."""
        self._connection.close()

    def remove_stop_robots(self, agents: Iterable[str]) -> list[str]:
        """Stops no longer expect these robots, which are out of service; returns those that were expected.

        Raises:
            NotAllowed: the principal is no operator. Conflict: a bridge follows one of them.
        """
        url = httpx.URL("/v1/stop/robots", params={"agent": list(agents)})
        answer = self._connection.request("DELETE", str(url))
        return list(answer["removed"])

    def stop_orders(self, agents: Iterable[str], bridge: str = "") -> ClientStopStream:
        """Follow the stop as the bridge of these robots; iterate for ``StopOrder``, the present state first.

        The stream opens a lost connection again until it is closed, and then repeats the present state.

        Args:
            bridge: its identity, the same after its restart and of no other bridge. Its acknowledgements then count
                for its own robots, also where another bridge has robots of the same names.
        """
        return ClientStopStream(self._connection, list(agents), bridge)

    def skill_sets(self) -> list[str]:
        """Names of the skill sets."""
        return list((self._connection.request("GET", "/v1/skill_sets"))["skill_sets"])

    def robot_profiles(self) -> list[str]:
        """Names of the robot profiles."""
        return list((self._connection.request("GET", "/v1/robot_profiles"))["robot_profiles"])
