"""``timely bench closed-loop``: what robots' reports are worth."""

from typing import Annotated

import typer

from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile


def command(
    seeds: Annotated[int, typer.Option(min=1, help="How many workloads.")] = 5,
    workload: Annotated[str, typer.Option(help="wid1, wid2 or wid3.")] = "wid2",
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=10, max=86400, help="How much of each.")
    ] = 300.0,
    discipline: Annotated[str, typer.Option(help="Queue discipline.")] = "timely",
    json_file: JsonFile = None,
) -> None:
    """Waiting times with and without execution reports.

    Execution times are 30% off the profile, in the simulator.
    """
    from timely.bench.closed_loop import measure_closed_loop

    result = measure_closed_loop(
        list(range(1, seeds + 1)), workload=workload, duration_s=seconds, discipline=discipline
    )
    rows = [
        (
            case,
            *(f"{row['waiting_s'][name]:.4f}" for name in ("perfect", "closed", "open")),
            *(f"{100 * (row[f'{name}_over_perfect'] - 1):+.1f}%" for name in ("closed", "open")),
        )
        for case, row in result["cases"].items()
    ]
    headings = ("robots are", "exact profile, s", "closed loop, s", "open loop, s", "closed", "open")
    note = f"mean waiting a task, {result['tasks']} tasks of {workload}, {seeds} seeds, {discipline}"
    show_cli_bench_result(json_file, result, headings, rows, note)
