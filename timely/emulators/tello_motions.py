"""The motion commands of a Tello: limits, ways and durations, by the Tello SDK 1.3 and 2.0 guides.

Lengths in a command are centimetres; here they are metres, in the drone's own frame.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from timely.emulators.trapezoid import EmulatedTrapezoid

OK, ERROR, RANGE = "ok", "error", "out of range"
BUSY = "error Not joystick"
"""What the drone says to a motion that comes while another is under way."""
NOT_FLYING = "error Motor stop"
LOW_BATTERY = "error Low battery"
FLIP_BATTERY = 50.0


@dataclass(frozen=True, slots=True)
class TelloPhysics:
    """Times in seconds, speeds in m/s, accelerations in m/s^2, angles in degrees, battery in percent."""

    takeoff_s: float = 4.5
    takeoff_m: float = 0.8
    landing_m_per_s: float = 0.4
    reaction_s: float = 0.25
    settle_s: float = 0.55
    speed: float = 1.0
    acceleration: float = 1.5
    turn_deg_per_s: float = 60.0
    turn_deg_per_s2: float = 240.0
    flip_s: float = 1.5
    noise: float = 0.02
    """Standard deviation of a motion's time, relative."""
    lowest_m: float = 0.1
    highest_m: float = 30.0
    hover_drain: float = 100.0 / 780.0
    """Per second in the air: 13 minutes."""
    idle_drain: float = 100.0 / 5400.0
    land_at: float = 5.0
    """Lands by itself at so little battery."""
    takeoff_at: float = 10.0
    silence_s: float = 15.0
    """Lands by itself after so long without a command."""


class Drone(Protocol):
    """What the duration of a motion depends on: m/s, percent, and the drone's physics."""

    speed: float
    battery: float
    physics: TelloPhysics


Course = tuple[tuple[float, float, float, float], EmulatedTrapezoid, float] | str
"""(dx, dy, dz in the drone's own frame, dyaw), how the way is gone, extra seconds; or a complaint."""


def _emulated_straight_course(drone: Drone, name: str, values: list[int]) -> Course:
    if not 20 <= values[0] <= 500:
        return RANGE
    metres = values[0] / 100.0
    x, y, z = (metres * part for part in _DIRECTIONS[name])
    return (x, y, z, 0.0), EmulatedTrapezoid(metres, drone.speed, drone.physics.acceleration), 0.0


def _emulated_turn_course(drone: Drone, name: str, values: list[int]) -> Course:
    if not 1 <= values[0] <= 360:
        return RANGE
    degrees = float(values[0])
    profile = EmulatedTrapezoid(degrees, drone.physics.turn_deg_per_s, drone.physics.turn_deg_per_s2)
    return (0.0, 0.0, 0.0, degrees if name == "cw" else -degrees), profile, 0.0


def _emulated_go_course(drone: Drone, name: str, values: list[int]) -> Course:
    *way, speed = values
    if any(abs(part) > 500 for part in way) or not 10 <= speed <= 100 or all(abs(part) <= 20 for part in way):
        return RANGE
    x, y, z = (part / 100.0 for part in way)
    return (
        (x, y, z, 0.0),
        EmulatedTrapezoid(math.hypot(x, y, z), speed / 100.0, drone.physics.acceleration),
        0.0,
    )


def _emulated_curve_course(drone: Drone, name: str, values: list[int]) -> Course:
    first, last, speed = values[:3], values[3:6], values[6]
    if any(abs(part) > 500 for part in (*first, *last)) or not 10 <= speed <= 60:
        return RANGE
    if any(all(abs(part) <= 20 for part in point) for point in (first, last)):
        return RANGE
    a, b, c = math.dist(first, last), math.hypot(*last), math.hypot(*first)
    half = (a + b + c) / 2.0
    area = math.sqrt(max(0.0, half * (half - a) * (half - b) * (half - c)))
    radius = a * b * c / (4.0 * area) / 100.0 if area > 0 else math.inf
    if not 0.5 <= radius <= 10.0:
        return "error Radius is too large!" if radius > 10.0 else "error Radius is too small!"
    # The two chords are each a little shorter than their arcs.
    way = sum(2.0 * radius * math.asin(min(1.0, chord / 200.0 / radius)) for chord in (c, a))
    x, y, z = (part / 100.0 for part in last)
    return (x, y, z, 0.0), EmulatedTrapezoid(way, speed / 100.0, drone.physics.acceleration), 0.0


def _emulated_flip_course(drone: Drone, args: list[str]) -> Course:
    if len(args) != 1 or args[0] not in ("l", "r", "f", "b"):
        return ERROR
    if drone.battery < FLIP_BATTERY:
        return LOW_BATTERY
    return (0.0, 0.0, 0.0, 0.0), EmulatedTrapezoid(0.0, 1.0, 1.0), drone.physics.flip_s


_DIRECTIONS: Mapping[str, tuple[float, float, float]] = {
    "forward": (1.0, 0.0, 0.0),
    "back": (-1.0, 0.0, 0.0),
    "left": (0.0, 1.0, 0.0),
    "right": (0.0, -1.0, 0.0),
    "up": (0.0, 0.0, 1.0),
    "down": (0.0, 0.0, -1.0),
}
_MOTIONS: Mapping[str, tuple[int, Callable[[Drone, str, list[int]], Course]]] = {
    **dict.fromkeys(_DIRECTIONS, (1, _emulated_straight_course)),
    "cw": (1, _emulated_turn_course),
    "ccw": (1, _emulated_turn_course),
    "go": (4, _emulated_go_course),
    "curve": (7, _emulated_curve_course),
}
"""Motions with so many whole numbers."""


def emulated_tello_course(drone: Drone, name: str, args: list[str]) -> Course:
    """The course of a motion command, or what the drone has to say against it."""
    if name == "flip":
        return _emulated_flip_course(drone, args)
    if name not in _MOTIONS:
        return f"unknown command: {name}"
    count, plan = _MOTIONS[name]
    values = emulated_whole_numbers(args, count)
    return ERROR if values is None else plan(drone, name, values)


def emulated_whole_numbers(args: list[str], count: int) -> list[int] | None:
    """``count`` whole numbers, or None. Forms that only int() takes, such as ``1_0``, are refused."""
    if len(args) != count or not all(
        word.lstrip("+-").isascii() and word.lstrip("+-").isdigit() for word in args
    ):
        return None
    try:
        return [int(word) for word in args]
    except ValueError:
        return None


def emulated_rotation(ahead: float, left: float, yaw_deg: float) -> tuple[float, float]:
    """A way in the drone's own frame, in the start frame (and back, with minus the yaw); yaw is clockwise."""
    cos, sin = math.cos(math.radians(yaw_deg)), math.sin(math.radians(yaw_deg))
    return cos * ahead + sin * left, -sin * ahead + cos * left
