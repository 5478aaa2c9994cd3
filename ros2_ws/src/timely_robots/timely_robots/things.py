"""Places of things in the settings of robots, and what a gripper may take and put."""

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


def check_can_take(name: str, holding: str) -> None:
    """Raises MotionError if the gripper is full."""
    if holding:
        raise MotionError(f"cannot take {name!r}: it holds {holding!r}", ErrorCode.MOTION_FAILED)


def check_can_put(name: str, holding: str) -> None:
    """Raises MotionError if the gripper is empty, or would put something on itself."""
    if not holding:
        raise MotionError(f"cannot put anything on {name!r}: it holds nothing", ErrorCode.MOTION_FAILED)
    if plain_thing_name(name) == plain_thing_name(holding):
        raise MotionError(f"cannot put {name!r} on itself", ErrorCode.MOTION_FAILED)
