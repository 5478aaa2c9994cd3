"""The stop of all robots: latched until a reset, and acknowledged robot by robot.

The server moves no robot. Bridges follow the events of this object, stop their robots and acknowledge each. A robot
without an acknowledgement is ``unknown``: it may be moving.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from timely.core.clock import AsyncClock, wait_on_clock
from timely.core.errors import Conflict, InvalidInput, NotAllowed, Overloaded
from timely.core.json_log import log_fields
from timely.server.tasks.robot_roster import MAX_ROBOTS, BridgeRobot, TaskRobotRoster, bridges_by_robot
from timely.server.tasks.stop_file import SavedServerState, SavedServerStop, ServerStopFile
from timely.server.tasks.stop_followers import ServerStopFollower, ServerStopFollowers
from timely.server.tasks.task_events import KEEPALIVE, server_task_event_bytes

log = logging.getLogger(__name__)

Acknowledgement = Literal["halted", "at_rest", "unknown"]
"""``halted``: the driver latched the stop and gave the halt command. ``at_rest``: the robot was seen at rest."""


NO_BRIDGE = (
    "no bridge follows the stop for it; DELETE /v1/stop/robots?agent=NAME removes a robot out of service"
)

GONE_BRIDGE = (
    "an earlier bridge had this robot too, and is gone; DELETE /v1/stop/robots?agent=NAME forgets that"
)

MAX_RELEASED_IDS = 64
"""A reset names so many of the latest stops: a bridge may have missed those after its own."""


@dataclass(slots=True)
class _ServerRobotStop:
    state: Acknowledgement | Literal["pending"] = "pending"
    detail: str = ""
    after_s: float | None = None
    origin: tuple[str, int] = ("", 0)
    """Token of the stream whose reader said so, and the number of the acknowledgement there; 0: not known."""


@dataclass(slots=True)
class _ServerStop:
    stop_id: str
    reason: str
    principal: str
    sent_s: float
    robots: dict[BridgeRobot, _ServerRobotStop] = field(default_factory=dict)
    incomplete: bool = False
    """There are more than ``MAX_ROBOTS``."""

    def expect(self, robots: Iterable[BridgeRobot]) -> None:
        for robot in robots:
            if robot in self.robots or len(self.robots) < MAX_ROBOTS:
                self.robots[robot] = _ServerRobotStop()
            else:
                self.incomplete = True

    def expect_agents(self, agents: Iterable[str]) -> None:
        """Expect robots of which the bridge is not known, unless a robot of that name is expected."""
        names = {robot.agent for robot in self.robots}
        self.expect(BridgeRobot(agent) for agent in agents if agent not in names)


_SURE = ("unknown", "halted", "at_rest")
"""States, the least certain rest first."""


class ServerStopLatch:
    """The latch, its followers and the acknowledgements.

    Attributes:
        roster: the robots that every stop must reach.
    """

    def __init__(self, clock: AsyncClock, file: ServerStopFile) -> None:
        self.roster = TaskRobotRoster(file)
        self._clock = clock
        self._file = file
        self._disk = SavedServerState(self._snapshot, "the state of the stop")
        self._stop: _ServerStop | None = None
        self._stop_ids: deque[str] = deque(maxlen=MAX_RELEASED_IDS)
        self._followers = ServerStopFollowers()
        self._sequence = 0
        self._last: tuple[str, dict[str, Any]] = ("clear", {})
        self._acknowledged = asyncio.Event()
        self._unanswered = 0
        """Stops that wait for acknowledgements."""
        self._streams_end = False

    @property
    def is_latched(self) -> bool:
        """No task is admitted before a reset."""
        return self._stop is not None

    @property
    def agents(self) -> list[str]:
        """Names of the robots that the latched stop awaits."""
        return sorted(bridges_by_robot(self._stop.robots)) if self._stop is not None else []

    @property
    def incomplete(self) -> bool:
        """Robots are missing in the latched stop, or in the roster."""
        return self.roster.incomplete or (self._stop is not None and self._stop.incomplete)

    def latch(self, reason: str, principal: str, agents: Iterable[str]) -> str:
        """Latch the stop and send it to every follower; returns its id.

        A further stop has another id and awaits every robot again: an acknowledgement or a reset on its way is of
        the stop before.
        """
        stop_id, now_s = f"stop-{secrets.token_hex(8)}", self._clock.now()
        stop = self._stop
        if stop is None:
            stop = self._stop = _ServerStop(stop_id, reason, principal, now_s)
        else:
            stop.stop_id, stop.sent_s = stop_id, now_s
            if reason:
                stop.reason, stop.principal = reason, principal
        self._stop_ids.append(stop_id)
        stop.expect({*self.roster.robots, *stop.robots})
        stop.expect_agents({agent for agent in agents if agent})
        self._publish("stop", {"stop_id": stop.stop_id, "reason": stop.reason})
        return stop.stop_id

    async def load(self) -> None:
        """Latch the stop that an earlier process of this server has left; its robots count as unknown."""
        await self.roster.load()
        saved_stop = await asyncio.to_thread(self._file.read)
        released_ids = await asyncio.to_thread(self._file.read_released)
        if saved_stop is None:
            self._stop_ids.extend(released_ids)
            if released_ids:
                self._publish_reset(released_ids[-1])
            return
        self._stop = _ServerStop(
            saved_stop.stop_id, saved_stop.reason, saved_stop.principal, self._clock.now()
        )
        self._stop_ids.extend(saved_stop.stop_ids or (*released_ids, saved_stop.stop_id))
        self._stop.expect(self.roster.robots)
        self._stop.expect_agents(saved_stop.robots)
        self._disk.is_saved = True
        self._publish("stop", {"stop_id": saved_stop.stop_id, "reason": saved_stop.reason})
        with log_fields({"stop_id": saved_stop.stop_id}):
            reason = saved_stop.reason or "no reason given"
            log.warning("the fleet is still stopped (%s): %s", saved_stop.stop_id, reason)

    async def save(self) -> bool:
        """Bring the disk to the present latch; False if it keeps nothing or refuses, which the log then says."""
        self._disk.save()
        return await self._disk.flush()

    def end_streams(self) -> None:
        """End every stream, now and later, once it has sent the latest event: the server shuts down."""
        self._streams_end = True
        self._followers.wake()

    async def close(self) -> None:
        await self._disk.close()
        await self.roster.disk.close()

    def _snapshot(self) -> Callable[[], bool]:
        stop, stop_ids = self._stop, tuple(self._stop_ids)
        if stop is None:
            return partial(self._file.write, None, stop_ids)
        agents = tuple(bridges_by_robot(stop.robots))
        saved_stop = SavedServerStop(stop.stop_id, stop.reason, stop.principal, agents, stop_ids)
        return partial(self._file.write, saved_stop)

    async def wait_for_answers(self, deadline_s: float) -> None:
        """Return when every robot has an acknowledgement, at the latest after ``deadline_s`` seconds."""
        until_s = self._clock.now() + deadline_s
        self._unanswered += 1
        try:
            while self._stop is not None and any(
                robot.state == "pending" for robot in self._stop.robots.values()
            ):
                self._acknowledged.clear()
                if not await wait_on_clock(self._acknowledged, self._clock, until_s):
                    break
        finally:
            self._unanswered -= 1

    def view(self) -> dict[str, Any]:
        """The latched stop as data; a pending robot counts as unknown, and of robots of one name the worst counts."""
        stop = self._stop
        common = {"bridges": len(self._followers), "duplicates": self.duplicates()}
        if stop is None:
            return {"stopped": False, "robots": {}, **common}
        robots = {
            agent: self._view_of_name(stop, agent, bridges)
            for agent, bridges in sorted(bridges_by_robot(stop.robots).items())
        }
        sure = [robot["state"] in ("halted", "at_rest") for robot in robots.values()]
        return {
            "stopped": True,
            "stop_id": stop.stop_id,
            "reason": stop.reason,
            "principal": stop.principal,
            "success": bool(sure) and all(sure) and not self.incomplete,
            "incomplete": self.incomplete,
            "saved": self._disk.is_saved,
            "robots": robots,
            **common,
        }

    def _view_of_name(self, stop: _ServerStop, agent: str, bridges: Iterable[str]) -> dict[str, Any]:
        """The robots of one name, by bridge, as data: the state that is least certain."""
        robots = {one: stop.robots[BridgeRobot(agent, one)] for one in bridges}
        states = {
            one: "unknown" if robot.state == "pending" else robot.state for one, robot in robots.items()
        }
        worst = min(states, key=lambda one: _SURE.index(states[one]))
        robot = robots[worst]
        detail = robot.detail
        if robot.state == "pending":
            followed = [one for one in robots if BridgeRobot(agent, one) in self._followers.robots]
            absence = GONE_BRIDGE if followed else NO_BRIDGE
            detail = "no acknowledgement" if worst in followed else absence
        view = {"state": states[worst], "detail": detail, "after_s": robot.after_s}
        return view | {"by_bridge": states} if len(states) > 1 else view

    def duplicates(self) -> dict[str, list[str]]:
        """Name of a robot that several bridges have, or several streams of one -> a bridge for each."""
        streams = self._followers.robots
        claims = bridges_by_robot(
            one for one in self.roster.robots for _ in range(max(1, streams.get(one, 0)))
        )
        return {agent: sorted(bridges) for agent, bridges in sorted(claims.items()) if len(bridges) > 1}

    def find_robot(self, agent: str, bridge: str | None) -> BridgeRobot:
        """The robot that an operator means; None as the bridge stands for the only one with such a robot.

        Raises:
            Conflict: several bridges have one.
        """
        if bridge is not None or self._stop is None:
            return BridgeRobot(agent, bridge or "")
        bridges = sorted(bridges_by_robot(self._stop.robots).get(agent, [""]))
        if len(bridges) > 1:
            raise Conflict(f"several bridges have a robot {agent!r}: {', '.join(bridges)}", where="bridge")
        return BridgeRobot(agent, bridges[0])

    def acknowledge(
        self,
        stop_id: str,
        robot: BridgeRobot,
        state: Acknowledgement,
        detail: str,
        origin: tuple[str, int] = ("", 0),
    ) -> None:
        """Record what a bridge says of a robot.

        Args:
            origin: token of the stream, and the number of the acknowledgement there; 0: not known.

        Raises:
            Conflict: another stop, or none, is latched, or a later acknowledgement was here before.
            Overloaded: too many robots.
        """
        stop = self._stop
        if stop is None or stop.stop_id != stop_id:
            raise Conflict(f"{stop_id!r} is not the latched stop", where="stop_id")
        if robot not in stop.robots and len(stop.robots) >= MAX_ROBOTS:
            raise Overloaded(f"{MAX_ROBOTS} robots have answered", where="agent")
        token, number = origin
        last_token, last_number = stop.robots.get(robot, _ServerRobotStop()).origin
        if token == last_token and 0 < number < last_number:
            raise Conflict(
                f"a later acknowledgement of {robot.agent!r} was here before", where="Timely-Sequence"
            )
        after_s = round(self._clock.now() - stop.sent_s, 6)
        stop.robots[robot] = _ServerRobotStop(state, detail, after_s, origin)
        self._acknowledged.set()

    def check_reset(self, stop_id: str | None) -> None:
        """Raise Conflict unless this stop is latched; None: any stop that was answered."""
        stop = self._stop
        if stop is None:
            raise Conflict("no stop is latched", where="stop")
        if stop_id is None and self._unanswered:
            raise Conflict(
                f"the fleet is being stopped, and a reset of this stop must name it: {stop.stop_id!r}",
                where="stop_id",
            )
        if stop_id not in (None, stop.stop_id):
            raise Conflict(
                f"{stop_id!r} is not the latched stop, which is {stop.stop_id!r}: {stop.reason or 'no reason given'}",
                where="stop_id",
            )

    def reset(self) -> str:
        """Release the latched stop and tell every follower; returns its id."""
        assert self._stop is not None
        stop_id, self._stop = self._stop.stop_id, None
        self._acknowledged.set()
        self._publish_reset(stop_id)
        return stop_id

    async def remove(self, agents: Sequence[str]) -> tuple[list[str], bool]:
        """Expect robots of these names no longer, but for those that a bridge follows the stop for.

        Returns the names of those that were expected, and whether the disk has the change.

        Raises:
            Conflict: bridges follow the stop for all robots of a name.
        """
        followed = self._followers.robots.keys()
        removals = [one for one in self.roster.robots if one.agent in agents and one not in followed]
        names = sorted(bridges_by_robot(removals))
        for agent in agents:
            if agent not in names and any(one.agent == agent for one in followed):
                raise Conflict(f"a bridge follows the stop for {agent!r}", where="query.agent")
        self.roster.incomplete = False
        self.roster.discard(removals)
        self.roster.add(followed)
        stop = self._stop
        if stop is not None:
            stop.incomplete = False
            for robot in [one for one in stop.robots if one.agent in agents and one not in followed]:
                del stop.robots[robot]
            stop.expect(followed - stop.robots.keys())
            self._acknowledged.set()
        is_saved = await self.roster.disk.flush()
        if stop is not None:
            is_saved = await self.save() and is_saved
        return names, is_saved

    def follower_robot(self, token: str, agent: str) -> BridgeRobot:
        """The robot that a bridge acknowledges; the token is of the bridge's open stream, which must have the robot.

        Raises:
            NotAllowed: the token is of no such stream.
        """
        return BridgeRobot(agent, self._follower(token, [agent]).bridge)

    def _follower(self, token: str, agents: Iterable[str]) -> ServerStopFollower:
        follower = self._followers.find(token)
        if follower is None or any(
            BridgeRobot(agent, follower.bridge) not in follower.robots for agent in agents
        ):
            raise NotAllowed(
                "send the stream_token of your open stream of /v1/stop/events with this robot",
                where="stream_token",
            )
        return follower

    def set_problems(self, token: str, problems: Mapping[str, str]) -> None:
        """Note what keeps robots of a bridge from their tasks, in place of what it said before.

        Args:
            token: of the bridge's open stream, which must have the robots.

        Raises:
            NotAllowed: the token is of no such stream.
        """
        follower = self._follower(token, problems)
        follower.problems = {agent: problem for agent, problem in problems.items() if problem}

    def problems(self) -> dict[str, str]:
        """Name of a robot -> what keeps it from its tasks, as its bridge says, or that no bridge follows its stop."""
        followed = self._followers.robots
        names = {one.agent for one in followed}
        lost = {
            one.agent: GONE_BRIDGE if one.agent in names else NO_BRIDGE
            for one in self.roster.robots
            if one not in followed
        }
        return dict(sorted({**lost, **self._followers.problems()}.items()))

    @contextmanager
    def following(
        self, principal: str, agents: Collection[str], bridge: str = ""
    ) -> Iterator[ServerStopFollower]:
        """Count a bridge and its robots while its event stream is open.

        Raises:
            InvalidInput: no robots.
        """
        if not agents:
            raise InvalidInput("name the robots: ?agent=NAME, once a robot", where="query.agent")
        follower = self._followers.add(principal, agents, bridge)
        self._expect_follower(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    async def events(self, follower: ServerStopFollower, keepalive_s: float) -> AsyncGenerator[bytes, None]:
        """The latest event at once, then every further one; a comment after each silence.

        Each has the token of the stream.
        """
        sent_sequence = -1
        while not follower.displaced:
            follower.wake.clear()
            if sent_sequence != self._sequence:
                name, data = self._last
                sent_sequence = self._sequence
                yield server_task_event_bytes(sent_sequence, name, data | {"stream_token": follower.token})
                continue
            if self._streams_end:
                return
            try:
                async with asyncio.timeout(keepalive_s):
                    await follower.wake.wait()
            except TimeoutError:
                yield KEEPALIVE

    def _expect_follower(self, follower: ServerStopFollower) -> None:
        earlier, stop = set(self.roster.robots), self._stop
        if follower.bridge:
            # Earlier releases gave them no bridge, and a task names none.
            unnamed = {BridgeRobot(one.agent) for one in follower.robots} - self._followers.robots.keys()
            if unnamed & earlier:
                self.roster.discard(unnamed)
            if stop is not None:
                for robot in unnamed:
                    stop.robots.pop(robot, None)
        self.roster.add(follower.robots)
        if stop is not None:
            stop.expect(follower.robots)
        duplicates = self.duplicates()
        for agent in {one.agent for one in follower.robots - earlier if one.agent in duplicates}:
            log.warning(
                "%s: several bridges have a robot of this name, and each must acknowledge a stop: %s",
                agent,
                duplicates[agent],
            )

    def _publish_reset(self, stop_id: str) -> None:
        self._publish("reset", {"stop_id": stop_id, "stop_ids": list(self._stop_ids)})

    def _publish(self, name: str, data: dict[str, Any]) -> None:
        self._sequence += 1
        self._last = (name, data)
        self._followers.wake()
