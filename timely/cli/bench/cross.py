"""``timely bench cross``: every discipline on every paper's workload."""

from typing import Annotated

import typer

from timely.cli.bench.options import (
    Budget,
    Jobs,
    MarkdownFile,
    Resume,
    cli_command_line,
    print_cli_progress,
    resumable_cli_checkpoints,
    split_cli_names,
)
from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile
from timely.core.errors import check_name

NEAR = 0.01
"""Values within this share of a column's best are set in bold."""


def command(
    context: typer.Context,
    disciplines: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    workloads: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Every discipline on every paper's workload.

    By that paper's measure, in the simulator.
    """
    from timely.bench import cross
    from timely.disciplines import registry

    names = split_cli_names(disciplines) or registry.discipline_names()
    for name in names:
        registry.load_discipline(name)
    workload_names = split_cli_names(workloads) or list(cross.WORKLOADS)
    for name in workload_names:
        check_name("workload", name, cross.WORKLOADS, where="--workloads")
    with resumable_cli_checkpoints(resume, budget, jobs) as checkpoints:
        runs = cross.benchmark_cross_table(
            names, workload_names, list(range(1, seeds + 1)), checkpoints, print_cli_progress
        )
    columns = cross.benchmark_cross_measures(workload_names)
    table = cross.cross_table_json(runs, workload_names)
    data = {"command": cli_command_line(context), "seeds": seeds, **table}
    means = table["rows"]
    best = {column.name: cross.best_benchmark_value(means, column) for column in columns}

    def cell(name: str, column: str) -> str:
        mean, interval = means[name][column], table["intervals"][name][column]
        width = "" if interval is None else f" ±{interval[1] - mean:.2g}"
        near = abs(mean - best[column]) <= NEAR * abs(best[column])
        return f"**{mean:.4g}{width}**" if near else f"{mean:.4g}{width}"

    rows = [(f"`{name}`", *(cell(name, column.name) for column in columns)) for name in names]
    headings = ("discipline", *(f"{column.short}, {column.unit}" for column in columns))
    notes = (
        [f"± is half of the 95% interval of the mean over {seeds} seeds (Student's t)."] if seeds > 1 else []
    )
    show_cli_bench_result(json_file, data, headings, rows, *notes, markdown=markdown)
