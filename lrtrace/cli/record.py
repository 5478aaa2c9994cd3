"""``lrtrace record``: convert event logs and recordings, or drive a robot through a grid of skills."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lrtrace.cli.output import JsonFile, Output, check_lrtrace_option, print_lrtrace_result
from lrtrace.errors import BadInput
from lrtrace.importers.event_log import import_event_log
from lrtrace.importers.mcap_file import import_mcap
from lrtrace.importers.recorded_tasks import (
    ImportConversion,
    ImportedTask,
    convert_to_imported_trace,
    import_skill_samples,
)
from lrtrace.profiles import find_robot_profile, load_robot_profile, robot_profile_names
from lrtrace.record.grid import RecordGrid, read_record_grid
from lrtrace.record.recorder import GridRecording, RecordableRobot, open_robot_to_record, record_grid
from lrtrace.record.samples import write_recorded_samples
from lrtrace.robot_profile import RobotProfile
from lrtrace.trace import write_trace

STOPPED = 1


def lrtrace_record_command(
    output: Output,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Event logs (.jsonl) or recordings (.mcap); or --grid."),
    ] = None,
    grid: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Drive a robot through this grid of skills instead.")
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fleet file that says how to reach the robot.")
    ] = None,
    robot: Annotated[str, typer.Option(metavar="NAME", help="Which of the fleet; else its only one.")] = "",
    speed: Annotated[
        float,
        typer.Option(min=0.1, max=50.0, help="Times faster than real time; an emulator needs the same."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the grid's runs.")] = 0,
    repetitions: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Instead of the grid's own.")
    ] = None,
    what: Annotated[
        str | None, typer.Option("--as", help="trace or samples; else as the name of the output says.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROBOT=]PROFILE", help="Profile of a robot in the log, if not the one of that name."
        ),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Where the log does not say.")] = 1300,
    shared_prefix: Annotated[
        int | None, typer.Option(min=0, help="Tokens that all prompts share; else as cached.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Turn recordings into a trace or runs, or drive a robot.

    Event logs or ROS 2 recordings become a trace, or runs to fit; --grid drives a robot through a grid of skills.
    With --grid and --fleet: every run becomes a line of the output when it ends. The seed fixes the order. The same
    command continues an interrupted recording.
    """
    if grid is not None:
        if files or fleet is None:
            raise BadInput("give --fleet with it, and no files", where="--grid")
        runs = read_record_grid(grid)
        with closing(open_robot_to_record(fleet, robot, speed)) as driver:
            _drive_lrtrace_grid(runs, driver, output, seed, repetitions, speed, json_file)
        return
    if fleet is not None:
        raise BadInput("goes with --grid", where="--fleet")
    if not files:
        raise BadInput("give event logs or recordings, or --grid and --fleet", where="record")
    kind = what or _lrtrace_output_kind(output)
    check_lrtrace_option("output", kind, ("trace", "samples"))
    tasks: list[ImportedTask] = []
    for parts in _group_lrtrace_recordings(files):
        recording = import_mcap(*parts) if parts[0].suffix == ".mcap" else import_event_log(parts[0])
        # Each recording has its own clock, so they follow one another.
        if tasks and recording:
            shift_s = max(task.arrival_s for task in tasks) + 1.0 - recording[0].arrival_s
            for task in recording:
                task.arrival_s += shift_s
        tasks.extend(recording)
    profiles = _lrtrace_robot_profiles(tasks, profile or [])
    conversion = ImportConversion()
    if kind == "trace":
        header, jobs = convert_to_imported_trace(
            tasks,
            output.name.partition(".")[0],
            conversion,
            prompt_tokens=prompt_tokens,
            shared_prefix_tokens=shared_prefix,
        )
        write_trace(output, header, jobs)
    else:
        write_recorded_samples(output, import_skill_samples(tasks, profiles, conversion))
    lines = [
        f"{output}: {conversion.converted} {'jobs' if kind == 'trace' else 'samples'} from {len(tasks)} tasks"
    ]
    if conversion.assumed_prompts:
        lines.append(
            f"{conversion.assumed_prompts} prompts of unknown length count as {prompt_tokens} tokens"
            " (--prompt-tokens, --shared-prefix)"
        )
    lines += [f"left out: {count} x {why}" for why, count in sorted(conversion.left_out.items())]
    print_lrtrace_result(json_file, {kind: str(output), "tasks": len(tasks), **conversion.summary()}, lines)


def _group_lrtrace_recordings(files: Sequence[Path]) -> list[list[Path]]:
    """Group the files by recording, in order: ``day_0.mcap`` and ``day_1.mcap`` are one recording."""
    groups: dict[object, list[tuple[int, Path]]] = {}
    for place, file in enumerate(files):
        name, underscore, number = file.stem.rpartition("_")
        part = file.suffix == ".mcap" and underscore and number.isdecimal()
        key = (file.parent, name) if part else place
        groups.setdefault(key, []).append((int(number) if part else 0, file))
    return [[file for _, file in sorted(group)] for group in groups.values()]


def _drive_lrtrace_grid(
    grid: RecordGrid,
    robot: RecordableRobot,
    output: Path,
    seed: int,
    repetitions: int | None,
    speed: float,
    json_file: Path | None,
) -> None:
    """Record a grid. Exits with status 1 if the robot needs a person first."""

    def report(state: GridRecording) -> None:
        left_s = state.left_s / speed
        print(f"{state.done}/{state.total} runs, about {left_s:.0f} s left", file=sys.stderr)

    recording = record_grid(grid, robot, output, seed=seed, repetitions=repetitions, report=report)
    lines = [f"{output}: {recording.done} of {recording.total} runs, {recording.samples} new samples"]
    if recording.resumed:
        lines.append(f"{recording.resumed} runs were there already")
    lines += [f"failed: {count} x {why}" for why, count in sorted(recording.failed.items())]
    if recording.stopped:
        lines.append(f"stopped early: {recording.stopped}; the same command goes on from here")
    print_lrtrace_result(json_file, {"samples": str(output), **asdict(recording)}, lines)
    if recording.stopped:
        raise typer.Exit(STOPPED)


def _lrtrace_output_kind(output: Path) -> str:
    if output.name.endswith(".lrtrace.jsonl"):
        return "trace"
    if output.name.endswith(".samples.jsonl"):
        return "samples"
    raise BadInput("end the name with .lrtrace.jsonl or .samples.jsonl, or say --as", where=str(output))


def _lrtrace_robot_profiles(tasks: Sequence[ImportedTask], options: Sequence[str]) -> dict[str, RobotProfile]:
    """Profiles of the robots in the log. A profile without a robot applies to all robots without their own."""
    by_robot: dict[str, RobotProfile] = {}
    other: RobotProfile | None = None
    for text in options:
        robot, equals, name = text.rpartition("=")
        if equals:
            by_robot[robot] = load_robot_profile(name)
        else:
            other = load_robot_profile(name)
    for robot in sorted({task.robot for task in tasks} - set(by_robot)):
        if other is not None:
            by_robot[robot] = other
        elif robot in robot_profile_names():
            by_robot[robot] = find_robot_profile(robot)
    return by_robot
