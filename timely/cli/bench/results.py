"""``timely bench results``: the page of results with its pictures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.bench.options import require_cli_package
from timely.core.errors import InvalidInput

File = Annotated[Path, typer.Option(metavar="FILE", help="Its JSON.", exists=True, dir_okay=False)]


def command(
    capacity: File,
    cross: File,
    live: File,
    page: Annotated[Path, typer.Option(help="The page to write; pictures go beside it.")] = Path(
        "out/results.md"
    ),
    ours: Annotated[str, typer.Option(help="The discipline that stands out.")] = "timely",
) -> None:
    """Draw the page of results.

    Out of the JSON files of capacity, cross and live.
    """
    require_cli_package("matplotlib")
    from timely.bench.results import write_results_page

    write_results_page(page, _read(capacity), _read(cross), _read(live), ours)
    typer.echo(f"timely: {page}")


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read as JSON: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise InvalidInput("holds no JSON object", where=str(path))
    return value
