"""Checks the server's health now and then, so that a goal for a lost server is refused at once."""

import asyncio
import logging
import math
import time
from dataclasses import dataclass

from timely.client import AsyncTimelyClient
from timely.core.errors import TimelyError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class BridgeServerHealth:
    """State of the connection; written on the loop, read anywhere.

    Attributes:
        period_s: between two checks, and the deadline of each.
        max_misses: after so many failed checks in a row the server counts as lost.
        round_trip_s: of the last good check; NaN before the first.
    """

    client: AsyncTimelyClient
    period_s: float
    max_misses: int
    misses: int = 0
    """Failed checks in a row."""
    round_trip_s: float = math.nan
    reason: str = "not checked yet"

    @property
    def lost(self) -> bool:
        return self.misses >= self.max_misses

    async def run(self) -> None:
        while True:
            begin = time.monotonic()
            await self.check()
            await asyncio.sleep(max(0.0, self.period_s - (time.monotonic() - begin)))

    async def check(self) -> bool:
        """Check once; True if the server takes tasks."""
        begin = time.monotonic()
        try:
            async with asyncio.timeout(self.period_s):
                await self.client.health()
        except Exception as error:  # also of the client's library, which must not end the checks
            self.misses += 1
            self.reason = f"{type(error).__name__}: {error}"
            if isinstance(error, TimelyError):
                # The reader of the reason names the URL; another place says that the engine is gone, not the server.
                self.reason = error.message if "://" in error.where else str(error)
            elif isinstance(error, TimeoutError):
                self.reason = f"no answer within {self.period_s:g} s"
                if self.lost and await self._lives():
                    self.reason = f"engine: {self.reason}"
            if self.misses == self.max_misses:
                log.warning(
                    "the server at %s is lost, and its stop may not reach the robots: %s",
                    self.client.url,
                    self.reason,
                )
            return False
        if self.lost:
            log.warning("the server at %s is back", self.client.url)
        self.misses, self.reason = 0, ""
        self.round_trip_s = time.monotonic() - begin
        return True

    async def _lives(self) -> bool:
        """Whether the server answers without its engine, on which the answer about its health waits."""
        try:
            async with asyncio.timeout(self.period_s):
                await self.client.live()
        except Exception:  # as of a check
            return False
        return True
