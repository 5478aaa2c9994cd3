"""The commands ``timely bench ros``, ``stop``, ``faults`` and ``soak``.

``setup.py`` registers them under the entry point group ``timely.bench``, where ``timely bench`` looks for commands.
"""

from typing import Annotated, Any

import typer

from timely.cli.bench.options import (
    DefaultSystem,
    cli_checkpoint,
    print_cli_progress,
    require_cli_package,
    split_cli_names,
)
from timely.cli.bench.tables import make_cli_console, show_cli_bench_result
from timely.cli.output import JsonFile
from timely.core.cpu_latency import wake_latency_for_measurement

ROBOT_COUNTS = (1, 10, 30)
READINGS = ("rss_mb", "files", "threads", "children")


def ros(
    robots: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="How many robots; may be repeated.")
    ] = None,
    segments: Annotated[int, typer.Option(min=1, help="Segments of each plan.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the segments and of the drones.")] = 0,
    default_system: DefaultSystem = False,
    json_file: JsonFile = None,
) -> None:
    """Latency from a closed segment to the driver.

    From the engine to the driver's callback, over HTTP and ROS 2. The processors are kept out of deep sleep
    meanwhile, where this is allowed (the bridge's wake_latency_us).
    """
    require_cli_package("rclpy")
    from timely_ros_bench.latency import measure_ros_latency

    latency_us, setting = wake_latency_for_measurement(default_system)
    make_cli_console(json_file).print(setting)
    result: dict[str, Any] = {"wake_latency_us": latency_us, "robots": {}}
    for count in robots or ROBOT_COUNTS:
        result["robots"][str(count)] = measure_ros_latency(
            count, segments, seed=seed, wake_latency_us=latency_us
        )
    rows = [
        (
            count,
            *(f"{latency[name]:.2f}" for name in ("p50_ms", "p99_ms", "max_ms")),
            str(latency["segments"]),
        )
        for count, latency in result["robots"].items()
    ]
    show_cli_bench_result(
        json_file, result, ("robots", "median, ms", "p99, ms", "worst, ms", "segments"), rows
    )


def stop(
    robots: Annotated[
        int, typer.Option(min=1, max=100, help="Emulated robots, all busy: a Tello and arms.")
    ] = 4,
    repetitions: Annotated[int, typer.Option(min=2, help="Stops of robots; a trial stops each once.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Seed of times and faults.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Stop busy robots, also where a driver fails.

    Every second stop meets a driver that hangs, is cut off or was killed. With a JSON file, an interrupted run goes
    on where it was (FILE.partial). Exit code 1 if a claim was false by a robot's own log.
    """
    require_cli_package("rclpy")
    from timely_ros_bench.stop import measure_stop

    result = measure_stop(
        robots, repetitions, seed=seed, checkpoint=cli_checkpoint(json_file), say=print_cli_progress
    )
    first, rest = result["first_command_ms"], result["at_rest_s"]
    rows = [
        ("first braking command, ms", f"{first['p50']:.1f}", f"{first['p99']:.1f}"),
        ("at rest, s", f"{rest['p50']:.2f}", f"{rest['p99']:.2f}"),
    ]
    show_cli_bench_result(
        json_file, result, (f"{result['stops']} stops of robots", "median", "p99"), rows,
        f"{result['acknowledged']} robots acknowledged, {result['unknown']} unknown, "
        f"{result['false_success']} false",
    )  # fmt: skip
    if result["false_success"]:
        raise typer.Exit(1)


def faults(
    count: Annotated[int, typer.Option(min=1, help="Number of rounds; each takes about 15 s.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of kinds, times and robots.")] = 0,
    robots: Annotated[
        str, typer.Option(help="Kinds, comma-separated: tello and indy7 are emulated, sim needs no library.")
    ] = "tello,indy7,sim,sim",
    fleets: Annotated[
        int,
        typer.Option(
            min=1, max=64, help="So many fleets at once share the rounds, each in a network of its own."
        ),
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Break robots, networks and processes at random.

    Faults come alone and in pairs. Exit code 1 if a promise is broken. Server log, bridge, and robots' logs are
    judged as one history. With a JSON file, an interrupted run goes on where it was (FILE.partial, or one a fleet).
    """
    require_cli_package("rclpy")
    from timely_ros_bench.faults import measure_fault_fleets

    result = measure_fault_fleets(
        count,
        seed,
        fleet=split_cli_names(robots),
        fleets=fleets,
        checkpoint=cli_checkpoint(json_file),
        say=print_cli_progress,
    )
    counts = {**result["violations"], "lost tasks": result["lost_tasks"]}
    rows = [(kind, str(number)) for kind, number in counts.items()]
    show_cli_bench_result(
        json_file, result, ("violation", "count"), rows,
        f"{result['faults']} faults in {count} rounds, {result['tasks']} tasks: {result['outcomes']}; a round fails "
        f"with a probability of at most {result['bound']:.2g} (95% confidence)",
    )  # fmt: skip
    if any(counts.values()):
        raise typer.Exit(1)


def soak(
    minutes: Annotated[float, typer.Option(min=1, max=100_000, help="Minutes of the robots' time.")] = 24.0,
    speed: Annotated[float, typer.Option(min=1, max=100, help="Times faster than real time.")] = 40.0,
    json_file: JsonFile = None,
) -> None:
    """Run two robots for a long, accelerated time. Exit code 1 if memory grows or a task is left."""
    require_cli_package("rclpy")
    from timely_ros_bench.soak import measure_soak

    result = measure_soak(minutes, speed, say=print_cli_progress)
    rows = [
        (name, *(" to ".join(str(value) for value in reading[what]) for what in READINGS))
        for name, reading in result["processes"].items()
    ]
    show_cli_bench_result(
        json_file, result, ("process", "memory, MB", "files", "threads", "children"), rows,
        f"{result['tasks']} tasks in {minutes:g} simulated minutes, {result['tasks_left']} left at the end: "
        + ("flat" if result["flat"] else "NOT flat"),
    )  # fmt: skip
    if not result["flat"]:
        raise typer.Exit(1)
