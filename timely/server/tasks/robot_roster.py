"""The robots that a stop must reach: all whose bridge ever followed the stop, until an operator removes them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple

from timely.server.tasks.stop_file import SavedServerState, ServerStopFile

log = logging.getLogger(__name__)

MAX_ROBOTS = 2_000


class BridgeRobot(NamedTuple):
    """A robot of a bridge. Two bridges may each have a robot of one name, and neither answers for the other's.

    Attributes:
        bridge: the identity of the bridge; empty for one without.
    """

    agent: str
    bridge: str = ""


def bridges_by_robot(robots: Iterable[BridgeRobot]) -> dict[str, list[str]]:
    """Name of a robot -> the bridges that have it."""
    bridges: defaultdict[str, list[str]] = defaultdict(list)
    for robot in robots:
        bridges[robot.agent].append(robot.bridge)
    return bridges


class TaskRobotRoster:
    """Robots by name and bridge, in memory and on the disk.

    Attributes:
        incomplete: robots are missing, because there were over ``MAX_ROBOTS`` or the file could not be read.
    """

    def __init__(self, file: ServerStopFile) -> None:
        self.incomplete = False
        self._file = file
        self._robots: dict[BridgeRobot, None] = {}
        self.disk = SavedServerState(
            lambda: partial(file.write_robots, bridges_by_robot(self._robots), complete=not self.incomplete),
            "the robots of the stop",
        )

    @property
    def robots(self) -> Collection[BridgeRobot]:
        """In the order of their first stream."""
        return self._robots.keys()

    async def load(self) -> None:
        """Add the robots of earlier processes of this server."""
        bridges, complete = await asyncio.to_thread(self._file.read_robots)
        self._robots = {BridgeRobot(agent, one): None for agent, ids in bridges.items() for one in ids}
        self.incomplete = not complete

    def add(self, robots: Iterable[BridgeRobot]) -> None:
        for robot in robots:
            if robot in self._robots:
                continue
            if len(self._robots) < MAX_ROBOTS:
                self._robots[robot] = None
            elif not self.incomplete:
                self.incomplete = True
                log.error("more than %s robots follow the stop: no stop is a success", MAX_ROBOTS)
            else:
                continue
            self.disk.save()

    def discard(self, robots: Iterable[BridgeRobot]) -> None:
        """Remove robots, if they are there."""
        for robot in robots:
            self._robots.pop(robot, None)
        self.disk.save()
