"""What lies where on the arm's table: places by name, what the gripper holds. Metres."""

from collections.abc import Iterable

from timely.plans.thing_names import plain_thing_name
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError
from timely_robots.things import read_robot_place

Spot = tuple[float, float, float]


class Indy7Table:
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
            name, (x, y, z) = read_robot_place("things", text)
            self.places[name] = (x, y, z)

    def place(self, name: str) -> Spot:
        """The place of a thing; raises MotionError if it is unknown."""
        spot = self.places.get(plain_thing_name(name))
        if spot is None:
            places = ", ".join(sorted(self.places)) or "nothing"
            raise MotionError(f"the place of {name!r} is unknown; known: {places}", ErrorCode.MOTION_FAILED)
        return spot

    def take(self, name: str) -> None:
        self.holding = plain_thing_name(name)

    def put(self, spot: Spot) -> None:
        """What the gripper held is here now."""
        self.places[self.holding] = spot
        self.holding = ""

    def describe(self) -> str:
        return ", ".join(name for name in sorted(self.places) if name != self.holding) or "nothing"
