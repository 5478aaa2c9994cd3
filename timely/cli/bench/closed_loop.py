"""``timely bench closed-loop``: what robots' reports are worth."""

from typing import Annotated

import typer

from timely.cli.bench.tables import make_cli_console, show_table
from timely.cli.output import JsonFile, write_cli_json


def command(
    seeds: Annotated[int, typer.Option(min=1, help="How many workloads.")] = 5,
    workload: Annotated[str, typer.Option(help="wid1, wid2 or wid3.")] = "wid2",
    seconds: Annotated[float, typer.Option(min=10, help="How much of each.")] = 300.0,
    discipline: Annotated[str, typer.Option(help="Who decides.")] = "timely",
    json_file: JsonFile = None,
) -> None:
    """Waiting times with execution times 30% off the profile: robots report, or they do not (simulator)."""
    from timely.bench.closed_loop import measure_closed_loop

    result = measure_closed_loop(
        list(range(1, seeds + 1)), workload=workload, duration_s=seconds, discipline=discipline
    )
    write_cli_json(json_file, result)
    rows = [
        (
            case,
            *(f"{row['waiting_s'][name]:.4f}" for name in ("perfect", "closed", "open")),
            *(f"{100 * (row[f'{name}_over_perfect'] - 1):+.1f}%" for name in ("closed", "open")),
        )
        for case, row in result["cases"].items()
    ]
    console = make_cli_console(json_file)
    headings = ("robots are", "exact profile, s", "closed loop, s", "open loop, s", "closed", "open")
    show_table(console, headings, rows)
    console.print(f"mean waiting a task, {result['tasks']} tasks of {workload}, {seeds} seeds, {discipline}")
