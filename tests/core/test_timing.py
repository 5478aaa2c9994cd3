"""Time that can be waited for, owned by the test."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from timely.core.timing import ManualTime, SystemTime, settle, wait_until


async def test_sleepers_wake_in_the_order_of_their_due_times() -> None:
    clock = ManualTime(5.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *pauses: float) -> None:
        for pause in pauses:
            await clock.sleep(pause)
            woken.append((name, clock.now()))

    tasks = [
        asyncio.create_task(sleeper(*arguments))
        for arguments in (("b", 2.0), ("a", 1.0, 0.5, 0.25), ("c", 1.75), ("never", 100.0))
    ]
    assert await clock.run_for(3.0) == 8.0
    assert woken == [("a", 6.0), ("a", 6.5), ("c", 6.75), ("a", 6.75), ("b", 7.0)]
    assert clock.next_due_s == 105.0
    tasks[-1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert clock.next_due_s == math.inf


async def test_advance_wakes_everyone_due_at_once() -> None:
    clock = ManualTime()
    sleepers = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1.0, 2.0, 3.0)]
    await settle()
    clock.advance(2.0)
    await settle()
    assert [task.done() for task in sleepers] == [True, True, False]
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1.0)
    sleepers[-1].cancel()


async def test_time_may_be_advanced_from_another_thread() -> None:
    clock = ManualTime()
    sleeper = asyncio.create_task(clock.sleep(60.0))
    await settle()
    thread = threading.Thread(target=clock.advance, args=(60.0,))
    thread.start()
    await asyncio.wait_for(sleeper, 10.0)
    thread.join(10.0)


async def test_sleeping_for_nothing_returns_on_any_clock() -> None:
    for clock in (ManualTime(), SystemTime()):
        for seconds in (0.0, -1.0):
            await asyncio.wait_for(clock.sleep(seconds), 10.0)
    before = SystemTime().now()
    await SystemTime().sleep(0.001)
    assert SystemTime().now() - before >= 0.001


async def test_waiting_ends_with_the_event_or_with_the_time() -> None:
    clock = ManualTime()
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_until(event, clock, 5.0))
    await clock.run_for(4.9)
    assert not waiting.done()
    await clock.run_for(0.1)
    assert waiting.result() is False
    for when in (5.0, 50.0, math.inf):
        waiting = asyncio.create_task(wait_until(event, clock, when))
        await settle()
        event.set()
        await settle()
        assert waiting.result() is (when > 5.0)
        event.clear()
    assert clock.next_due_s == math.inf
