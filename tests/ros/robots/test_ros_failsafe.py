"""When a failsafe acts: each cause after it has lasted, a low or unknown battery at once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from manual_robot_clock import ManualRobotClock
from timely_robots import safety
from timely_robots.driver_store import DriverStore
from timely_robots.failsafe import Conditions, FailsafeMonitor
from timely_robots.lease import DriverLease
from timely_robots.robot import RobotStatus
from timely_robots.segments import Motion, MotionError, SegmentOrder, SilentListener, SkillCall
from timely_robots.task_watchdog import RobotTaskWatchdog
from virtual_tello import safety_guard

from lrtrace.robot_profile import Failsafe

LOST = [
    {"plan_wait_s": 0.1},
    {"bridge_lost": True},
    {"lease_lapsed": True},
    {"link_lost": True},
    {"idle": True},
]


@pytest.mark.parametrize("cause", LOST)
def test_each_loss_holds_first_and_acts_once_when_it_lasts(cause: dict[str, Any]) -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=10.0, then="land"))
    lost = Conditions(away=True, **cause)
    assert [monitor.update(lost, now_s) for now_s in (0.0, 9.9)] == ["", ""]
    assert monitor.active == "hold"
    assert [monitor.update(lost, now_s) for now_s in (10.0, 20.0)] == ["land", ""]
    assert monitor.active == "land"
    assert monitor.update(Conditions(away=True), 21.0) == ""
    assert monitor.active == ""
    assert monitor.update(lost, 22.0) == "", "the time counts anew"
    assert monitor.update(Conditions(**cause), 40.0) == "", "at its base a robot may wait"


@pytest.mark.parametrize("battery", [0.1, math.nan, 2.55, math.inf])
def test_a_low_or_unknown_battery_acts_at_once(battery: float) -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=10.0, then="land", battery_reserve=0.15))
    assert monitor.update(Conditions(away=True, battery=battery), 0.0) == "land"
    assert monitor.battery_problem(battery)


@pytest.mark.parametrize(
    ("lands", "then", "battery", "action"),
    [
        (True, "land", 0.1, "land"),
        (False, "land", 0.1, ""),
        (True, "return", 0.1, ""),
        (True, "land", math.nan, ""),
        (True, "land", 0.5, ""),
    ],
)
def test_while_a_stop_is_latched_only_a_low_battery_lands_and_where_the_profile_says_so(
    lands: bool, then: Literal["land", "return"], battery: float, action: str
) -> None:
    failsafe = Failsafe(hold_s=1.0, then=then, battery_reserve=0.15, land_while_stopped=lands)
    monitor = FailsafeMonitor(failsafe)
    stopped = Conditions(away=True, lease_lapsed=True, battery=battery, stopped=True)
    assert [monitor.update(stopped, now_s) for now_s in (0.0, 60.0)] == [action, ""]


def test_an_action_that_failed_is_tried_again_after_the_hold() -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=10.0, then="land", battery_reserve=0.15))
    lost = Conditions(away=True, link_lost=True, battery=1.0)
    monitor.update(lost, 0.0)
    assert monitor.update(lost, 10.0) == "land"
    monitor.fail(18.0)
    low = Conditions(away=True, battery=0.1)
    assert [monitor.update(low, now_s) for now_s in (18.0, 27.9, 28.0, 29.0)] == ["", "", "land", ""]


def test_hold_never_ends_in_another_action() -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=0.0))
    assert monitor.update(Conditions(away=True, link_lost=True), 100.0) == ""
    assert monitor.active == "hold"


def test_without_an_action_a_robot_may_wait_for_its_next_task_away_from_its_base() -> None:
    monitor = FailsafeMonitor(Failsafe())
    assert monitor.update(Conditions(away=True, idle=True), 100.0) == ""
    assert monitor.active == ""


def test_a_robot_that_does_not_observe_its_motion_is_not_at_rest() -> None:
    assert not RobotStatus().at_rest


@pytest.mark.parametrize("bridge", ["ended the task", "is alive", "is gone"])
def test_after_a_pause_messages_come_before_motions(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(safety, "time", SimpleNamespace(monotonic=lambda: now_s))
    store, watchdog = DriverStore(), RobotTaskWatchdog(1, 2, 3.0)
    guard = safety_guard(store, DriverLease(store.next_epoch, 60.0), watchdog)
    watchdog.observe("t", 1, 5, now_s)

    class Pause:
        order = SegmentOrder("t", 3, "mf(20);", "drone")

        def sleep(self, seconds: float) -> None:
            nonlocal now_s
            if now_s == 105.0:
                watchdog.observe("t", 1, 5, now_s)  # waited in a buffer
            now_s += seconds
            guard.check(now_s)
            if bridge == "ended the task":
                watchdog.observe("t", 2, 5, now_s)
            elif bridge == "is alive" and now_s > 106.0:
                watchdog.observe("t", 1, 5, now_s)

    call, motion = SkillCall("move_forward", (20,), "mf(20)"), cast(Motion, Pause())
    guard.check(now_s)
    guard(call, motion)
    assert now_s == 100.0
    now_s = 105.0  # the process stood still
    if bridge == "is alive":
        guard(call, motion)
        assert now_s > 106.0
    else:
        refusal = "its task has ended" if bridge == "ended the task" else "no message of the task"
        with pytest.raises(MotionError, match=refusal):
            guard(call, motion)
        assert 105.0 + safety.SETTLE_S <= now_s < 107.5


@pytest.mark.parametrize("bridge", ["ended the task", "is alive", "is gone"])
def test_after_a_cut_messages_come_before_motions(bridge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that the cut held back may come before the message that its task has ended."""
    now_s = 100.0
    monkeypatch.setattr(safety, "time", SimpleNamespace(monotonic=lambda: now_s))
    store, watchdog = DriverStore(), RobotTaskWatchdog(1, 2, 3.0)
    lease = DriverLease(store.next_epoch, 3.0)
    epoch = lease.acquire("a", now_s) or 0
    guard = safety_guard(store, lease, watchdog)
    sleeps = 0

    class Cut:
        order = SegmentOrder("t", 0, "mf(20);", "drone", owner="a", epoch=epoch)

        def sleep(self, seconds: float) -> None:
            nonlocal now_s, sleeps
            now_s, sleeps = now_s + seconds, sleeps + 1
            guard.check(now_s)
            guard.renew("a", epoch)
            if sleeps == 1:
                watchdog.observe("t", 1, 1, now_s)
            elif bridge == "ended the task" and sleeps == 5:
                watchdog.observe("t", 2, 1, now_s)
            elif bridge == "is alive" and now_s > 106.0:
                watchdog.observe("t", 1, 1, now_s)

    call, motion = SkillCall("move_forward", (20,), "mf(20)"), cast(Motion, Cut())
    while now_s < 105.0:
        guard.check(now_s)
        now_s += 0.5
    guard.check(now_s)
    guard.receive(motion.order)
    if bridge == "is alive":
        guard(call, motion)
        assert now_s > 106.0
    else:
        refusal = "its task has ended" if bridge == "ended the task" else "no message of the task"
        with pytest.raises(MotionError, match=refusal):
            guard(call, motion)
        assert 105.0 + safety.SETTLE_S <= now_s < 107.5


def test_a_pause_of_the_driver_gives_its_lease_to_no_other_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renewals of the first one may come after the request of the second."""
    now_s = 100.0
    monkeypatch.setattr(safety, "time", SimpleNamespace(monotonic=lambda: now_s))
    store = DriverStore()
    guard = safety_guard(store, DriverLease(store.next_epoch, 3.0), RobotTaskWatchdog(1, 2, 3.0))
    guard.check(now_s)
    epoch = guard.acquire("a") or 0
    now_s = 110.0  # the process stood still
    assert guard.acquire("b") is None
    assert guard.acquire("a") == epoch, "its segments go on"
    while now_s < 114.0:
        now_s += 0.5
        guard.check(now_s)
    assert guard.acquire("b"), "the first one is gone"


def test_a_pause_of_the_driver_is_no_silence_of_its_operator() -> None:
    clock, confirmation = ManualRobotClock(), safety.Confirmation(30.0)
    motion = Motion(SegmentOrder("t", 0, "", ""), SilentListener(), clock, 1e9)
    with ThreadPoolExecutor(1) as pool:
        question = pool.submit(confirmation.ask, SkillCall("open", (), "open()"), motion)
        assert clock.until_waiting()
        clock.advance(60.0)  # the answer was sent meanwhile
        assert question.done() or clock.until_waiting()
        assert confirmation.answer("t", 0, "open()", allow=True)
        clock.advance(1.0)
        assert question.result(5.0) is None


@pytest.mark.parametrize("first", [False, True])
def test_the_first_answer_to_a_question_counts(first: bool) -> None:
    """Another operator's answer that comes late turns no refusal into consent, and is not called taken."""
    clock, confirmation = ManualRobotClock(), safety.Confirmation(30.0)
    motion = Motion(SegmentOrder("t", 0, "", ""), SilentListener(), clock, 1e9)
    with ThreadPoolExecutor(1) as pool:
        question = pool.submit(confirmation.ask, SkillCall("open", (), "open()"), motion)
        assert clock.until_waiting()
        assert confirmation.answer("t", 0, "open()", allow=first)
        assert not confirmation.answer("t", 0, "open()", allow=not first)
        assert confirmation.answer("t", 0, "open()", allow=first), "a repeat of the same answer"
        clock.advance(1.0)
        error = question.exception(5.0)
        assert (error is None) == first, error


def test_a_repeated_request_of_the_owner_keeps_its_lease() -> None:
    store = DriverStore()
    lease = DriverLease(store.next_epoch, 3.0)
    epoch = lease.acquire("a", 10.0)
    assert lease.acquire("a", 10.5) == epoch, "the answer to the first may be late"
    assert lease.permits("a", epoch or 0, 13.4)
    assert lease.acquire("a", 20.0) == 2, "a lapsed lease begins anew"
    assert lease.acquire("a", 20.1, take_over=True) == 3
