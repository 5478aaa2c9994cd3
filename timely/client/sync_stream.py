# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.
"""A plan while it is generated: its segments, the reports on them, and its result."""

from __future__ import annotations

from types import TracebackType

import httpx

from timely.client.endpoints import Answer, ClientPlanStream
from timely.client.events import Segment, ServerEvent
from timely.client.problems import was_client_request_read
from timely.client.protocol import LONGEST_RECONNECT_S, Headers, Json, client_v1_url_path
from timely.client.sync_connection import ClientConnection, ClientEventResponse
from timely.core.errors import Conflict, EngineFailed, Overloaded, TimelyError

SHORTEST_WAIT_S = 0.1
"""Between a refusal and the next attempt, seconds."""


class TaskStream(ClientPlanStream[Answer, "TaskStream"]):
    """A plan: iterate for its segments. Reports may be made from any thread."""

    _connection: ClientConnection
    _events: ClientEventResponse | None = None

    def submit(
        self, body: Json, url: str = "/v1/tasks", headers: Headers | None = None, *, wait_s: float = 0.0
    ) -> TaskStream:
        clock = self._connection.clock
        latest_s = clock.now() + wait_s
        while True:
            try:
                return self._submit_once(body, url, headers)
            except Overloaded as error:
                if error.eta_s is None or clock.now() + error.eta_s > latest_s:
                    raise
                self._connection.sleep(max(error.eta_s, SHORTEST_WAIT_S))

    def _submit_once(self, body: Json, url: str, headers: Headers | None) -> TaskStream:
        """Send the request, again where its answer was lost: the id tells whether the server has the task."""
        while True:
            try:
                self._connect("POST", url, body, headers or {})
                return self
            except Conflict as error:
                # The server has the task of a request whose answer was lost: the iteration follows it by its id.
                if not self._unanswered or error.where == "stop":
                    raise
                return self
            except httpx.RequestError as error:
                self._note_unanswered(error)
                self._connection.pause(self._backoff, error)

    def resume(self) -> TaskStream:
        try:
            self._follow()
        except httpx.RequestError as error:
            raise EngineFailed(f"cannot connect: {error}", where=self._connection.url) from error
        return self

    def _connect(self, method: str, url: str, body: Json | None, headers: Headers) -> None:
        self._disconnect()
        headers = {"Accept": "text/event-stream", **headers}
        self._events = self._connection.open(method, url, body, headers)

    def _follow(self) -> None:
        url = client_v1_url_path("tasks", self.task_id, "events")
        self._connect("GET", url, None, self._follow_headers())

    def _disconnect(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def __iter__(self) -> TaskStream:
        return self

    def __next__(self) -> Segment:
        """The next segment, as soon as it arrives; a broken connection is opened again.

        Raises:
            UnsafeSegment, EngineFailed, Overloaded, TimelyError: how the task ended, if not with a result.
        """
        while not self._ended:
            cause: Exception = EngineFailed("the stream ended without a result", where=self._connection.url)
            try:
                if self._events is not None:
                    for event in self._events:
                        self._backoff.reset()
                        segment = self._take(event)
                        if segment is not None:
                            return segment
                        if self._ended:
                            raise StopIteration
            except httpx.RequestError as error:
                cause = error
            if not self._ended:
                self._reconnect(cause)
        raise StopIteration

    def _take(self, event: ServerEvent) -> Segment | None:
        try:
            segment = self._state.take(event)
        except BaseException:
            self.close()
            raise
        if self._state.result is not None:
            self.close()
        return segment

    def _reconnect(self, cause: Exception) -> None:
        self._connection.pause(self._backoff, self._outage or cause)
        try:
            self._follow()
            self._outage = None
        except httpx.RequestError as error:
            self._outage = error
        except TimelyError as error:  # A cancelled wait ends no stream: the next one connects again.
            if was_client_request_read(error):
                self.close()
                raise
            # The server has no time for attempts in short succession, or a proxy answers in its place.
            self._outage = error
            self._connection.sleep(LONGEST_RECONNECT_S)

    def close(self) -> None:
        """Stop reading without cancelling; the server cancels an unread plan after a few seconds."""
        self._ended = True
        self._backoff.reset()
        self._disconnect()

    def __enter__(self) -> TaskStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving early cancels the plan. An error of the program goes before one of the server."""
        if not self._ended:
            try:
                self.cancel()
            except TimelyError:
                if error is None:
                    raise
            finally:
                self.close()
