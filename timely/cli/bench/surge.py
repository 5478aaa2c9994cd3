"""``timely bench surge``: an overloaded engine that refuses tasks which would be late, simulated or live."""

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from timely.cli.bench.options import print_cli_progress, require_cli_package
from timely.cli.bench.tables import format_cli_number, show_cli_bench_result
from timely.cli.output import JsonFile
from timely.core.errors import InvalidInput, check_name

Hours = Annotated[
    float, typer.Option(min=0.001, max=1000, help="Simulated time; each phase takes a quarter of an hour.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of the tasks.")]
SURGE_PROFILE = "rtx4090-llama3-8b"
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE", help=f"Step times of the simulated engine; {SURGE_PROFILE} by default."
    ),
]
Live = Annotated[
    str | None,
    typer.Option(metavar="ENGINE", help="Load a live server instead: scripted or vllm; phases of a minute."),
]


def command(
    hours: Hours = 4.0,
    seed: Seed = 1,
    profile: Profile = None,
    load: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="A steady load, times the published one, instead of phases; simulated only."
        ),
    ] = None,
    live: Live = None,
    json_file: JsonFile = None,
) -> None:
    """Overload: drones at a low and a high rate in turn.

    The high rate is beyond what the engine bears.
    A live server gets three times that, with deadlines that an idle engine meets twice as fast.
    """
    if load is not None and live is not None:
        raise InvalidInput("a live server gets phases", where="--load")
    if live is None:
        from timely.bench.surge import measure_surge

        result = measure_surge(hours, seed, profile or SURGE_PROFILE, load)
    else:
        result = measure_cli_live_surge(live, hours, seed, profile)
    rows = [
        ("tasks", str(result["tasks"])),
        ("refused", _cli_percent(result["refused"])),
        ("refusals with an estimated time", _cli_percent(result["refused_with_eta"])),
        ("admitted tasks that were late", _cli_percent(result["violations"])),
        ("admitted urgent tasks that were late", _cli_percent(result["urgent_violations"])),
        ("last late task after a high phase, s", format_cli_number(result["recovery_s"])),
    ]
    if live is not None:
        memory_mb = result["memory_mb"]
        rows.append(("longest delay of the client, s", format_cli_number(result["client_lag_s"])))
        rows.append(("memory of the server, MB", f"{memory_mb['before']:.0f} to {memory_mb['after']:.0f}"))
    elif result["memory_mb"]:
        first_mb, last_mb = result["memory_mb"][0], result["memory_mb"][-1]
        rows.append(("memory after the first and the last hour, MB", f"{first_mb:.0f} and {last_mb:.0f}"))
    show_cli_bench_result(json_file, result, (f"{hours:g} h", ""), rows)


def measure_cli_live_surge(engine: str, hours: float, seed: int, profile: str | None) -> dict[str, Any]:
    """As ``timely.bench.surge_live.measure_live_surge``, in a folder of its own.

    Raises:
        InvalidInput: there is no such engine, or a profile, which a live server does not take.
    """
    from timely.bench.surge_live import ENGINES, measure_live_surge

    if profile is not None:
        raise InvalidInput("a live server takes its own step times", where="--profile")
    check_name("engine", engine, ENGINES, where="--live")
    if engine == "vllm":
        require_cli_package(engine)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure_live_surge(Path(folder), engine, 60.0 * hours, seed, print_cli_progress))


def _cli_percent(share: float | None) -> str:
    return "" if share is None else f"{100.0 * share:.2f}%"
