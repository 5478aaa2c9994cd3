"""Progress along a path with limited speed and acceleration that can be braked at any moment; knows no robot."""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class MujocoPathProgress:
    """From 0 to ``length`` from rest to rest; any unit of length (metres, radians), seconds.

    Call ``step`` once a time step. After ``braking`` is set it comes to rest as fast as it may, wherever that is.
    """

    length: float
    speed: float
    acceleration: float
    at: float = 0.0
    rate: float = 0.0
    """How fast it is now."""
    pull: float = 0.0
    """How fast that changes."""
    braking: bool = False

    def step(self, seconds: float) -> None:
        before = self.rate
        self._step(seconds)
        self.pull = (self.rate - before) / seconds

    def _step(self, seconds: float) -> None:
        most = self.acceleration * seconds
        left = self.length - self.at
        if self.braking:
            self.rate = max(0.0, self.rate - most)
        else:
            # Never faster than it can still brake from, one step ahead.
            can_stop = math.sqrt(2.0 * self.acceleration * max(0.0, left - self.rate * seconds))
            self.rate = max(min(self.rate + most, self.speed, can_stop), min(self.rate, most))
            if left <= 0.25 * most * seconds or self.rate * seconds >= left:
                self.at, self.rate = self.length, 0.0
                return
            self.rate = max(self.rate, 0.5 * most)
        self.at = min(self.length, self.at + self.rate * seconds)

    @property
    def ended(self) -> bool:
        """At rest, at the end or where it was braked."""
        return self.at >= self.length or (self.braking and self.rate == 0.0)

    @property
    def reached(self) -> bool:
        return self.at >= self.length

    @property
    def share(self) -> float:
        """How much of the way is done, 0..1."""
        return 1.0 if self.length <= 0.0 else self.at / self.length

    @property
    def duration_s(self) -> float:
        """From rest to rest, undisturbed."""
        if self.length <= 0.0:
            return 0.0
        peak = min(self.speed, math.sqrt(self.length * self.acceleration))
        return peak / self.acceleration + self.length / peak
