"""Drives a robot through a grid and writes every run at its end. An interrupted recording can be continued."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from lrtrace.errors import BadInput, UnknownName
from lrtrace.jsonl import decode_jsonl, encode_jsonl, open_trace_input, raw_trace_lines
from lrtrace.plan_text import parse_trace_calls, robot_profile_execution_s
from lrtrace.record.grid import RecordGrid, RecordGridUnit
from lrtrace.robot_profile import RobotProfile
from lrtrace.yaml_file import read_lrtrace_yaml

DRIVERS = "lrtrace.drivers"
"""Entry-point group of packages that open robot drivers. Timely's ROS 2 drivers are in it."""
TIMEOUT_S = 120.0
"""Longest execution of one text, seconds of robot time."""
MAX_FAILURES = 3
"""After this many failures in a row the recording stops, since the robot needs a person."""


@dataclass(frozen=True, slots=True)
class RecordedExecution:
    """The result of a text on a robot. ``elapsed_s`` is the driver's own measurement, seconds."""

    outcome: str
    elapsed_s: float
    message: str = ""


class RecordableRobot(Protocol):
    """A robot that executes plan texts, one at a time."""

    @property
    def profile(self) -> RobotProfile: ...

    def execute(self, text: str, timeout_s: float) -> RecordedExecution:
        """Execute and wait until the robot is at rest. A failure is an outcome, not an error."""

    def close(self) -> None: ...


@dataclass(slots=True)
class GridRecording:
    total: int
    done: int = 0
    """Number of runs in the file that did not fail."""
    samples: int = 0
    robot_s: float = 0.0
    """Robot time of this recording, seconds."""
    left_s: float = 0.0
    """Robot time of the remaining runs, seconds: that of the profile, corrected by the runs so far."""
    resumed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    stopped: str = ""
    """Reason for an early end."""


Report = Callable[[GridRecording], None]


def open_robot_to_record(fleet: str | Path, name: str, speed: float) -> RecordableRobot:
    """The driver of one robot of a fleet file, without other robots in this process.

    Args:
        speed: factor by which an emulated or simulated robot and its driver are faster than real time.

    Raises:
        BadInput: no such robot, the ROS 2 side is not installed, or the driver does not start.
    """
    file = read_lrtrace_yaml(Path(fleet))
    robots, where = file.value.get("robots"), f"{fleet}:{file.line(('robots',)) or 1}"
    if not isinstance(robots, Mapping):
        raise BadInput("robots: must be a mapping", where=where)
    if not name and len(robots) == 1:
        name = next(iter(robots))
    if name not in robots:
        raise UnknownName("robot", name, robots, where=where)
    openers = list(entry_points(group=DRIVERS))
    if not openers:
        raise BadInput(
            "driving a robot needs the ROS 2 packages: `make setup` or `make robots`", where=str(fleet)
        )
    try:
        return cast(RecordableRobot, openers[0].load()(name, robots[name] or {}, speed))
    except (ValueError, TypeError, RuntimeError) as error:
        raise BadInput(" ".join(str(error).split()), where=f"{fleet}, robot {name}") from error


def record_grid(
    grid: RecordGrid,
    robot: RecordableRobot,
    output: Path,
    *,
    seed: int = 0,
    repetitions: int | None = None,
    report: Report | None = None,
) -> GridRecording:
    """Execute a grid. Each run becomes a line of ``output`` at its end.

    An existing file is continued without repeating its runs. A failed run is written with its outcome, and the next
    recording tries it again. After ``MAX_FAILURES`` failures in a row the recording stops. It does not start if the
    grid's ``begin`` fails, since the robot is not where the runs expect it.

    ``report`` is called before the first run and after each one.

    Raises:
        BadInput: the file cannot be written, or belongs to another grid, seed or robot; or the robot's profile lacks
            a skill of the grid.
    """
    schedule = grid.schedule(seed, repetitions)
    mark = {"grid": grid.fingerprint, "seed": seed, "robot": robot.profile.name}
    finished_keys = _finished_grid_runs(output, mark)
    state = GridRecording(len(schedule))
    remaining = [(key, unit) for key, unit in schedule if key not in finished_keys]
    state.done = state.resumed = len(schedule) - len(remaining)
    expected_s = [_expected_record_s(unit, robot.profile) for _, unit in remaining]
    state.left_s = sum(expected_s)
    try:
        file = output.open("a", encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(output)) from error
    with file:
        if remaining and report is not None:
            report(state)
        if remaining and grid.begin:
            execution = robot.execute(grid.begin, TIMEOUT_S)
            state.robot_s += execution.elapsed_s
            if execution.outcome != "done":
                state.stopped = f"begin: {execution.message or execution.outcome}"
                return state
        failures, begin_s = 0, state.robot_s
        for number, (key, unit) in enumerate(remaining, 1):
            lines, problem = _record_grid_unit(robot, unit, state)
            for place, line in enumerate(lines):
                last = place == len(lines) - 1 and not problem
                file.write(encode_jsonl({**mark, **line, "run": key, "last": last}))
            file.flush()
            os.fsync(file.fileno())
            state.done += not problem
            past_s = sum(expected_s[:number])
            pace = (state.robot_s - begin_s) / past_s if past_s > 0.0 else 1.0
            state.left_s = pace * sum(expected_s[number:])
            failures = failures + 1 if problem else 0
            if report is not None:
                report(state)
            if failures >= MAX_FAILURES:
                state.stopped = problem
                break
    return state


def _expected_record_s(unit: RecordGridUnit, profile: RobotProfile) -> float:
    try:
        return sum(robot_profile_execution_s(text, profile) for text in unit.texts)
    except BadInput as error:
        raise BadInput(f"{unit.key}: {error.message}", where=f"grid for {profile.name}") from error


def _record_grid_unit(
    robot: RecordableRobot, unit: RecordGridUnit, state: GridRecording
) -> tuple[list[dict[str, Any]], str]:
    """(lines, reason of a failure) of one unit. After a failure the rest of the unit does not run."""
    lines: list[dict[str, Any]] = []
    for text in unit.texts:
        execution = robot.execute(text, TIMEOUT_S)
        state.robot_s += execution.elapsed_s
        single = _single_recorded_call(text, robot.profile)
        if execution.outcome != "done":
            state.failed[execution.message or execution.outcome] += 1
            lines.append(
                {**(single or {"skill": text, "args": {}}), "elapsed_s": round(execution.elapsed_s, 6)}
            )
            lines[-1] |= {"outcome": execution.outcome, "message": execution.message}
            return lines, execution.message or execution.outcome
        if single is not None:
            state.samples += 1
            lines.append({**single, "elapsed_s": round(execution.elapsed_s, 6)})
    # Without this line a unit of only joined calls would run again.
    return lines or [{"skill": unit.key, "args": {}, "elapsed_s": 0.0, "outcome": "joined"}], ""


def _single_recorded_call(text: str, profile: RobotProfile) -> dict[str, Any] | None:
    """Skill, arguments and units of a text with one call; None for several calls."""
    calls = parse_trace_calls(text)
    if len(calls) != 1:
        return None
    skill = profile.skill_name(calls[0].skill)
    args, units = profile.sample_args(skill, calls[0].args)
    return {"skill": skill, "args": args, **({"units": units} if units else {})}


def _finished_grid_runs(path: Path, mark: Mapping[str, Any]) -> set[str]:
    """Keys of the runs in the file. An incomplete last run of a killed recording is cut off.

    Raises:
        BadInput: the file is unreadable or belongs to another recording.
    """
    if not path.exists():
        return set()
    keys: set[str] = set()
    whole = 0
    with open_trace_input(path) as file:
        for number, offset, line in raw_trace_lines(path, file):
            if not line.endswith(b"\n"):
                break
            raw = decode_jsonl(path, number, line)
            for name, value in mark.items():
                if raw.get(name) != value:
                    raise BadInput(
                        f"was recorded with {name} {raw.get(name)!r}, now it is {value!r}: choose another file",
                        where=f"{path}:{number}",
                    )
            if raw.get("last"):
                keys.add(str(raw.get("run")))
                whole = offset + len(line)
    if whole < path.stat().st_size:
        os.truncate(path, whole)
    return keys
