"""``timely explain``: why a job of a replay waited, decision by decision."""

from pathlib import Path
from typing import Annotated

import typer

from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.core.errors import InvalidInput
from timely.replay.explain import explain_replay_job, replay_explanation_text
from timely.replay.result_file import read_replay_result


def command(
    result: Annotated[Path, typer.Argument(metavar="RESULT.json", help="What `timely replay --json` wrote.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name in it.")],
    json_file: JsonFile = None,
) -> None:
    """Tell why a job of a replay waited: what the engine did instead, and why."""
    data = read_replay_result(result)
    try:
        explanation = explain_replay_job(data, job)
        text = replay_explanation_text(explanation)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InvalidInput(
            f"not the result of `timely replay --json`: {error!r}", where=str(result)
        ) from error
    write_cli_json(json_file, explanation)
    cli_say(json_file)(text)
