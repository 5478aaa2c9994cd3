"""``timely replay``: a trace through an engine; what each robot saw, as JSON, report or picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.output import STDOUT, JsonFile, write_json
from timely.disciplines.registry import DEFAULT
from timely.engines.replaying import ReplayOptions
from timely.replay.run import replay
from timely.replay.trace import Tasks


def command(
    trace: Annotated[Path, typer.Argument(help="A trace file (*.lrtrace.jsonl).")],
    engine: Annotated[str, typer.Option(help="sim or vllm.")] = "sim",
    discipline: Annotated[
        str, typer.Option(help="Queue discipline; `timely disciplines` lists them.")
    ] = DEFAULT,
    mode: Annotated[str, typer.Option(help="segmented, stream or whole.")] = "segmented",
    profile: Annotated[str | None, typer.Option(help="Step-time profile: a name or a YAML file.")] = None,
    max_batch: Annotated[int | None, typer.Option(min=1, help="Most sequences in a step.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(min=1, help="KV blocks.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Most tokens in a step.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Run a trace through an engine and report what robots saw."""
    options = ReplayOptions(
        discipline=discipline, mode=mode, profile=profile, max_batch=max_batch, token_budget=token_budget,  # type: ignore[arg-type]
        kv_blocks=kv_blocks, seed=seed,
    )  # fmt: skip
    tasks = Tasks(trace)
    result = replay(tasks, options, engine=engine, trace=tasks.name)
    write_json(json_file, result)
    if json_file != STDOUT:
        summary = result["summary"]
        typer.echo(
            f"{summary['jobs']} jobs, share served {summary['share_served']}, utility {summary['utility_mean']}"
        )
