"""The kinds of robot drivers: one line each, imported only when asked for."""

from __future__ import annotations

import importlib

from timely.core.errors import UnknownName
from timely_robots.driver import RobotDriver

DRIVERS: dict[str, str] = {
    "sim": "timely_robots.sim.driver:SimDriver",
    "tello": "timely_robots.tello.driver:TelloDriver",
    "indy7": "timely_robots.indy7.driver:Indy7Driver",
}
"""kind -> module:class. Every kind listed here goes through the conformance suite."""


def driver_class(kind: str) -> type[RobotDriver]:
    """The driver of that kind.

    Raises:
        UnknownName: there is none; the message lists the known ones.
    """
    if kind not in DRIVERS:
        raise UnknownName("robot driver", kind, DRIVERS, where="driver")
    module, name = DRIVERS[kind].split(":")
    found: type[RobotDriver] = getattr(importlib.import_module(module), name)
    return found
