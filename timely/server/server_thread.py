"""Runs the application in a thread of a program or a test."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

from fastapi import FastAPI

from timely.core.errors import EngineFailed
from timely.server.http_server import new_server
from timely.server.listener import bind_server_socket, server_socket_url
from timely.server.tasks.service import TaskService

STOP_TIMEOUT_S = 2.0
"""How long live requests may take to end, seconds."""


class ServerThread:
    """The application on a free loopback port, in a thread of this process.

    ::

        with ServerThread(create_app(engine)) as server:
            client = TimelyClient(server.url)

    Raises:
        EngineFailed: the server did not start.
    """

    def __init__(self, app: FastAPI, *, port: int = 0, start_timeout_s: float = 30.0) -> None:
        self.app = app
        self.service: TaskService = app.state.service
        self._listener = bind_server_socket("127.0.0.1", port, authenticated=app.state.authenticated)
        self.url = server_socket_url(self._listener)
        self._server = new_server(app, STOP_TIMEOUT_S)
        self._start_timeout_s = start_timeout_s
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="timely-server", daemon=True)

    def __enter__(self) -> Self:
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
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
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
            self._thread.join(STOP_TIMEOUT_S + settings.stop_timeout_s + settings.engine_timeout_s + 5.0)
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
            await self._server.until_ready(serving)
            self._ready.set()
            await serving
        finally:
            await self.service.stop()
