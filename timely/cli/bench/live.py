"""``timely bench live``: the paper's comparison on the real engine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from timely.cli.bench.options import (
    TRY_AGAIN,
    DefaultSystem,
    cli_command_line,
    require_cli_package,
    split_cli_names,
)
from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal
from timely.core.cpu_latency import processors_awake, wake_latency_for_measurement
from timely.core.errors import InvalidInput, check_name

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    workloads: Annotated[
        str, typer.Option(help="Comma-separated; NAME[@LOAD][:SECONDS], names and loads of bench capacity.")
    ] = "wid1,wid2,wid3",
    systems: Annotated[
        str,
        typer.Option(help="Comma-separated; timely, weighted-tardiness, pud, edf, fcfs, vllm-stream, vllm."),
    ] = "timely,pud,edf,fcfs,vllm-stream,vllm",
    seed: Annotated[int, typer.Option(min=0, help="Of the first repetition's tasks; +1 for each more.")] = 7,
    repetitions: Annotated[int, typer.Option(min=1, help="Each system so often, in turn.")] = 2,
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Of the prediction; runs: each run's own step and admission times;"
            " runs-with-drift: and how the machine's speed changed in it.",
        ),
    ] = "cpu-smollm2",
    model: Annotated[str | None, typer.Option(metavar="DIR|NAME", help="To serve; the built-in one.")] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the runs; a later call goes on in it.")
    ] = Path("out/live"),
    budget: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Begin no run after so long; 0 only reports."),
    ] = None,
    default_system: DefaultSystem = False,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> int:
    """The paper's comparison on the real engine.

    It runs in real time, the simulator's prediction beside it.

    Arguments that it does not know go to vLLM.
    """
    from timely.bench.live.engine import LiveBenchVllm
    from timely.bench.live.report import live_bench_report_text, make_live_bench_report
    from timely.bench.live.runs import LiveBenchRuns
    from timely.bench.live.settings import SYSTEMS, LiveBenchSettings, parse_live_bench_workloads
    from timely.disciplines.registry import discipline_ablation_names

    names = split_cli_names(systems)
    for name in names:
        check_name("system", name, [*SYSTEMS, *discipline_ablation_names()], where="--systems")
    if not names:
        raise InvalidInput("names no system", where="--systems")
    settings = LiveBenchSettings(
        parse_live_bench_workloads(workloads), tuple(names), seed, model=model, arguments=tuple(context.args)
    )
    runs = LiveBenchRuns(out, settings)
    left = len(list(runs.pending(repetitions)))
    if left and budget != 0.0:
        require_cli_package("vllm")
        budget_s = float("inf") if budget is None else budget
        latency_us, how = wake_latency_for_measurement(default_system)
        with quiet_cli_terminal("bench-live", verbose=verbose) as terminal, processors_awake(latency_us):
            terminal.say(how)
            left = asyncio.run(
                runs.measure(LiveBenchVllm(out, settings), repetitions, budget_s=budget_s, say=terminal.say)
            )
    report = make_live_bench_report(runs, profile)
    write_cli_json(json_file, {"command": cli_command_line(context), **report})
    cli_say(json_file)(live_bench_report_text(report))
    if left:
        typer.echo(f"timely: {left} runs are left; the same command goes on.", err=True)
    return TRY_AGAIN if left else 0
