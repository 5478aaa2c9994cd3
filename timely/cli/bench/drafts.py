"""``timely bench drafts``: how often n-gram drafts fit the packaged model's answers."""

from pathlib import Path
from typing import Annotated

import typer

from timely.bench.papers.real_inputs import DIALOGUES
from timely.cli.bench.options import require_cli_package
from timely.cli.bench.tables import make_cli_console
from timely.cli.output import JsonFile, write_cli_json
from timely.core.errors import InvalidInput


def command(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with mts_dialog/MTS-Dialog-TrainingSet.csv.")
    ],
    texts: Annotated[int, typer.Option(min=1, help="How many dialogues.")] = 120,
    json_file: JsonFile = None,
) -> None:
    """Acceptance of n-gram drafts on real texts.

    By the packaged model; `bench paper laps-sd` uses it.
    """
    require_cli_package("vllm")
    path = data / DIALOGUES
    if not path.exists():
        raise InvalidInput("there is no such file", where=str(path))
    from timely.bench.draft_acceptance import bench_draft_acceptance

    result = bench_draft_acceptance(path, texts)
    write_cli_json(json_file, result)
    rates = [rate for _, _, rate in result["samples"]]
    make_cli_console(json_file).print(
        f"mean acceptance over {len(rates)} texts: {sum(rates) / len(rates):.3f}"
    )
