"""``timely bench restart``: what a killed server loses."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from timely.cli.bench.options import cli_checkpoint, print_cli_progress
from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile


def command(
    points: Annotated[int, typer.Option(min=1, max=100_000, help="How often the server is killed.")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the moments of the kills and the robots' execution times.")
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Kill a server with robots at random points.

    It is killed by SIGKILL and started again; what the robots received is compared.

    With a JSON file, an interrupted run goes on where it was (FILE.partial).
    """
    from timely.bench.restart import bench_restarts

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = cli_checkpoint(json_file)
        result = asyncio.run(
            bench_restarts(Path(folder), points, seed, print_cli_progress, checkpoint=checkpoint)
        )
    waits = result["next_segment_s"]
    rows = [
        ("plans, segments", f"{result['plans']}, {result['segments']}"),
        ("lost, repeated", f"{result['lost']}, {result['repeated']}"),
        ("next segment, p50 and p99, s", f"{waits['p50']:.2f}, {waits['p99']:.2f}"),
        ("delay of a segment by the log, ms", f"{result['durability_ms']:.3f}"),
    ]
    show_cli_bench_result(json_file, result, (f"{points} kills", ""), rows)
    if result["lost"] or result["repeated"]:
        for line in result["wrong"]:
            typer.echo(line, err=True)
        raise typer.Exit(1)
