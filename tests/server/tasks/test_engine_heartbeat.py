"""The limit after which an engine is taken to hang follows its longest step."""

from __future__ import annotations

import asyncio
import math

import pytest
from manual_clock import ManualClock

from timely.engines.scripted import ScriptedEngine
from timely.server.tasks.engine_heartbeat import TaskEngineHeartbeat


class SlowEngine(ScriptedEngine):
    """Answers after the next of these delays, seconds."""

    def __init__(self, delays_s: list[float]) -> None:
        super().__init__(clock=ManualClock(100.0))
        self.delays_s = delays_s

    async def answer(self) -> None:
        await self.clock.sleep(self.delays_s.pop(0))


@pytest.mark.parametrize(
    ("delays_s", "limit_s"),
    [([math.nan], 60.0), ([0.0, math.nan], 60.0), ([30.5, 100.5, math.nan], 400.0)],
)
async def test_a_slow_engine_is_given_longer(delays_s: list[float], limit_s: float) -> None:
    engine = SlowEngine([1e6 if math.isnan(delay_s) else delay_s for delay_s in delays_s])
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    heartbeat = TaskEngineHeartbeat(engine, 60.0, clock)
    silent = asyncio.create_task(heartbeat.wait_silent())
    await clock.run_for(sum(delays_s[:-1]) + 5.0 * len(delays_s) + limit_s - 1.0)
    assert not silent.done()
    await clock.run_for(2.0)
    assert silent.done()
    assert heartbeat.answered_s == pytest.approx(100.0 + sum(delays_s[:-2]) + 5.0 * (len(delays_s) - 1))


async def test_a_server_that_was_suspended_does_not_blame_its_engine() -> None:
    engine = SlowEngine([500.0, 1e6])
    clock = engine.clock
    assert isinstance(clock, ManualClock)
    silent = asyncio.create_task(TaskEngineHeartbeat(engine, 60.0, clock).wait_silent())
    await clock.run_for(10.0)
    clock.advance(1000.0)
    await clock.run_for(5.0)
    assert not silent.done()
    silent.cancel()
    await asyncio.gather(silent, return_exceptions=True)
