"""``timely bench decisions``: the cost of a scheduling decision under each discipline."""

from typing import Annotated

import typer

from timely.cli.bench.options import MarkdownFile, print_cli_progress, split_cli_names
from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile

JOB_COUNTS = (8, 100, 1000, 10_000)


def command(
    disciplines: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    jobs: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="How many are queued; may be repeated.")
    ] = None,
    points: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Scheduling points measured of each.")
    ] = 40,
    ordinary: Annotated[
        bool, typer.Option("--ordinary", help="Ordinary requests without a deadline instead of robot tasks.")
    ] = False,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Cost of a decision under each discipline.

    With 8 to 10,000 requests queued.
    """
    from timely.bench.decision_cost import scheduling_point_us
    from timely.disciplines import registry

    names = split_cli_names(disciplines) or registry.discipline_names()
    counts = jobs or list(JOB_COUNTS)
    costs: dict[str, dict[str, float]] = {}
    for name in names:
        registry.load_discipline(name)
        costs[name] = {
            str(count): round(scheduling_point_us(name, count, points=points, ordinary=ordinary), 1)
            for count in counts
        }
        print_cli_progress(f"{name}: {costs[name]}")
    headings = ("discipline", *(f"{count:,} queued, µs" for count in counts))
    rows = [(f"`{name}`", *(f"{cost:,.0f}" for cost in row.values())) for name, row in costs.items()]
    show_cli_bench_result(json_file, {"scheduling_point_us": costs}, headings, rows, markdown=markdown)
