"""A clock faster than real time, to measure emulated robots in a tenth of the time."""

import math

from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput

MAX_SPEED = 50.0


class EmulatorClock(SystemClock):
    """The machine's monotonic clock times ``speed``; one axis for all processes that use the same speed.

    Raises:
        InvalidInput: ``speed`` is not between 0.01 and 50.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if not (math.isfinite(speed) and 0.01 <= speed <= MAX_SPEED):
            raise InvalidInput(f"must be 0.01 to {MAX_SPEED:g}, got {speed!r}", where="speed")
        super().__init__(speed)
