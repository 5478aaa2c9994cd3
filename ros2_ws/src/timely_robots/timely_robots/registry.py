"""The kinds of robot drivers: one line each, imported only when asked for; and those that live elsewhere."""

from __future__ import annotations

import importlib

from timely.core.errors import InvalidInput, UnknownName
from timely_robots.driver import RobotDriver

DRIVERS: dict[str, str] = {
    "sim": "timely_robots.sim.driver:SimDriver",
    "tello": "timely_robots.tello.driver:TelloDriver",
    "indy7": "timely_robots.indy7.driver:Indy7Driver",
    "mujoco": "timely_robots.mujoco.driver:MujocoDriver",
}
"""kind -> module:class. Every kind listed here goes through the conformance suite."""


def driver_class(kind: str) -> type[RobotDriver]:
    """The driver of that kind, or ``module:class`` for one that lives outside this package.

    Raises:
        UnknownName: there is none; the message lists the known ones. InvalidInput: that is no driver class.
    """
    if ":" not in kind and kind not in DRIVERS:
        raise UnknownName("robot driver", kind, [*DRIVERS, "module:class"], where="driver")
    module, _, name = DRIVERS.get(kind, kind).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"cannot load {kind!r}: {error}", where="driver") from error
    if not (isinstance(found, type) and issubclass(found, RobotDriver)):
        raise InvalidInput(f"{kind!r} is no RobotDriver", where="driver")
    return found
