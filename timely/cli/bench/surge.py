"""``timely bench surge``: an overloaded engine that refuses tasks which would be late, in the simulator."""

from typing import Annotated

import typer

from timely.cli.bench.tables import format_cli_number, show_bench_result
from timely.cli.output import JsonFile

Hours = Annotated[
    float, typer.Option(min=0.001, help="Simulated time; each phase takes a quarter of an hour.")
]
Seed = Annotated[int, typer.Option(help="Of the tasks.")]
Profile = Annotated[str, typer.Option(metavar="NAME|FILE", help="Step times of the engine.")]


def command(
    hours: Hours = 4.0, seed: Seed = 1, profile: Profile = "rtx4090-llama3-8b", json_file: JsonFile = None
) -> None:
    """Overload: drones at a low and a high rate in turn.

    The high rate is beyond what the engine bears.
    """
    from timely.bench.surge import measure_surge

    result = measure_surge(hours, seed, profile)
    rows = [
        ("tasks", str(result["tasks"])),
        ("refused", _percent(result["refused"])),
        ("refusals with an estimated time", _percent(result["refused_with_eta"])),
        ("admitted tasks that were late", _percent(result["violations"])),
        ("admitted urgent tasks that were late", _percent(result["urgent_violations"])),
        ("last late task after a high phase, s", format_cli_number(result["recovery_s"])),
    ]
    show_bench_result(json_file, result, (f"{hours:g} h", ""), rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100.0 * share:.2f}%"
