"""One goal at a time uses a robot; the policy decides which goal is next."""

from __future__ import annotations

import asyncio

import pytest
from manual_clock import settle_clock_tasks
from timely_bridge.error_codes import BridgeTaskError
from timely_bridge.robot_lock import POLICIES, BridgeRobotClaim, BridgeRobotLock
from timely_interfaces.msg import ErrorCode

from timely.core.errors import InvalidInput


class Cancellations:
    """Keeps the codes of cancellations."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, code: int, message: str) -> None:
        self.codes.append(code)


def claim(urgent: bool = False) -> BridgeRobotClaim:
    return BridgeRobotClaim(urgent, Cancellations())


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_first_goes_at_once_and_may_ask_again(policy: str) -> None:
    lock, first = BridgeRobotLock(policy), claim()
    async with asyncio.timeout(20):
        await lock.acquire(first)
        await lock.acquire(first)
    assert (lock.busy, lock.queue_length) == (True, 0)
    lock.release(first)
    lock.release(first)
    assert not lock.busy


async def test_the_next_goal_follows_from_the_policy() -> None:
    for policy in ("queue", "preempt", "reject"):
        lock, normal, urgent = BridgeRobotLock(policy), claim(), claim(urgent=True)
        assert lock.next_for(normal)
        assert lock.next_for(urgent)
        await lock.acquire(normal)
        assert lock.next_for(normal)
        assert not lock.next_for(claim())
        assert lock.next_for(urgent) == (policy == "preempt")
        lock.release(normal)
        await lock.acquire(urgent)
        assert not lock.next_for(claim(urgent=True)), "an urgent one is not pushed aside"


async def test_queue_takes_urgent_ones_first_then_in_order() -> None:
    lock, holder = BridgeRobotLock("queue"), claim()
    await lock.acquire(holder)
    waiting = [claim(), claim(), claim(urgent=True), claim(urgent=True)]
    order: list[int] = []

    async def wait(index: int) -> None:
        await lock.acquire(waiting[index])
        order.append(index)
        lock.release(waiting[index])

    tasks = [asyncio.create_task(wait(index)) for index in range(4)]
    await settle_clock_tasks()
    assert (lock.queue_length, order) == (4, [])
    lock.release(holder)
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)
    assert order == [2, 3, 0, 1]
    assert holder.cancel.codes == []  # type: ignore[attr-defined]


async def test_preempt_ends_a_normal_holder_for_an_urgent_task_only() -> None:
    lock, holder = BridgeRobotLock("preempt"), claim()
    await lock.acquire(holder)
    normal = asyncio.create_task(lock.acquire(claim()))
    await settle_clock_tasks()
    assert holder.cancel.codes == []  # type: ignore[attr-defined]
    urgent = claim(urgent=True)
    entering = asyncio.create_task(lock.acquire(urgent))
    await settle_clock_tasks()
    assert holder.cancel.codes == [ErrorCode.PREEMPTED]  # type: ignore[attr-defined]
    assert not entering.done(), "the robot is still moving"
    lock.release(holder)
    async with asyncio.timeout(20):
        await entering
    another = asyncio.create_task(lock.acquire(claim(urgent=True)))
    await settle_clock_tasks()
    assert urgent.cancel.codes == []  # type: ignore[attr-defined]
    for task in (normal, another):
        task.cancel()
    await asyncio.gather(normal, another, return_exceptions=True)
    assert lock.queue_length == 0


async def test_reject_refuses_with_its_code() -> None:
    lock = BridgeRobotLock("reject")
    await lock.acquire(claim())
    with pytest.raises(BridgeTaskError) as caught:
        await lock.acquire(claim(urgent=True))
    assert caught.value.code == ErrorCode.ROBOT_BUSY


async def test_who_stops_waiting_is_forgotten() -> None:
    lock, holder = BridgeRobotLock(), claim()
    await lock.acquire(holder)
    gone = asyncio.create_task(lock.acquire(claim()))
    await settle_clock_tasks()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    lock.release(holder)
    assert not lock.busy


async def test_a_claim_that_gave_the_robot_back_asks_again() -> None:
    """It was cancelled in the moment in which its turn came, and its goal goes on with another plan."""
    lock, holder, late = BridgeRobotLock(), claim(), claim()
    await lock.acquire(holder)
    waiting = asyncio.create_task(lock.acquire(late))
    await settle_clock_tasks()
    lock.release(holder)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not lock.held_by(late)
    assert not late.granted.is_set()


def test_an_unknown_policy_lists_the_known() -> None:
    with pytest.raises(InvalidInput, match="queue, preempt, reject"):
        BridgeRobotLock("shove")
