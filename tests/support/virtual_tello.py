"""A Tello and its driver in virtual time: the emulator's body without sockets, so that no pause changes an outcome."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from emulated_robots import BRISK
from manual_robot_clock import ManualRobotClock
from timely_interfaces.msg import Task
from timely_robots import safety
from timely_robots.driver_store import DriverStore
from timely_robots.execution import SegmentExecutor
from timely_robots.failsafe import FailsafeMonitor
from timely_robots.lease import DriverLease
from timely_robots.segments import SegmentOrder, SegmentResult, SilentListener
from timely_robots.task_watchdog import RobotTaskWatchdog
from timely_robots.tello import link
from timely_robots.tello.drone import TelloDrone
from timely_robots.tello.robot import TelloRobot

from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import Failsafe
from timely.emulators.network import EmulatedNetworkFaults
from timely.emulators.tello import STATE_EVERY_S
from timely.emulators.tello_body import EmulatedTelloBody
from timely.emulators.tello_motions import TelloPhysics

STEP_S = 0.01
LIMIT_S = 60.0
"""Longest wait for the threads, in real time."""


def safety_guard(store: DriverStore, lease: DriverLease, watchdog: RobotTaskWatchdog) -> safety.SafetyGuard:
    """A guard without battery, proximity and failsafe of its own."""
    return safety.SafetyGuard(
        store,
        lease,
        watchdog,
        FailsafeMonitor(Failsafe()),
        safety.ProximityGate(0.0, 0.0),
        safety.Confirmation(1.0),
        safety.PauseGate(0.5),
        lambda: 1.0,
    )


class VirtualDrone(TelloDrone):
    """The emulator's drone, whose datagrams are lost, repeated and delayed in virtual time.

    Attributes:
        loses: whether a command is lost on its way, beside the network's faults.
        flown: commands of motions that have ended.
    """

    def __init__(
        self, clock: ManualRobotClock, physics: TelloPhysics, faults: EmulatedNetworkFaults, seed: int
    ) -> None:
        self._clock, self._faults = clock, faults
        self._rng = random.Random(f"network {seed}")
        self.body = EmulatedTelloBody(random.Random(f"body {seed}"), physics, now=clock.now())
        self.answers: list[bytes] = []
        self.loses: Callable[[str], bool] = lambda text: False
        self.flown: list[str] = []
        self._state: dict[str, Any] = {}
        self._state_due_s = clock.now()
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._datagrams: list[tuple[float, int, Callable[[], None]]] = []

    def send(self, text: str) -> None:
        if not self.loses(text):
            self._post(partial(self._hear, text))

    def send_late(self, after_s: float, *, answer: str = "", state: str = "") -> None:
        """Bring an answer or a state that was sent before to the driver, seconds from now."""

        def deliver() -> None:
            if answer:
                self.answers.append(answer.encode())
            else:
                self._receive_state(state)

        with self._lock:
            heapq.heappush(self._datagrams, (self._clock.now() + after_s, next(self._order), deliver))

    def new_state(self) -> dict[str, Any]:
        with self._lock:
            state, self._state = self._state, {}
            return state

    def close(self) -> None:
        """See ``TelloDrone``: there is nothing to close."""

    def step(self, now_s: float) -> None:
        """Fly until ``now_s``."""
        while self._datagrams and self._datagrams[0][0] <= now_s:
            when_s, _, deliver = heapq.heappop(self._datagrams)
            self._advance(when_s)
            deliver()
        self._advance(now_s)
        if now_s >= self._state_due_s and self.body.awake and not self.body.dead:
            self._state_due_s = now_s + STATE_EVERY_S
            self._post(partial(self._receive_state, self.body.state()))

    def _advance(self, now_s: float) -> None:
        self._finish(self.body.advance(now_s))

    def _finish(self, ends: list[Any]) -> None:
        for end in ends:
            self.flown.append(end.command)
            self._answer(end.reply)

    def _post(self, deliver: Callable[[], None]) -> None:
        with self._lock:
            for delay_s in self._faults.copies(self._rng):
                heapq.heappush(self._datagrams, (self._clock.now() + delay_s, next(self._order), deliver))

    def _hear(self, text: str) -> None:
        reply, _, ends = self.body.handle(text)
        self._finish(ends)
        self._answer(reply)

    def _answer(self, reply: str) -> None:
        if reply:
            self._post(partial(self.answers.append, reply.encode()))

    def _receive_state(self, text: str) -> None:
        fields = (field.split(":") for field in text.strip().rstrip(";").split(";"))
        with self._lock:
            self._state = {name: float(value) for name, value in fields}


class End(SilentListener):
    result: SegmentResult | None = None

    def on_end(self, result: SegmentResult) -> None:
        self.result = result


class VirtualTello:
    """A drone, its driver's robot and executor, and the driver's guard: a flight in virtual time."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        physics: TelloPhysics = BRISK,
        faults: EmulatedNetworkFaults | None = None,
        seed: int = 0,
        battery: float = 100.0,
        **settings: Any,
    ) -> None:
        self.clock = ManualRobotClock()
        self.drone = VirtualDrone(self.clock, physics, faults or EmulatedNetworkFaults(), seed)
        self.drone.body.battery = battery
        self.robot = TelloRobot(settings, self.clock)
        self.robot.profile = load_robot_profile("tello")
        self.watchdog = RobotTaskWatchdog(Task.PLANNED, Task.ENDED, 3.0)
        store = DriverStore()
        guard = safety_guard(store, DriverLease(store.next_epoch, 60.0), self.watchdog)
        guard.pauses.restart()
        self._tasks = itertools.count()
        monkeypatch.setattr(link, "TelloDrone", lambda *_: self.drone)
        self._run(partial(self.robot.connect, 10.0))
        self.work = SegmentExecutor(self.robot, guard, store=store)

    def fly(self, text: str, task: str = "") -> SegmentResult:
        """Execute a segment as the first of its task."""
        return self.end_of(self.begin(text, task))

    def begin(self, text: str, task: str = "") -> End:
        end = End()
        self.work.submit(SegmentOrder(task or f"task{next(self._tasks)}", 0, text, "drone", 1.0), end)
        return end

    def end_of(self, end: End) -> SegmentResult:
        self.advance_until(lambda: end.result is not None)
        assert end.result is not None
        return end.result

    def stand_still(self, seconds: float, threads: int) -> None:
        """Let the driver's process neither run nor receive, once so many of its threads wait."""
        assert self.clock.until_waiting(threads)
        self.clock.advance(seconds)

    def wait(self, seconds: float) -> None:
        self._run(partial(self.clock.wait, threading.Event(), seconds))

    def close(self) -> None:
        assert self.work.close(LIMIT_S), "the motion thread did not end"
        self._run(self.robot.disconnect)

    def _run(self, function: Callable[[], object]) -> None:
        """Call a function that waits for virtual time."""
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(function)
            self.advance_until(call.done)
            call.result()

    def advance_until(self, is_over: Callable[[], bool]) -> None:
        limit_s = time.monotonic() + LIMIT_S
        while not is_over():
            assert time.monotonic() < limit_s, "it never ended"
            # The link's thread, and the one that flies.
            if self.clock.until_waiting(2, 0.01):
                self.drone.step(self.clock.now() + STEP_S)
                self.clock.advance(STEP_S)
