"""How long a client may leave what was sent to it unread. Time is an argument."""

from dataclasses import dataclass

ALTOGETHER = 10.0
"""All times of one connection together last at most so many times the longest one."""


@dataclass(slots=True)
class UnreadTime:
    """The time in which bytes for one client wait in this process, because it does not read.

    A client that reads a little now and then makes progress. Without the limit of all times together it would keep its
    place for hours.

    Args:
        limit_s: longest time without progress, seconds.
    """

    limit_s: float
    _since_s: float = 0.0
    _total_s: float = 0.0
    _unread_bytes: int = 0

    def begin(self, now: float, unread_bytes: int) -> None:
        """The first bytes wait."""
        self._since_s, self._unread_bytes = now, unread_bytes

    def is_over(self, now: float, unread_bytes: int) -> bool:
        """Whether the client has had its time, ``limit_s`` after the last look."""
        is_stuck = unread_bytes >= self._unread_bytes
        self._unread_bytes = unread_bytes
        return is_stuck or self._total_s + now - self._since_s >= ALTOGETHER * self.limit_s

    def end(self, now: float) -> None:
        """No bytes wait any more."""
        self._total_s += now - self._since_s
