"""``timely bench plain``: ordinary requests beside stock vLLM."""

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.bench.options import cli_checkpoint, print_cli_progress, require_cli_package
from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}

ARGUMENTS = (
    "--block-size", "32", "--max-model-len", "4096", "--max-num-seqs", "64", "--max-num-batched-tokens", "1024",
)  # fmt: skip
"""Of all servers, before those of the command line, which win."""


def command(
    context: typer.Context,
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each server, in turn.")] = 3,
    discipline: Annotated[str, typer.Option(help="Queue discipline of our scheduler.")] = "timely",
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="Model folder; the packaged one by default.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Compile the model; takes minutes on CPUs.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Half the requests; each server is started once and stays.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of logs and results.")] = Path("out/plain"),
    json_file: JsonFile = None,
) -> None:
    """Ordinary requests over those of stock vLLM.

    Throughput and latency are measured by `vllm bench serve`.

    The servers are `vllm serve`, the same with our scheduler, and `timely serve`. Other arguments go to all of them.
    An interrupted run that writes --json FILE goes on from FILE.partial when it is called again.
    """
    require_cli_package("vllm")
    from timely.bench.plain import (
        MEASURES,
        PROMPTS,
        QUICK_PROMPTS,
        SERVERS,
        VllmBench,
        benchmark_plain_throughput,
    )
    from timely.disciplines import registry
    from timely.engines.vllm.arguments import fastest_vllm_dtype
    from timely.engines.vllm.model import NO_PLANNER, resolve_vllm_model

    registry.load_discipline(discipline)
    out.mkdir(parents=True, exist_ok=True)
    folder = str(resolve_vllm_model(model, planner=NO_PLANNER, progress=print_cli_progress))
    # `timely serve` is eager on CPUs unless told otherwise, so each server gets the choice.
    eager = "--no-enforce-eager" if compiled else "--enforce-eager"
    prompts = QUICK_PROMPTS if quick else PROMPTS
    arguments = (*ARGUMENTS, "--dtype", fastest_vllm_dtype(), eager, *context.args)
    bench = VllmBench(out, folder, arguments, discipline, prompts, quick)
    settings = {
        "model": folder, "arguments": list(arguments), "discipline": discipline, "prompts": prompts, "keep": quick,
    }  # fmt: skip
    try:
        result = benchmark_plain_throughput(
            bench.run, repetitions, print_cli_progress, cli_checkpoint(json_file), settings
        )
    finally:
        bench.close()
    rows = [(name, *(f"{result[name][server]:.3f}" for server in SERVERS[1:])) for name in MEASURES]
    data = {"compiled": compiled, "discipline": discipline, **result}
    show_cli_bench_result(json_file, data, ("over stock vLLM", *SERVERS[1:]), rows)
