"""The command ``lrtrace``: compose, record, import, fit, summarise. An error is one line and exit code 2."""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from lrtrace.cli import compose, fit, importing, listings, record, traces
from lrtrace.errors import LRTraceError
from lrtrace.option_kinds import PlainHelpTyper

OK, BAD_INPUT, INTERRUPTED = 0, 2, 130

app = PlainHelpTyper(
    name="lrtrace",
    help="Time traces of robots that plan with an LLM: compose, record, import, fit, summarise.",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits 0 on success, 2 on bad input, 130 on Ctrl-C."""
    sys.exit(run_lrtrace_command(sys.argv[1:] if arguments is None else arguments))


def run_lrtrace_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Bad input is one line on stderr."""
    try:
        result = app(list(arguments) or ["--help"], prog_name="lrtrace", standalone_mode=False)
    except LRTraceError as error:
        return _print_lrtrace_error(error)
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):
            print(message, file=sys.stderr)
            return BAD_INPUT
        context = getattr(error, "ctx", None)
        where = context.command_path.removeprefix("lrtrace").strip() if context else ""
        return _print_lrtrace_error(f"{where}: {message}" if where else message)
    except OSError as error:
        if error.filename is None:
            # Without this Python would complain when it flushes the output at exit.
            sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            return OK  # the reader of the output has left
        return _print_lrtrace_error(f"{error.filename or 'output'}: {error.strerror or error}")
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else OK


def _print_lrtrace_error(error: object) -> int:
    print("lrtrace: " + " ".join(str(error).split()), file=sys.stderr)
    return BAD_INPUT


def _print_lrtrace_version(value: bool) -> None:
    if value:
        try:
            version = installed_version("timely-serving")
        except PackageNotFoundError:
            version = "not installed"
        typer.echo(f"lrtrace {version}")
        raise typer.Exit


@app.callback()
def _lrtrace_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_lrtrace_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Time traces of robots that plan with an LLM: compose, record, import, fit, summarise."""


app.command("compose")(compose.lrtrace_compose_command)
app.command("stats")(traces.lrtrace_stats_command)
app.command("sort")(traces.lrtrace_sort_command)
app.command("import")(importing.lrtrace_import_command)
app.command("record")(record.lrtrace_record_command)
app.command("fit")(fit.lrtrace_fit_command)
app.command("tasks")(listings.lrtrace_tasks_command)
app.command("profiles")(listings.lrtrace_profiles_command)
