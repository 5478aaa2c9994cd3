"""Uvicorn for the application, with an order of its own for start and shutdown."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from timely.core.errors import EngineFailed
from timely.core.garbage import collect_idle_garbage
from timely.core.repeat_limit import LogRepeatLimit
from timely.server.http.connections import BoundedHttpProtocol, HttpConnectionPlaces, HttpTlsProtocol
from timely.server.listener import RenewedServerTls
from timely.server.tasks.service import TaskService

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 30.0


class HttpServer(uvicorn.Server):
    """Uvicorn whose shutdown first ends the live streams; its caller handles signals."""

    def __init__(
        self, config: uvicorn.Config, service: TaskService, tls: RenewedServerTls | None = None
    ) -> None:
        super().__init__(config)
        self._service = service
        self._tls = tls
        self.ready = asyncio.Event()
        self._exit = asyncio.Event()

    def request_exit(self) -> None:
        """Begin the shutdown; on the server's own loop."""
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        # Uvicorn's own loop polls ten times a second, which delays a stop.
        counter = 0
        while not await self.on_tick(counter):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._exit.wait()
            counter += 10

    async def on_tick(self, counter: int) -> bool:
        if self._service.tasks.is_idle:
            collect_idle_garbage()
        if self._tls is not None:
            self._tls.refresh()
            self._service.recorder.metrics.certificate_expiry.set(self._tls.expires_s)
        return await super().on_tick(counter)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        uvicorn_log, limit = logging.getLogger("uvicorn.error"), LogRepeatLimit()
        uvicorn_log.addFilter(limit)
        try:
            await super().serve(sockets)
        finally:
            uvicorn_log.removeFilter(limit)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if (tls := self._tls) is not None:
            plain = self.config.http_protocol_class

            def over_tls(**options: Any) -> HttpTlsProtocol:
                return HttpTlsProtocol(plain, tls.context, **options)

            self.config.http_protocol_class = over_tls  # type: ignore[assignment]
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn waits for open responses before it shuts the application down, so they end first.
        await self._service.drain()
        await super().shutdown(sockets)

    async def until_ready(self, serving: asyncio.Task[None]) -> None:
        """Return when requests are accepted; ``serving`` runs ``serve``.

        Raises:
            EngineFailed: it ended, or was not ready within ``READY_TIMEOUT_S``.
        """
        serving.add_done_callback(lambda _: self.ready.set())
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.ready.wait()
        except TimeoutError:
            log.error("the HTTP server did not start within %s s", READY_TIMEOUT_S)
        if not self.started:
            error = serving.exception() if serving.done() else f"not within {READY_TIMEOUT_S:g} s"
            raise EngineFailed(f"the HTTP server did not start: {error}", where="server")


def new_server(app: FastAPI, stop_timeout_s: float, tls: RenewedServerTls | None = None) -> HttpServer:
    service: TaskService = app.state.service
    settings = service.settings
    config = uvicorn.Config(
        app,
        log_config=None if logging.getLogger().handlers else uvicorn.config.LOGGING_CONFIG,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
        http=partial(BoundedHttpProtocol, HttpConnectionPlaces(settings)),  # type: ignore[arg-type]
        server_header=False,
        timeout_graceful_shutdown=max(1, round(stop_timeout_s)),
    )
    return HttpServer(config, service, tls)
