"""Detectors of drones: the interface, and a made-up room for flights without a camera.

The Tello's setting ``eyes`` names a class of this interface as ``module:name``; it is made without arguments.
"""

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from timely.plans.simulated_worlds import Thing
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError

HALF_VIEW = math.radians(41.0)
"""Half of the Tello's 82.6 degrees."""
RISE_M = 0.2
SIZE_M = 0.3
LEVELS = ("eye", "high", "low")


@dataclass(frozen=True, slots=True)
class DronePose:
    """Position from the start in metres: x forward, y left, z above the take-off height. Yaw: radians, left."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    yaw: float = 0.0

    @property
    def orientation(self) -> tuple[float, float, float, float]:
        """The yaw as a quaternion (x, y, z, w)."""
        return (0.0, 0.0, math.sin(self.yaw / 2.0), math.cos(self.yaw / 2.0))

    def after(self, ahead: float, left: float) -> tuple[float, float]:
        """x and y after so many metres ahead and to the left."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return self.x + cos * ahead - sin * left, self.y + sin * ahead + cos * left


@dataclass(frozen=True, slots=True)
class Sighting:
    """An object in view: direction from ahead (radians, left positive), metres, size as a share of the view."""

    name: str
    bearing: float
    distance_m: float
    width: float = 0.2
    height: float = 0.2
    y: float = 0.5
    fits: tuple[str, ...] = ()
    """Its uses, in lower-case words."""


class Detector(Protocol):
    """Names the objects in view. A plan waits for the answer, so it should take at most 0.1 s."""

    def look(self, pose: DronePose) -> Sequence[Sighting]: ...


class NoDetector:
    """No detector: every skill that looks fails."""

    def look(self, pose: DronePose) -> Sequence[Sighting]:
        raise MotionError(
            "this drone sees nothing: set eyes to a detector, or things for a made-up room",
            ErrorCode.MOTION_FAILED,
        )


class RoomDetector:
    """A made-up room around the start, for emulated drones.

    Args:
        things: ``name:bearing:distance[:level[:words]]``: degrees to the right of the start's forward, centimetres;
            level ``eye``, ``high`` (seen from above) or ``low``; words that ``scan_abstract`` finds it by.

    Raises:
        MotionError: INVALID_INPUT: a malformed thing.
    """

    def __init__(self, things: Iterable[str]) -> None:
        self.things = [_parse_detector_thing(text) for text in things]

    def look(self, pose: DronePose) -> Sequence[Sighting]:
        sightings = []
        for thing in self.things:
            angle = -math.radians(thing.bearing_deg)
            dx = 0.01 * thing.distance_cm * math.cos(angle) - pose.x
            dy = 0.01 * thing.distance_cm * math.sin(angle) - pose.y
            bearing = math.remainder(math.atan2(dy, dx) - pose.yaw, 2.0 * math.pi)
            is_hidden = (thing.level == "high" and pose.z < RISE_M) or (
                thing.level == "low" and pose.z > -RISE_M
            )
            if abs(bearing) <= HALF_VIEW and not is_hidden:
                distance = math.hypot(dx, dy)
                share = min(1.0, SIZE_M / max(0.1, 2.0 * distance * math.tan(HALF_VIEW)))
                sightings.append(Sighting(thing.name, bearing, distance, share, share, fits=thing.fits))
        return sightings


def make_robot_detector(detector: str, things: Sequence[str]) -> Detector:
    """The detector that the settings ask for.

    Raises:
        MotionError: INVALID_INPUT: no such class, or a malformed thing.
    """
    if detector:
        module, _, name = detector.partition(":")
        try:
            instance: Detector = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, ValueError) as error:
            raise MotionError(f"eyes: cannot make {detector!r}: {error}", ErrorCode.INVALID_INPUT) from error
        return instance
    return RoomDetector(things) if things else NoDetector()


def _parse_detector_thing(text: str) -> Thing:
    name, *rest = (part.strip() for part in text.split(":"))
    try:
        bearing, distance = float(rest[0]), float(rest[1])
    except (IndexError, ValueError):
        bearing = distance = math.nan
    level = rest[2] if len(rest) > 2 else "eye"
    if not name or not math.isfinite(bearing) or not 0.0 < distance < math.inf or level not in LEVELS:
        raise MotionError(
            f"things: {text!r} is not name:degrees:centimetres[:{'|'.join(LEVELS)}[:words]]",
            ErrorCode.INVALID_INPUT,
        )
    fits = tuple(rest[3].lower().split(",")) if len(rest) > 3 else ()
    return Thing(name.lower(), bearing, distance, level, fits)  # type: ignore[arg-type]
