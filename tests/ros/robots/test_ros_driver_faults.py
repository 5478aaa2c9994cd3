"""Drivers of real robots when things go wrong: bad network, dead robot, low battery. In real time, over sockets."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from emulated_robots import BRISK, emulated_indy7, emulated_tello, own_host
from rclpy.lifecycle import TransitionCallbackReturn
from ros_harness import AT_ONCE_S, eventually
from timely_interfaces.msg import Task
from timely_robots.error_codes import ErrorCode
from timely_robots.indy7.link import Indy7Link
from timely_robots.registry import robot_class
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.spinner import isolated_ros_context
from timely_robots.segments import MotionError, SegmentOrder, SegmentResult

from timely.core.clock import SystemClock
from timely.emulators.network import EmulatedNetworkFaults

pytestmark = [pytest.mark.ros]

CLOCK = SystemClock(3.0)
"""Robots, emulators and drivers live three times as fast as usual. Times of journals are on this clock."""
fast_tello = partial(emulated_tello, speed=CLOCK.speed)
fast_indy7 = partial(emulated_indy7, speed=CLOCK.speed)
_hosts = (own_host(number) for number in itertools.count(101))


class Waiting:
    """Keeps the last word on one segment."""

    def __init__(self) -> None:
        self.done: SegmentResult | None = None
        self.began_s = 0.0

    def on_start(self) -> None:
        self.began_s = time.monotonic()

    def on_progress(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        assert 0.0 <= fraction <= 1.0

    def on_end(self, done: SegmentResult) -> None:
        self.done = done

    def result(self, timeout_s: float = 40.0) -> SegmentResult:
        done = eventually(lambda: self.done, "the segment never ended", timeout_s)
        assert isinstance(done, SegmentResult)
        return done


class Rig:
    """A driver at work, parameters segments directly: what goes wrong here is between it and its robot."""

    def __init__(self, driver: DriverNode, skill_set: str) -> None:
        self.driver = driver
        self._skill_set = skill_set
        self._tasks = itertools.count()

    @property
    def work(self) -> Any:
        assert self.driver._segment_executor is not None
        return self.driver._segment_executor

    def send(self, text: str, task: str = "", index: int = 0) -> Waiting:
        listener = Waiting()
        task = task or f"task{next(self._tasks)}"
        self.work.submit(SegmentOrder(task, index, text, self._skill_set, 1.0), listener)
        return listener

    def one(self, text: str) -> SegmentResult:
        return self.send(text).result()


@contextmanager
def at_work(kind: str, skill_set: str, domain_id: int, overrides: Mapping[str, Any]) -> Iterator[Rig]:
    context = isolated_ros_context(domain_id)
    driver = DriverNode(
        robot_class(kind)(clock=CLOCK), namespace="robot1", context=context, overrides=dict(overrides)
    )
    try:
        assert driver.trigger_configure() == TransitionCallbackReturn.SUCCESS, driver._fault
        assert driver.trigger_activate() == TransitionCallbackReturn.SUCCESS
        yield Rig(driver, skill_set)
    finally:
        driver.destroy_node()
        context.try_shutdown()


def drone_at_work(host: str, domain_id: int, **more: Any) -> Any:
    parameters = {"host": host, "command_port": 18889, "profile": "tello", "things": ["cat:0:200"], **more}
    return at_work("tello", "drone", domain_id, parameters)


def arm_at_work(host: str, domain_id: int, **more: Any) -> Any:
    parameters = {"host": host, "profile": "indy7", "things": ["cup:0.45,-0.1,0.1", "plate:0.4,0.2,0.1"]}
    return at_work("indy7", "arm", domain_id, {**parameters, "speed_percent": 10.0, **more})


def test_a_drone_that_dies_in_flight_is_a_lost_connection_and_may_come_back(domain_id: int) -> None:
    host = next(_hosts)
    with fast_tello(host) as first, drone_at_work(host, domain_id) as rig:
        assert rig.one("mf(20);").outcome == "done"
        moving = rig.send("mf(500);", "long")
        waiting = rig.send("mb(20);", "long", 1)
        eventually(lambda: any(r["command"] == "forward 500" for r in first.journal.records()))
        first.close()
        gone_s = time.monotonic()
        done = moving.result()
        assert (done.outcome, done.code) == ("failed", ErrorCode.CONNECTION_LOST)
        assert time.monotonic() - gone_s < 2.0 + AT_ONCE_S
        assert waiting.result().outcome == "cancelled"
        assert rig.one("mf(20);").code == ErrorCode.CONNECTION_LOST
        assert "nothing heard" in rig.driver.robot.status().detail
        with fast_tello(host) as second:
            eventually(lambda: "nothing heard" not in rig.driver.robot.status().detail)
            assert rig.one("mf(33);").outcome == "done"
            motions = [record["command"] for record in second.journal.records("motion")]
            assert motions == ["takeoff", "forward 33"]


def test_a_drone_that_was_switched_off_gets_its_speed_again_and_begins_anew(domain_id: int) -> None:
    host = next(_hosts)
    with fast_tello(host) as first, drone_at_work(host, domain_id, speed_cm_s=40) as rig:
        assert rig.one("mf(40);").outcome == "done"
        assert rig.one("tc(90);").outcome == "done"
        assert first.body.speed == pytest.approx(0.4)
        first.close()
        robot = rig.driver.robot
        eventually(lambda: robot.status().link_lost)
        with fast_tello(host) as second:
            eventually(lambda: not robot.status().link_lost)
            assert second.body.speed == pytest.approx(1.0)
            assert rig.one("mf(50);").outcome == "done"
            assert second.body.speed == pytest.approx(0.4)
            where = robot.here()
    assert (where.x, where.y, where.yaw) == pytest.approx((0.5, 0.0, 0.0), abs=0.02)


def test_a_drone_that_is_stopped_while_it_takes_off_is_at_rest_when_it_hovers(domain_id: int) -> None:
    physics = replace(BRISK, takeoff_s=4.5)
    with (
        fast_tello(next(_hosts), physics=physics) as drone,
        drone_at_work(drone.address[0], domain_id) as rig,
    ):
        moving = rig.send("mf(20);")
        eventually(lambda: drone.body.motion is not None, "it never began")
        rig.work.stop()
        assert moving.result().code == ErrorCode.DRIVER_STOPPED
        robot = rig.driver.robot
        assert not robot.status().at_rest
        eventually(lambda: robot.status().at_rest)
        assert drone.body.pose.z == pytest.approx(physics.takeoff_m), "it rises"
        assert not robot.status().fault
        rig.work.reset()
        assert rig.one("mf(20);").outcome == "done"
        assert [r["command"] for r in drone.journal.records("motion")] == ["takeoff", "forward 20"]


def test_below_its_reserve_it_does_not_take_off(domain_id: int) -> None:
    with fast_tello(next(_hosts), battery=15.0) as drone:
        with drone_at_work(drone.address[0], domain_id, battery_reserve=0.2) as rig:
            done = rig.one("mf(100);")
            assert (done.outcome, done.code) == ("failed", ErrorCode.MOTION_FAILED)
            assert "battery at 15%" in done.message
        assert drone.journal.records("motion") == []


def test_a_geofence_holds_before_anything_is_sent(domain_id: int, tmp_path: Path) -> None:
    profile = tmp_path / "caged.yaml"
    profile.write_text("name: caged\nextends: tello\ngeofence: {radius_m: 1.0}\n")
    with fast_tello(next(_hosts)) as drone:
        with drone_at_work(drone.address[0], domain_id, profile=str(profile)) as rig:
            assert rig.one("mf(60);").outcome == "done"
            assert rig.one("mf(60);").code == ErrorCode.OUT_OF_LIMITS
            assert rig.one("tc(180);").outcome == "done"
            assert rig.one("mf(60);").outcome == "done", "home again"
        expected = ["takeoff", "forward 60", "cw 180", "forward 60", "land"]

        def flown() -> list[str]:
            return [str(record["command"]) for record in drone.journal.records("motion")]

        # A motion is in the journal when it is over; the landing goes on while the driver is taken down.
        eventually(lambda: len(flown()) >= len(expected), f"flown: {flown()}", timeout_s=30.0)
        assert flown() == expected


def test_a_drone_that_leaves_its_fence_on_its_way_is_stopped(domain_id: int, tmp_path: Path) -> None:
    profile = tmp_path / "low.yaml"
    profile.write_text("name: low\nextends: tello\ngeofence: {radius_m: 9.0, z_m: [0, 2]}\n")
    with (
        fast_tello(next(_hosts)) as drone,
        drone_at_work(drone.address[0], domain_id, profile=str(profile)) as rig,
    ):
        assert rig.one("mf(20);").outcome == "done"
        moving = rig.send("mf(500);")
        motion = eventually(lambda: drone.body.motion, "it never began")
        motion.origin.z = 3.0  # a gust
        done = moving.result()
        assert (done.outcome, done.code) == ("failed", ErrorCode.OUT_OF_LIMITS)
        assert "left the geofence on its way" in done.message
        eventually(lambda: drone.journal.records("motion")[-1]["outcome"] == "stopped")


def test_a_stop_reaches_the_drone_at_once_and_again_if_it_is_lost(domain_id: int) -> None:
    faults = EmulatedNetworkFaults(loss=0.2)
    with fast_tello(next(_hosts), faults=faults, seed=5) as drone:
        with drone_at_work(drone.address[0], domain_id) as rig:
            delays = []
            for _ in range(2):
                moving = rig.send("mf(500);")
                begun = len(drone.journal.records("motion"))
                eventually(lambda: drone.body.motion is not None or moving.done, timeout_s=40.0)  # noqa: B023
                if moving.done is None:
                    asked_s = CLOCK.now()
                    rig.work.stop()
                    assert moving.result().code == ErrorCode.DRIVER_STOPPED
                    cut = eventually(lambda: drone.journal.records("motion")[begun:], "it flies on")  # noqa: B023
                    delays.append((cut[-1]["end_s"] - asked_s) / CLOCK.speed)
                    rig.work.reset()
                assert rig.one("d(0.7);").outcome == "done"
        # At 20% loss half a dozen repetitions get through in any case; most need none.
        assert delays
        assert max(delays) < AT_ONCE_S


def test_an_arm_whose_controller_comes_back_is_there_at_once(domain_id: int) -> None:
    """A channel of gRPC waits longer after each attempt, so the link connects with new ones."""
    host = next(_hosts)
    with fast_indy7(host) as first, arm_at_work(host, domain_id, call_timeout_s=0.2) as rig:
        robot = rig.driver.robot
        channels = robot._link._arm
        first.close()
        eventually(lambda: robot._link._arm is not channels, "it waits in its old channels")
        assert robot.status().link_lost
        with fast_indy7(host):
            eventually(lambda: not robot.status().link_lost)
            assert rig.one("home();").outcome == "done"


def test_an_arm_stops_at_once_and_brakes(domain_id: int) -> None:
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id) as rig:
        delays = []
        for _ in range(3):
            moving = rig.send("move_to('plate');")
            eventually(lambda: arm.look().motion is not None)
            CLOCK.wait(threading.Event(), 0.1)  # so that there is some speed to lose
            asked_s = CLOCK.now()
            rig.work.stop()
            assert moving.result().code == ErrorCode.DRIVER_STOPPED
            eventually(lambda: arm.look().motion is None)
            stops_s = [r["t_s"] for r in arm.journal.records("command") if r["command"] == "StopMotion"]
            delays.append((next(t_s for t_s in stops_s if t_s >= asked_s) - asked_s) / CLOCK.speed)
            rig.work.reset()
        assert min(delays) < 0.1
        assert max(delays) < AT_ONCE_S
        assert [r["outcome"] for r in arm.journal.records("motion")][-3:] == ["stopped"] * 3
        assert rig.one("home();").outcome == "done"


def test_an_arm_keeps_to_its_fence(domain_id: int, tmp_path: Path) -> None:
    profile = tmp_path / "caged.yaml"
    profile.write_text("name: caged\nextends: indy7\ngeofence: {z_m: [0, 0.12]}\n")
    with (
        fast_indy7(next(_hosts)) as arm,
        arm_at_work(arm.host, domain_id, profile=str(profile)) as rig,
    ):
        done = rig.one("move_to('cup');")
        assert (done.outcome, done.code) == ("failed", ErrorCode.OUT_OF_LIMITS)
        assert not [r for r in arm.journal.records("command") if "Move" in r["command"]], "it was sent"


def test_an_arm_that_dies_in_motion_is_a_lost_connection_and_may_come_back(domain_id: int) -> None:
    host = next(_hosts)
    with fast_indy7(host) as first, arm_at_work(host, domain_id) as rig:
        moving = rig.send("pick('cup');")
        eventually(lambda: first.look().motion is not None)
        first.close()
        done = moving.result(10.0)
        assert (done.outcome, done.code) == ("failed", ErrorCode.CONNECTION_LOST)
        # The motion may notice it before the next look at the arm does.
        eventually(lambda: "does not answer" in rig.driver.robot.status().detail, timeout_s=30.0)
        with fast_indy7(host) as second:
            eventually(lambda: "does not answer" not in rig.driver.robot.status().detail, timeout_s=30.0)
            assert rig.one("home();").outcome == "done"
            assert [r["command"] for r in second.journal.records("command") if "Move" in r["command"]] == [
                "MoveJ(0,-15,-90,0,-75,0 v=10 a=100)"
            ]


def test_an_arm_takes_and_puts_what_it_was_told_of_and_refuses_the_rest(domain_id: int) -> None:
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id) as rig:
        for text in ["pick('cup');", "place('plate');"]:
            assert rig.one(text).outcome == "done", text
        gripped = [r["command"] for r in arm.journal.records("command") if r["command"].startswith("SetDO")]
        assert gripped == ["SetDO(0=1)", "SetDO(0=0)"]
        assert rig.driver.robot._table.places["cup"] == pytest.approx((0.4, 0.2, 0.14))
        for text in ["pick('ghost');", "place('plate');"]:
            done = rig.one(text)
            assert (done.outcome, done.code) == ("failed", ErrorCode.MOTION_FAILED), text
        assert rig.one("look('plate');").value == "cup, plate"


@pytest.mark.parametrize("comes_through", [True, False])
def test_an_arm_whose_gripper_answers_late_knows_what_it_holds(
    domain_id: int, monkeypatch: pytest.MonkeyPatch, comes_through: bool
) -> None:
    back = threading.Event()
    # Long enough that no call before the gripper's is late on a busy machine.
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id, call_timeout_s=3.0) as rig:
        vendor, robot = rig.driver.robot._link._arm, rig.driver.robot
        set_do = vendor.set_do

        def answer_late(signals: Any) -> Any:
            answer = set_do(signals) if comes_through else {}
            assert back.wait(40.0)
            return answer

        with monkeypatch.context() as slow:
            slow.setattr(vendor, "set_do", answer_late)
            done = rig.one("pick('cup');")
        assert (done.outcome, done.code) == ("failed", ErrorCode.CONNECTION_LOST)
        done = rig.one("place('plate');")
        assert (done.code, done.message) == (ErrorCode.CONNECTION_LOST, "the gripper has not answered")
        back.set()
        placed = rig.one("place('plate');")
        assert placed.outcome == ("done" if comes_through else "failed"), placed.message
        picked = rig.one("pick('cup');")
        assert picked.outcome == "done", picked.message
        assert robot.status().holding == "cup"


def test_an_arm_that_is_stopped_on_its_way_up_knows_what_it_holds(domain_id: int) -> None:
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id, speed_percent=100.0) as rig:

        def stop_after(text: str, command: str) -> None:
            moving = rig.send(text)
            eventually(lambda: [r for r in arm.journal.records("command") if r["command"] == command])
            rig.work.stop()
            assert moving.result().code == ErrorCode.DRIVER_STOPPED
            rig.work.reset()

        stop_after("pick('cup');", "SetDO(0=1)")
        assert rig.driver.robot.status().holding == "cup"
        stop_after("place('plate');", "SetDO(0=0)")
        assert rig.driver.robot.status().holding == ""
        assert rig.driver.robot._table.places["cup"] == pytest.approx((0.4, 0.2, 0.14))


def test_an_arm_begins_no_further_way_of_a_skill_whose_task_has_ended(domain_id: int) -> None:
    """As after a pause of the driver's process, when the bridge's messages have not been received yet."""
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id) as rig:
        moving = rig.send("pick('cup');", "task")
        eventually(lambda: arm.look().motion is not None)
        rig.driver._watchdog.observe("task", Task.ENDED, 1, time.monotonic())
        assert moving.result().code == ErrorCode.SEGMENT_CANCELLED
        ways = [r["command"] for r in arm.journal.records("command") if "Move" in r["command"]]
        assert len(ways) == 1, "over the cup, and not down to it"


def test_an_arm_whose_controller_begins_late_is_waited_for(
    domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id) as rig:
        link = rig.driver.robot._link
        moving, move_line, sent_s = link.moving, link.move_line, [math.inf]

        def send(*way: Any) -> None:
            move_line(*way)
            sent_s[0] = CLOCK.now()

        monkeypatch.setattr(link, "move_line", send)
        monkeypatch.setattr(
            link, "moving", lambda **late: moving(**late) and not 0.0 <= CLOCK.now() - sent_s[0] < 0.3
        )
        assert rig.one("move_to('plate');").outcome == "done"


def test_a_motion_of_an_arm_that_failed_does_not_go_on(
    domain_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller says nothing of a motion that it has begun."""
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id, speed_percent=1.0) as rig:
        link = rig.driver.robot._link
        monkeypatch.setattr(link, "moving", lambda **late: False)
        done = rig.one("move_to('plate');")
        assert (done.outcome, done.code) == ("failed", ErrorCode.MOTION_FAILED)
        monkeypatch.undo()
        eventually(lambda: arm.look().motion is None, "it moves on")
        assert [r["outcome"] for r in arm.journal.records("motion")] == ["stopped"]


def test_an_arm_in_a_collision_is_a_fault_and_moves_no_more_until_a_person_has_ended_it(
    domain_id: int,
) -> None:
    with fast_indy7(next(_hosts)) as arm, arm_at_work(arm.host, domain_id) as rig:
        robot = rig.driver.robot
        moving = rig.send("pick('cup');")
        eventually(lambda: arm.look().motion is not None)
        arm.body.trip(8)
        done = moving.result()
        assert (done.outcome, done.code) == ("failed", ErrorCode.FAILSAFE)
        assert "collision" in done.message
        eventually(lambda: "collision" in robot.status().fault)
        commands = len(arm.journal.records("command"))
        for text in ("home();", "open();"):
            assert rig.one(text).code == ErrorCode.FAILSAFE
        assert not [r for r in arm.journal.records("command")[commands:] if r["command"] != "StopMotion"]
        arm.body.trip(0)
        eventually(lambda: not robot.status().fault)
        assert rig.one("home();").outcome == "done"


def test_an_arm_has_one_driver_on_a_machine(domain_id: int) -> None:
    with fast_indy7(next(_hosts)) as arm:
        with arm_at_work(arm.host, domain_id):
            second = Indy7Link(arm.host, 1.0, CLOCK)
            with pytest.raises(MotionError, match="another driver"):
                second.open(5.0)
        third = Indy7Link(arm.host, 1.0, CLOCK)
        third.open(5.0)
        third.close()
