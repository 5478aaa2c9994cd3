"""Drives a robot through a grid and writes every run down as it ends; goes on where an earlier recording stopped."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from lrtrace.errors import BadInput, UnknownName
from lrtrace.jsonl import decode, encode, open_input, raw_lines
from lrtrace.plan_text import parse_calls
from lrtrace.profiles import RobotProfile
from lrtrace.record.grid import Grid, Unit
from lrtrace.record.samples import Value
from lrtrace.yaml_file import read_yaml

DRIVERS = "lrtrace.drivers"
"""Entry-point group of the packages that open robot drivers; Timely's ROS 2 drivers are in it."""
MAX_FAILURES = 3
"""So many failures in a row mean that the robot needs a human: a battery, a hand, a cable."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a text that a robot was sent: ``elapsed_s`` is the driver's own stopwatch, seconds."""

    outcome: str
    elapsed_s: float
    message: str = ""


class Robot(Protocol):
    """A robot that executes plan texts, one at a time."""

    @property
    def profile(self) -> RobotProfile:
        """Its limits and names of arguments."""
        ...

    def execute(self, text: str, timeout_s: float) -> Ran:
        """Execute and wait until the robot is at rest; a failure is an outcome, not an error."""
        ...

    def close(self) -> None:
        """Let go of the robot, safely."""
        ...


@dataclass(slots=True)
class Recording:
    """How far it is."""

    total: int
    done: int = 0
    samples: int = 0
    robot_s: float = 0.0
    """Robot time of this session, seconds."""
    resumed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    stopped: str = ""
    """Why it ended before the grid did."""


Tell = Callable[[Recording], None]


def open_robot(fleet: str | Path, name: str, speed: float) -> Robot:
    """The driver of one robot of a fleet file, alone in this process.

    Args:
        speed: how many times faster than real time robot (an emulator, a simulation) and driver live.

    Raises:
        BadInput: no such robot, the ROS 2 side is not installed, or the driver does not start.
    """
    file = read_yaml(Path(fleet))
    robots = file.value.get("robots")
    if not isinstance(robots, Mapping):
        raise BadInput("robots: must be a mapping", where=str(fleet))
    if not name and len(robots) == 1:
        name = next(iter(robots))
    if name not in robots:
        raise UnknownName("robot", name, robots, where=str(fleet))
    openers = list(entry_points(group=DRIVERS))
    if not openers:
        raise BadInput(
            "driving a robot needs the ROS 2 packages: `make setup` or `make robots`", where=str(fleet)
        )
    try:
        return cast(Robot, openers[0].load()(name, robots[name] or {}, speed))
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(" ".join(str(error).split()), where=f"{fleet}, robot {name}") from error


def record_grid(
    grid: Grid,
    robot: Robot,
    output: Path,
    *,
    seed: int = 0,
    repetitions: int | None = None,
    timeout_s: float = 120.0,
    tell: Tell | None = None,
) -> Recording:
    """Work through a grid; each run is a line of ``output`` the moment it ends.

    A file that is there already is continued: what is in it is not run again. A run that failed is written with its
    outcome, and tried again by the next recording; after ``MAX_FAILURES`` of them in a row this one stops.

    Args:
        timeout_s: longest single text, robot seconds.

    Raises:
        BadInput: the file cannot be written, or is one of another grid, seed or robot.
    """
    schedule = grid.schedule(seed, repetitions)
    mark = {"grid": grid.fingerprint, "seed": seed, "robot": robot.profile.name}
    known = _known_runs(output, mark)
    state = Recording(len(schedule))
    left = [(key, unit) for key, unit in schedule if key not in known]
    state.done = state.resumed = len(schedule) - len(left)
    try:
        file = output.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(output)) from error
    with file:
        if left and grid.begin:
            state.robot_s += robot.execute(grid.begin, timeout_s).elapsed_s
        unlucky = 0
        for key, unit in left:
            lines, problem = _run(robot, unit, timeout_s, state)
            for number, line in enumerate(lines):
                last = number == len(lines) - 1 and not problem
                file.write(encode({**mark, **line, "run": key, "last": last}))
            file.flush()
            os.fsync(file.fileno())
            state.done += 1
            unlucky = unlucky + 1 if problem else 0
            if tell is not None:
                tell(state)
            if unlucky >= MAX_FAILURES:
                state.stopped = problem
                break
    return state


def _run(robot: Robot, unit: Unit, timeout_s: float, state: Recording) -> tuple[list[dict[str, Any]], str]:
    """(lines, why it failed) of one unit. When a text fails the rest of its unit is not sent."""
    lines: list[dict[str, Any]] = []
    for text in unit.texts:
        ran = robot.execute(text, timeout_s)
        state.robot_s += ran.elapsed_s
        single = _single(text, robot.profile)
        if ran.outcome != "done":
            state.failed[ran.message or ran.outcome] += 1
            lines.append({**(single or {"skill": text, "args": {}}), "elapsed_s": round(ran.elapsed_s, 6)})
            lines[-1] |= {"outcome": ran.outcome, "message": ran.message}
            return lines, ran.message or ran.outcome
        if single is not None:
            state.samples += 1
            lines.append({**single, "elapsed_s": round(ran.elapsed_s, 6)})
    # A unit of nothing but joined calls would leave no trace and be run again.
    return lines or [{"skill": unit.key, "args": {}, "elapsed_s": 0.0, "outcome": "joined"}], ""


def _single(text: str, profile: RobotProfile) -> dict[str, Any] | None:
    """Skill, arguments and units if the text is one call; None if it is several."""
    calls = parse_calls(text)
    if len(calls) != 1:
        return None
    skill = profile.skill_name(calls[0].skill)
    limits = profile.skills[skill].args
    args: dict[str, Value] = {
        name: value if isinstance(value, (float, str)) else str(value)
        for name, value in profile.named_args(skill, calls[0].args).items()
    }
    units = {name: limits[name].unit for name in args if name in limits and limits[name].numeric}
    return {"skill": skill, "args": args, **({"units": units} if units else {})}


def _known_runs(path: Path, mark: Mapping[str, Any]) -> set[str]:
    """Runs that are in the file already; what a killed recording left half written is cut off.

    Raises:
        BadInput: unreadable, or it holds something else.
    """
    if not path.exists():
        return set()
    found: set[str] = set()
    whole = 0
    with open_input(path) as file:
        for number, offset, line in raw_lines(path, file):
            if not line.endswith(b"\n"):
                break
            raw = decode(path, number, line)
            for name, value in mark.items():
                if raw.get(name) != value:
                    raise BadInput(
                        f"was recorded with {name} {raw.get(name)!r}, now it is {value!r}: choose another file",
                        where=f"{path}:{number}",
                    )
            if raw.get("last"):
                found.add(str(raw.get("run")))
                whole = offset + len(line)
    if whole < path.stat().st_size:
        os.truncate(path, whole)
    return found
