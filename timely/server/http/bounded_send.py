"""Ends an answer whose client does not read: it keeps a place that others could use."""

import asyncio

from starlette.types import Message, Send

from timely.core.clock import Clock

FULL_TIMES = 10.0
"""All waits for one client together last at most so many times the longest one."""


class BoundedSend:
    """``send`` for a client that may leave its full connection unread for so long, at a time and altogether.

    Without the second limit a client that reads a little now and then would keep its place for hours.

    Args:
        limit_s: of one wait, seconds.
    """

    def __init__(self, send: Send, limit_s: float, clock: Clock) -> None:
        self._send, self._limit_s, self._clock = send, limit_s, clock
        self._left_s = FULL_TIMES * limit_s

    async def __call__(self, message: Message) -> None:
        """Send; waits while the connection is full.

        Raises:
            TimeoutError: the client has not read for too long.
        """
        begin_s = self._clock.now()
        async with asyncio.timeout(min(self._limit_s, self._left_s)):
            await self._send(message)
        self._left_s -= self._clock.now() - begin_s
