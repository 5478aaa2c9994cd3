"""``timely bench stop``: how soon a fleet's stop reaches every robot."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from timely.cli.bench.options import require_package
from timely.cli.bench.tables import make_console
from timely.cli.output import JsonFile, write_json


def command(
    robots: Annotated[int, typer.Option(min=1, help="How many, all busy.")] = 10,
    repetitions: Annotated[int, typer.Option(min=1, help="Stops.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="When each stop comes.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """From the fleet's stop to the last motion command of each robot, all of them busy."""
    require_package("rclpy")
    require_package("timely_bridge")
    result = import_module("timely_ros_bench.stop").measure_stop(robots, repetitions, seed=seed)
    write_json(json_file, result)
    make_console(json_file).print(
        f"{robots} robots busy, stopped {repetitions} times: no motion command later than "
        f"{result['p50_ms']:.1f} ms (median), {result['p99_ms']:.1f} ms (p99), {result['max_ms']:.1f} ms (longest)"
    )
