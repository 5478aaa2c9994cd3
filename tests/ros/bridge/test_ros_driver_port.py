"""A bridge that was started again finds its segments at the driver, over ROS 2."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rclpy.lifecycle import LifecycleNode
from ros_harness import LIMIT_S, eventually
from timely_bridge import driver_port
from timely_bridge.driver_port import CHECK_PERIOD_S, BridgeDriverPort
from timely_bridge.interfaces import BridgeSegment
from timely_bridge.loop_thread import BridgeLoopThread
from timely_bridge.robot_lease import BridgeRobotLease
from timely_interfaces.msg import ErrorCode, RobotState
from timely_robots.robot import RobotStatus
from timely_robots.ros.actions import new_ros_goal_id
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.sim.robot import SimRobot

from timely.client import Segment
from timely.plans.skill_library import find_skill_set

pytestmark = [pytest.mark.ros, pytest.mark.timeout(60)]


class Life:
    """A life of the bridge, as far as its driver sees it."""

    robot: SimRobot

    def __init__(self, domain_id: int) -> None:
        self.loop = BridgeLoopThread("loop")
        context = isolated_ros_context(domain_id)
        self.node = LifecycleNode("bridge", context=context)
        self.port = BridgeDriverPort(
            self.node, self.loop, "drone1", LIMIT_S, BridgeRobotLease(self.node, "drone1", "driver", "bridge")
        )
        self.node.create_timer(CHECK_PERIOD_S, self.port.check)
        self.spinner = RosSpinner(context, [self.node], name="bridge").start()
        self.announced: list[int] = []
        eventually(lambda: self.port.alive, "no lease")

    def send(
        self, index: int, text: str, *, again: bool = False, fingerprint: str = "", task: str = "t1"
    ) -> BridgeSegment:
        segment = Segment(task, index, text, (), 4, 0.0, 1.0, 0.0, skill_set_fingerprint=fingerprint)

        async def send() -> BridgeSegment:
            sent = BridgeSegment(segment, "drone", lambda: self.announced.append(index), again)

            async def plan() -> AsyncIterator[Segment]:
                yield segment

            async def admit(segment: Segment) -> BridgeSegment:
                return sent

            await self.port.forward(plan(), admit)
            return sent

        return self.loop.submit(send()).result(LIMIT_S)

    def close(self) -> None:
        assert self.spinner.close()
        assert self.loop.close()


@pytest.fixture
def lives(domain_id: int) -> Iterator[list[Life]]:
    context = isolated_ros_context(domain_id)
    settings = {"profile": "sim-drone", "skill_set": "drone", "times": "expected"}
    patience = {"lease_lapse_s": 2.0 * LIMIT_S, "task_silence_s": 2.0 * LIMIT_S}
    robot = SimRobot()
    driver = DriverNode(
        robot, namespace="drone1", context=context, overrides={**settings, **patience, "autostart": True}
    )
    spinner = RosSpinner(context, [driver], name="driver").start()
    made = [Life(domain_id)]
    made[0].robot = robot
    yield made
    for life in made:
        life.close()
    assert spinner.close()


def test_segments_of_an_earlier_life_are_followed_and_never_repeated(
    lives: list[Life], domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lives[0]
    with monkeypatch.context() as patch:
        # The driver keeps no result under the id by which the second life requests it.
        patch.setattr(driver_port, "bridge_segment_goal_id", lambda task_id, index: new_ros_goal_id())
        sent = [first.send(0, "d(0.1);")]
    sent += [first.send(1, "d(60);"), first.send(2, "mb(20);")]
    eventually(sent[1].started.done, "the second segment never began")
    first.port.lease._closed = True  # a killed process gives no lease back
    lives.append(second := Life(domain_id))
    assert second.port.lease.epoch == first.port.lease.epoch, "the lease goes on"
    again = [
        second.send(index, text, again=True)
        for index, text in enumerate(["d(0.1);", "d(60);", "mb(20);", "mu(20);"])
    ]
    eventually(again[0].ended.done, "its end is unknown")
    assert again[0].ended.result().outcome == "done", "its result is not kept, and it was executed"
    eventually(again[1].started.done, "it is not seen in motion")
    assert not again[2].started.done()
    eventually(lambda: 3 in second.announced, "the new segment was not sent")
    assert 1 not in second.announced
    assert 2 not in second.announced
    second.port.cancel_task("t1")
    eventually(lambda: all(one.ended.done() for one in again), "the task goes on")
    ends = [(one.ended.result().outcome, one.ended.result().code) for one in again[1:]]
    assert ends == [("cancelled", ErrorCode.SEGMENT_CANCELLED)] * 3


def test_a_robot_whose_link_is_lost_gets_no_segment_until_it_is_back(
    lives: list[Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted controller is back within seconds, and tasks failed in them. A stopped robot says that it is."""
    port, robot = lives[0].port, lives[0].robot
    with monkeypatch.context() as patch:
        patch.setattr(robot, "status", lambda: RobotStatus(link_lost=True, detail="no answer"))
        eventually(lambda: port.refusal is not None, "the link is not seen to be lost")
        assert port.refusal is not None
        assert (port.alive, port.refusal.code) == (False, ErrorCode.CONNECTION_LOST)
        assert port.refusal.message == "the link to the robot is lost: no answer"
        stopped: Any = SimpleNamespace(state=RobotState(mode=RobotState.STOPPED, detail=port.refusal.message))
        link_lost: Any = BridgeDriverPort._link_lost
        assert link_lost.fget(stopped) == "", "the driver says itself that it is stopped"
    eventually(lambda: port.alive, "it stays without a link")
    assert port.refusal is None


def test_segments_that_the_driver_does_not_know_are_sent_in_order(
    lives: list[Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer for the first may be lost: the driver did not know yet where to send it."""
    port, ask, lost = lives[0].port, lives[0].port._ask, list[int]()

    def lose_first(sent_segment: BridgeSegment, mine: driver_port._BridgeSegmentGoal) -> None:
        if not lost:
            lost.append(sent_segment.segment.index)
        else:
            ask(sent_segment, mine)

    monkeypatch.setattr(port, "_ask", lose_first)
    sent = [lives[0].send(index, "d(0.1);", again=True) for index in range(3)]
    eventually(lambda: all(one.ended.done() for one in sent), "a segment has no end")
    assert [one.ended.result().outcome for one in sent] == ["done"] * 3, sent[1].ended.result().message
    assert lost == [0]


def test_a_robot_with_two_drivers_of_its_name_gets_no_segments(lives: list[Life], domain_id: int) -> None:
    """Both would make the same motions."""
    port = lives[0].port
    sent = lives[0].send(0, "d(60);")
    eventually(sent.started.done, "it never began")
    port._silence_s = 2.0
    context = isolated_ros_context(domain_id)
    settings = {"profile": "sim-drone", "skill_set": "drone", "autostart": True}
    other = DriverNode(SimRobot(), namespace="drone1", context=context, overrides=settings)
    spinner = RosSpinner(context, [other], name="other driver").start()
    eventually(lambda: port.refusal is not None and not port.alive, "it sends to both")
    assert port.refusal is not None
    assert "two drivers have the name drone1" in port.refusal.message
    assert sent.ended.result().code == ErrorCode.DRIVER_LOST
    assert spinner.close()
    eventually(lambda: port.alive, "it stays without a driver")


def test_the_fingerprint_of_a_segment_reaches_its_driver(lives: list[Life]) -> None:
    own = find_skill_set("drone").fingerprint
    same = lives[0].send(0, "d(0.1);", fingerprint=own)
    other = lives[0].send(0, "d(0.1);", fingerprint="0123456789abcdef", task="t2")
    eventually(lambda: same.ended.done() and other.ended.done(), "a segment has no end")
    ends = [(one.ended.result().outcome, one.ended.result().code) for one in (same, other)]
    assert ends == [("done", ErrorCode.NONE), ("refused", ErrorCode.SKILL_SET_MISMATCH)]


def test_a_bridge_that_stood_still_hears_its_driver_before_it_gives_it_up(
    lives: list[Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life, ahead_s = lives[0], [0.0]
    port, sent = life.port, life.send(0, "d(60);")
    eventually(sent.started.done, "it never began")
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr(driver_port, "time", clock)

    def look(after_s: float, looks: int) -> None:
        """On the executor's thread, so that no state is received meanwhile."""
        for _ in range(looks):
            ahead_s[0] += after_s
            port.check()

    life.spinner.call_and_wait(lambda: look(0.0, 1), LIMIT_S)
    life.spinner.call_and_wait(lambda: look(3.0 * LIMIT_S, 1), LIMIT_S)
    assert port.present
    assert not life.loop.submit(_is_done(sent)).result(LIMIT_S)
    life.spinner.call_and_wait(lambda: look(CHECK_PERIOD_S, int(LIMIT_S / CHECK_PERIOD_S) + 5), LIMIT_S)
    assert not life.port.present
    eventually(sent.ended.done, "a driver that is silent is not given up")
    assert sent.ended.result().code == ErrorCode.DRIVER_LOST


async def _is_done(sent: BridgeSegment) -> bool:
    return sent.ended.done()


def test_a_driver_that_comes_in_time_is_there_after_a_pause_of_the_bridge(
    lives: list[Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lives[0]
    loop, now, epoch = life.loop.loop, life.loop.loop.time, life.port.lease.epoch
    ahead_s, waiting = [0.0], 20.0

    async def wait() -> bool:
        life.port.lease.epoch = 0
        ready = asyncio.ensure_future(life.port.ready(waiting))
        await asyncio.sleep(0)
        ahead_s[0] += 2.0 * waiting  # the process stood still
        await asyncio.sleep(0)
        life.port.lease.epoch = epoch
        return await ready

    monkeypatch.setattr(loop, "time", lambda: now() + ahead_s[0])
    assert life.loop.submit(wait()).result(LIMIT_S)
