"""Results of benchmarks: as JSON, and as tables on the terminal and in Markdown."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from timely.cli.output import write_cli_json
from timely.core.files import STDOUT, core_write_file

FILE_WIDTH = 240
"""Columns where output is no terminal: a file or a pipe is as wide as a table needs."""


def make_cli_console(json_file: Path | None) -> Console:
    """A console on stdout, or on stderr when the JSON result goes to stdout."""
    on_stderr = json_file == STDOUT
    console = Console(stderr=on_stderr)
    return console if console.is_terminal else Console(stderr=on_stderr, width=FILE_WIDTH)


def show_cli_table(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], markdown: Path | None = None
) -> None:
    """Print a table whose cells may hold Markdown, and write it to ``markdown`` too."""
    if markdown is not None:
        lines = [
            "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |\n"
            for cells in (headings, ["---"] * len(headings), *rows)
        ]
        core_write_file(markdown, "".join(lines))
    table = Table(*headings)
    for row in rows:
        table.add_row(*(cell.strip("*`") for cell in row))
    console.print(table)


def show_cli_bench_result(
    json_file: Path | None,
    result: object,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *notes: str,
    markdown: Path | None = None,
) -> None:
    write_cli_json(json_file, result)
    console = make_cli_console(json_file)
    show_cli_table(console, headings, rows, markdown)
    for note in notes:
        console.print(note)


def format_cli_number(value: float | None) -> str:
    """Four significant digits; nothing for None."""
    return "" if value is None else f"{value:.4g}"
