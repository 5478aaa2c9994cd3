"""The stop of the vendors' links: repeated until the robot is observed at rest, a fault otherwise."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from manual_robot_clock import ManualRobotClock
from ros_harness import LIMIT_S, eventually
from timely_robots.clock import RobotClock
from timely_robots.detector import DronePose
from timely_robots.error_codes import ErrorCode
from timely_robots.indy7 import robot as indy7_robot
from timely_robots.indy7.link import Indy7Link
from timely_robots.indy7.robot import Indy7Robot
from timely_robots.segments import Motion, MotionError, SegmentOrder, SilentListener
from timely_robots.tello import robot as tello_robot
from timely_robots.tello.drone import TelloDrone
from timely_robots.tello.link import (
    HALT_BURST,
    HALT_BURST_S,
    KEEP_ALIVE_S,
    KEPT_ANSWERS,
    STATE_SILENCE_S,
    TICK_S,
    UNWATCHED_S,
    TelloLink,
)
from timely_robots.tello.robot import Flight, TelloRobot

from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import Geofence
from timely.core.clock import SystemClock

SPEED = 10.0


class Drone(TelloDrone):
    """A drone without a network; it moves until the ``deaf``-th stop."""

    def __init__(self, deaf: int) -> None:
        self.deaf, self.sent, self.yaw = deaf, list[str](), 0
        self.answers = []

    def send(self, text: str) -> None:
        self.sent.append(text)

    def new_state(self) -> dict[str, Any]:
        moving = self.sent.count("stop") <= self.deaf
        return {"vgx": 5 if moving else 0, "vgy": 0, "vgz": 0, "yaw": self.yaw, "h": 50, "bat": 80}

    def close(self) -> None:
        pass


def idle_motion(clock: RobotClock) -> Motion:
    """A motion that nothing follows."""
    return Motion(SegmentOrder("", 0, "", ""), SilentListener(), clock, 10.0 * LIMIT_S)


@pytest.fixture
def link_of() -> Iterator[Any]:
    links = []

    def make(deaf: int) -> tuple[TelloLink, Drone]:
        drone = Drone(deaf)
        links.append(TelloLink(drone, SystemClock(SPEED)))
        return links[-1], drone

    yield make
    for link in links:
        link.close()


def test_a_tellos_stop_is_sent_several_times_at_once() -> None:
    clock, drone = ManualRobotClock(), Drone(10**9)
    link = TelloLink(drone, clock)
    try:
        link.halt()
        assert drone.sent == ["stop"]
        for copies in range(1, HALT_BURST + 1):
            assert clock.until_waiting(2)
            clock.advance(HALT_BURST_S)
            eventually(lambda copies=copies: drone.sent.count("stop") == 1 + copies)  # type: ignore[misc]
    finally:
        link.close()


def test_a_tello_that_hears_the_third_stop_comes_to_rest(link_of: Any) -> None:
    link, drone = link_of(3)
    link.halt()
    eventually(lambda: not link.halting, "the stop is repeated for ever")
    assert drone.sent.count("stop") >= 4
    assert link.fault == ""


def test_a_tello_that_does_not_stop_is_a_fault_and_is_stopped_on(link_of: Any) -> None:
    link, drone = link_of(10**9)
    link.halt()
    eventually(lambda: link.fault, "it never said so")
    assert "not observed at rest" in link.fault
    before = drone.sent.count("stop")
    eventually(lambda: drone.sent.count("stop") > before + 2, "it gave up")
    drone.deaf = 0
    eventually(lambda: not link.halting and not link.fault)


def test_a_stop_that_the_network_refuses_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, drone, robot = ManualRobotClock(), Drone(10**9), TelloRobot()
    robot._link = link = TelloLink(drone, clock)

    def send(text: str) -> None:
        raise OSError("the network is unreachable")

    monkeypatch.setattr(drone, "send", send)
    try:
        with pytest.raises(MotionError, match="unreachable"):
            robot.halt()
        assert link.halting, "it is not repeated"
    finally:
        link.close()


@pytest.mark.parametrize(("command", "taken"), [("stop", True), ("forward 20", False)])
def test_a_stop_that_is_called_forced_is_one(command: str, taken: bool, link_of: Any) -> None:
    link, drone = link_of(-1)

    def wait(seconds: float) -> None:
        drone.answers.append(b"forced stop\r\n")

    assert link.insist(command, 2.0, wait) == taken


def test_a_drone_whose_driver_hangs_is_not_kept_in_the_air() -> None:
    """Its failsafe hangs, too; without a command the drone lands by itself."""
    clock, drone, robot = ManualRobotClock(), Drone(-1), TelloRobot()
    robot.clock, robot._link = clock, (link := TelloLink(drone, clock))
    robot._north, robot._ground_m, robot._where = 0, 0.0, DronePose()
    drone.answers += [b"80"] * 1000

    def live(seconds: float, *, watched: bool) -> int:
        """How often the drone is kept in the air meanwhile."""
        before = drone.sent.count("battery?")
        for _ in range(round(seconds / TICK_S)):
            if watched:
                robot.status()
            clock.advance(TICK_S)
            assert clock.until_waiting()
        return drone.sent.count("battery?") - before

    try:
        assert live(4.0 * KEEP_ALIVE_S, watched=True) >= 3
        assert len(drone.answers) <= KEPT_ANSWERS
        live(UNWATCHED_S, watched=False)
        assert live(4.0 * KEEP_ALIVE_S, watched=False) == 0
        assert live(2.0 * KEEP_ALIVE_S, watched=True) >= 1
    finally:
        link.close()


class LowDrone(Drone):
    """A drone that hovers at ``height_cm`` above the place of its takeoff, until it is told to land."""

    def __init__(self, clock: SystemClock, height_cm: int = 0) -> None:
        super().__init__(-1)
        self._clock, self._height_cm, self._motors = clock, height_cm, 10.0

    def new_state(self) -> dict[str, Any]:
        is_up = "land" not in self.sent
        self._motors = self._clock.now() if is_up else self._motors
        return {**super().new_state(), "h": self._height_cm if is_up else 0, "time": int(self._motors)}


@pytest.fixture
def low_robot() -> Iterator[tuple[TelloRobot, LowDrone]]:
    clock, robot = SystemClock(SPEED), TelloRobot()
    drone = LowDrone(clock)
    robot.clock, robot._link = clock, (link := TelloLink(drone, clock))
    robot._north, robot._ground_m, robot._where = 0, 0.0, DronePose()
    eventually(lambda: link.motors_run, "its state never came")
    yield robot, drone
    link.close()


def test_a_drone_that_hovers_as_high_as_it_took_off_is_in_the_air(
    low_robot: tuple[TelloRobot, LowDrone],
) -> None:
    robot, drone = low_robot
    link, motion = cast(TelloLink, robot._link), idle_motion(robot.clock)
    assert robot.status().away
    assert robot._is_in_air(link, motion), "it would take off again"
    robot.failsafe("land", motion)
    assert "land" in drone.sent
    assert not robot.status().away
    assert not robot._is_in_air(link, motion)


def test_a_drone_below_the_place_of_its_takeoff_flies() -> None:
    clock = SystemClock(SPEED)
    link = TelloLink(LowDrone(clock, height_cm=-60), clock)
    try:
        eventually(lambda: link.flying)
    finally:
        link.close()


@pytest.mark.parametrize("silent", [False, True])
def test_a_drone_that_is_let_go_of_is_told_to_land(
    low_robot: tuple[TelloRobot, LowDrone], silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot, drone = low_robot
    if silent:
        monkeypatch.setattr(drone, "new_state", dict)
        eventually(lambda: robot.status().link_lost)
    robot.disconnect()
    assert "land" in drone.sent


class Arm:
    """The part of the vendor's client that the link uses; the first ``hung`` stops do not return."""

    def __init__(self, hung: int) -> None:
        self.stops, self.moving = 0, True
        self._hung, self.release = hung, threading.Event()

    def stop_motion(self) -> None:
        self.stops += 1
        if self.stops <= self._hung:
            self.release.wait(LIMIT_S)
        else:
            self.moving = False

    def get_robot_data(self) -> dict[str, list[float]]:
        return {"p": [350.0, 0.0, math.nan, 180.0, 0.0, 180.0], "q": [0.0, math.nan]}

    def get_motion_data(self) -> dict[str, bool]:
        return {"is_in_motion": self.moving, "has_motion": False}


def arm_link(arm: Arm) -> Indy7Link:
    link = Indy7Link("127.0.0.1", 1.0, SystemClock(SPEED))
    link._arm = arm
    return link


def test_a_stop_of_an_arm_that_hangs_delays_no_other() -> None:
    arm = Arm(hung=2)
    link = arm_link(arm)
    try:
        link.halt()
        eventually(lambda: not link.halting, "the hung stop held up the others")
        assert arm.stops >= 3
        assert link.at_rest
    finally:
        arm.release.set()
        link._arm = None
        link.close()


def test_an_arm_begins_nothing_while_a_stop_is_on_its_way() -> None:
    """Its controller would take the late stop for one of the new motion."""
    arm, robot = Arm(hung=1), Indy7Robot()
    link = arm_link(arm)
    robot.clock = ManualRobotClock()
    motion = idle_motion(robot.clock)
    settled = threading.Event()

    def settle() -> None:
        robot._settle(link, motion)
        settled.set()

    thread = threading.Thread(target=settle, daemon=True)
    try:
        link.halt()
        eventually(lambda: not link.halting and not arm.moving)
        thread.start()
        assert robot.clock.until_waiting()
        assert not settled.is_set()
        arm.release.set()
        eventually(lambda: not link.stops_pending)
        robot.clock.advance(1.0)
        assert settled.wait(LIMIT_S)
    finally:
        arm.release.set()
        link._arm = None
        link.close()
        thread.join(LIMIT_S)


def test_an_arm_is_not_at_rest_while_its_stop_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    arm, seen = Arm(hung=0), list[tuple[bool, bool]]()
    link = arm_link(arm)
    stop = arm.stop_motion

    def stop_motion() -> None:
        seen.append((link.halting, link.at_rest))
        stop()

    monkeypatch.setattr(arm, "stop_motion", stop_motion)
    try:
        link.at_rest = True
        link.halt()
        assert eventually(lambda: seen)[0] == (True, False)
        eventually(lambda: link.at_rest, "it never came to rest")
    finally:
        link._arm = None
        link.close()


def test_an_arm_that_does_not_stop_is_a_fault() -> None:
    arm = Arm(hung=10**9)
    link = arm_link(arm)
    try:
        link.halt()
        eventually(lambda: link.fault, "it never said so")
        assert not link.at_rest
        assert link.halting
    finally:
        arm.release.set()
        link._arm = None
        link.close()


@pytest.mark.parametrize("failure", ["refused", "broken", "hung"])
def test_a_stop_that_an_arm_does_not_take_is_no_success(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm, robot = Arm(hung=10**9), Indy7Robot()
    robot._link = link = arm_link(arm)

    def stop_motion() -> dict[str, Any]:
        if failure == "broken":
            raise RuntimeError("the channel is closed")
        return {"code": -1, "msg": "no"}

    if failure == "hung":
        monkeypatch.setattr(indy7_robot, "STOP_ANSWER_S", 0.001)
    else:
        monkeypatch.setattr(indy7_robot, "STOP_ANSWER_S", LIMIT_S)
        monkeypatch.setattr(arm, "stop_motion", stop_motion)
    try:
        with pytest.raises(MotionError, match="StopMotion"):
            robot.halt()
        assert link.halting, "it is not repeated"
    finally:
        arm.release.set()
        link._arm = None
        link.close()


def test_an_arm_that_does_not_know_its_place_is_a_lost_link() -> None:
    arm = Arm(hung=0)
    link = arm_link(arm)
    try:
        for read in (link.read_pose, link.read_joints):
            link.complaint, stops = "", arm.stops
            with pytest.raises(MotionError, match="where the arm is"):
                read()
            assert link.complaint
            eventually(lambda stops=stops: arm.stops > stops, "it is not stopped")  # type: ignore[misc]
    finally:
        link._arm = None
        link.close()


def test_a_pause_of_the_driver_is_no_silence_of_its_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    class PausedCall(Future[dict[str, bool]]):
        """The process stands still while the answer is waited for."""

        paused = False

        def result(self, timeout: float | None = None) -> dict[str, bool]:
            if not self.paused:
                self.paused = True
                self.set_result(arm.get_motion_data())
                raise TimeoutError
            return super().result(timeout)

    arm = Arm(hung=0)
    link = arm_link(arm)
    monkeypatch.setattr(link._calls, "submit", lambda *_: PausedCall())
    try:
        assert link.moving()
        assert not link.complaint
    finally:
        link._arm = None
        link.close()


def test_a_call_that_is_given_up_is_never_made() -> None:
    """An arm must not begin a motion when its controller is back."""
    arm, made, release = Arm(hung=0), list[str](), threading.Event()
    link = Indy7Link("127.0.0.1", 0.1, SystemClock(SPEED))
    link._arm = arm
    try:
        hung = [link._calls.submit(release.wait, LIMIT_S) for _ in range(link._calls._max_workers)]
        with pytest.raises(MotionError, match="does not answer"):
            link._call(lambda _: made.append("moved"), halt_when_late=False)
        release.set()
        assert all(one.result(LIMIT_S) for one in hung)
        assert link.moving(halt_when_late=False)
        assert made == []
    finally:
        link._arm = None
        link.close()


@pytest.mark.parametrize("error", [KeyError("is_in_motion"), TypeError("a new version")])
def test_a_stop_of_an_arm_is_repeated_whatever_its_library_raises(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        if not arm.stops > 3:
            raise error
        return {"is_in_motion": False, "has_motion": False}  # type: ignore[return-value]

    arm = Arm(hung=0)
    link = arm_link(arm)
    monkeypatch.setattr(arm, "get_motion_data", broken)
    try:
        link.halt()
        eventually(lambda: not link.halting, "the stop is repeated no more")
        assert arm.stops > 3
    finally:
        link._arm = None
        link.close()


class TimedDrone(Drone):
    """It flies forward from 0.3 to 2 s after the command, in virtual time. Its answer and some states are lost."""

    LOST = (1.9, 2.0, 2.1, 2.8, 2.9, 3.0)
    """Packets that do not arrive, seconds after the command."""

    def __init__(self, clock: ManualRobotClock) -> None:
        super().__init__(0)
        self.clock, self.begin_s, self._packet = clock, math.inf, 0
        self.dies_s = math.inf
        """It is never heard again so long after the command, seconds."""
        self.jammed = threading.Event()
        """While it is set, no state is received."""

    def send(self, text: str) -> None:
        super().send(text)
        if text.startswith("forward"):
            self.begin_s = self.clock.now()

    def new_state(self) -> dict[str, Any]:
        since_s = round(self.clock.now() - self.begin_s, 3)
        packet = int(self.clock.now() / 0.1 + 1e-6)
        if packet == self._packet or self.jammed.is_set():
            return {}
        self._packet = packet
        if since_s > self.dies_s or any(abs(since_s - lost) < 0.05 for lost in self.LOST):
            return {}
        return {**super().new_state(), "vgx": 5 if 0.3 <= since_s < 2.0 else 0}


class Metre:
    """A driver that flies a ``TimedDrone`` a metre forward, in virtual time."""

    def __init__(self) -> None:
        self.clock, robot = ManualRobotClock(), TelloRobot()
        self.drone = TimedDrone(self.clock)
        robot.clock, robot._link = self.clock, (link := TelloLink(self.drone, self.clock))
        robot._north, robot._ground_m, robot._where = 0, 0.0, DronePose()
        robot.profile = load_robot_profile("tello")
        self.link, self._robot, self._ends = link, robot, list[float | MotionError]()
        self._advance(0.5, threads=1)
        self._thread = threading.Thread(target=self._fly)
        self._thread.start()
        assert self.clock.until_waiting(2)

    def _fly(self) -> None:
        motion = idle_motion(self.clock)
        try:
            assert self._robot._try(Flight("forward 100", 2.8, 0.7, (1.0, 0.0, 0.0)), self.link, motion)
            self._ends.append(self.clock.now() - self.drone.begin_s)
        except MotionError as error:
            self._ends.append(error)

    def _advance(self, seconds: float, threads: int = 2) -> None:
        for _ in range(round(seconds / 0.01)):
            self.clock.advance(0.01)
            eventually(lambda: self._ends or self.clock.until_waiting(threads, 0.01))

    def fly(self, until_s: float) -> None:
        self._advance(until_s + self.drone.begin_s - self.clock.now())

    def stand_still(self, seconds: float) -> None:
        """Let the driver's process neither run nor receive."""
        self.drone.jammed.set()
        self.clock.advance(seconds)
        assert self.clock.until_waiting(2)
        self.drone.jammed.clear()

    def end(self) -> float:
        """When the driver said that the motion is done, seconds after its begin."""
        while not self._ends:
            self._advance(0.01)
        if isinstance(self._ends[0], MotionError):
            raise self._ends[0]
        return self._ends[0]

    def close(self) -> None:
        while self._thread.is_alive():
            self._advance(0.1)
        self.link.close()


@pytest.fixture
def metre() -> Iterator[Metre]:
    with closing(Metre()) as made:
        yield made


def test_a_motion_whose_answer_is_lost_ends_soon_after_the_drone_came_to_rest(metre: Metre) -> None:
    assert 2.75 < metre.end() < 3.25


def test_a_drone_that_falls_silent_at_rest_has_not_ended_its_motion(metre: Metre) -> None:
    metre.drone.dies_s = 2.75
    with pytest.raises(MotionError, match="nothing is heard"):
        metre.end()


def test_a_driver_that_stood_still_hears_its_drone_before_it_gives_it_up(metre: Metre) -> None:
    metre.fly(1.0)
    metre.stand_still(1.5 * STATE_SILENCE_S)
    assert metre.end() > 1.5 * STATE_SILENCE_S


def test_a_command_is_permitted_right_before_it_is_sent(link_of: Any) -> None:
    """A wait comes before it, in which the driver's process may stand still and the task may end."""
    link, drone = link_of(0)
    steps: list[str] = []

    def permit() -> None:
        steps.append("permit")
        raise MotionError("its task has ended")

    with pytest.raises(MotionError, match="has ended"):
        link.begin("forward 100", lambda seconds: steps.append("wait"), permit)
    assert steps == ["wait", "permit"]
    assert "forward 100" not in drone.sent


def test_a_drone_that_may_have_flown_unseen_is_not_taken_for_one_that_never_began(metre: Metre) -> None:
    metre.fly(0.1)
    metre.stand_still(1.5 * STATE_SILENCE_S)
    with pytest.raises(MotionError, match="shows no sign of"):
        metre.end()


@pytest.mark.parametrize(("bounds", "inside"), [([-9, 1], True), ([2, 9], False)])
def test_a_fence_on_the_way_counts_from_where_the_drone_points(bounds: list[float], inside: bool) -> None:
    drone, robot = Drone(0), TelloRobot()
    drone.yaw = 90  # to the right, along -y
    robot._link = link = TelloLink(drone, SystemClock(SPEED))
    robot._north, robot._ground_m, robot._where = 0, 0.0, DronePose()
    fence = Geofence.model_validate({"x_m": [-1, 1], "y_m": bounds})
    robot.profile = load_robot_profile("tello").model_copy(update={"geofence": fence})
    forward = Flight("forward 300", 3.0, 2.0, (3.0, 0.0, 0.0))
    try:
        eventually(lambda: link.state.packets, "its state never came")
        if inside:
            robot._check_fence(forward, 3.0, link)
        else:
            with pytest.raises(MotionError, match="left the geofence"):
                robot._check_fence(forward, 3.0, link)
    finally:
        link.close()


def test_a_drone_whose_state_does_not_come_gets_the_order_to_land(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tello_robot, "LAND_S", SPEED * LIMIT_S)
    clock, drone, robot = SystemClock(SPEED), Drone(10**9), TelloRobot()
    robot.clock, robot._link = clock, (link := TelloLink(drone, clock))
    state = drone.new_state()
    try:
        eventually(lambda: link.flying, "its state never came")
        monkeypatch.setattr(drone, "new_state", lambda: {**state, "h": 0} if "land" in drone.sent else {})
        eventually(lambda: link.silent_s > STATE_SILENCE_S, "the link is not lost")
        link.halt()  # the first act of a failsafe
        robot.failsafe("land", idle_motion(clock))
        assert not link.flying
    finally:
        link.close()


@pytest.mark.parametrize(
    ("complaint", "code"),
    [("no answer", ErrorCode.CONNECTION_LOST), ("", ErrorCode.MOTION_TIMEOUT)],
)
def test_a_motion_behind_a_stop_without_effect_says_if_the_controller_is_silent(
    complaint: str, code: ErrorCode
) -> None:
    link: Any = SimpleNamespace(halting=True, stops_pending=False, complaint=complaint)
    motion: Any = SimpleNamespace(wait_for=lambda is_done, limit_s: is_done())
    with pytest.raises(MotionError) as refused:
        Indy7Robot()._settle(link, motion)
    assert refused.value.code == code
