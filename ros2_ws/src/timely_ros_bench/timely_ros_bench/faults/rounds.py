"""What strikes whom in each round of ``timely bench faults``: drawn by a seed, every kind before any comes again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from timely.core.errors import UnknownName

KINDS = (
    "late_segment",
    "unsafe_plan",
    "driver_killed",
    "bridge_killed",
    "server_killed",
    "dds_cut",
    "emulator_dies",
    "battery",
)
OF_A_TELLO = ("battery",)
OF_AN_EMULATOR = ("emulator_dies",)
FLEET = ("tello", "indy7", "sim", "sim")
SEGMENTS = 4
"""Of every plan."""
LABELS = {"tello": "tello", "indy7": "arm", "sim": "sim"}
"""kind -> what its robots are called; a number follows."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One round: what strikes whom, when its segment ``segment`` is under way for ``delay_s``."""

    kind: str
    robot: str
    segment: int
    delay_s: float


def fault_schedule(count: int, seed: int, robots: Sequence[str]) -> list[Fault]:
    """So many faults; every kind that the robots allow comes once before any comes again.

    Args:
        robots: names such as ``tello1``; the letters say the kind of robot.
    """
    rng = random.Random(seed)
    emulated = [name for name in robots if faulty_robot_kind(name) != "sim"]
    tellos = [name for name in robots if faulty_robot_kind(name) == "tello"]
    kinds = [
        kind
        for kind in KINDS
        if (kind not in OF_A_TELLO or tellos) and (kind not in OF_AN_EMULATOR or emulated)
    ]
    faults: list[Fault] = []
    while len(faults) < count:
        for kind in rng.sample(kinds, len(kinds)):
            whom = tellos if kind in OF_A_TELLO else emulated if kind in OF_AN_EMULATOR else list(robots)
            faults.append(Fault(kind, rng.choice(whom), rng.randrange(SEGMENTS - 1), rng.uniform(0.0, 1.0)))
    return faults[:count]


def faulty_robot_kind(robot: str) -> str:
    """The kind of a robot, by its name."""
    label = robot.rstrip("0123456789")
    return next(kind for kind, called in LABELS.items() if called == label)


def faulty_robot_names(fleet: Sequence[str]) -> list[str]:
    """``tello1``, ``arm1``, ``sim1``, ``sim2`` ... of kinds of robots.

    Raises:
        UnknownName: no such kind here.
    """
    names: list[str] = []
    for kind in fleet:
        if kind not in LABELS:
            raise UnknownName("robot", kind, LABELS, where="robots")
        label = LABELS[kind]
        names.append(f"{label}{1 + sum(name.startswith(label) for name in names)}")
    return names
