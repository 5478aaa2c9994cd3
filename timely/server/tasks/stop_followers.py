"""The open event streams of bridges that follow the stop."""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from timely.server.tasks.robot_roster import BridgeRobot

log = logging.getLogger(__name__)

MAX_STREAMS = 512
MAX_PRINCIPAL_STREAMS = 128


@dataclass(slots=True, eq=False)
class ServerStopFollower:
    """One stream.

    Attributes:
        token: proves that an acknowledgement comes from the reader of this stream.
        displaced: the stream ends, because a newer one took its place.
        problems: what keeps robots from their tasks, as the bridge said last: name -> words for people.
    """

    principal: str
    bridge: str
    robots: frozenset[BridgeRobot]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    displaced: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)


class ServerStopFollowers:
    """Streams up to ``MAX_STREAMS``, and ``MAX_PRINCIPAL_STREAMS`` of one principal.

    A further stream is not refused: it takes the place of an older one. A bridge must hear a stop whatever other
    clients do, and one that lost its stream opens it again at once.
    """

    def __init__(self) -> None:
        self._by_token: dict[str, ServerStopFollower] = {}
        self._robot_streams: Counter[BridgeRobot] = Counter()

    def __len__(self) -> int:
        return len(self._by_token)

    @property
    def robots(self) -> Mapping[BridgeRobot, int]:
        """The robots with an open stream, and how many each has."""
        return self._robot_streams

    def add(self, principal: str, agents: Iterable[str], bridge: str = "") -> ServerStopFollower:
        streams = Counter(follower.principal for follower in self._by_token.values())
        if streams[principal] >= MAX_PRINCIPAL_STREAMS:
            self._displace(principal)
        elif len(self) >= MAX_STREAMS:
            self._displace(streams.most_common(1)[0][0])
        follower = ServerStopFollower(
            principal, bridge, frozenset(BridgeRobot(agent, bridge) for agent in agents)
        )
        self._by_token[follower.token] = follower
        self._robot_streams.update(follower.robots)
        return follower

    def remove(self, follower: ServerStopFollower) -> None:
        """Remove a stream that has ended; a second call changes nothing."""
        if self._by_token.pop(follower.token, None) is not None:
            for robot in follower.robots:
                self._robot_streams[robot] -= 1
                if not self._robot_streams[robot]:
                    del self._robot_streams[robot]

    def problems(self) -> dict[str, str]:
        """Name of a robot -> what keeps it from its tasks; of several bridges with such a robot the last one's."""
        return {
            agent: problem
            for follower in self._by_token.values()
            for agent, problem in follower.problems.items()
        }

    def find(self, token: str) -> ServerStopFollower | None:
        return self._by_token.get(token)

    def wake(self) -> None:
        """There is something to send to all."""
        for follower in self._by_token.values():
            follower.wake.set()

    def _displace(self, principal: str) -> None:
        """End the principal's oldest stream; one whose robots other streams have too comes first."""
        own = [follower for follower in self._by_token.values() if follower.principal == principal]
        spare = (
            follower for follower in own if all(self._robot_streams[robot] > 1 for robot in follower.robots)
        )
        oldest = next(spare, own[0])
        log.info("%s follows the stop with too many streams: the oldest ends", principal)
        self.remove(oldest)
        oldest.displaced = True
        oldest.wake.set()
