"""``timely demo``: two drones and an arm on the real model, over ROS 2, watched live."""

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.output import JsonFile, write_cli_json
from timely.cli.serve import ENGINES
from timely.core.errors import check_name
from timely.core.files import STDOUT
from timely.disciplines import registry

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=15.0, max=86400, help="How long tasks keep coming.")
    ] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the mix of tasks.")] = 7,
    discipline: Annotated[str, typer.Option(help="Queue discipline.")] = registry.DEFAULT,
    engine: Annotated[str, typer.Option(help="vllm; or scripted: no model.")] = "vllm",
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the timeline picture and the results.")
    ] = Path("out/demo"),
    json_file: JsonFile = None,
) -> None:
    """A server on the real model, a ROS 2 bridge, two simulated drones and an arm, a minute of mixed tasks.

    Arguments that are not listed here go to `timely serve`.
    """
    from rich.console import Console

    from timely.demo.run import DemoOptions, run_demo

    registry.load_discipline(discipline)
    check_name("engine", engine, ENGINES, where="--engine")
    console = Console(stderr=json_file == STDOUT)
    result = run_demo(DemoOptions(seconds, seed, out, discipline, engine, tuple(context.args)), console)
    write_cli_json(json_file, result)
