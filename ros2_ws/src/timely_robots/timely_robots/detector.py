"""What a drone sees: the interface a detector has to offer, and a made-up room for flights without a camera.

``eyes`` of the Tello's driver names a class of this interface as ``module:name``; it is made without arguments.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from timely_interfaces.msg import ErrorCode

from timely.plans.simulated_worlds import Thing
from timely_robots.execution import MotionError

HALF_VIEW = math.radians(41.0)
"""Half of the Tello's 82.6 degrees."""
RISE_M = 0.2
SIZE_M = 0.3
LEVELS = ("eye", "high", "low")


@dataclass(frozen=True, slots=True)
class Where:
    """Where the drone is: metres from its start (x forward, y left, z up above the take-off height), yaw in radians,
    counter-clockwise."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    yaw: float = 0.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something in view: direction from straight ahead, radians, left positive; metres; size as a share of the view."""

    name: str
    bearing: float
    distance_m: float
    width: float = 0.2
    height: float = 0.2
    y: float = 0.5
    fits: tuple[str, ...] = ()
    """What it is good for, in lower-case words."""


class Eyes(Protocol):
    """A detector. Must answer within a tenth of a second or so: a plan waits for it."""

    def look(self, where: Where) -> Sequence[Sighting]:
        """What is in view now."""
        ...


class Blind:
    """No eyes: whatever a plan wants to see is a typed failure."""

    def look(self, where: Where) -> Sequence[Sighting]:
        """See ``Eyes``."""
        raise MotionError(
            "this drone sees nothing: set the parameter eyes, or things for a made-up room",
            ErrorCode.MOTION_FAILED,
        )


class Room:
    """A made-up room around the start, for emulated drones.

    Args:
        things: ``name:bearing:distance[:level[:words]]``: degrees to the right of the start's forward, centimetres;
            level ``eye``, ``high`` (seen from above) or ``low``; words that ``scan_abstract`` finds it by.

    Raises:
        MotionError: INVALID_INPUT: a thing is written wrongly.
    """

    def __init__(self, things: Iterable[str]) -> None:
        self.things = [_thing(text) for text in things]

    def look(self, where: Where) -> Sequence[Sighting]:
        """See ``Eyes``."""
        seen = []
        for thing in self.things:
            angle = -math.radians(thing.bearing_deg)
            dx = 0.01 * thing.distance_cm * math.cos(angle) - where.x
            dy = 0.01 * thing.distance_cm * math.sin(angle) - where.y
            bearing = math.remainder(math.atan2(dy, dx) - where.yaw, 2.0 * math.pi)
            hidden = (thing.level == "high" and where.z < RISE_M) or (
                thing.level == "low" and where.z > -RISE_M
            )
            if abs(bearing) <= HALF_VIEW and not hidden:
                distance = math.hypot(dx, dy)
                share = min(1.0, SIZE_M / max(0.1, 2.0 * distance * math.tan(HALF_VIEW)))
                seen.append(Sighting(thing.name, bearing, distance, share, share, fits=thing.fits))
        return seen


def make_eyes(eyes: str, things: Sequence[str]) -> Eyes:
    """The eyes that the parameters ask for.

    Raises:
        MotionError: INVALID_INPUT: there is no such class, or a thing is written wrongly.
    """
    if eyes:
        module, _, name = eyes.partition(":")
        try:
            made: Eyes = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, ValueError) as error:
            raise MotionError(f"eyes: cannot make {eyes!r}: {error}", ErrorCode.INVALID_INPUT) from error
        return made
    return Room(things) if things else Blind()


def _thing(text: str) -> Thing:
    name, *rest = (part.strip() for part in text.split(":"))
    try:
        bearing, distance = float(rest[0]), float(rest[1])
    except (IndexError, ValueError):
        bearing = distance = math.nan
    level = rest[2] if len(rest) > 2 else "eye"
    if not name or not math.isfinite(bearing) or not distance > 0.0 or level not in LEVELS:
        raise MotionError(
            f"things: {text!r} is not name:degrees:centimetres[:{'|'.join(LEVELS)}[:words]]",
            ErrorCode.INVALID_INPUT,
        )
    fits = tuple(rest[3].lower().split(",")) if len(rest) > 3 else ()
    return Thing(name.lower(), bearing, distance, level, fits)  # type: ignore[arg-type]
