"""A TCP proxy that cuts connections after a given number of bytes from the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from types import TracebackType

WAIT_S = 10.0


class CuttingProxy:
    """Forwards to ``target``; connection n is cut after ``cuts[n]`` bytes of the server's, later ones never.

    ``url`` is where it listens; ``connections`` how many it has had.
    """

    def __init__(self, target: str, cuts: Sequence[int] = ()) -> None:
        self._target: tuple[str, int] | None = None
        self.forward_to(target)
        self._cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._listener]

    def forward_to(self, target: str) -> None:
        """Forward new connections to that server."""
        host, port = target.removeprefix("http://").split(":")
        self._target = (host, int(port))

    def cut_all(self) -> None:
        """End all connections, and refuse further ones until ``forward_to``."""
        self._target = None
        for end in self._sockets[1:]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> CuttingProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in self._sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                end.close()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            target = self._target
            if target is None:
                near.close()
                continue
            cut = self._cuts[self.connections] if self.connections < len(self._cuts) else None
            self.connections += 1
            far = socket.create_connection(target, timeout=WAIT_S)
            far.settimeout(None)
            self._sockets += [near, far]
            self._start(self._pump, near, far, None)
            self._start(self._pump, far, near, cut)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, left: int | None) -> None:
        try:
            while left is None or left > 0:
                data = source.recv(65536 if left is None else left)
                if not data:
                    break
                sink.sendall(data)
                left = None if left is None else left - len(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
