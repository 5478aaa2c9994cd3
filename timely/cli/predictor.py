"""``timely predictor``: files that disciplines predict from, made from traces of what has been served."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from timely.cli.output import STDOUT, JsonFile, check_target, write_json
from timely.replay.training import build_history, train_costs

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)

Traces = Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces, *.lrtrace.jsonl.")]
Target = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", callback=check_target, help="Where to write it (.npz)."),
]


@app.command()
def costs(
    traces: Traces,
    output: Target,
    cost: Annotated[str, typer.Option(help="kv (justitia, srjf), or weighted (justitia-c: p + 2 d).")] = "kv",
    seed: Annotated[int, typer.Option(min=0, help="Of the networks' weights.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Train what applications cost, one model a type. Serve with --discipline justitia=FILE.

    A type is what stands before the first / of a job's app; 100 instances are plenty, 8 the least.
    """
    report, too_few = train_costs(traces, output, unit=cost, seed=seed)
    write_json(json_file, {"cost": cost, "types": [asdict(row) for row in report], "too_few": too_few})
    console = Console(stderr=json_file == STDOUT)
    table = Table("type", "applications", "error, held back", "trained in")
    for row in report:
        error = "" if row.error is None else f"{row.error:.0%}"
        table.add_row(row.kind, str(row.applications), error, f"{row.train_s:.2f} s")
    console.print(table)
    if too_few:
        console.print(f"too few instances, learned while serving: {', '.join(too_few)}")


@app.command()
def history(
    traces: Traces,
    output: Target,
    embedder: Annotated[str, typer.Option(help="hash (in every install), or wordllama.")] = "hash",
    json_file: JsonFile = None,
) -> None:
    """Remember how long answers to which prompts got. Serve with --discipline sagesched=FILE.

    The latest 10,000 requests are kept. ssjf, ltr, trail and vllm-sjf take the file too.
    """
    begun = time.perf_counter()
    kept = build_history(traces, output, space=embedder)
    spent = time.perf_counter() - begun
    write_json(json_file, {"requests": kept, "embedder": embedder, "seconds": spent})
    Console(stderr=json_file == STDOUT).print(f"{kept} requests remembered in {spent:.1f} s")
