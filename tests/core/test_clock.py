"""Clocks: the machine's, and one that a test owns."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest
from manual_clock import ManualClock, settle_clock_tasks

from timely.core.clock import SystemClock, wait_on_clock


async def test_sleepers_wake_in_the_order_of_their_due_times() -> None:
    clock = ManualClock(5.0)
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
    clock = ManualClock()
    sleepers = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1.0, 2.0, 3.0)]
    await settle_clock_tasks()
    clock.advance(2.0)
    await settle_clock_tasks()
    assert [task.done() for task in sleepers] == [True, True, False]
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1.0)
    sleepers[-1].cancel()


async def test_time_may_be_advanced_from_another_thread() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(60.0))
    await settle_clock_tasks()
    thread = threading.Thread(target=clock.advance, args=(60.0,))
    thread.start()
    await asyncio.wait_for(sleeper, 10.0)
    thread.join(10.0)


async def test_sleeping_for_nothing_returns_on_any_clock() -> None:
    for clock in (ManualClock(), SystemClock()):
        for seconds in (0.0, -1.0):
            await asyncio.wait_for(clock.sleep(seconds), 10.0)
    before = SystemClock().now()
    await SystemClock().sleep(0.001)
    assert SystemClock().now() - before >= 0.001


async def test_waiting_ends_with_the_event_or_with_the_time() -> None:
    clock = ManualClock()
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_on_clock(event, clock, 5.0))
    await clock.run_for(4.9)
    assert not waiting.done()
    await clock.run_for(0.1)
    assert waiting.result() is False
    for when in (5.0, 50.0, math.inf):
        waiting = asyncio.create_task(wait_on_clock(event, clock, when))
        await settle_clock_tasks()
        event.set()
        await settle_clock_tasks()
        assert waiting.result() is (when > 5.0)
        event.clear()
    assert clock.next_due_s == math.inf


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(2.0)
    assert clock.now() == clock.now() == 2.0
    assert clock.advance(0.5) == clock.now() == 2.5
    assert clock.advance(0.0) == 2.5
    assert clock.advance_to(4.0) == clock.now() == 4.0


def test_a_manual_clock_never_goes_back() -> None:
    clock = ManualClock(3.0)
    assert clock.advance_to(1.0) == 3.0
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.1)
    assert clock.now() == 3.0


def test_the_system_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.now() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_faster_clock_waits_and_counts_at_its_speed() -> None:
    fast = SystemClock(speed=1000.0)
    before = fast.now()
    assert fast.wait(threading.Event(), 1.0) is False
    assert fast.now() - before >= 1.0
    interrupted = threading.Event()
    interrupted.set()
    assert SystemClock().wait(interrupted, 1000.0) is True
