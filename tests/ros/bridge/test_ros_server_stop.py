"""The server's stop reaches the fleet, and the server gets what is known of each robot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

import pytest
from fleet_world import a_fleet
from ros_harness import LIMIT_S, Program, eventually
from timely_bridge import goal_journal, server_stop
from timely_bridge.fleet_stop import BridgeFleetStop
from timely_bridge.run_fleet import start_bridge_fleet
from timely_bridge.server_stop import BridgeServerStop
from timely_bridge.stop_latch import BridgeStopLatch
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, Task
from timely_robots.disk_thread import DriverDiskThread

from timely.client import TimelyClient
from timely.core.errors import Conflict, EngineFailed, InvalidInput, NotAllowed
from timely.core.files import core_write_file
from timely.engines.scripted import ScriptedEngine
from timely.server.app import create_app
from timely.server.server_thread import ServerThread


@dataclass
class Order:
    kind: str
    stop_id: str = ""
    earlier_ids: tuple[str, ...] = ()

    @property
    def stop_ids(self) -> tuple[str, ...]:
        return (*self.earlier_ids, self.stop_id)


class Orders:
    """See ``AsyncClientStopStream``."""

    def __init__(self, queue: asyncio.Queue[Order]) -> None:
        self.outage = ""
        self._queue = queue

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Order:
        return await self._queue.get()


class Server:
    """Sends orders, and takes acknowledgements after ``failures`` of them were lost."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.error = error or EngineFailed("connection lost")
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self.latched = ""
        self.states: list[tuple[str, str]] = []
        self.failures = failures
        self.problems: list[Mapping[str, str]] = []
        self.problem_failures = 0

    async def report_robot_problems(self, problems: Mapping[str, str]) -> None:
        if self.problem_failures:
            self.problem_failures -= 1
            raise self.error
        self.problems.append(problems)

    def stop_orders(self, agents: Sequence[str], bridge: str = "") -> Orders:
        self.agents, self.bridge, self.stream = list(agents), bridge, Orders(self.orders)
        return self.stream

    async def acknowledge_stop(self, stop_id: str, agent: str, state: str, detail: str = "") -> None:
        if stop_id != self.latched:
            raise Conflict("not latched", where="stop_id")
        if self.failures:
            self.failures -= 1
            raise self.error
        self.states.append((agent, state))


class Fleet:
    def __init__(self) -> None:
        self.states = {"drone1": "halted", "arm1": "unknown"}
        self.resets, self.server_stop, self.stop_id = 0, "", ""
        self.reset_service = "/hall/timely_bridge/reset"
        self.latch = BridgeStopLatch(DriverDiskThread("fake"))
        self.answers = threading.Event()
        """Set while resets return."""
        self.answers.set()
        self.begins = threading.Event()
        """Set while resets begin."""
        self.begins.set()

    def stop(
        self, deadline_s: float, *, stop_id: str = "", until_at_rest: bool = False, by_server: bool = False
    ) -> dict[str, str]:
        self.stop_id = stop_id or "own"
        self.latch.put(True, own=not by_server)
        return dict(self.states)

    def reset(self, *, stop_id: str = "", by_server: bool = False) -> dict[str, str]:
        self.begins.wait(LIMIT_S)
        self.is_reset_by_server = by_server
        self.resets += 1
        if stop_id not in ("", self.stop_id):
            return dict.fromkeys(self.states, "the fleet was stopped again")
        self.latch.put(False)
        self.answers.wait(LIMIT_S)
        return {}

    def outcomes(self) -> dict[str, str]:
        return dict(self.states)


async def until(what: object) -> None:
    async with asyncio.timeout(10):
        while not what():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@asynccontextmanager
async def following(
    server: Server, fleet: Fleet, agents: Sequence[str] = ("drone1",), bridge: str = ""
) -> AsyncIterator[BridgeServerStop]:
    """Meanwhile a bridge with these robots follows the stop of the server."""
    follower = BridgeServerStop(server, cast(BridgeFleetStop, fleet), agents, bridge)
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("failures", "error"), [(0, None), (20, None), (20, ValueError("a proxy sent no gzip"))]
)
async def test_a_stop_is_acknowledged_robot_by_robot_with_every_change(
    failures: int, error: Exception | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_stop, "FOLLOW_S", 0.01)
    server, fleet = Server(failures, error), Fleet()
    async with following(server, fleet, ["drone1", "arm1"], "hall"):
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: len(server.states) == 2)
        assert (server.agents, server.bridge) == (["drone1", "arm1"], "hall")
        assert sorted(server.states) == [("arm1", "unknown"), ("drone1", "halted")]
        fleet.states["arm1"] = "at_rest"
        await until(lambda: ("arm1", "at_rest") in server.states)
        server.latched = ""
        server.orders.put_nowait(Order("reset", "stop-1"))
        await until(lambda: fleet.resets == 1)
        fleet.states["arm1"] = "halted"
        server.orders.put_nowait(Order("clear"))
        await until(server.orders.empty)
        assert (fleet.resets, len(server.states)) == (1, 3)
        assert len(caplog.messages) == (2 if failures else 0), "one line a robot"


async def test_changed_problems_of_robots_reach_the_server_and_each_new_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_stop, "PROBLEMS_S", 0.001)
    monkeypatch.setattr(server_stop, "RETRY_S", 0.001)
    server, fleet = Server(), Fleet()
    lost = {"drone1": "the link to the robot is lost"}
    async with following(server, fleet) as follower:
        follower.problems = lost
        await asyncio.sleep(0.01)
        assert server.problems == [], "no stream is open"
        server.problem_failures = 3
        server.orders.put_nowait(Order("clear"))
        await until(lambda: server.problems == [lost])
        assert len(caplog.messages) == 1
        follower.problems = {}
        await until(lambda: server.problems == [lost, {}])
        follower.problems = lost
        await until(lambda: server.problems == [lost, {}, lost])
        await asyncio.sleep(0.01)
        assert len(server.problems) == 3, "nothing has changed"
        server.orders.put_nowait(Order("clear"))  # the stream was opened again
        await until(lambda: server.problems == [lost, {}, lost, lost])


async def test_a_reset_of_another_stop_changes_nothing() -> None:
    server, fleet = Server(), Fleet()
    async with following(server, fleet):
        server.orders.put_nowait(Order("reset", "stop-1"))  # an old one: the stream was opened again
        await until(server.orders.empty)
        await asyncio.sleep(0.01)
        assert fleet.resets == 0
        server.latched = "stop-2"
        server.orders.put_nowait(Order("stop", "stop-2"))
        await until(lambda: server.states)
        server.orders.put_nowait(Order("reset", "stop-2"))
        await until(lambda: fleet.resets)
        assert fleet.resets == 1


@pytest.mark.parametrize("by_server", [True, False])
async def test_a_reset_whose_thread_is_late_releases_no_later_stop(by_server: bool) -> None:
    server, fleet = Server(), Fleet()
    fleet.begins.clear()
    async with following(server, fleet):
        try:
            server.latched = "stop-1"
            server.orders.put_nowait(Order("stop", "stop-1"))
            await until(lambda: server.states)
            server.orders.put_nowait(Order("reset", "stop-1"))
            await until(server.orders.empty)
            await until(lambda: any(one.name == "server stop call" for one in threading.enumerate()))
            if by_server:
                server.orders.put_nowait(Order("stop", "stop-2"))
                await until(lambda: fleet.stop_id == "stop-2")
            else:
                fleet.stop(1.0)
            fleet.begins.set()
            await until(lambda: fleet.resets)
            assert fleet.latch.set
        finally:
            fleet.begins.set()


async def test_a_reset_releases_a_bridge_that_missed_the_stops_after_its_own() -> None:
    server, fleet = Server(), Fleet()
    async with following(server, fleet):
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: server.states)
        server.orders.put_nowait(Order("reset", "stop-3", ("stop-2",)))
        server.orders.put_nowait(Order("reset", "stop-3", ("stop-1", "stop-2")))
        await until(lambda: fleet.resets and not fleet.latch.set)
        assert fleet.resets == 1


async def test_a_reset_that_comes_together_with_its_stop_releases_the_stop_before() -> None:
    server, fleet = Server(), Fleet()
    async with following(server, fleet):
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: server.states)
        server.orders.put_nowait(Order("stop", "stop-2"))
        server.orders.put_nowait(Order("reset", "stop-2", ("stop-1",)))
        await until(lambda: fleet.resets)
        assert not fleet.latch.set


async def test_a_reset_of_the_server_leaves_a_stop_that_was_made_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, fleet = Server(), Fleet()
    async with following(server, fleet):
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: server.states)
        fleet.stop(1.0)  # somebody calls ~/stop
        server.orders.put_nowait(Order("stop", "stop-1"))
        server.orders.put_nowait(Order("reset", "stop-1"))
        await until(lambda: "also stopped here; call /hall/timely_bridge/reset" in caplog.text)
        assert (fleet.resets, fleet.latch.set, fleet.server_stop) == (0, True, "")
        fleet.reset()  # and ~/reset
        server.orders.put_nowait(Order("stop", "stop-2"))
        server.orders.put_nowait(Order("reset", "stop-2"))
        await until(lambda: fleet.resets == 2)
        assert fleet.is_reset_by_server


async def test_a_reset_that_a_driver_holds_up_does_not_delay_the_next_stop() -> None:
    server, fleet = Server(), Fleet()
    fleet.answers.clear()
    fleet.server_stop = fleet.stop_id = "stop-1"
    async with following(server, fleet):
        try:
            server.orders.put_nowait(Order("reset", "stop-1"))
            await until(lambda: fleet.resets == 1)
            server.latched = "stop-2"
            server.orders.put_nowait(Order("stop", "stop-2"))
            await until(lambda: server.states)
        finally:
            fleet.answers.set()


async def test_stops_that_wait_for_a_driver_hold_up_no_further_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    server, fleet, driver_answers, stops = Server(), Fleet(), threading.Event(), list[float]()

    def stop(deadline_s: float, **_: object) -> dict[str, str]:
        stops.append(deadline_s)
        driver_answers.wait(LIMIT_S)
        return dict(fleet.states)

    monkeypatch.setattr(fleet, "stop", stop)
    async with following(server, fleet):
        try:
            for number in range(40):
                server.orders.put_nowait(Order("stop", f"stop-{number}"))
                await until(lambda: len(stops) > number)  # noqa: B023
        finally:
            driver_answers.set()


async def test_a_stop_needs_no_further_thread_and_is_acknowledged_after_any_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def fail(**_: object) -> dict[str, str]:
        raise ValueError("a defect")

    server, fleet = Server(), Fleet()
    async with following(server, fleet):
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            server.latched = "stop-1"
            server.orders.put_nowait(Order("stop", "stop-1"))
            await until(lambda: len(server.states) == 2)
        assert fleet.stop_id == "stop-1", "the drivers were not called"
        monkeypatch.setattr(fleet, "stop", fail)
        server.latched = "stop-2"
        server.orders.put_nowait(Order("stop", "stop-2"))
        await until(lambda: len(server.states) == 4)
        assert "a defect" in caplog.text


async def test_a_robot_that_moves_while_the_server_is_slow_is_not_acknowledged_as_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The acknowledgements of the robots before it may take minutes."""
    server, fleet = Server(), Fleet()
    fleet.states["arm1"] = "at_rest"
    take = server.acknowledge_stop

    async def take_slowly(stop_id: str, agent: str, state: str, detail: str = "") -> None:
        await take(stop_id, agent, state, detail)
        fleet.states["arm1"] = "unknown"

    monkeypatch.setattr(server, "acknowledge_stop", take_slowly)
    async with following(server, fleet, ["drone1", "arm1"]):
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: len(server.states) == 2)
    assert server.states == [("drone1", "halted"), ("arm1", "unknown")]


async def test_the_servers_stop_is_followed_again_after_any_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_stop, "RETRY_S", 0.0)
    lost = [RuntimeError("a defect"), *(EngineFailed("refused") for _ in range(5))]
    server, fleet = Server(), Fleet()
    orders = server.stop_orders

    def broken(agents: Sequence[str], bridge: str = "") -> Orders:
        if lost:
            raise lost.pop()
        return orders(agents, bridge)

    monkeypatch.setattr(server, "stop_orders", broken)
    async with following(server, fleet) as bridge:
        await until(lambda: bridge.refusal == "its stop does not reach the robots: refused")
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: server.states)
        assert len([message for message in caplog.messages if "refused" in message]) == 1
        await until(lambda: not bridge.refusal)
        server.stream.outage = "HTTP 502: bad gateway"
        await until(lambda: bridge.refusal == "its stop does not reach the robots: HTTP 502: bad gateway")


async def test_a_stream_that_is_refused_is_asked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_stop, "RETRY_S", LIMIT_S)
    server, requests = Server(), list[str]()

    def refuse(agents: Sequence[str], bridge: str = "") -> Orders:
        requests.append(bridge)
        raise NotAllowed("no such token")

    monkeypatch.setattr(server, "stop_orders", refuse)
    async with following(server, Fleet()) as bridge:
        await until(lambda: bridge.refusal)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(requests) == 1


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (NotAllowed("no such token"), "it refuses the acknowledgement of drone1: no such token"),
        (EngineFailed("connection lost"), ""),
    ],
)
@pytest.mark.parametrize("end", ["taken", "reset", "conflict"])
async def test_a_refused_acknowledgement_is_told_while_the_stream_lasts(
    error: Exception, refusal: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream of a withdrawn token goes on, so nothing else tells of it."""
    monkeypatch.setattr(server_stop, "FOLLOW_S", 0.0)
    server, fleet = Server(1000000, error), Fleet()
    async with following(server, fleet) as bridge:
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: server.failures < 1000000 - 2 * len(fleet.states))
        assert bridge.refusal == refusal
        if end == "taken":
            server.failures = 0
        elif end == "reset":
            server.orders.put_nowait(Order("reset", "stop-1"))
        else:
            server.latched = ""
        await until(lambda: not bridge.refusal)


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_another_bridge_does_not_acknowledge_a_robot_of_the_same_name(domain_id: int, tmp_path: Path) -> None:
    described = a_fleet(1, 1, state_folder=str(tmp_path))
    with (
        ServerThread(create_app(ScriptedEngine({}))) as server,
        TimelyClient(server.url) as operator,
        TimelyClient(server.url) as other,
    ):
        orders = other.stop_orders(["arm1"], "other")
        next(orders)
        fleet = start_bridge_fleet(replace(described, server_url=server.url), domain_id=domain_id)
        try:
            duplicates = {"arm1": sorted([fleet.bridge._journal.identity, "other"])}
            eventually(lambda: operator.stop_state()["duplicates"] == duplicates, "no bridge has an identity")
            stop_id = operator.stop_fleet("smoke", deadline_s=0.0)["stop_id"]
            states = {fleet.bridge._journal.identity: "at_rest", "other": "unknown"}
            eventually(
                lambda: operator.stop_state()["robots"]["arm1"]["by_bridge"] == states, "it does not stop"
            )
            assert not operator.stop_state()["success"]
            next(orders)
            other.acknowledge_stop(stop_id, "arm1", "halted")
            eventually(lambda: operator.stop_state()["success"], "not all are stopped")
            orders.close()
        finally:
            assert fleet.close()


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_a_stop_over_http_passes_a_bridge_whose_loop_is_held_up(domain_id: int) -> None:
    held = threading.Event()
    with (
        ServerThread(create_app(ScriptedEngine({}))) as server,
        TimelyClient(server.url) as operator,
    ):
        fleet = start_bridge_fleet(replace(a_fleet(1, 1), server_url=server.url), domain_id=domain_id)
        try:
            eventually(lambda: operator.stop_state()["bridges"] == 1, "the bridge does not follow")
            loop = fleet.bridge._loop
            assert loop is not None
            loop.call(held.wait, LIMIT_S)  # as a goal that computes
            answer = operator.stop_fleet("smoke", deadline_s=LIMIT_S)
            assert answer["success"], answer
            assert set(answer["robots"]) == {"drone1", "arm1"}
            held.set()
            operator.reset_stop()
            stopped = fleet.bridge.fleet_stop
            eventually(lambda: (stopped.latch.set, stopped.server_stop) == (False, ""), "it was not reset")
        finally:
            held.set()
            assert fleet.close()


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_a_goal_with_an_agent_of_its_own_is_stopped_with_its_robot(domain_id: int) -> None:
    """The server knows robots; the agent of a goal names the program that sent it."""
    with (
        ServerThread(create_app(ScriptedEngine({}))) as server,
        TimelyClient(server.url) as operator,
    ):
        fleet = start_bridge_fleet(replace(a_fleet(1, 0), server_url=server.url), domain_id=domain_id)
        program = Program(domain_id)
        tasks = program.listen(Task, "/drone1/task")
        try:
            eventually(lambda: operator.stop_state()["bridges"] == 1, "the bridge does not follow")
            goal = program.send(
                ExecuteTask, "/drone1/execute_task", task="Find the dog and go to it", agent="ann"
            )
            eventually(lambda: [task for task in tasks if task.segments], "no segment came")
            answer = operator.stop_fleet("smoke", deadline_s=LIMIT_S)
            assert answer["success"], answer
            assert list(answer["robots"]) == ["drone1"]
            assert goal.result().error_code == ErrorCode.FLEET_STOPPED
            assert tasks[0].agent == "ann"
        finally:
            program.close()
            assert fleet.close()


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_a_bridge_without_a_state_folder_has_an_identity_too(domain_id: int) -> None:
    """Otherwise a robot that another bridge has acknowledged would count as one of its own."""
    with (
        ServerThread(create_app(ScriptedEngine({}))) as server,
        TimelyClient(server.url) as operator,
        TimelyClient(server.url) as other,
    ):
        orders = other.stop_orders(["drone1"])
        next(orders)
        described = replace(a_fleet(1, 0), server_url=server.url)
        identities = list[str]()
        for _ in range(2):
            fleet = start_bridge_fleet(described, domain_id=domain_id)
            try:
                eventually(lambda: operator.stop_state()["bridges"] == 2, "the bridge does not follow")
                identities += [one for one in operator.stop_state()["duplicates"]["drone1"] if one]
                answer = operator.stop_fleet("smoke", deadline_s=1.0)
                assert answer["robots"]["drone1"]["by_bridge"][""] == "unknown"
                operator.reset_stop()
            finally:
                assert fleet.close()
            eventually(lambda: operator.stop_state()["bridges"] == 1, "the bridge follows on")
        assert len(set(identities)) == 1, "a bridge that was started again is another bridge"
        orders.close()


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_a_bridge_whose_disk_refuses_its_identity_takes_no_other_one(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room again it has one of its own: the robots of the other one would be missed for ever."""

    def refuse(file: Path, content: str) -> None:
        if file.parent == tmp_path:
            raise InvalidInput("no room", where=str(file))
        core_write_file(file, content)

    monkeypatch.setattr(goal_journal, "core_write_file", refuse)
    with ServerThread(create_app(ScriptedEngine({}))) as server, TimelyClient(server.url) as operator:
        described = replace(a_fleet(1, 0, state_folder=str(tmp_path)), server_url=server.url)
        for _ in range(2):
            fleet = start_bridge_fleet(described, domain_id=domain_id)
            try:
                eventually(lambda: operator.stop_state()["bridges"] == 1, "the bridge does not follow")
                answer = operator.stop_fleet("smoke", deadline_s=1.0)
                assert answer["success"], answer
                operator.reset_stop()
            finally:
                assert fleet.close()
            eventually(lambda: operator.stop_state()["bridges"] == 0, "the bridge follows on")
            monkeypatch.undo()
