"""``lrtrace compose``: compose a workload into a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from lrtrace.cli.output import JsonFile, Output, check_lrtrace_option, print_lrtrace_result
from lrtrace.compose.composition import CompositionOptions, compose_workload
from lrtrace.compose.events import parse_workload_events, parse_workload_trace_ids
from lrtrace.compose.stories import UNITS, Unit
from lrtrace.compose.workload import WORKLOADS, find_workload
from lrtrace.errors import BadInput
from lrtrace.models import How
from lrtrace.plan_text import count_trace_tokens
from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import RobotProfile
from lrtrace.trace import write_trace


def lrtrace_compose_command(
    output: Output,
    workload: Annotated[str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.")],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bytes.")] = 0,
    eps: Annotated[float | None, typer.Option(help="Events per second.")] = None,
    max_tpe: Annotated[int | None, typer.Option(help="Most tasks per event.")] = None,
    agents: Annotated[int | None, typer.Option(help="Robots (of each kind).")] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Seconds in which events happen.")
    ] = None,
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
        float | None,
        typer.Option(metavar="SECONDS", help="Delay to the robots, seconds; else the profile's."),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A tokenizer.json to count tokens with.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compose a workload into a trace.

    Poisson events, tasks in parallel, robots with one task at a time.
    """
    _refuse_unused_lrtrace_options(
        arrivals, "--arrivals gives the times", {"--eps": eps, "--duration": duration}
    )
    _refuse_unused_lrtrace_options(
        events,
        "--events gives the tasks",
        {"--max-tpe": max_tpe, "--trace-ids": trace_ids, "--duration": duration},
    )
    changes = {
        "eps": eps,
        "max_tpe": max_tpe,
        "agents": agents,
        "duration_s": duration,
        "trace_ids": None if trace_ids is None else parse_workload_trace_ids(trace_ids),
        "prompt_tokens": prompt_tokens,
        "shared_prefix_tokens": _lrtrace_shared_prefix_tokens(workload, prompt_tokens, shared_prefix),
    }
    options = CompositionOptions(
        profiles=_lrtrace_robot_options(robot or []),
        how=cast(
            How, check_lrtrace_option("execution", execution, ("sample", "mean", "minimum", "estimate"))
        ),
        when_busy=cast(Any, check_lrtrace_option("policy", when_busy, ("wait", "drop"))),
        unit=cast(Unit, check_lrtrace_option("unit", unit, UNITS)),
        network_s=network,
        count=count_trace_tokens if tokenizer is None else _lrtrace_token_counter(tokenizer),
    )
    composition = compose_workload(
        workload,
        seed,
        arrivals=None if arrivals is None else _read_lrtrace_arrivals_s(arrivals),
        events=None if events is None else parse_workload_events(events),
        options=options,
        **{name: value for name, value in changes.items() if value is not None},
    )
    unused = sorted(options.profiles.keys() - composition.header.extra["composed"]["robots"].keys())
    if unused:
        raise BadInput(f"no task is for {', '.join(unused)}", where="--robot")
    write_trace(output, composition.header, composition.jobs)
    tally = asdict(composition.tally)
    lines = [f"{output}: {tally['jobs']} jobs in {tally['events']} events"]
    if tally["waited"]:
        lines.append(f"{tally['waited']} tasks waited for an idle robot, up to {tally['waited_s']:.1f} s")
    if tally["dropped"]:
        lines.append(f"{tally['dropped']} tasks left out: no robot was idle")
    print_lrtrace_result(
        json_file, {"trace": str(output), "workload": workload, "seed": seed, **tally}, lines
    )


def _refuse_unused_lrtrace_options(source: object, why: str, options: Mapping[str, object]) -> None:
    """Raise BadInput for an option that has no effect beside its source, where that is named."""
    for option, value in options.items():
        if source is not None and value is not None:
            raise BadInput(f"has no effect: {why}", where=option)


def _lrtrace_shared_prefix_tokens(workload: str, prompt: int | None, shared: int | None) -> int | None:
    """The length of the shared prefix. By default a shorter prompt keeps its part that is not shared."""
    if shared is not None or prompt is None:
        return shared
    usual = find_workload(workload)
    return max(0, prompt - (usual.prompt_tokens - usual.shared_prefix_tokens))


def _lrtrace_robot_options(options: Sequence[str]) -> dict[str, RobotProfile]:
    profiles: dict[str, RobotProfile] = {}
    for text in options:
        kind, equals, name = text.partition("=")
        if not equals:
            raise BadInput(f"write SKILLSET=PROFILE, got {text!r}", where="--robot")
        profiles[check_lrtrace_option("skill set", kind, ("drone", "arm", "chat"))] = load_robot_profile(name)
    return profiles


def _read_lrtrace_arrivals_s(path: Path) -> list[float]:
    times: list[float] = []
    try:
        text = path.read_text(encoding="utf-8-sig")
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
    if not times:
        raise BadInput("no arrivals", where=str(path))
    return times


def _lrtrace_token_counter(path: Path) -> Callable[[str], int]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BadInput("--tokenizer needs the package 'tokenizers'", where=str(path)) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise BadInput(f"not a tokenizer.json: {error}", where=str(path)) from error
    return lambda text: max(1, len(tokenizer.encode(text, add_special_tokens=False).ids))
