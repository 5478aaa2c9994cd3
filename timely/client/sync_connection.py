# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""HTTP requests to one server, with their deadlines and retries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import httpx

from timely.client.events import ClientEventDecoder, ServerEvent
from timely.client.problems import client_error_from_response
from timely.client.protocol import (
    LONGEST_RECONNECT_S,
    ClientBackoff,
    ClientTaskTokens,
    Headers,
    client_reports_body,
)
from timely.core.clock import Clock
from timely.core.errors import EngineFailed, Overloaded
from timely.core.reports import ExecutionReport


class ClientConnection:
    """Sends requests to one server over a pool of connections.

    Args:
        http: the pool, with the server's URL and the deadline of a response.
        silence_s: longest silence of an event stream, seconds.
        reconnect_s: how long a stream tries to reconnect, and a report is repeated, seconds.
    """

    def __init__(
        self,
        url: str,
        http: httpx.Client,
        silence_s: float,
        reconnect_s: float,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self.url, self.http = url, http
        self.task_tokens = ClientTaskTokens()
        self.stop_tokens: dict[str, str] = {}
        """Token of the stop's event stream by robot; it goes with every acknowledgement."""
        self.reconnect_s = reconnect_s
        self.backoffs: WeakSet[ClientBackoff] = WeakSet()
        """Event streams and reports that have no connection."""
        self.clock, self.sleep = clock, sleep
        self._stream_timeout = httpx.Timeout(http.timeout.connect, read=silence_s)

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        headers: Headers | None = None,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """Send a request; after a broken connection once more.

        Args:
            repeatable: it does no harm twice. Otherwise it is repeated only if the first one was not sent.

        Raises:
            TimelyError: the server refused the request. EngineFailed: there is no server, or its answer was lost.
        """
        repeats = 1
        while True:
            try:
                return self._request(method, url, json, headers)
            except httpx.RequestError as error:
                was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if repeats == 0 or (was_sent and not repeatable):
                    raise EngineFailed(f"{type(error).__name__}: {error}", where=self.url) from error
            repeats -= 1

    def deliver(self, url: str, report: ExecutionReport, headers: Headers) -> dict[str, Any]:
        """Send a report, for ``reconnect_s`` again and again while the server is away or takes none.

        An answer 500 to 599 or without JSON counts as such: a proxy may give it while the server starts again.

        Raises:
            TimelyError: the server refused the report. EngineFailed: there was no server for so long.
        """
        now_s = begin_s = self.clock.now()
        backoff = ClientBackoff(self.reconnect_s, url, self.backoffs, begin_s)
        try:
            while True:
                aged = replace(report, age_s=report.age_s + now_s - begin_s)
                try:
                    return self._request("POST", url, client_reports_body(aged), headers)
                except (httpx.RequestError, EngineFailed, Overloaded) as error:
                    # A server that answers has no time for attempts in short succession.
                    is_lost = isinstance(error, httpx.RequestError)
                    delay_s = backoff.delay_s(self.clock.now(), error, self.url)
                    self.sleep(delay_s if is_lost else max(delay_s, LONGEST_RECONNECT_S))
                now_s = self.clock.now()
        finally:
            backoff.reset()

    def _request(self, method: str, url: str, json: Any, headers: Headers | None) -> dict[str, Any]:
        response = self.http.request(method, url, json=json, headers=headers)
        if not response.is_success:
            raise client_error_from_response(response.status_code, response.content)
        try:
            data = response.json()
        except ValueError as error:
            raise EngineFailed(
                "the answer is no JSON; does another program listen there?", where=self.url
            ) from error
        return data if isinstance(data, dict) else {"data": data}

    def open(self, method: str, url: str, json: Any, headers: Headers) -> ClientEventResponse:
        """Open an event stream.

        Raises:
            TimelyError: the server refused the request. httpx.RequestError: the connection broke.
        """
        # The events are read as they come, so no proxy may compress them.
        headers = {"Accept-Encoding": "identity", **headers}
        request = self.http.build_request(
            method, url, json=json, headers=headers, timeout=self._stream_timeout
        )
        response = self.http.send(request, stream=True)
        if response.is_success:
            return ClientEventResponse(response)
        try:
            raise client_error_from_response(response.status_code, response.read())
        finally:
            response.close()


class ClientEventResponse:
    """The server-sent events of one response."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = response.iter_raw()
        self._decoder = ClientEventDecoder()
        self._events: deque[ServerEvent] = deque()

    def __iter__(self) -> ClientEventResponse:
        return self

    def __next__(self) -> ServerEvent:
        while not self._events:
            self._events.extend(self._decoder.feed(next(self._chunks)))
        return self._events.popleft()

    def close(self) -> None:
        """Close the connection; further calls change nothing."""
        self._response.close()
