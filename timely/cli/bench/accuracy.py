"""``timely bench accuracy``: the simulator against a measured run."""

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.output import JsonFile, cli_say, write_cli_json


def command(
    run: Annotated[Path, typer.Argument(metavar="FOLDER", help="A measured run: requests.jsonl, meta.json.")],
    profile: Annotated[str, typer.Option(metavar="NAME|FILE", help="Step times.")] = "rtx4090-llama3-8b",
    discipline: Annotated[str, typer.Option(help="What served the run.")] = "fcfs",
    json_file: JsonFile = None,
) -> None:
    """The simulator against a measured run of vLLM.

    Time to first token, per output token, latency.
    """
    from timely.bench.accuracy import accuracy_text, compare_accuracy

    result = compare_accuracy(run, profile, discipline)
    write_cli_json(json_file, result)
    cli_say(json_file)(accuracy_text(result))
