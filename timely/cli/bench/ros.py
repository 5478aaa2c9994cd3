"""``timely bench ros``: latency over HTTP and ROS 2."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from timely.cli.bench.options import DefaultSystem, require_package
from timely.cli.bench.tables import make_console, show_table
from timely.cli.output import JsonFile, write_json
from timely.core.cpu_latency import for_measurement

ROBOT_COUNTS = (1, 10, 30)


def command(
    robots: Annotated[list[int] | None, typer.Option(min=1, help="How many robots; may be repeated.")] = None,
    segments: Annotated[int, typer.Option(min=1, help="Segments of each plan.")] = 20,
    default_system: DefaultSystem = False,
    json_file: JsonFile = None,
) -> None:
    """From a segment closed in the engine to the driver's callback, over HTTP and ROS 2.

    As latency tests do, it keeps the processors from sleeping meanwhile, where it may: the bridge's parameter
    wake_latency_us.
    """
    require_package("rclpy")
    require_package("timely_bridge")
    measure = import_module("timely_ros_bench.latency").measure_latency
    console = make_console(json_file)
    latency_us, how = for_measurement(default_system)
    console.print(how)
    result: dict[str, Any] = {"wake_latency_us": latency_us, "robots": {}}
    for count in robots or ROBOT_COUNTS:
        result["robots"][str(count)] = measure(count, segments, wake_latency_us=latency_us)
    write_json(json_file, result)
    rows = [
        (count, f"{latency['p50_ms']:.2f}", f"{latency['p99_ms']:.2f}", str(latency["segments"]))
        for count, latency in result["robots"].items()
    ]
    show_table(console, ("robots", "median, ms", "p99, ms", "segments"), rows)
