"""``timely bench capacity``: how many robots a machine carries under each system."""

from pathlib import Path
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
from timely.cli.bench.tables import make_cli_console, show_cli_table
from timely.cli.output import JsonFile, write_cli_json

HEADINGS = (
    "workload", "system", "tokens a step", "robots at 99%", "load at 99% (interval)", "load at 90%", "all: 99%",
    "all: 90%", "urgent in time", "all in time", "utility, urgent", "utility, all", "served", "waiting, s",
)  # fmt: skip


def command(
    context: typer.Context,
    systems: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    workloads: Annotated[str, typer.Option(help="Comma-separated; all unless given.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many; ten or more for the record.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Coarser loads and shorter runs.")] = False,
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Step times of the machine.")
    ] = "rtx4090-llama3-8b",
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Real traces for the chats of two; else made up.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the plot.")] = Path("out/capacity"),
    resume: Resume = None,
    budget: Budget = None,
    jobs: Jobs = 1,
    json_file: JsonFile = None,
    markdown: MarkdownFile = None,
) -> None:
    """Robots on one machine under each system.

    The highest load, and the robots, with 90 and 99% of the tasks in time, in the simulator.

    Each system first gets the token budget that suits it, on other seeds.
    The last six columns compare all systems of a workload at the highest load that the best of them bears at 99%.
    """
    from timely.bench.capacity.measure import CAPACITY_SYSTEMS, find_capacity_system
    from timely.bench.capacity.report import (
        BESIDE,
        best_rival_ratio,
        measure_capacity,
        owner_ratio,
        plot_capacity,
    )
    from timely.bench.capacity.search import CapacityRun
    from timely.bench.capacity.workloads import CAPACITY_WORKLOADS, find_capacity_workload
    from timely.engines.step_time.profile import load_step_profile

    names = split_cli_names(systems) or list(CAPACITY_SYSTEMS)
    for name in names:
        find_capacity_system(name)
    workload_names = split_cli_names(workloads) or list(CAPACITY_WORKLOADS)
    for name in workload_names:
        find_capacity_workload(name)
    load_step_profile(profile)
    console = make_cli_console(json_file)
    with resumable_cli_checkpoints(resume, budget, jobs) as checkpoints:

        def run(workload: str) -> CapacityRun:
            folder = "" if data is None else str(data.resolve())
            return CapacityRun(
                workload, names, range(1, seeds + 1), profile, checkpoints, quick=quick, data=folder
            )

        results = measure_capacity(workload_names, run, print_cli_progress)
    write_cli_json(
        json_file,
        {
            "command": cli_command_line(context),
            "profile": profile,
            "seeds": seeds,
            "quick": quick,
            "workloads": results,
        },
    )
    plot_capacity(results, out)
    rows = []
    for workload, by_system in results.items():
        for system, row in sorted(by_system.items(), key=lambda item: -float(item[1]["load_99"])):
            low, high = row["interval_99"]
            beside = [f"{row['beside'][name]:.3f}" if name in row["beside"] else "" for name in BESIDE]
            rows.append(
                (
                    workload, f"`{system}`", str(row["token_budget"]), f"{row['robots_99']:.0f}",
                    f"{row['load_99']:.2f} ({low:.2f} to {high:.2f})", f"{row['load_90']:.2f}",
                    f"{row['all_99']:.2f}", f"{row['all_90']:.2f}", *beside,
                )
            )  # fmt: skip
    show_cli_table(console, HEADINGS, rows, markdown)
    for workload, by_system in results.items():
        if "timely" not in by_system or len(by_system) == 1:
            continue
        ratio = best_rival_ratio(by_system)
        console.print(
            f"{workload}: no other system carries any"
            if ratio is None
            else f"{workload}: timely carries {ratio[0]:.2f} times the robots of {ratio[1]}"
        )
        owner = owner_ratio(workload, by_system)
        if owner is not None:
            console.print(f"{workload}: timely bears {owner[0]:.2f} times the load of {owner[1]}, its owner")
