"""``timely bench soak``: memory and handles over a long accelerated run."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from timely.cli.bench.options import log, require_package
from timely.cli.bench.tables import make_console, show_table
from timely.cli.output import JsonFile, write_json


def command(
    minutes: Annotated[float, typer.Option(min=1, help="Of the robots' time.")] = 24.0,
    speed: Annotated[float, typer.Option(min=1, max=100, help="Times faster than real time.")] = 40.0,
    json_file: JsonFile = None,
) -> None:
    """Two robots for a long time, accelerated: does memory grow, is anything left behind? 1 if so."""
    require_package("rclpy")
    require_package("timely_bridge")
    result = import_module("timely_ros_bench.soak").measure(minutes, speed, say=log)
    write_json(json_file, result)
    rows = [
        (
            name,
            *(
                " to ".join(str(count) for count in counts[what])
                for what in ("rss_mb", "files", "threads", "children")
            ),
        )
        for name, counts in result["processes"].items()
    ]
    console = make_console(json_file)
    show_table(console, ("process", "memory, MB", "files", "threads", "children"), rows)
    console.print(
        f"{result['tasks']} tasks in {minutes:g} simulated minutes, {result['tasks_left']} left at the end: "
        + ("flat" if result["flat"] else "NOT flat")
    )
    if not result["flat"]:
        raise typer.Exit(1)
