"""Asks the server now and then whether it is well, so that a goal for a dead server is refused at once."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Protocol

from timely.core.errors import TimelyError


class HasHealth(Protocol):
    """What is asked."""

    async def health(self) -> object:
        """Return if the server takes tasks; raise if not."""
        ...


@dataclass(slots=True)
class Heartbeat:
    """State of the connection; written on the loop, read anywhere.

    Attributes:
        period_s: between two questions, and the deadline of each.
        misses: after so many failed ones in a row the server counts as lost.
        round_trip_s: of the last good one; NaN before the first.
    """

    client: HasHealth
    period_s: float
    misses: int
    failed: int = 0
    asked: int = 0
    round_trip_s: float = math.nan
    reason: str = "not asked yet"

    @property
    def lost(self) -> bool:
        """The server has not answered several times in a row."""
        return self.failed >= self.misses

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            begin = time.monotonic()
            await self.ask()
            await asyncio.sleep(max(0.0, self.period_s - (time.monotonic() - begin)))

    async def ask(self) -> bool:
        """Ask once; True if the server is well."""
        begin = time.monotonic()
        self.asked += 1
        try:
            async with asyncio.timeout(self.period_s):
                await self.client.health()
        except (TimelyError, TimeoutError) as error:
            self.failed += 1
            self.reason = str(error) or f"no answer within {self.period_s:g} s"
            return False
        self.failed, self.reason = 0, ""
        self.round_trip_s = time.monotonic() - begin
        return True
