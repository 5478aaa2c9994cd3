"""What lies where on the arm's table: places by name, what the gripper holds, what may be taken and put. Metres."""

import math
from collections.abc import Iterable

from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError

Spot = tuple[float, float, float]


class Table:
    """Things and places of one arm.

    Args:
        things: ``name:x,y,z``, base frame.

    Raises:
        MotionError: INVALID_INPUT: one is written wrongly.
    """

    def __init__(self, things: Iterable[str]) -> None:
        self.places: dict[str, Spot] = {}
        self.holding = ""
        for text in things:
            name, _, where = text.partition(":")
            try:
                x, y, z = (float(part) for part in where.split(","))
            except ValueError:
                x = y = z = math.nan
            if not name.strip() or not all(math.isfinite(part) for part in (x, y, z)):
                raise MotionError(f"things: {text!r} is not name:x,y,z", ErrorCode.INVALID_INPUT)
            self.places[_key(name)] = (x, y, z)

    def place(self, name: str) -> Spot:
        """The place of a thing; raises MotionError if it is unknown."""
        spot = self.places.get(_key(name))
        if spot is None:
            places = ", ".join(sorted(self.places)) or "nothing"
            raise MotionError(f"the place of {name!r} is unknown; known: {places}", ErrorCode.MOTION_FAILED)
        return spot

    def may_take(self, name: str) -> None:
        """Raises MotionError if the gripper is full."""
        if self.holding:
            raise MotionError(f"cannot take {name!r}: it holds {self.holding!r}", ErrorCode.MOTION_FAILED)

    def may_put(self, name: str) -> None:
        """Raises MotionError if the gripper is empty, or would put something on itself."""
        if not self.holding:
            raise MotionError(f"cannot put anything on {name!r}: it holds nothing", ErrorCode.MOTION_FAILED)
        if _key(name) == self.holding:
            raise MotionError(f"cannot put {name!r} on itself", ErrorCode.MOTION_FAILED)

    def take(self, name: str) -> None:
        """It is in the gripper now."""
        self.holding = _key(name)

    def put(self, spot: Spot) -> None:
        """What the gripper held is here now."""
        self.places[self.holding] = spot
        self.holding = ""

    def describe(self) -> str:
        """What there is, in words."""
        return ", ".join(name for name in sorted(self.places) if name != self.holding) or "nothing"


def _key(name: str) -> str:
    return name.partition("[")[0].strip().lower()
