"""Limits of a connection before its request is complete: bytes and time of the header."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def bounded_protocol(max_header_bytes: int, header_timeout_s: float) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with limits that it lacks.

    A connection without a complete header is closed after ``header_timeout_s`` seconds. So is one whose incomplete
    header is longer than ``max_header_bytes``.
    """

    class BoundedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._header_bytes = 0
            self._header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._header_bytes = 0
                self._stop_timer()
            elif before is None or before.response_complete:
                self._header_bytes += len(data)
                if self._header_bytes > max_header_bytes:
                    self.transport.write(TOO_LARGE)
                    self.transport.close()
                elif self._header_timer is None:
                    self._start_timer()

        def _start_timer(self) -> None:
            self._header_timer = self.loop.call_later(header_timeout_s, self.transport.close)

        def _stop_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

    return BoundedProtocol
