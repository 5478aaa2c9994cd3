"""Places of things in the settings of robots."""

import math

from timely.plans.thing_names import plain_thing_name
from timely_robots.error_codes import ErrorCode
from timely_robots.segments import MotionError


def read_robot_place(setting: str, text: str, axes: str = "x,y,z") -> tuple[str, tuple[float, ...]]:
    """Name and place, metres, of ``name:x,y,z``.

    Raises:
        MotionError: INVALID_INPUT: it is written wrongly.
    """
    name, _, where = text.partition(":")
    try:
        place = tuple(float(part) for part in where.split(","))
    except ValueError:
        place = ()
    if not name.strip() or len(place) != axes.count(",") + 1 or not all(map(math.isfinite, place)):
        raise MotionError(f"{setting}: {text!r} is not name:{axes}", ErrorCode.INVALID_INPUT)
    return plain_thing_name(name), place
