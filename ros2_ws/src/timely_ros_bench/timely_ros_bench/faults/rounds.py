"""The faults of each round of ``timely bench faults``: drawn by a seed, every kind before any comes again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from timely.core.errors import InvalidInput, UnknownName

KINDS = (
    *("late_segment", "unsafe_plan", "driver_killed", "bridge_killed", "server_killed", "dds_cut"),
    *("emulator_dies", "battery", "driver_hangs", "bridge_hangs", "server_hangs"),
    *("dds_cut_sent", "dds_cut_received", "fleet_stop", "two_bridges", "disk_full"),
    *("server_disk_hangs", "bridge_disk_hangs", "driver_disk_hangs"),
    *("clock_jumps", "overload", "new_scene"),
)
COMPANIONS = tuple(kind for kind in KINDS if kind not in ("late_segment", "unsafe_plan", "battery"))
"""Faults that may follow another one in its round."""
OF_A_TELLO = ("battery",)
OF_AN_EMULATOR = ("emulator_dies", "driver_disk_hangs")
"""The drivers of simulated robots keep nothing on a disk."""
OF_A_DRONE = ("new_scene",)
FLEET = ("tello", "indy7", "sim", "sim")
SEGMENTS = 4
"""Of every plan."""
LONGEST_HOLD_S = 6.0
LABELS = {"tello": "tello", "indy7": "arm", "sim": "sim"}
"""kind -> what its robots are called; a number follows."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one robot, when its segment ``segment`` has been under way for ``delay_s``.

    Attributes:
        hold_s: how long a process hangs, or is away before it is started again.
        companion: another fault, which follows after its own ``delay_s``.
    """

    kind: str
    robot: str
    segment: int
    delay_s: float
    hold_s: float = 0.0
    companion: Fault | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind, self.companion.kind) if self.companion else (self.kind,)


def fault_schedule(count: int, seed: int, robots: Sequence[str]) -> list[Fault]:
    """So many rounds; every kind that the robots allow comes once before any comes again.

    Once every kind has come alone, every second round is a pair. A longer schedule begins with the shorter one.

    Args:
        robots: names such as ``tello1``; the letters say the kind of robot.
    """
    rng = random.Random(seed)
    emulator_robots = [name for name in robots if faulty_robot_kind(name) != "sim"]
    tellos = [name for name in robots if faulty_robot_kind(name) == "tello"]
    drones = [name for name in robots if faulty_robot_kind(name) != "indy7"]

    def possible_kinds(kinds: Sequence[str]) -> list[str]:
        return [
            kind
            for kind in kinds
            if (kind not in OF_A_TELLO or tellos)
            and (kind not in OF_AN_EMULATOR or emulator_robots)
            and (kind not in OF_A_DRONE or drones)
        ]

    def draw(kind: str) -> Fault:
        names = list(robots)
        for kinds, some in ((OF_A_TELLO, tellos), (OF_AN_EMULATOR, emulator_robots), (OF_A_DRONE, drones)):
            if kind in kinds:
                names = some
        segment = rng.randrange(SEGMENTS - 1)
        return Fault(
            kind, rng.choice(names), segment, rng.uniform(0.0, 1.0), rng.uniform(0.0, LONGEST_HOLD_S)
        )

    kinds, faults = possible_kinds(KINDS), list[Fault]()
    while len(faults) < count:
        for kind in rng.sample(kinds, len(kinds)):
            fault = draw(kind)
            if len(faults) >= len(kinds) and len(faults) % 2:
                others = [other for other in possible_kinds(COMPANIONS) if other != kind]
                fault = replace(fault, companion=draw(rng.choice(others)))
            faults.append(fault)
    return faults[:count]


def faulty_robot_kind(robot: str) -> str:
    label = robot.rstrip("0123456789")
    return next(kind for kind, robot_label in LABELS.items() if robot_label == label)


def faulty_robot_names(fleet: Sequence[str]) -> list[str]:
    """``tello1``, ``arm1``, ``sim1``, ``sim2`` ... of kinds of robots.

    Raises:
        UnknownName: no such kind here. InvalidInput: there is none.
    """
    if not fleet:
        raise InvalidInput("names no robot", where="robots")
    names: list[str] = []
    for kind in fleet:
        if kind not in LABELS:
            raise UnknownName("robot", kind, LABELS, where="robots")
        label = LABELS[kind]
        names.append(f"{label}{1 + sum(name.startswith(label) for name in names)}")
    return names
