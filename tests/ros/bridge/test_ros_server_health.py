"""Health checks of the server: when it counts as lost, and as back."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from timely_bridge.server_health import BridgeServerHealth

from timely.core.errors import EngineFailed


class Server:
    """Well, down or hanging."""

    def __init__(self) -> None:
        self.mood, self.checks, self.url = "well", 0, "http://hall:8000"

    async def health(self) -> object:
        self.checks += 1
        if self.mood == "down":
            raise EngineFailed("nobody there", where="https://hall.local:8000")
        if self.mood == "without an engine":
            raise EngineFailed("it is being started again: its process ended", where="engine")
        if self.mood == "odd":
            raise RuntimeError("no such stream")
        if self.mood in ("hanging", "its engine hangs"):
            await asyncio.Event().wait()
        return {}

    async def live(self) -> object:
        if self.mood == "hanging":
            await asyncio.Event().wait()
        return {}


async def test_a_server_is_lost_after_several_misses_and_found_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server: Any = Server()
    pulse = BridgeServerHealth(server, period_s=5.0, max_misses=3)
    assert not pulse.lost
    assert math.isnan(pulse.round_trip_s)
    assert await pulse.check()
    assert pulse.round_trip_s >= 0.0
    server.mood = "down"
    for misses in (1, 2, 3, 4):
        assert not await pulse.check()
        assert pulse.lost == (misses >= 3)
    assert pulse.reason == "nobody there"
    server.mood = "without an engine"
    assert not await pulse.check()
    assert pulse.reason == "engine: it is being started again: its process ended"
    server.mood = "well"
    assert await pulse.check()
    assert not pulse.lost
    assert pulse.reason == ""
    assert await pulse.check()
    lost = "the server at http://hall:8000 is lost, and its stop may not reach the robots: nobody there"
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [lost, "the server at http://hall:8000 is back"]


async def test_an_error_of_the_clients_library_is_a_miss_and_ends_no_check() -> None:
    """A task that has ended would leave a server lost for ever."""
    server: Any = Server()
    pulse = BridgeServerHealth(server, period_s=0.01, max_misses=1)
    server.mood = "odd"
    checking = asyncio.create_task(pulse.run())
    try:
        async with asyncio.timeout(20):
            while not pulse.lost:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert pulse.reason == "RuntimeError: no such stream"
            server.mood = "well"
            while pulse.lost:  # noqa: ASYNC110
                await asyncio.sleep(0)
    finally:
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("hanging", "no answer within 0.02 s"),
        ("its engine hangs", "engine: no answer within 0.02 s"),
    ],
)
async def test_no_answer_is_a_miss(mood: str, reason: str) -> None:
    """A server waits for its engine longer than the bridge for an answer, and the log blamed the server."""
    server: Any = Server()
    server.mood = mood
    pulse = BridgeServerHealth(server, period_s=0.02, max_misses=1)
    async with asyncio.timeout(20):
        assert not await pulse.check()
    assert pulse.lost
    assert pulse.reason == reason


async def test_it_asks_until_it_is_cancelled() -> None:
    server: Any = Server()
    pulse = BridgeServerHealth(server, period_s=0.01, max_misses=1)
    asking = asyncio.create_task(pulse.run())
    async with asyncio.timeout(20):
        while server.checks < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
