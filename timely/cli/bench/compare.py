"""``timely bench compare``: systems on traces of your own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.bench.options import MarkdownFile, cli_command_line, print_cli_progress, split_cli_names
from timely.cli.bench.tables import make_cli_console, show_cli_table
from timely.cli.output import JsonFile, write_cli_json
from timely.core.errors import InvalidInput


def command(
    context: typer.Context,
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="Traces, *.lrtrace.jsonl, such as one a seed.")
    ],
    systems: Annotated[
        str, typer.Option(help="Comma-separated; any discipline, or one of `timely bench capacity`.")
    ] = "timely,edf,vllm-stream,vllm",
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Step times of the machine.")
    ] = "rtx4090-llama3-8b",
    token_budget: Annotated[int | None, typer.Option(min=1, help="Most tokens in a step.")] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Shared prefixes are cached from the start.")] = False,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Systems on traces of your own, with intervals.

    Each trace is replayed under each system in the simulator. Each mean has half of its 95% interval over the traces.
    A second table has the differences from the first system, trace by trace: beyond their interval they are no chance.
    """
    from timely.bench.compare import compare_systems
    from timely.engines.replay_types import ReplayOptions

    names = split_cli_names(systems)
    if not names:
        raise InvalidInput("names no system", where="--systems")
    options = ReplayOptions(profile=profile, token_budget=token_budget, warm_prefixes=warm, journal=False)
    result = compare_systems(traces, names, options, print_cli_progress)
    write_cli_json(json_file, {"command": cli_command_line(context), **result})
    console = make_cli_console(json_file)
    headings = [f"{measure}, {unit}" for measure, unit in result["units"].items()]
    rows = result["systems"]
    show_cli_table(console, ("system", *headings), _cli_comparison_cells(rows, "mean", "interval"), markdown)
    if len(rows) > 1:
        console.print(f"Differences from {names[0]}:")
        others = {name: row for name, row in rows.items() if name != names[0]}
        show_cli_table(
            console, ("system", *headings), _cli_comparison_cells(others, "difference", "difference_interval")
        )


def _cli_comparison_cells(rows: dict[str, Any], value: str, interval: str) -> list[tuple[str, ...]]:
    def cell(entry: dict[str, Any] | None) -> str:
        if entry is None:
            return ""
        sign = "+" if value == "difference" else ""
        bounds = entry[interval]
        return f"{entry[value]:{sign}.4g}" + ("" if bounds is None else f" ±{bounds[1] - entry[value]:.2g}")

    return [(f"`{name}`", *map(cell, row.values())) for name, row in rows.items()]
