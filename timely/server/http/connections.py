"""Limits of connections: their number, and the bytes and time of a header; a stop passes all of them."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from timely.server.http.unread import HttpUnreadWatch
from timely.server.problems import MEDIA_TYPE, Problem, http_header_problem, problem_details
from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
"""Linux's option that ends a connection whose data is not acknowledged."""

SPARE_HEADER_S = 1.0
"""How long a connection over the limit may take to send its header, seconds."""

TLS_SHUTDOWN_S = 2.0
"""How long a connection waits for its client to end TLS when all was read, seconds."""

TLS_ALERT_S = 0.5
"""How long a client may take to read why its handshake failed, seconds."""

MAX_SPARE_CONNECTIONS = 256
"""Connections over the limit without a complete header; a further one takes the place of the oldest."""

NO_HTTP = Problem("invalid_input", "the request is no HTTP", "header", 400, "The request cannot be used")

SPARE_PATHS = re.compile(r"^/v1/stop(/|$)|^/(healthz?|livez|readyz)$")
"""Answered over connections beyond the limit."""


class HttpConnectionPlaces:
    """The connections of one server: those within the limits, and those over one without a complete header."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._clients: Counter[str] = Counter()
        self._spare: dict[BoundedHttpProtocol, None] = {}

    def take(self, protocol: BoundedHttpProtocol, address: str) -> bool:
        """Count a connection; False if it is over a limit."""
        settings, clients = self.settings, self._clients
        if clients.total() < settings.max_connections and clients[address] < settings.max_client_connections:
            clients[address] += 1
            return True
        if len(self._spare) >= MAX_SPARE_CONNECTIONS:
            oldest = next(iter(self._spare))
            del self._spare[oldest]
            oldest.end_connection()
        self._spare[protocol] = None
        return False

    def end_spare(self, protocol: BoundedHttpProtocol) -> None:
        """Its header is complete, or it has ended."""
        self._spare.pop(protocol, None)

    def leave(self, address: str) -> None:
        """Count a connection within the limits no more."""
        self._clients[address] -= 1
        if not self._clients[address]:
            del self._clients[address]


class BoundedHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with limits that it lacks.

    A connection that acknowledges nothing ends after ``ack_timeout_s`` seconds. One whose client does not read what was
    sent ends after ``send_timeout_s``, also if the response is complete: it would keep its place for good.
    A connection without a complete header is ended after ``header_timeout_s`` seconds. So is one whose incomplete
    header is longer than ``max_header_bytes``, also behind another request, and in the trailers of a body.
    A connection over ``max_connections``, or over ``max_client_connections`` of its address, gets one answer: to a
    stop or a question about health, else 503.
    """

    def __init__(self, places: HttpConnectionPlaces, **options: Any) -> None:
        super().__init__(**options)
        self._places, self._settings = places, places.settings
        self._header_bytes = 0
        self._has_body = False
        self._served: RequestResponseCycle | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._address = ""
        self._is_spare = False
        self._connection: asyncio.Transport | None = None

    def take_place(self, connection: asyncio.Transport) -> None:
        """Count the TCP connection, on which TLS may have to begin."""
        self._connection = connection
        self.unread = HttpUnreadWatch(connection, self._settings.send_timeout_s, self._give_up)
        if USER_TIMEOUT is not None:
            # Nothing tells that a client's network is gone, but the lack of acknowledgements.
            milliseconds = math.ceil(1e3 * self._settings.ack_timeout_s)
            connection.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT, milliseconds)
        peer = connection.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        self._is_spare = not self._places.take(self, self._address)
        if self._is_spare:
            self.app: ASGIApp = _HttpOverLimit(self.app)
        self._start_timer(SPARE_HEADER_S if self._is_spare else self._settings.header_timeout_s)

    def leave_place(self) -> None:
        """Count the connection no more."""
        if self._connection is None:
            return
        self._connection = None
        self.unread.stop()
        if self._is_spare:
            self._places.end_spare(self)
        else:
            self._places.leave(self._address)
        self._stop_timer()

    def end_connection(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(1, 0)  # TLS has a buffer of its own
        if self._connection is None:
            self.take_place(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave_place()
        super().connection_lost(exc)
        if self._served is not None:
            # Uvicorn tells the latest request alone, so a stream before it would never end.
            self._served.disconnected = True
            self._served.message_event.set()

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if before is None or before.response_complete:
            self._served = self.cycle

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._served = self.pipeline[-1][0]
        super().on_response_complete()

    def on_body(self, body: bytes) -> None:
        self._has_body = True
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        before, self._has_body = self.cycle, False
        super().data_received(data)
        is_idle = before is None or before.response_complete
        if self.cycle is not before:
            self._header_bytes = 0
            self._stop_timer()
            self._places.end_spare(self)
        elif self._has_body and not is_idle:
            self._header_bytes = 0
        else:
            self._header_bytes += len(data)
            if self._header_bytes > self._settings.max_header_bytes:
                if not is_idle:
                    self.end_connection()
                    return
                self.transport.write(
                    _http_problem_bytes(http_header_problem(self._settings.max_header_bytes))
                )
                self.transport.close()
            elif is_idle and self._header_timer is None:
                self._start_timer(self._settings.header_timeout_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is self._connection:
            self.unread.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.transport is self._connection:
            self.unread.end()

    def _give_up(self) -> None:
        log.info("%s does not read what was sent: its connection ends", self._address)
        self.end_connection()

    def _unsupported_upgrade_warning(self) -> None:
        """The request is answered as any other. Uvicorn would advise to install a library for WebSocket."""

    def send_400_response(self, msg: str) -> None:
        self.transport.write(_http_problem_bytes(NO_HTTP))
        self.transport.close()

    def _start_timer(self, limit_s: float) -> None:
        self._header_timer = self.loop.call_later(limit_s, self.end_connection)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class HttpTlsProtocol(SSLProtocol):
    """A connection that begins with TLS, for ``BoundedHttpProtocol``.

    Those of asyncio and uvicorn count no connection before its handshake is over, and wait for it for a minute.
    The time for a header includes the handshake here.
    """

    def __init__(self, http_protocol: Callable[..., Any], context: ssl.SSLContext, **options: Any) -> None:
        self._http: BoundedHttpProtocol = http_protocol(**options)
        super().__init__(
            asyncio.get_running_loop(),
            self._http,
            context,
            None,  # type: ignore[arg-type]
            server_side=True,
            ssl_shutdown_timeout=TLS_SHUTDOWN_S,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._http.take_place(transport)  # type: ignore[arg-type]
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._http.leave_place()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.unread.begin()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._http.unread.end()
        super().resume_writing()

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is not SSLProtocolState.UNWRAPPED:  # type: ignore[attr-defined]
            super().buffer_updated(nbytes)

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        """A handshake that failed ends with the alert that says why, which asyncio keeps back.

        A socket that is closed with a request unread resets its connection, and the client would lose the alert.
        """
        transport = self._transport
        has_failed = self._state is SSLProtocolState.UNWRAPPED and isinstance(exc, ssl.SSLError)  # type: ignore[attr-defined]
        if has_failed and isinstance(transport, asyncio.Transport):
            self._process_outgoing()  # type: ignore[attr-defined]
            transport.write_eof()
            self._loop.call_later(TLS_ALERT_S, transport.abort)
        else:
            super()._fatal_error(exc, message)

    def _check_shutdown_timeout(self) -> None:
        """The end of TLS waits for a client that still reads."""
        if self._http.unread.is_waiting:
            self._shutdown_timeout_handle = self._loop.call_later(
                TLS_SHUTDOWN_S, self._check_shutdown_timeout
            )
        else:
            super()._check_shutdown_timeout()  # type: ignore[misc]


class _HttpOverLimit:
    """ASGI middleware of a connection over the limit: one answer, to a stop or a question about health."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        if SPARE_PATHS.search(scope["path"]):
            await self._app(scope, receive, send_and_close)
        else:
            full = problem_details("overloaded", "too many connections", "connections")
            await full.response()(scope, receive, send_and_close)


def _http_problem_bytes(problem: Problem) -> bytes:
    body = problem.content().encode()
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": len(body), "Connection": "close"}
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body
