"""Serves tasks over HTTP, in the foreground until a signal.

The engine starts and goes on with the plans of an earlier start while another thread loads the HTTP libraries.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from timely.core.clock import AsyncClock, first_done_on_clock
from timely.core.garbage import short_gc_pauses
from timely.disciplines.predictors.request_annotator import PredictorFiles
from timely.engines.base import Engine
from timely.principals import PrincipalRegistry
from timely.server.catalogue import ServerCatalogue
from timely.server.listener import RenewedServerTls, bind_server_socket, server_socket_url
from timely.server.open_files import settings_within_open_files
from timely.server.settings import ServerSettings
from timely.server.tasks.service import TaskService

if TYPE_CHECKING:
    from timely.server.http_server import HttpServer

HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
DEFAULT_PORT = 8000


async def run_server(
    engine: Engine,
    settings: ServerSettings | None = None,
    clock: AsyncClock | None = None,
    catalogue: ServerCatalogue | None = None,
    predictors: PredictorFiles | None = None,
    registry: PrincipalRegistry | None = None,
    hosts: Iterable[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    on_ready: Callable[[str], None] | None = None,
    stop_timeout_s: float = 5.0,
    insecure: bool = False,
    tls: RenewedServerTls | None = None,
) -> int | None:
    """Serve until SIGINT or SIGTERM, or until cancelled; returns the signal's number (None without one).

    SIGTERM first lets plans finish for ``drain_s`` of the settings, in which no task is admitted. Then, and at once
    after SIGINT or a second signal, live streams end with the error ``shutting_down`` and the engine is stopped. A
    further signal does not wait for readers. All return within ``stop_timeout_s`` plus the deadlines of the engine in
    ``ServerSettings``. A terminal that closes is a SIGTERM. Without a terminal SIGHUP is ignored: programs that rotate
    logs send it, and the logs need none.

    The first arguments are those of ``create_app``. The application is made in another thread while the engine starts.

    Args:
        on_ready: called with the URL when the server accepts requests.
        insecure: listen beyond loopback even without principals.
        tls: certificate and key; without them the server speaks plain HTTP.

    Raises:
        InvalidInput: the address is not available. EngineFailed: the engine or uvicorn could not start.
    """
    settings = settings_within_open_files(settings or ServerSettings())
    service = TaskService(engine, settings, clock, catalogue, predictors)
    listener = bind_server_socket(host, port, authenticated=registry is not None, insecure=insecure)
    stop_event = asyncio.Event()
    hurry_event = asyncio.Event()
    signals: list[int] = []
    server: HttpServer | None = None

    def on_signal(number: int) -> None:
        finishing = signals == [signal.SIGTERM] and not hurry_event.is_set() and service.settings.drain_s > 0
        if server is not None:
            server.force_exit = bool(signals) and not finishing
        if signals:
            hurry_event.set()
        signals.append(number)
        stop_event.set()

    def new_http_server() -> HttpServer:
        from timely.server.app import create_task_app
        from timely.server.http_server import new_server

        return new_server(create_task_app(service, registry, hosts), stop_timeout_s, tls)

    end_signals = _handle_server_signals(on_signal)
    loading = asyncio.create_task(asyncio.to_thread(new_http_server))
    serving: asyncio.Task[None] | None = None
    try:
        if not await _run_server_until(service.start(), stop_event):
            return signals[0]
        server = await loading
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.until_ready(serving)
        with short_gc_pauses():
            if on_ready is not None:
                on_ready(server_socket_url(listener, "https" if tls is not None else "http"))
            serving.add_done_callback(lambda _: stop_event.set())
            await stop_event.wait()
        if serving.done():
            serving.result()
        elif signals == [signal.SIGTERM]:
            await _run_server_until(service.finish(), hurry_event)  # a further signal ends the wait
        return signals[0] if signals else None
    finally:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        if server is not None and serving is not None:
            server.request_exit()
            await asyncio.gather(serving, return_exceptions=True)
        await service.stop()
        listener.close()
        end_signals()


def _handle_server_signals(act: Callable[[int], None]) -> Callable[[], None]:
    """Call ``act`` with the number of each signal until the result is called; nothing beside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop, at_hangup = asyncio.get_running_loop(), signal.getsignal(signal.SIGHUP)
    for number in HANDLED_SIGNALS:
        loop.add_signal_handler(number, act, number)
    if not _has_server_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    elif at_hangup is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, act, signal.SIGTERM)

    def end() -> None:
        for number in (*HANDLED_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGHUP, at_hangup or signal.SIG_DFL)

    return end


def _has_server_terminal() -> bool:
    """Whether this process would be told that a terminal closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _run_server_until(work: Coroutine[Any, Any, None], event: asyncio.Event) -> bool:
    """Do the work, or give it up when the event is set first; True if it is done."""
    async with first_done_on_clock(work, event.wait()) as (task, _):
        if task.done():
            task.result()
        return task.done()
