"""``timely bench results``: the page of results with its pictures."""

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.bench.options import require_cli_package
from timely.core.files import core_read_json

File = Annotated[Path, typer.Option(metavar="FILE", help="Its JSON.", exists=True, dir_okay=False)]
Files = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Its JSON; again for each call.", exists=True, dir_okay=False),
]


def command(
    capacity: Files,
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
    from timely.bench.results import write_bench_results_page

    write_bench_results_page(
        page, [core_read_json(file) for file in capacity], core_read_json(cross), core_read_json(live), ours
    )
    typer.echo(f"timely: {page}")
