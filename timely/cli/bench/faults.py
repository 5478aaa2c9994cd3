"""``timely bench faults``: random faults, counted violations."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from timely.cli.bench.options import log, require_package, split_names
from timely.cli.bench.tables import make_console, show_table
from timely.cli.output import JsonFile, write_json


def command(
    count: Annotated[
        int, typer.Option(min=1, help="Faults, one after the other; each takes some 15 s.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Which faults, when, to whom.")] = 0,
    robots: Annotated[
        str, typer.Option(help="Kinds, comma-separated: tello and indy7 are emulated, sim needs no library.")
    ] = "tello,indy7,sim,sim",
    json_file: JsonFile = None,
) -> None:
    """Robots, networks and processes break at random: is any motion repeated, any task lost? 1 if so."""
    require_package("rclpy")
    require_package("timely_bridge")
    measure = import_module("timely_ros_bench.faults").measure_faults
    result = measure(count, seed, fleet=split_names(robots), say=log)
    write_json(json_file, result)
    violations = {**result["violations"], "lost tasks": result["lost_tasks"]}
    console = make_console(json_file)
    show_table(
        console, ("violation", "how often"), [(kind, str(often)) for kind, often in violations.items()]
    )
    console.print(f"{count} faults, {result['tasks']} tasks: {result['outcomes']}")
    if any(violations.values()):
        raise typer.Exit(1)
