"""The command ``lrtrace``: compose, record, import, fit, summarise. Errors are one line and exit code 2."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from lrtrace.compose.stories import UNITS, Unit
from lrtrace.compose.tasks import TASKS
from lrtrace.compose.workload import WORKLOADS, Options, compose, find_workload, parse_events, parse_ids
from lrtrace.errors import BadInput, LRTraceError, UnknownName
from lrtrace.fit.execution_time import KINDS, METHODS, MIN_SAMPLES, Fit, Kind, Method, check_fit, fit_samples
from lrtrace.fit.fitted_profile import plot_residuals, profile_of, write_profile
from lrtrace.importers.event_log import read_event_log
from lrtrace.importers.mcap_file import read_mcap
from lrtrace.importers.public_traces import SOURCES, Import
from lrtrace.importers.recorded_tasks import RecordedTask, Taken, to_samples, to_trace
from lrtrace.jsonl import open_output
from lrtrace.plan_text import How, count_tokens
from lrtrace.profiles import NAME, RobotProfile, find_profile, load_profile, profile_names
from lrtrace.record.grid import Grid, read_grid
from lrtrace.record.recorder import Recording, Robot, open_robot, record_grid
from lrtrace.record.samples import Sample, read_samples, write_samples
from lrtrace.stats import COLUMNS, plot_stats, stats_of
from lrtrace.trace import Trace, Tuf, write_trace

OK, STOPPED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="lrtrace",
    help="Time traces of robots that plan with an LLM: compose, record, import, fit, summarise.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output."),
]
Output = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Also draw a picture (.png, .svg or .pdf).")
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits 0 on success, 2 on bad input, 130 on Ctrl-C."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; whatever is wrong with the input is one line on stderr."""
    try:
        result = app(list(arguments) or ["--help"], prog_name="lrtrace", standalone_mode=False)
    except LRTraceError as error:
        return _complain(error)
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message, file=sys.stderr)
            return BAD_INPUT
        context = getattr(error, "ctx", None)
        where = context.command_path.removeprefix("lrtrace").strip() if context else ""
        return _complain(f"{where}: {message}" if where else message)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain when it flushes at exit.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return OK
    except OSError as error:
        if error.filename is None:
            raise
        return _complain(f"{error.filename}: {error.strerror}")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else OK


def _complain(error: object) -> int:
    print("lrtrace: " + " ".join(str(error).split()), file=sys.stderr)
    return BAD_INPUT


def _result(json_file: Path | None, values: dict[str, Any], lines: Sequence[str]) -> None:
    """Print the lines, or write the values where ``--json`` says."""
    if json_file is not None:
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
        if str(json_file) == "-":
            typer.echo(text)
            return
        with open_output(json_file) as file:
            file.write(text + "\n")
    for line in lines:
        typer.echo(line)


def _one_of(what: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise UnknownName(what, value, known)
    return value


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            found = installed_version("timely-serving")
        except PackageNotFoundError:
            found = "not installed"
        typer.echo(f"lrtrace {found}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Time traces of robots that plan with an LLM: compose, record, import, fit, summarise."""


@app.command("compose")
def compose_command(
    output: Output,
    workload: Annotated[str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.")],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bytes.")] = 0,
    eps: Annotated[float | None, typer.Option(help="Events per second.")] = None,
    max_tpe: Annotated[int | None, typer.Option(help="Most tasks per event.")] = None,
    agents: Annotated[int | None, typer.Option(help="Robots (of each kind).")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds in which events happen.")] = None,
    trace_ids: Annotated[str | None, typer.Option(help="Tasks to draw from, like 1-8; 0 is a chat.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Tokens of a prompt.")] = None,
    shared_prefix: Annotated[int | None, typer.Option(help="Tokens of it that all share.")] = None,
    events: Annotated[
        str | None, typer.Option(help="Given events instead of random ones: '{(Trace1, Trace2), Trace8}'.")
    ] = None,
    arrivals: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Given event times, one a line, seconds.")
    ] = None,
    robot: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SKILLSET=PROFILE", help="Profile of the robots, like drone=sim-drone or arm=my.yaml."
        ),
    ] = None,
    execution: Annotated[str, typer.Option(help="Times: sample, mean, minimum or estimate.")] = "sample",
    when_busy: Annotated[str, typer.Option(help="A task without idle robot: wait or drop.")] = "wait",
    unit: Annotated[str, typer.Option(help="Segments of a chat: sentence or paragraph.")] = "sentence",
    network: Annotated[
        float | None, typer.Option(help="Delay to the robots, seconds; else the profile's.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A tokenizer.json to count tokens with.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compose a workload into a trace: Poisson events, tasks in parallel, robots with one task at a time."""
    changes = {
        "eps": eps,
        "max_tpe": max_tpe,
        "agents": agents,
        "duration_s": duration,
        "trace_ids": None if trace_ids is None else parse_ids(trace_ids),
        "prompt_tokens": prompt_tokens,
        "shared_prefix_tokens": _shared(workload, prompt_tokens, shared_prefix),
    }
    options = Options(
        profiles=_robots(robot or []),
        how=cast(How, _one_of("execution", execution, ("sample", "mean", "minimum", "estimate"))),
        when_busy=cast(Any, _one_of("policy", when_busy, ("wait", "drop"))),
        unit=cast(Unit, _one_of("unit", unit, UNITS)),
        network_s=network,
        count=count_tokens if tokenizer is None else _counter(tokenizer),
    )
    composition = compose(
        workload,
        seed,
        arrivals=None if arrivals is None else _read_times(arrivals),
        events=None if events is None else parse_events(events),
        options=options,
        **{name: value for name, value in changes.items() if value is not None},
    )
    write_trace(output, composition.header, composition.jobs)
    tally = asdict(composition.tally)
    lines = [f"{output}: {tally['jobs']} jobs in {tally['events']} events"]
    if tally["waited"]:
        lines.append(f"{tally['waited']} tasks waited for an idle robot, up to {tally['waited_s']:.1f} s")
    if tally["dropped"]:
        lines.append(f"{tally['dropped']} tasks left out: no robot was idle")
    _result(json_file, {"trace": str(output), "workload": workload, "seed": seed, **tally}, lines)


def _shared(workload: str, prompt: int | None, shared: int | None) -> int | None:
    """A shorter prompt keeps the part of it that is not shared, unless the shared part is given."""
    if shared is not None or prompt is None:
        return shared
    usual = find_workload(workload)
    return max(0, prompt - (usual.prompt_tokens - usual.shared_prefix_tokens))


def _robots(given: Sequence[str]) -> dict[str, RobotProfile]:
    profiles: dict[str, RobotProfile] = {}
    for text in given:
        kind, equals, name = text.partition("=")
        if not equals:
            raise BadInput(f"write SKILLSET=PROFILE, got {text!r}", where="--robot")
        profiles[_one_of("skill set", kind, ("drone", "arm", "chat"))] = load_profile(name)
    return profiles


def _read_times(path: Path) -> list[float]:
    times: list[float] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"cannot read it: {getattr(error, 'strerror', None) or error}", where=str(path)
        ) from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            times.append(float(line))
        except ValueError:
            raise BadInput(
                f"must be a time in seconds, got {line.strip()!r}", where=f"{path}:{number}"
            ) from None
        if not 0 <= times[-1] < 1e9 or (len(times) > 1 and times[-1] < times[-2]):
            raise BadInput("must be zero or more and not before the line above", where=f"{path}:{number}")
    return times


def _counter(path: Path) -> Callable[[str], int]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BadInput("--tokenizer needs the package 'tokenizers'", where=str(path)) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # its own error type is a bare Exception
        raise BadInput(f"not a tokenizer.json: {error}", where=str(path)) from error
    return lambda text: max(1, len(tokenizer.encode(text, add_special_tokens=False).ids))


@app.command("stats")
def stats_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE")], plot: Plot = None, json_file: JsonFile = None
) -> None:
    """Summarise a trace: arrivals, tokens, execution times, how many robots are busy at once."""
    stats = stats_of(trace)
    if plot is not None:
        plot_stats(stats, plot)
    values = stats.summary()
    lines = [
        f"{values['name'] or trace}: {values['jobs']} jobs in {values['duration_s']:.1f} s, {values['agents']} agents",
        "classes: " + ", ".join(f"{count} {name}" for name, count in values["by_class"].items()),
        "skill sets: " + ", ".join(f"{count} {name}" for name, count in values["by_skill_set"].items()),
        f"tasks in progress: {values['busy']['mean']:.1f} on average, {values['busy']['peak']} at most",
        f"{'':28}{'mean':>10}{'min':>10}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}",
    ]
    for name, words in COLUMNS.items():
        if (column := values[name]) is not None:
            cells = "".join(f"{value:>10.4g}" for value in column.values())
            lines.append(f"{words:28}{cells}")
    _result(json_file, values, lines)


@app.command("sort")
def sort_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE")], output: Output, json_file: JsonFile = None
) -> None:
    """Order the jobs of a trace by arrival."""
    source = Trace(trace)
    jobs = write_trace(output, source.header, source.jobs_by_arrival())
    _result(json_file, {"trace": str(output), "jobs": jobs}, [f"{output}: {jobs} jobs"])


@app.command("import")
def import_command(
    source: Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(SOURCES)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    output: Output,
    limit: Annotated[int | None, typer.Option(help="Take the first so many requests.")] = None,
    speed: Annotated[float, typer.Option(help="2 makes them arrive twice as fast.")] = 1.0,
    tuf: Annotated[
        str, typer.Option(metavar="ERT,ALPHA,BETA", help="Time-utility function of every request.")
    ] = "1.0,-2.0,1.0",
    network: Annotated[float, typer.Option(help="Delay to the users, seconds.")] = 0.0,
    json_file: JsonFile = None,
) -> None:
    """Turn a public request trace (Azure, Mooncake, BurstGPT) into ours."""
    found = Import(source, file, tuf=_tuf(tuf), limit=limit, speed=speed, network_s=network)
    write_trace(output, found.header, found.jobs)
    lines = [f"{output}: {found.tally.jobs} jobs"]
    if found.tally.skipped:
        lines.append(f"{found.tally.skipped} rows without prompt or answer were left out")
    _result(json_file, {"trace": str(output), **asdict(found.tally)}, lines)


def _tuf(text: str) -> Tuf:
    try:
        ert_s, alpha, beta = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"write ERT,ALPHA,BETA, got {text!r}", where="--tuf") from None
    try:
        return Tuf(ert_s, alpha, beta)
    except BadInput as error:
        raise BadInput(error.message, where="--tuf") from error


@app.command("record")
def record_command(
    output: Output,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Event logs (.jsonl) or recordings (.mcap); or --grid."),
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
    prompt_tokens: Annotated[int, typer.Option(help="Where the log does not say.")] = 1300,
    shared_prefix: Annotated[
        int | None, typer.Option(help="Tokens that all prompts share; else as cached.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Turn event logs or ROS 2 recordings into a trace or into runs to fit; or drive a robot through a grid of skills.

    With --grid and --fleet: every run is a line of the output the moment it ends, in an order that the seed fixes, and
    the same command again goes on where an interrupted recording stopped.
    """
    if grid is not None:
        if files or fleet is None:
            raise BadInput("give --fleet with it, and no files", where="--grid")
        _drive(read_grid(grid), open_robot(fleet, robot, speed), output, seed, repetitions, json_file)
        return
    if not files:
        raise BadInput("give event logs or recordings, or --grid and --fleet", where="record")
    kind = what or _kind_of(output)
    _one_of("output", kind, ("trace", "samples"))
    tasks: list[RecordedTask] = []
    for parts in _recordings(files):
        found = read_mcap(*parts) if parts[0].suffix == ".mcap" else read_event_log(parts[0])
        # Recordings have clocks of their own: one after the other.
        shift = (
            0.0
            if not tasks
            else max(task.arrival_s for task in tasks) + 1.0 - found[0].arrival_s
            if found
            else 0.0
        )
        for task in found:
            task.arrival_s += shift
        tasks.extend(found)
    taken = Taken()
    if kind == "trace":
        header, jobs = to_trace(
            tasks,
            output.name.partition(".")[0],
            taken,
            prompt_tokens=prompt_tokens,
            shared_prefix_tokens=shared_prefix,
        )
        write_trace(output, header, jobs)
    else:
        write_samples(output, to_samples(tasks, _profiles(tasks, profile or []), taken))
    lines = [f"{output}: {taken.made} {'jobs' if kind == 'trace' else 'samples'} from {len(tasks)} tasks"]
    lines += [f"left out: {count} x {why}" for why, count in sorted(taken.left_out.items())]
    _result(json_file, {kind: str(output), "tasks": len(tasks), **taken.summary()}, lines)


def _recordings(files: Sequence[Path]) -> list[list[Path]]:
    """The files of each recording, in order: ``day_0.mcap`` and ``day_1.mcap`` are one."""
    groups: dict[object, list[tuple[int, Path]]] = {}
    for place, file in enumerate(files):
        name, underscore, number = file.stem.rpartition("_")
        part = file.suffix == ".mcap" and underscore and number.isdecimal()
        key = (file.parent, name) if part else place
        groups.setdefault(key, []).append((int(number) if part else 0, file))
    return [[file for _, file in sorted(group)] for group in groups.values()]


def _drive(
    grid: Grid, robot: Robot, output: Path, seed: int, repetitions: int | None, json_file: Path | None
) -> None:
    """Record a grid; ends with status 1 when the robot needs a human first."""

    def tell(state: Recording) -> None:
        new = state.done - state.resumed
        left_s = state.robot_s / new * (state.total - state.done)
        print(f"{state.done}/{state.total} runs, about {left_s:.0f} s of robot time left", file=sys.stderr)

    try:
        found = record_grid(grid, robot, output, seed=seed, repetitions=repetitions, tell=tell)
    finally:
        robot.close()
    lines = [f"{output}: {found.done} of {found.total} runs, {found.samples} new samples"]
    if found.resumed:
        lines.append(f"{found.resumed} runs were there already")
    lines += [f"failed: {count} x {why}" for why, count in sorted(found.failed.items())]
    if found.stopped:
        lines.append(f"stopped early: {found.stopped}; the same command goes on from here")
    _result(json_file, {"samples": str(output), **asdict(found)}, lines)
    if found.stopped:
        raise typer.Exit(STOPPED)


def _kind_of(output: Path) -> str:
    if output.name.endswith(".lrtrace.jsonl"):
        return "trace"
    if output.name.endswith(".samples.jsonl"):
        return "samples"
    raise BadInput("end the name with .lrtrace.jsonl or .samples.jsonl, or say --as", where=str(output))


def _profiles(tasks: Sequence[RecordedTask], given: Sequence[str]) -> dict[str, RobotProfile]:
    """Profiles of the robots in the log; a profile given without a robot stands for all that have none."""
    named: dict[str, RobotProfile] = {}
    other: RobotProfile | None = None
    for text in given:
        robot, equals, name = text.rpartition("=")
        if equals:
            named[robot] = load_profile(name)
        else:
            other = load_profile(name)
    for robot in {task.robot for task in tasks} - set(named):
        if other is not None:
            named[robot] = other
        elif robot in profile_names():
            named[robot] = find_profile(robot)
    return named


@app.command("fit")
def fit_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="SAMPLES...", help="Recorded runs (.samples.jsonl).")
    ],
    output: Output,
    base: Annotated[
        str | None,
        typer.Option(metavar="PROFILE", help="Keep the limits and the other skills of this profile."),
    ] = None,
    method: Annotated[str, typer.Option(help=f"{' or '.join(METHODS)}.")] = "least-squares",
    level: Annotated[float, typer.Option(help="Which quantile, for the quantile method.")] = 0.5,
    model: Annotated[
        list[str] | None, typer.Option(metavar="SKILL=MODEL", help=f"Model of a skill: {', '.join(KINDS)}.")
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(metavar="SKILL", help="Its time depends on the scene: plan with its minimum."),
    ] = None,
    min_samples: Annotated[
        int, typer.Option(min=MIN_SAMPLES, help="Refuse skills with fewer runs.")
    ] = MIN_SAMPLES,
    on: Annotated[str, typer.Option(help="What was measured, in words, for the profile.")] = "",
    network: Annotated[float | None, typer.Option(min=0.0, help="Delay to the robot, seconds.")] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(metavar="SAMPLES", help="Runs of another recording that the errors are measured on."),
    ] = None,
    plot: Plot = None,
    json_file: JsonFile = None,
) -> None:
    """Fit execution-time models to recorded runs and write them as a robot profile (named like the file)."""
    if output.suffix != ".yaml" or not NAME.fullmatch(output.stem):
        raise BadInput("name the profile like my-drone.yaml", where=str(output))
    known = None if base is None else load_profile(base)
    runs = [sample for file in files for sample in read_samples(file)]
    fit = fit_samples(
        _not_empty(runs, files),
        base=known,
        method=cast(Method, _one_of("method", method, METHODS)),
        level=level,
        kinds=_kinds(model or []),
        variable=variable or (),
        min_samples=min_samples,
    )
    date = datetime.now(UTC).date().isoformat()
    others = (sample for file in check or () for sample in read_samples(file))
    checked = check_fit(fit, others, known) if check else {}
    raw = profile_of(fit, output.stem, date=date, on=on, base=known, network_s=network, checked=checked)
    write_profile(output, raw)
    if plot is not None:
        plot_residuals(fit, plot)
    report = {skill: fitted.summary() for skill, fitted in fit.skills.items()}
    for skill, error in checked.items():
        report[skill]["checked_error"] = round(error, 6)
    _result(
        json_file,
        {"profile": str(output), "robot": fit.robot, "samples": fit.samples, "skills": report},
        [
            f"{output}: {len(fit.skills)} skills from {fit.samples} runs of {fit.robot}",
            *_report_lines(fit, checked),
        ],
    )


def _not_empty(runs: list[Sample], files: Sequence[Path]) -> list[Sample]:
    if not runs:
        raise BadInput("no run that was done", where=", ".join(map(str, files)))
    return runs


def _kinds(given: Sequence[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for text in given:
        skill, equals, kind = text.partition("=")
        if not equals:
            raise BadInput(f"write SKILL=MODEL, got {text!r}", where="--model")
        kinds[skill] = cast(Kind, _one_of("model", kind, KINDS))
    return kinds


def _report_lines(fit: Fit, checked: Mapping[str, float]) -> list[str]:
    heading = f"{'skill':18}{'model':10}{'runs':>6}{'mean s':>10}{'min s':>10}{'residual s':>12}{'held-out error':>16}"
    lines = [heading + (f"{'on other runs':>15}" if checked else "")]
    for skill, fitted in fit.skills.items():
        found = fitted.summary()
        lines.append(
            f"{skill:18}{found['model']:10}{found['samples']:>6}{found['mean_s']:>10.3f}{found['min_s']:>10.3f}"
            f"{found['residual_std_s']:>12.4f}{100 * fitted.estimate_error:>15.1f}%"
            + (f"{100 * checked[skill]:>14.1f}%" if skill in checked else "")
            + (" (minimum rule)" if fitted.model.variable else "")
        )
    return lines


@app.command("tasks")
def tasks_command(json_file: JsonFile = None) -> None:
    """List the benchmark tasks and their plans."""
    values, lines = [], []
    for task in TASKS.values():
        plans = [list(variant.segments) for variant in task.variants]
        values.append(
            {
                "trace_id": task.trace_id,
                "title": task.title,
                "kind": task.kind,
                "task": task.task,
                "skill_set": task.skill_set,
                "robot": task.robot,
                "tuf": task.tuf.to_dict(),
                "urgency": task.urgency,
                "plans": plans,
            }
        )
        lines.append(f"{task.trace_id:>3}  {task.title} ({task.kind})")
        lines += [f"       {' '.join(segments)}" for segments in plans]
    _result(json_file, {"tasks": values}, lines)


@app.command("profiles")
def profiles_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|FILE]...", help="Show or check these.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List robot profiles, or show (and so check) some."""
    profiles = [load_profile(name) for name in names or profile_names()]
    lines: list[str] = []
    for profile in profiles:
        lines.append(f"{profile.name}: {profile.robot}")
        lines += _profile_lines(profile) if names else []
    _result(json_file, {"profiles": [profile.model_dump(mode="json") for profile in profiles]}, lines)


def _profile_lines(profile: RobotProfile) -> list[str]:
    lines = [f"  source: {profile.source}", f"  network: {profile.network_s:g} s"]
    for skill, entry in profile.skills.items():
        limits = ", ".join(
            f"{name} {limit.min:g}..{limit.max:g} {limit.unit}"
            if limit.min is not None and limit.max is not None
            else name
            for name, limit in entry.args.items()
        )
        allowed = "" if profile.allows(skill) else "  [forbidden]"
        lines.append(
            f"  {skill}({limits}): {_model_text(entry.execution)}, {entry.basis or 'no basis given'}{allowed}"
        )
    return lines


def _model_text(model: Any) -> str:
    if model.model == "linear":
        return f"{model.intercept_s:g} s + {model.per_unit_s:g} s/{model.unit}"
    if model.model == "constant":
        return f"{model.seconds:g} s"
    return f"{model.quantiles_s[0]:g} to {model.quantiles_s[-1]:g} s"


if __name__ == "__main__":
    main()
