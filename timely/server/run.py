"""Runs the application with uvicorn: in the foreground until a signal, or in a thread of a program or a test."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import uvicorn
from fastapi import FastAPI

from timely.core.errors import EngineFailed, InvalidInput
from timely.server.http.connections import bounded_protocol
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


def bind_socket(host: str, port: int, *, authenticated: bool, insecure: bool = False) -> socket.socket:
    """A socket that is bound and not listening yet; port 0 takes a free one.

    Raises:
        InvalidInput: the address is not available, or other machines could command the robots without a token.
    """
    if not _is_loopback(host) and not authenticated:
        if not insecure:
            raise InvalidInput(
                "other machines could command the robots: name principals (--principals, --api-key) or say --insecure",
                where=host,
            )
        log.warning("listening on %s without authentication: every client can command the robots", host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets whose protocol number is that of TCP. With the algorithm,
    # every response on a kept connection waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"cannot listen there: {reason}", where=f"{host}:{port}") from error
    return listener


def socket_url(listener: socket.socket, scheme: str = "http") -> str:
    """``http://HOST:PORT`` of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files for TLS, in PEM.

    Attributes:
        client_ca: certificate authority of the clients; with it, every client must show a certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def tls_files(certificate: Path | None, key: Path | None, client_ca: Path | None) -> TlsFiles | None:
    """The files for TLS, or None.

    Raises:
        InvalidInput: one is missing or cannot be read.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("TLS needs a certificate and a key", where="--ssl-certfile, --ssl-keyfile")
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise InvalidInput(f"unusable: {error}", where=f"{certificate}, {key}") from error
    return TlsFiles(certificate, key, client_ca)


def _server(app: FastAPI, stop_timeout_s: float, log_level: str, tls: TlsFiles | None = None) -> _Server:
    service: TaskService = app.state.service
    settings = service.settings
    config = uvicorn.Config(
        app,
        log_level=log_level,
        access_log=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]
        http=bounded_protocol(settings),
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

    The first signal ends live streams with the error ``shutting_down`` and stops the engine; a second signal does
    not wait for readers. Both return within ``stop_timeout_s`` plus the deadlines of the engine in
    ``ServerSettings``.

    Args:
        on_ready: called with the URL when the server accepts requests.
        insecure: listen beyond loopback even without principals.
        tls: certificate and key; without them the server speaks plain HTTP.

    Raises:
        InvalidInput: the address is not available. EngineFailed: the engine or uvicorn could not start.
    """
    service: TaskService = app.state.service
    listener = bind_socket(host, port, authenticated=app.state.authenticated, insecure=insecure)
    stopped = asyncio.Event()
    received: list[int] = []
    server = _server(app, stop_timeout_s, log_level, tls)

    def on_signal(number: int) -> None:
        server.force_exit = bool(received)
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
        await _until_ready(server, serving)
        if on_ready is not None:
            on_ready(socket_url(listener, "https" if tls is not None else "http"))
        await _either(serving, stopped)
        if serving.done():
            serving.result()
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


async def _either(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Return when the task is done or the event is set; the task is not cancelled."""
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)


async def _until_ready(server: _Server, serving: asyncio.Task[None]) -> None:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await _either(serving, server.ready)
    except TimeoutError:
        log.error("the HTTP server did not start within %s s", READY_TIMEOUT_S)
    if not server.started:
        error = serving.exception() if serving.done() else f"not within {READY_TIMEOUT_S:g} s"
        raise EngineFailed(f"the HTTP server did not start: {error}", where="server")


class ServerThread:
    """The application on a free loopback port, in a thread of this process.

    ::

        with ServerThread(create_app(engine)) as server:
            client = TimelyClient(server.url)

    Args:
        start_timeout_s: longest start of the engine, seconds.
        stop_timeout_s: how long live requests may take to end, seconds.

    Raises:
        EngineFailed: the server did not start.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        start_timeout_s: float = 30.0,
        stop_timeout_s: float = 2.0,
        log_level: str = "warning",
    ) -> None:
        self.app = app
        self.service: TaskService = app.state.service
        self._listener = bind_socket(host, port, authenticated=app.state.authenticated)
        self.url = socket_url(self._listener)
        self._server = _server(app, stop_timeout_s, log_level)
        self._start_timeout_s, self._stop_timeout_s = start_timeout_s, stop_timeout_s
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="timely-server", daemon=True)

    def __enter__(self) -> ServerThread:
        self._thread.start()
        if not self._ready.wait(self._start_timeout_s):
            self.stop()
            raise EngineFailed(f"the server did not start within {self._start_timeout_s:g} s", where="server")
        if self._failure is not None:
            self.stop()
            raise EngineFailed(
                f"the server did not start: {self._failure}", where="server"
            ) from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and wait for its thread; safe to call twice.

        Raises:
            EngineFailed: the thread did not end in time.
        """
        self._server.should_exit = True
        loop = self.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(self._server.request_exit)
        if self._thread.ident is not None:
            settings = self.service.settings
            self._thread.join(
                self._stop_timeout_s + settings.stop_timeout_s + settings.engine_timeout_s + 5.0
            )
            if self._thread.is_alive():
                raise EngineFailed("the server's thread did not end", where="server")
        self._listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            await self.service.start()
            serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
            await _until_ready(self._server, serving)
            self._ready.set()
            await serving
        finally:
            await self.service.stop()
