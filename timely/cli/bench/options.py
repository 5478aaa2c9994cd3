"""Options that several benchmarks share, and what follows from them."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from timely.bench.checkpoints import BenchCheckpoints, BenchOutOfTime
from timely.cli.output import check_cli_output_file
from timely.core.errors import InvalidInput, Unsupported
from timely.core.files import STDOUT

TRY_AGAIN = 75
"""Exit code of a run that its budget stopped; BSD's EX_TEMPFAIL."""

Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep each finished measurement there; a later call with it skips those."
    ),
]
DefaultSystem = Annotated[
    bool, typer.Option("--default-system", help="Let the processors sleep as they like.")
]
Jobs = Annotated[int, typer.Option(min=1, metavar="N", help="Measurements computed at once, in processes.")]
MarkdownFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=check_cli_output_file, help="Write the table there too."),
]
Budget = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="SECONDS", help="With --resume: stop after so long; exit code 75, to be run again."
    ),
]


@contextmanager
def resumable_cli_checkpoints(
    path: Path | None, budget_s: float | None, jobs: int = 1
) -> Iterator[BenchCheckpoints]:
    """Checkpoints in ``path``; a command whose budget is used up says so and exits with ``TRY_AGAIN``."""
    if budget_s is not None and path is None:
        raise InvalidInput("a budget needs a file to go on from: --resume FILE", where="--budget")
    try:
        yield BenchCheckpoints(path, budget_s, jobs=jobs)
    except BenchOutOfTime as stopped:
        typer.echo(f"timely: out of time; {stopped}. The same command goes on.", err=True)
        raise typer.Exit(TRY_AGAIN) from None


def cli_checkpoint(json_file: Path | None) -> Path | None:
    """The file of an unfinished run that writes ``json_file``."""
    if json_file is None or json_file == STDOUT:
        return None
    return json_file.with_name(f"{json_file.name}.partial")


def require_cli_package(package: str) -> None:
    """Raise Unsupported unless the package of an optional part is installed."""
    if find_spec(package) is None:
        raise Unsupported(f"{package} is not installed; `make setup` installs it into .venv", where="bench")


def split_cli_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def print_cli_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def cli_command_line(context: typer.Context) -> str:
    """The command of this call, with its arguments and options, for the record of its result."""
    words = [context.command_path]
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[str(parameter.name)]
        for one in value if isinstance(value, list | tuple) else [value]:
            if parameter.param_type_name == "option":
                words.append(max(parameter.opts, key=len))
            if one is not True:
                words.append(shlex.quote(str(one)))
    return " ".join([*words, *map(shlex.quote, context.args)])
