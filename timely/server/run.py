"""Runs the application with uvicorn, in the foreground until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from timely.core.errors import EngineFailed
from timely.server.http.connections import bounded_http_protocol
from timely.server.listener import TlsFiles, bind_socket, server_socket_url
from timely.server.tasks.service import TaskService

log = logging.getLogger(__name__)

HANDLED = (signal.SIGINT, signal.SIGTERM)
DEFAULT_PORT = 8000
READY_TIMEOUT_S = 30.0


class _Server(uvicorn.Server):
    """Uvicorn whose shutdown first ends the live streams; its caller handles signals."""

    def __init__(self, config: uvicorn.Config, service: TaskService) -> None:
        super().__init__(config)
        self._service = service
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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn waits for open responses before it shuts the application down, so they end first.
        await self._service.drain()
        await super().shutdown(sockets)


def new_server(app: FastAPI, stop_timeout_s: float, log_level: str, tls: TlsFiles | None = None) -> _Server:
    """Uvicorn for an application, not started yet."""
    service: TaskService = app.state.service
    settings = service.settings
    config = uvicorn.Config(
        app,
        log_level=log_level,
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
        http=bounded_http_protocol(settings),
        server_header=False,
        ssl_certfile=tls.certificate if tls is not None else None,
        ssl_keyfile=tls.key if tls is not None else None,
        ssl_ca_certs=str(tls.client_ca) if tls is not None and tls.client_ca is not None else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls is not None and tls.client_ca is not None else ssl.CERT_NONE,
        timeout_graceful_shutdown=max(1, round(stop_timeout_s)),
    )
    return _Server(config, service)


async def serve_app(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    on_ready: Callable[[str], None] | None = None,
    stop_timeout_s: float = 5.0,
    log_level: str = "warning",
    insecure: bool = False,
    tls: TlsFiles | None = None,
) -> int | None:
    """Serve until SIGINT or SIGTERM, or until cancelled; returns the signal's number (None without one).

    SIGTERM first lets plans finish for ``drain_s`` of the settings, in which no task is admitted. Then, and at once
    after SIGINT or a second signal, live streams end with the error ``shutting_down`` and the engine is stopped. A
    further signal does not wait for readers. All return within ``stop_timeout_s`` plus the deadlines of the engine in
    ``ServerSettings``.

    Args:
        on_ready: called with the URL when the server accepts requests.
        insecure: listen beyond loopback even without principals.
        tls: certificate and key; without them the server speaks plain HTTP.

    Raises:
        InvalidInput: the address is not available. EngineFailed: the engine or uvicorn could not start.
    """
    service: TaskService = app.state.service
    settings = service.settings
    listener = bind_socket(host, port, authenticated=app.state.authenticated, insecure=insecure)
    stopped = asyncio.Event()
    hurried = asyncio.Event()
    received: list[int] = []
    server = new_server(app, stop_timeout_s, log_level, tls)

    def on_signal(number: int) -> None:
        finishing = received == [signal.SIGTERM] and not hurried.is_set() and settings.drain_s > 0
        server.force_exit = bool(received) and not finishing
        if received:
            hurried.set()
        received.append(number)
        stopped.set()

    loop = asyncio.get_running_loop()
    in_main = threading.current_thread() is threading.main_thread()
    if in_main:
        for number in HANDLED:
            loop.add_signal_handler(number, on_signal, number)
    serving: asyncio.Task[None] | None = None
    try:
        if not await _start(service, stopped):
            return received[0]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until_server_ready(server, serving)
        if on_ready is not None:
            on_ready(server_socket_url(listener, "https" if tls is not None else "http"))
        await _either(serving, stopped)
        if serving.done():
            serving.result()
        elif received == [signal.SIGTERM]:
            await _finish_plans(service, hurried)
        return received[0] if received else None
    finally:
        if serving is not None:
            server.request_exit()
            await asyncio.gather(serving, return_exceptions=True)
        await service.stop()
        listener.close()
        if in_main:
            for number in HANDLED:
                loop.remove_signal_handler(number)


async def _start(service: TaskService, stopped: asyncio.Event) -> bool:
    """Start the engine; False if a signal came first."""
    starting = asyncio.create_task(service.start())
    try:
        await _either(starting, stopped)
        if not starting.done():
            return False
        starting.result()
        return True
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def _finish_plans(service: TaskService, hurried: asyncio.Event) -> None:
    """Let the plans in generation finish; another signal ends the wait."""
    finishing = asyncio.create_task(service.finish())
    try:
        await _either(finishing, hurried)
    finally:
        finishing.cancel()
        await asyncio.gather(finishing, return_exceptions=True)


async def _either(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Return when the task is done or the event is set; the task is not cancelled."""
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)


async def until_server_ready(server: _Server, serving: asyncio.Task[None]) -> None:
    """Return when the server accepts requests.

    Raises:
        EngineFailed: it ended, or was not ready within ``READY_TIMEOUT_S``.
    """
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await _either(serving, server.ready)
    except TimeoutError:
        log.error("the HTTP server did not start within %s s", READY_TIMEOUT_S)
    if not server.started:
        error = serving.exception() if serving.done() else f"not within {READY_TIMEOUT_S:g} s"
        raise EngineFailed(f"the HTTP server did not start: {error}", where="server")
