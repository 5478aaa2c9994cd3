"""The server's stop reaches the fleet, and the server gets what is known of each robot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from timely_bridge.server_stop import ServerStop

from timely.core.errors import Conflict, EngineFailed


@dataclass
class Order:
    kind: str
    stop_id: str = ""


class Server:
    """Sends orders, and takes acknowledgements after ``failures`` of them were lost."""

    def __init__(self, failures: int = 0) -> None:
        self.orders: asyncio.Queue[Order] = asyncio.Queue()
        self.latched = ""
        self.states: list[tuple[str, str]] = []
        self.failures = failures

    async def stop_orders(self, agents: Sequence[str]) -> AsyncIterator[Order]:
        self.agents = list(agents)
        while True:
            yield await self.orders.get()

    async def acknowledge_stop(self, stop_id: str, agent: str, state: str, detail: str = "") -> None:
        if stop_id != self.latched:
            raise Conflict("not latched", where="stop_id")
        if self.failures:
            self.failures -= 1
            raise EngineFailed("connection lost")
        self.states.append((agent, state))


class Fleet:
    def __init__(self) -> None:
        self.states = {"drone1": "halted", "arm1": "unknown"}
        self.resets = 0

    def stop(self, deadline_s: float, *, until_at_rest: bool = False) -> dict[str, str]:
        return dict(self.states)

    def reset(self) -> dict[str, str]:
        self.resets += 1
        return {}

    def outcomes(self) -> dict[str, str]:
        return dict(self.states)


async def until(what: object) -> None:
    async with asyncio.timeout(10):
        while not what():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_stop_is_acknowledged_robot_by_robot_with_every_change(failures: int) -> None:
    server, fleet = Server(failures), Fleet()
    following = asyncio.create_task(ServerStop(server, fleet, ["drone1", "arm1"]).run())
    try:
        server.latched = "stop-1"
        server.orders.put_nowait(Order("stop", "stop-1"))
        await until(lambda: len(server.states) == 2)
        assert server.agents == ["drone1", "arm1"]
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
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
