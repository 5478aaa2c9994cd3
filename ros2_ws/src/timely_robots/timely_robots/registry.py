"""The kinds of robots, each imported on use; a kind of another package is named ``module:class``."""

import importlib

from timely.core.errors import InvalidInput, UnknownName
from timely_robots.robot import Robot

ROBOTS: dict[str, str] = {
    "sim": "timely_robots.sim.robot:SimRobot",
    "tello": "timely_robots.tello.robot:TelloRobot",
    "indy7": "timely_robots.indy7.robot:Indy7Robot",
    "mujoco": "timely_robots.mujoco.robot:MujocoRobot",
}
"""kind -> module:class. Every kind listed here goes through the conformance suite."""


def robot_class(kind: str) -> type[Robot]:
    """The robot of that kind, or ``module:class`` for one outside this package.

    Raises:
        UnknownName: no such kind; the message lists them. InvalidInput: that is no Robot.
    """
    if ":" not in kind and kind not in ROBOTS:
        raise UnknownName("robot driver", kind, [*ROBOTS, "module:class"], where="driver")
    module, _, name = ROBOTS.get(kind, kind).partition(":")
    try:
        robot = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"cannot load {kind!r}: {error}", where="driver") from error
    if not (isinstance(robot, type) and issubclass(robot, Robot)):
        raise InvalidInput(f"{kind!r} is no Robot", where="driver")
    return robot
