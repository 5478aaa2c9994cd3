"""``timely bench gpu``: every claim about an engine, measured on this machine and written as a page."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from timely.cli.bench.options import (
    TRY_AGAIN,
    cli_command_line,
    print_cli_progress,
    require_cli_package,
    split_cli_names,
)
from timely.cli.output import JsonFile, write_cli_json
from timely.core.errors import EngineFailed, InvalidInput
from timely.core.files import core_read_json, core_write_file

RUN_S = 540.0
"""Default length of a call: below ten minutes."""


def command(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the stages; a later call goes on in it.")
    ] = Path("out/gpu"),
    size: Annotated[
        str | None,
        typer.Option(metavar="tiny|8b|24b", help="Of the model; what the machine takes unless given."),
    ] = None,
    loads: Annotated[str, typer.Option(help="Of WID 2, comma-separated; by the machine unless given.")] = "",
    budget: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Stop after so long; exit code 75, to be run again."),
    ] = RUN_S,
    stages: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="The stages to run, in this order, comma-separated; what each needs comes first.",
        ),
    ] = "",
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="The page; FOLDER/results-gpu.md unless given.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry", help="Check the machine and say what would run.")] = False,
    json_file: JsonFile = None,
) -> int:
    """All measurements of a GPU machine on one page.

    Step times, overhead, throughput against stock vLLM, and robots in time.

    A model with made-up weights is written first. Each stage is kept, and no call takes longer than the budget.
    """
    require_cli_package("vllm")
    from timely.bench.gpu.report import write_gpu_page
    from timely.bench.gpu.stages import (
        STAGES,
        GpuBench,
        call_in_fresh_gpu_process,
        check_gpu_machine,
        default_gpu_settings,
        gpu_bench_stage_order,
    )

    order = gpu_bench_stage_order(split_cli_names(stages) or list(STAGES))

    machine_file = out / "machine.json"
    machine = (
        core_read_json(machine_file)
        if machine_file.exists()
        else call_in_fresh_gpu_process(check_gpu_machine)
    )
    settings = default_gpu_settings(machine, size, _parse_cli_loads(loads))
    if dry:
        expected_s = {name: STAGES[name].expected_s for name in order}
        write_cli_json(
            json_file, {"machine": machine, "settings": asdict(settings), "expected_s": expected_s}
        )
        for name, seconds in expected_s.items():
            print_cli_progress(f"{name}: {seconds:.0f} s")
        print_cli_progress(
            f"{machine['name']}: model {settings.size}, {sum(expected_s.values()):.0f} s in all"
        )
        return 0
    bench = GpuBench(out, settings, print_cli_progress)
    core_write_file(machine_file, json.dumps(machine, indent=1) + "\n")
    left = bench.run(budget, order)
    results = bench.results()
    write_gpu_page(
        page or out / "results-gpu.md", machine, asdict(settings), results,
        f".venv/bin/{cli_command_line(context)}",
    )  # fmt: skip
    write_cli_json(
        json_file, {"machine": machine, "settings": asdict(settings), "stages": results, "left": left}
    )
    if left:
        print_cli_progress(f"timely: left are {', '.join(left)}; the same command goes on.")
    if bench.failures:
        raise EngineFailed(
            "; ".join(f"{name}: {error}" for name, error in bench.failures.items()), where="gpu"
        )
    return TRY_AGAIN if left else 0


def _parse_cli_loads(text: str) -> tuple[float, ...]:
    try:
        loads = tuple(float(part) for part in split_cli_names(text))
    except ValueError:
        raise InvalidInput(f"{text!r} are no numbers", where="--loads") from None
    if any(not 0.01 <= load <= 100.0 for load in loads):
        raise InvalidInput("each must be 0.01 to 100", where="--loads")
    return loads
