"""The emulated Tello as a state machine, in virtual time: limits, answers, landing by itself, battery."""

from __future__ import annotations

import random

import pytest

from timely.emulators.tello_body import EmulatedTelloBody
from timely.emulators.tello_motions import BUSY, ERROR, LOW_BATTERY, NOT_FLYING, OK, RANGE, TelloPhysics

EXACT = TelloPhysics(noise=0.0)


def drone(battery: float = 100.0, *, flying: bool = True) -> EmulatedTelloBody:
    body = EmulatedTelloBody(random.Random(1), EXACT, battery)
    body.handle("command")
    if flying:
        assert body.handle("takeoff")[0] == ""
        (ended,) = body.advance(body.now + 5.0)
        assert (ended.command, ended.reply) == ("takeoff", OK)
    return body


def fly(body: EmulatedTelloBody, command: str) -> float:
    """Run one motion to its end; its duration."""
    began = body.now
    reply, outcome, _ = body.handle(command)
    assert (reply, outcome) == ("", "accepted"), command
    assert body.motion is not None
    (ended,) = body.advance(body.motion.end_s)
    assert (ended.command, ended.outcome, ended.reply) == (command, "done", OK)
    assert ended.start_s == began
    return ended.end_s - ended.start_s


def test_nothing_is_heard_before_sdk_mode() -> None:
    body = EmulatedTelloBody()
    assert body.handle("battery?")[0] == ""
    assert body.handle("command")[0] == OK
    assert body.handle("battery?")[0] == "100"


def test_times_are_near_the_published_ones() -> None:
    body = drone()
    assert fly(body, "forward 100") == pytest.approx(0.0072 * 100 + 1.8144, abs=0.15)
    assert fly(body, "cw 90") == pytest.approx(0.0165 * 90 + 0.784, abs=0.35)


def test_moves_go_where_the_drone_looks() -> None:
    body = drone()
    for command in ("forward 100", "cw 90", "forward 200", "left 50", "ccw 180", "up 120", "down 20"):
        fly(body, command)
    # Looking right after cw: forward is -y; its left is then the start's +x.
    assert (body.pose.x, body.pose.y, body.pose.z) == pytest.approx((1.5, -2.0, 1.8))
    assert body.pose.yaw == pytest.approx(-90.0)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("forward 19", RANGE),
        ("forward 501", RANGE),
        ("up 20.5", "error"),
        ("cw 0", RANGE),
        ("cw 361", RANGE),
        ("go 20 20 -20 50", RANGE),
        ("go 100 0 0 9", RANGE),
        ("go 501 0 0 50", RANGE),
        ("curve 100 100 0 200 0 0 61", RANGE),
        ("curve 100 1 0 200 0 0 30", "error Radius is too large!"),
        ("curve 25 25 0 50 0 0 30", "error Radius is too small!"),
        ("speed 101", RANGE),
        ("speed", "error"),
        ("forward", "error"),
        ("forward 1_00", "error"),
        ("rc 0 0 0 101", "error"),
        ("flip x", "error"),
        ("dance", "unknown command: dance"),
    ],
)
def test_what_the_drone_refuses(command: str, reply: str) -> None:
    body = drone()
    assert body.handle(command)[0] == reply
    assert body.motion is None
    assert body.advance(body.now + 5.0) == []


def test_on_the_ground_it_moves_nothing() -> None:
    body = drone(flying=False)
    assert body.handle("forward 50")[0] == NOT_FLYING
    assert body.handle("land")[0] == "error"


def test_one_motion_at_a_time() -> None:
    body = drone()
    body.handle("forward 100")
    body.advance(body.now + 0.5)
    assert body.handle("forward 100")[0] == BUSY
    body.advance(body.now + 10.0)
    assert body.pose.x == pytest.approx(1.0)


def test_stop_ends_a_motion_where_it_is() -> None:
    body = drone()
    body.handle("forward 500")
    body.advance(body.now + 2.0)
    reply, _, (ended,) = body.handle("stop")
    assert (reply, ended.outcome) == (OK, "stopped")
    assert 0.5 < body.pose.x < 3.0
    halted = body.pose.x
    assert body.advance(body.now + 5.0) == []
    assert body.pose.x == halted


def test_it_lands_after_15_s_of_silence_and_any_command_prevents_that() -> None:
    body = drone()
    for _ in range(3):
        body.handle("battery?")
        assert body.advance(body.now + 14.0) == []
    (ended,) = body.advance(body.now + 10.0)
    assert ended.command == "land (silence)"
    assert ended.reply == ""
    assert not body.flying
    assert body.pose.z == 0.0
    assert body.handle("forward 50")[0] == NOT_FLYING


def test_until_it_hovers_it_hears_neither_stop_nor_land() -> None:
    body = drone(flying=False)
    body.handle("takeoff")
    for command in ("stop", "land"):
        body.advance(body.now + 1.0)
        assert body.handle(command)[0] == ERROR
    (ended,) = body.advance(body.now + 5.0)
    assert (ended.command, ended.outcome) == ("takeoff", "done")
    assert body.pose.z == pytest.approx(EXACT.takeoff_m)
    assert body.handle("land")[0] == ""


def test_the_battery_drains_lands_the_drone_and_ends() -> None:
    body = drone(battery=12.0)
    commands = []
    while not body.dead and body.now < 2000.0:
        body.handle("keepalive")
        commands += [ended.command for ended in body.advance(body.now + 10.0)]
        if commands and body.now < 1000.0:
            assert not body.flying or body.motion is not None
    assert commands[0] == "land (low battery)"
    assert body.advance(body.now + 2000.0) == []
    assert body.battery <= 5.0


def test_a_weak_battery_keeps_it_on_the_ground() -> None:
    body = drone(battery=8.0, flying=False)
    assert body.handle("takeoff")[0] == LOW_BATTERY
    body.advance(1e5)
    assert body.dead
    assert body.handle("command")[0] == ""


def test_it_does_not_fly_into_the_ground() -> None:
    body = drone()
    fly(body, "down 500")
    assert body.pose.z == pytest.approx(EXACT.lowest_m)


def test_rc_moves_until_told_otherwise() -> None:
    body = drone()
    body.handle("rc 0 50 0 0")
    body.advance(body.now + 2.0)
    assert body.pose.x == pytest.approx(1.0)
    body.handle("rc 0 0 0 0")
    body.advance(body.now + 2.0)
    assert body.pose.x == pytest.approx(1.0)


def test_the_state_has_every_field_in_its_unit() -> None:
    body = drone()
    body.handle("up 500")
    body.advance(body.now + 2.5)
    fields = dict(part.split(":") for part in body.state().strip().rstrip(";").split(";"))
    assert list(fields)[:6] == ["pitch", "roll", "yaw", "vgx", "vgy", "vgz"]
    assert int(fields["h"]) == round(100 * body.pose.z)
    assert int(fields["vgz"]) < 0, "upwards is negative"
    assert int(fields["bat"]) in (99, 100)


def test_the_same_seed_gives_the_same_times() -> None:
    def times(seed: int) -> list[float]:
        body = EmulatedTelloBody(random.Random(seed))
        body.handle("command")
        body.handle("takeoff")
        body.advance(10.0)
        return [fly(body, "forward 100") for _ in range(5)]

    assert times(3) == times(3)
    assert times(3) != times(4)
