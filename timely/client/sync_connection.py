# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""HTTP requests to one server, with their deadlines and retries."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import httpx

from timely.client.endpoints import Answer, ClientRequests
from timely.client.events import ClientEventDecoder, ServerEvent
from timely.client.pool import client_tls_alerts
from timely.client.problems import client_error_from_response, was_client_request_read
from timely.client.protocol import (
    LONGEST_RECONNECT_S,
    ClientBackoff,
    Headers,
    client_reports_body,
    was_client_request_sent,
)
from timely.core.errors import EngineFailed, TimelyError
from timely.core.reports import ExecutionReport


class ClientConnection(ClientRequests[Answer]):
    http: httpx.Client

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
        may_repeat: bool = True,
    ) -> dict[str, Any]:
        repeats = 1
        while True:
            try:
                return self._request(method, url, json, headers)
            except httpx.RequestError as error:
                if repeats == 0 or (was_client_request_sent(error) and not may_repeat):
                    raise EngineFailed(f"{type(error).__name__}: {error}", where=self.url) from error
            repeats -= 1

    def deliver(self, url: str, report: ExecutionReport, headers: Headers) -> dict[str, Any]:
        now_s = begin_s = self.clock.now()
        backoff = ClientBackoff(self.reconnect_s, url, self.backoffs, begin_s)
        try:
            while True:
                aged = replace(report, age_s=report.age_s + now_s - begin_s)
                try:
                    return self._request("POST", url, client_reports_body(aged), headers)
                except httpx.RequestError as error:
                    self.pause(backoff, error)
                except TimelyError as error:
                    if was_client_request_read(error):
                        raise
                    # A server that answers has no time for attempts in short succession.
                    self.pause(backoff, error, LONGEST_RECONNECT_S)
                now_s = self.clock.now()
        finally:
            backoff.reset()

    def pause(self, backoff: ClientBackoff, cause: object, shortest_s: float = 0.0) -> None:
        """Sleep until the next attempt; raises EngineFailed at the limit of the backoff."""
        self.sleep(max(shortest_s, backoff.delay_s(self.clock.now(), cause, self.url)))

    def _request(self, method: str, url: str, json: Any, headers: Headers | None) -> dict[str, Any]:
        with client_tls_alerts():
            response = self.http.request(method, url, json=json, headers=headers)
        return self._answer(response)

    def open(self, method: str, url: str, json: Any, headers: Headers) -> ClientEventResponse:
        """Open an event stream.

        Raises:
            TimelyError: the server refused the request. httpx.RequestError: the connection broke.
        """
        request = self._stream_request(method, url, json, headers)
        with client_tls_alerts():
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
            with client_tls_alerts():
                chunk = next(self._chunks)
            self._events.extend(self._decoder.feed(chunk))
        return self._events.popleft()

    def close(self) -> None:
        """Close the connection; further calls change nothing."""
        self._response.close()
