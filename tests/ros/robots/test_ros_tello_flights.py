"""Flights of a Tello's driver on a bad network, in virtual time: nothing moves twice, and each end is typed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from emulated_robots import BRISK
from timely_interfaces.msg import Task
from timely_robots.error_codes import ErrorCode
from timely_robots.tello.robot import SETTLE_S, UNSTARTED_S
from virtual_tello import VirtualTello

from timely.emulators.network import EmulatedNetworkFaults
from timely.emulators.tello_motions import TelloPhysics

pytestmark = pytest.mark.ros

PLAN = ["mf(21);", "tc(31);", "mu(22);", "mb(23);", "tu(32);", "ml(24);", "md(25);", "mr(26);"]
COMMANDS = ["forward 21", "cw 31", "up 22", "back 23", "ccw 32", "left 24", "down 25", "right 26"]


@pytest.fixture
def tello(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(VirtualTello(monkeypatch, **options)))


@pytest.mark.parametrize("seed", range(6))
def test_pauses_of_the_driver_make_no_motion_false_and_none_twice(tello: Any, seed: int) -> None:
    rng, flight, done = random.Random(seed), tello(physics=TelloPhysics()), list[str]()
    for text, command in zip(PLAN, COMMANDS, strict=True):
        end, pause_s = flight.begin(text), flight.clock.now() + rng.uniform(0.0, 4.0)
        flight.advance_until(lambda: end.result is not None or flight.clock.now() >= pause_s)  # noqa: B023
        if flight.clock.until_waiting(2, 1.0 if end.result is None else 0.0):
            flight.clock.advance(rng.choice([0.3, 0.7, 1.5, 4.0, 8.0]))
        if flight.end_of(end).outcome == "done":
            done.append(command)
    flown = flight.drone.flown[1:]
    assert flown == [command for command in COMMANDS if command in flown], "twice, or out of order"
    assert set(done) <= set(flown), "reported as done, and never flown"
    assert len(done) >= 4


@pytest.mark.parametrize("seed", [1, 2])
def test_a_network_that_loses_and_repeats_a_fifth_never_moves_a_drone_twice(tello: Any, seed: int) -> None:
    faults = EmulatedNetworkFaults(loss=0.2, duplicate=0.2, delay_s=0.005, jitter_s=0.03)
    flight = tello(physics=TelloPhysics(), faults=faults, seed=seed)
    outcomes = []
    for text in PLAN:
        done = flight.fly(text)
        assert (done.outcome == "done") == (done.code == ErrorCode.NONE)
        assert done.outcome == "done" or (done.code and done.message)
        outcomes.append(done.outcome)
    flown = [command for command in flight.drone.flown if command != "takeoff"]
    assert flown == [command for command in COMMANDS if command in flown], "twice, or out of order"
    done = [command for command, outcome in zip(COMMANDS, outcomes, strict=True) if outcome == "done"]
    assert set(done) <= set(flown), "reported as done, and never flown"
    assert len(done) >= 5, outcomes


@pytest.mark.parametrize("orphaned", [False, True])
def test_a_lost_command_is_sent_again_unless_its_task_is_orphaned(tello: Any, orphaned: bool) -> None:
    flight, lost = tello(), list[str]()
    assert flight.fly("mf(20);").outcome == "done"

    def lose_the_first(text: str) -> bool:
        if text != "forward 33" or lost:
            return False
        lost.append(text)
        heard_s = time.monotonic() - (2.0 * flight.watchdog.silence_s if orphaned else 0.0)
        flight.watchdog.observe("lost", Task.PLANNED, 1, heard_s)
        return True

    flight.drone.loses = lose_the_first
    done = flight.fly("mf(33);", "lost")
    assert lost == ["forward 33"]
    if orphaned:
        assert (done.outcome, done.code) == ("failed", ErrorCode.SEGMENT_CANCELLED)
        assert "no message of the task" in done.message
    else:
        assert done.outcome == "done"
    assert ("forward 33" in flight.drone.flown) != orphaned
    assert flight.robot.here().x == pytest.approx(0.2 if orphaned else 0.53)


@pytest.mark.parametrize("late", ["answer", "state"])
def test_what_is_late_on_its_way_is_no_sign_of_the_next_motion(tello: Any, late: str) -> None:
    flight, lost = tello(), list[str]()
    assert flight.fly("mf(20);").outcome == "done"
    texts = {"answer": "ok", "state": flight.drone.body.state().replace("vgx:0", "vgx:5")}

    def lose_the_first(text: str) -> bool:
        if text != "forward 33" or lost:
            return False
        lost.append(text)
        flight.drone.send_late(0.2, **{late: texts[late]})
        return True

    flight.drone.loses = lose_the_first
    assert flight.fly("mf(33);").outcome == "done"
    assert flight.drone.flown == ["takeoff", "forward 20", "forward 33"]


def test_a_drone_that_never_got_its_command_is_where_it_was(tello: Any) -> None:
    """The fence counts from there, so that a way which was not flown must not be added."""
    flight = tello()
    assert flight.fly("mf(20);").outcome == "done"
    flight.drone.loses = lambda text: text in ("forward 300", "stop")
    done = flight.fly("mf(300);")
    assert (done.outcome, done.code) == ("failed", ErrorCode.MOTION_TIMEOUT)
    assert "did not begin" in done.message
    assert flight.robot.here().x == pytest.approx(0.2)
    flight.drone.loses = lambda text: False
    assert flight.fly("mb(20);").outcome == "done"
    assert flight.robot.here().x == pytest.approx(0.0)


def test_a_battery_that_runs_out_is_a_typed_failure_with_the_drone_on_the_ground(tello: Any) -> None:
    flight = tello(physics=replace(BRISK, hover_drain=5.0), battery=30.0, battery_reserve=0.0)
    outcomes = [flight.fly("mf(100);") for _ in range(4)]
    assert outcomes[0].outcome == "done"
    failed = next(done for done in outcomes if done.outcome != "done")
    assert failed.code in (ErrorCode.MOTION_FAILED, ErrorCode.MOTION_TIMEOUT)
    flight.wait(5.0)
    assert not flight.drone.body.flying


def test_a_drone_that_waits_is_kept_in_the_air(tello: Any) -> None:
    flight = tello(physics=replace(BRISK, silence_s=6.5))
    for text in ("mf(20);", "d(30);", "mb(20);"):
        assert flight.fly(text).outcome == "done"
    assert flight.drone.flown == ["takeoff", "forward 20", "back 20"]


def test_a_drone_is_at_rest_when_it_was_seen_so_after_its_stop(tello: Any) -> None:
    """A motion that was sent a moment before does not show yet."""
    flight = tello()
    assert flight.fly("mf(20);").outcome == "done"
    flight.wait(1.0)
    assert flight.robot.status().at_rest
    flight.robot.halt()
    assert not flight.robot.status().at_rest
    flight.wait(0.5)
    assert flight.robot.status().at_rest


def test_a_pause_of_the_driver_is_no_stop_without_effect(tello: Any) -> None:
    flight = tello()
    assert flight.fly("mf(20);").outcome == "done"
    flight.robot.halt()
    end = flight.begin("mb(20);")
    flight.stand_still(2.0 * SETTLE_S, threads=3)  # link, stop and motion
    assert flight.end_of(end).outcome == "done"


def test_a_pause_of_the_driver_is_no_silence_of_its_drone(tello: Any) -> None:
    """The answer to the stop between two attempts came during the pause."""
    flight, lost = tello(), list[str]()
    assert flight.fly("mf(20);").outcome == "done"

    def lose_the_first(text: str) -> bool:
        is_first = text == "forward 33" and not lost
        lost.extend([text] * (is_first or (text == "stop" and bool(lost))))
        return is_first

    flight.drone.loses = lose_the_first
    end = flight.begin("mf(33);")
    flight.advance_until(lambda: "stop" in lost)
    flight.stand_still(2.0 * UNSTARTED_S, threads=2)
    assert flight.end_of(end).outcome == "done"
