"""The robots that a stop must reach: all whose bridge ever followed the stop, until an operator removes them."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from functools import partial

from timely.server.tasks.stop_file import SavedState, StopFile

log = logging.getLogger(__name__)

MAX_ROBOTS = 2_000


class RobotRoster:
    """Names of robots, in memory and on the disk.

    Attributes:
        incomplete: robots are missing, because there were over ``MAX_ROBOTS`` or the file could not be read.
        disk: brings the names to the file.

    Args:
        file: keeps the names over a restart.
    """

    def __init__(self, file: StopFile) -> None:
        self.incomplete = False
        self._file = file
        self._names: dict[str, None] = {}
        self.disk = SavedState(
            lambda: partial(file.write_robots, tuple(self._names), complete=not self.incomplete),
            "the robots of the stop",
        )

    @property
    def names(self) -> Collection[str]:
        """In the order of their first stream."""
        return self._names.keys()

    async def load(self) -> None:
        """Add the robots of earlier processes of this server."""
        names, complete = await asyncio.to_thread(self._file.read_robots)
        self._names = dict.fromkeys(names)
        self.incomplete = not complete

    def add(self, agents: Iterable[str]) -> None:
        for agent in agents:
            if agent in self._names:
                continue
            if len(self._names) < MAX_ROBOTS:
                self._names[agent] = None
            elif not self.incomplete:
                self.incomplete = True
                log.error("more than %s robots follow the stop: no stop is a success", MAX_ROBOTS)
            else:
                continue
            self.disk.save()

    async def remove(self, agents: Iterable[str]) -> tuple[list[str], bool]:
        """Remove robots; returns those that it had, and whether the disk has the change."""
        removals = [agent for agent in dict.fromkeys(agents) if agent in self._names]
        for agent in removals:
            del self._names[agent]
        self.incomplete = False
        self.disk.save()
        return removals, await self.disk.flush()
