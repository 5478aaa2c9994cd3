"""How long a client may leave what was sent to it unread."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

ALTOGETHER = 10.0
"""All times of one connection together last at most so many times the longest one."""


@dataclass(slots=True)
class HttpUnreadTime:
    """The time in which bytes for one client wait in this process, because it does not read. Time is an argument.

    A client that reads a little now and then makes progress. Without the limit of all times together it would keep its
    place for hours. The sum falls again while no bytes wait, as fast as it rose.

    Args:
        limit_s: longest time without progress, seconds.
    """

    limit_s: float
    _since_s: float = 0.0
    _total_s: float = 0.0
    _unread_bytes: int = 0

    def begin(self, now: float, unread_bytes: int) -> None:
        """The first bytes wait."""
        self._total_s = max(0.0, self._total_s - (now - self._since_s))
        self._since_s, self._unread_bytes = now, unread_bytes

    def is_over(self, now: float, unread_bytes: int) -> bool:
        """Whether the client has had its time, ``limit_s`` after the last look."""
        is_stuck = unread_bytes >= self._unread_bytes
        self._unread_bytes = unread_bytes
        return is_stuck or self._total_s + now - self._since_s >= ALTOGETHER * self.limit_s

    def end(self, now: float) -> None:
        """No bytes wait any more."""
        self._total_s += now - self._since_s
        self._since_s = now


class HttpUnreadWatch:
    """Ends a connection whose client does not read.

    Args:
        connection: the TCP connection. TLS above it has a buffer of its own, which grows only while this one is full.
        give_up: called once, when the client has had its time.
    """

    def __init__(self, connection: asyncio.Transport, limit_s: float, give_up: Callable[[], None]) -> None:
        self._connection, self._limit_s, self._give_up = connection, limit_s, give_up
        self._loop = asyncio.get_running_loop()
        self._time = HttpUnreadTime(limit_s)
        self._timer: asyncio.TimerHandle | None = None
        connection.set_write_buffer_limits(1, 0)

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        """Bytes wait: ``pause_writing`` of the connection's protocol."""
        self._time.begin(self._loop.time(), self._connection.get_write_buffer_size())
        self._look_later()

    def end(self) -> None:
        """No bytes wait any more: ``resume_writing`` of the connection's protocol."""
        self._time.end(self._loop.time())
        self.stop()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._limit_s, self._look)

    def _look(self) -> None:
        if self._time.is_over(self._loop.time(), self._connection.get_write_buffer_size()):
            self._give_up()
        else:
            self._look_later()
