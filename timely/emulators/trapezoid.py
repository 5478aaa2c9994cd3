"""Motion along a path with limited speed and acceleration: speed up, cruise, slow down; and braking in between."""

import math
from dataclasses import dataclass

RAMP = 0.25
"""Share of a motion of given duration to speed up, and to slow down."""


@dataclass(frozen=True, slots=True)
class EmulatedTrapezoid:
    """A rest-to-rest motion over ``length``; lengths, speeds and accelerations in any one unit of length, seconds.

    A short motion never reaches ``speed``: the trapezoid is then a triangle.
    """

    length: float
    speed: float
    acceleration: float

    @property
    def peak(self) -> float:
        """The highest speed that is reached."""
        return min(self.speed, math.sqrt(self.length * self.acceleration))

    @property
    def duration_s(self) -> float:
        """From rest to rest."""
        if self.length <= 0.0:
            return 0.0
        return self.peak / self.acceleration + self.length / self.peak

    def at(self, t_s: float) -> tuple[float, float]:
        """Where it is after ``t_s`` and how fast."""
        total = self.duration_s
        if t_s <= 0.0 or total == 0.0:
            return (0.0 if total else self.length), 0.0
        if t_s >= total:
            return self.length, 0.0
        peak, rise = self.peak, self.peak / self.acceleration
        if t_s < rise:
            return 0.5 * self.acceleration * t_s * t_s, self.acceleration * t_s
        if t_s <= total - rise:
            return peak * (t_s - 0.5 * rise), peak
        left = total - t_s
        return self.length - 0.5 * self.acceleration * left * left, self.acceleration * left

    def brake(self, t_s: float) -> tuple[float, float]:
        """(where it comes to rest, seconds that takes) when braking with ``acceleration`` begins at ``t_s``."""
        where, speed = self.at(t_s)
        seconds = speed / self.acceleration
        return min(self.length, where + 0.5 * speed * seconds), seconds


def emulator_trapezoid_for_time(length: float, duration_s: float) -> EmulatedTrapezoid:
    """The trapezoid over ``length`` that takes ``duration_s``, a share ``RAMP`` of it to speed up and to slow down."""
    speed = length / (duration_s * (1.0 - RAMP))
    return EmulatedTrapezoid(length, speed, speed / (RAMP * duration_s))
