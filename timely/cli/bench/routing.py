"""``timely bench routing``: robots on several engines under each rule that chooses the engine of a task."""

from typing import Annotated

import typer

from timely.cli.bench.options import (
    Budget,
    Jobs,
    MarkdownFile,
    Resume,
    print_cli_progress,
    resumable_cli_checkpoints,
    split_cli_names,
)
from timely.cli.bench.tables import show_cli_bench_result
from timely.cli.output import JsonFile
from timely.core.errors import InvalidInput


def command(
    engines: Annotated[str, typer.Option(help="Numbers of engines, comma-separated.")] = "2,4,8",
    workload: Annotated[str, typer.Option(help="One of `timely bench capacity`.")] = "wid2",
    seeds: Annotated[int, typer.Option(min=1, help="How many; ten or more for the record.")] = 10,
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Step times of the fast engines.")
    ] = "rtx4090-llama3-8b",
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Robots on several engines under each routing rule.

    The robots that keep 90% of the maximum utility in the simulator, on equal engines and on engines of two speeds.
    """
    from timely.bench.capacity.workloads import find_capacity_workload
    from timely.bench.routing import measure_routing
    from timely.engines.step_time.profile import load_step_profile

    find_capacity_workload(workload)
    load_step_profile(profile)
    counts = []
    for text in split_cli_names(engines):
        if not text.isdecimal() or not 1 <= int(text) <= 64:
            raise InvalidInput(f"must be numbers from 1 to 64, got {text!r}", where="--engines")
        counts.append(int(text))
    if not counts:
        raise InvalidInput("names no numbers of engines", where="--engines")
    with resumable_cli_checkpoints(resume, budget, jobs) as checkpoints:
        result = measure_routing(
            workload, counts, range(1, seeds + 1), profile, checkpoints, print_cli_progress
        )
    result |= {"workload": workload, "profile": profile, "seeds": seeds}
    rows = []
    for fleet, by_count in result["fleets"].items():
        for count, point in by_count.items():
            for router, (mean, low, high) in point["robots"].items():
                rows.append((count, fleet, f"`{router}`", f"{mean:.0f}", f"{low:.0f} to {high:.0f}"))
    headings = ("engines", "speeds", "rule", "robots", "interval")
    show_cli_bench_result(json_file, result, headings, rows, markdown=markdown)
