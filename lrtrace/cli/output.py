"""Options and output that all commands share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lrtrace.errors import UnknownName
from lrtrace.files import check_trace_output
from lrtrace.jsonl import open_trace_output
from lrtrace.plots import lrtrace_figure_format


def _check_lrtrace_output(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work, not after it. Raises BadInput."""
    if path is not None and str(path) != "-":
        check_trace_output(path)
    return path


def _check_lrtrace_plot(path: Path | None) -> Path | None:
    if path is not None:
        lrtrace_figure_format(path)
    return _check_lrtrace_output(path)


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=_check_lrtrace_output,
        help="Write the result as JSON; - for standard output.",
    ),
]
Output = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", callback=_check_lrtrace_output, help="The file to write."),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        callback=_check_lrtrace_plot,
        help="Also draw a picture (.png, .svg or .pdf).",
    ),
]


def print_lrtrace_result(json_file: Path | None, values: dict[str, Any], lines: Sequence[str]) -> None:
    """Print the lines, and write the values to ``json_file``. With "-" print only the values."""
    if json_file is not None:
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
        if str(json_file) == "-":
            typer.echo(text)
            return
        with open_trace_output(json_file) as file:
            file.write(text + "\n")
    for line in lines:
        typer.echo(line)


def check_lrtrace_option(kind: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``. Raises UnknownName."""
    if value not in choices:
        raise UnknownName(kind, value, choices)
    return value
