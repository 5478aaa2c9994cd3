"""One plan at a time drives a robot; who is next follows the policy."""

from __future__ import annotations

import asyncio

import pytest
from timely_bridge.error_codes import TaskEnded
from timely_bridge.robot_lock import Turn, Turnstile
from timely_interfaces.msg import ErrorCode

from timely.core.clock import settle
from timely.core.errors import InvalidInput


class Cuts:
    """Keeps who was cut."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, code: int, message: str) -> None:
        self.codes.append(code)


def turn(urgent: bool = False) -> Turn:
    return Turn(urgent, Cuts())


async def test_the_first_goes_at_once_and_may_ask_again() -> None:
    stile, first = Turnstile(), turn()
    async with asyncio.timeout(1):
        await stile.enter(first)
        await stile.enter(first)
    assert stile.busy
    stile.leave(first)
    stile.leave(first)
    assert not stile.busy


async def test_who_gets_the_robot_as_it_is_now() -> None:
    for policy in ("queue", "preempt", "reject"):
        stile, normal, urgent = Turnstile(policy), turn(), turn(urgent=True)
        assert stile.next(normal)
        assert stile.next(urgent)
        await stile.enter(normal)
        assert stile.next(normal)
        assert not stile.next(turn())
        assert stile.next(urgent) == (policy == "preempt")
        stile.leave(normal)
        await stile.enter(urgent)
        assert not stile.next(turn(urgent=True)), "an urgent one is not pushed aside"


async def test_queue_takes_urgent_ones_first_then_in_order() -> None:
    stile, holder = Turnstile("queue"), turn()
    await stile.enter(holder)
    waiting = [turn(), turn(), turn(urgent=True), turn(urgent=True)]
    order: list[int] = []

    async def wait(index: int) -> None:
        await stile.enter(waiting[index])
        order.append(index)
        stile.leave(waiting[index])

    tasks = [asyncio.create_task(wait(index)) for index in range(4)]
    await settle()
    assert (stile.waiting, order) == (4, [])
    stile.leave(holder)
    async with asyncio.timeout(1):
        await asyncio.gather(*tasks)
    assert order == [2, 3, 0, 1]
    assert holder.cut.codes == []  # type: ignore[attr-defined]


async def test_preempt_cuts_a_normal_holder_for_an_urgent_task_only() -> None:
    stile, holder = Turnstile("preempt"), turn()
    await stile.enter(holder)
    normal = asyncio.create_task(stile.enter(turn()))
    await settle()
    assert holder.cut.codes == []  # type: ignore[attr-defined]
    urgent = turn(urgent=True)
    entering = asyncio.create_task(stile.enter(urgent))
    await settle()
    assert holder.cut.codes == [ErrorCode.PREEMPTED]  # type: ignore[attr-defined]
    assert not entering.done(), "the robot is still moving"
    stile.leave(holder)
    async with asyncio.timeout(1):
        await entering
    another = asyncio.create_task(stile.enter(turn(urgent=True)))
    await settle()
    assert urgent.cut.codes == []  # type: ignore[attr-defined]
    for task in (normal, another):
        task.cancel()
    await asyncio.gather(normal, another, return_exceptions=True)
    assert stile.waiting == 0


async def test_reject_refuses_with_its_code() -> None:
    stile = Turnstile("reject")
    await stile.enter(turn())
    with pytest.raises(TaskEnded) as caught:
        await stile.enter(turn(urgent=True))
    assert caught.value.code == ErrorCode.ROBOT_BUSY


async def test_who_stops_waiting_is_forgotten() -> None:
    stile, holder = Turnstile(), turn()
    await stile.enter(holder)
    gone = asyncio.create_task(stile.enter(turn()))
    await settle()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    stile.leave(holder)
    assert not stile.busy


def test_an_unknown_policy_lists_the_known() -> None:
    with pytest.raises(InvalidInput, match="queue, preempt, reject"):
        Turnstile("shove")
