"""The command ``timely``: imports the module of a command, runs it, and prints an error as one line.

A command is a module ``timely/cli/NAME.py`` (``_`` for ``-``) and a line in ``COMMANDS``.
The module has a function ``command``, with its optional ``CONTEXT_SETTINGS``, or ``app``, a ``typer.Typer``.
Only the module of the command that runs is imported, so ``timely --help`` never waits for torch.
"""

import errno
import gc
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Annotated, Any

import typer
import typer.core

import timely
from lrtrace.errors import LRTraceError
from lrtrace.option_kinds import PlainHelpTyper
from timely.core.ctrl_c import resend_dropped_ctrl_c
from timely.core.errors import EngineFailed, Overloaded, TimelyError, UnknownName

COMMANDS: dict[str, str] = {
    "serve": "Serve robots over HTTP.",
    "token": "Make a token for a principal of the server.",
    "demo": "Two drones and an arm on the real model, watched live.",
    "replay": "Run a trace through an engine and report what robots saw.",
    "bench": "Measure claims of the papers, overheads, latencies.",
    "calibrate": "Measure step times here and write them as a profile.",
    "predictor": "Make predictor files for disciplines from traces.",
    "planner": "Train, judge and describe the small planner.",
    "emulate": "Emulate robots on loopback, to try drivers without one.",
    "explain": "Explain why a job of a replay waited, decision by decision.",
    "disciplines": "List the queue disciplines and what each is good at.",
    "skill-sets": "List skill sets, or show and check some.",
}
"""Name and summary, short enough for one line of help. A command without its module is not offered."""

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exits 0 on success, 2 on bad input, 1 when an engine failed, 130 on Ctrl-C or SIGTERM.

    A server exits 0 on SIGTERM: to systemd and Kubernetes any other code is a failed service.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    terminated = False

    def interrupt(number: int, frame: object) -> None:
        """Do what Ctrl-C does, also in a background process whose shell made it ignore SIGINT."""
        nonlocal terminated
        terminated = True
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)
        else:
            raise KeyboardInterrupt

    # By default SIGTERM ends Python without cleaning up, and so does a terminal that closes. An engine's processes
    # would go on.
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # and no nohup
        signal.signal(signal.SIGHUP, interrupt)
    with resend_dropped_ctrl_c():
        code = run_timely_command(arguments)
    if code == INTERRUPTED and terminated and list(arguments[:1]) == ["serve"]:
        code = OK
    # Python remembers a Ctrl-C that came while it ran a program from a string, as dataclasses do. Under ``python -m``
    # it then dies of SIGINT in place of returning our code. Running another such program makes it forget.
    exec("")  # noqa: S102 - nothing is in it
    sys.exit(code)


def run_timely_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; an error is one line on stderr."""
    arguments = _cli_arguments_with_json_to_stdout(arguments)
    try:
        result = _cli_application(arguments)(
            list(arguments) or ["--help"], prog_name="timely", standalone_mode=False
        )
        sys.stdout.flush()
    except (EngineFailed, Overloaded) as error:
        return _print_cli_error(error, FAILED)
    except (TimelyError, LRTraceError) as error:
        return _print_cli_error(error, BAD_INPUT)
    except typer.TyperException as error:
        return _refuse_cli_arguments(error)
    except ImportError as error:
        reason = _cli_install_hint(error)
        if reason is None:
            raise
        return _print_cli_error(reason, BAD_INPUT)
    except BrokenPipeError:
        # The reader of the output has closed it (`timely ... | head`).
        return _drop_cli_output()
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            _drop_cli_output()
            return _print_cli_error(f"standard output: {error.strerror}", BAD_INPUT)
        if error.filename is None:
            raise
        return _print_cli_error(f"{error.filename}: {error.strerror}", BAD_INPUT)
    except (_CliInterrupt, KeyboardInterrupt, typer.Abort):
        return _print_cli_error("interrupted", INTERRUPTED)
    except RuntimeError as error:
        # Before Python 3.12 a Ctrl-C while a dataclass is made, as in an import, comes as the cause of this error.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return _print_cli_error("interrupted", INTERRUPTED)
    return result if isinstance(result, int) else OK


class _CliInterrupt(Exception):
    """Ctrl-C; typer would turn ``KeyboardInterrupt`` into an exit code like any other."""


class _CliCommands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _CliInterrupt from None


def _cli_arguments_with_json_to_stdout(arguments: Sequence[str]) -> list[str]:
    """``--json`` at the end, or before another option, writes to standard output, as ``--json -`` does."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        result.append(argument)
        following = arguments[position + 1] if position + 1 < len(arguments) else "--"
        if argument == "--json" and following.startswith("--"):
            result.append("-")
    return result


def _cli_module_name(command: str) -> str:
    return f"timely.cli.{command.replace('-', '_')}"


def available_commands() -> dict[str, str]:
    return {name: summary for name, summary in COMMANDS.items() if find_spec(_cli_module_name(name))}


def _cli_application(arguments: Sequence[str]) -> typer.Typer:
    """The command tree for this command line: every command by name, only the chosen one in full."""
    app = PlainHelpTyper(
        name="timely", cls=_CliCommands, help="LLM plans for robots, in segments, each in time."
    )
    app.callback()(_timely_cli_options)
    commands = available_commands()
    command = next((argument for argument in arguments if not argument.startswith("-")), None)
    if command is not None and command not in commands:
        raise UnknownName("command", command, commands)
    for name, summary in commands.items():
        if name != command:
            app.command(name, help=summary)(_cli_command_not_loaded)
            continue
        module = _import_cli_command(name)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, short_help=summary)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            app.command(name, short_help=summary, context_settings=settings)(module.command)
    return app


def _import_cli_command(name: str) -> ModuleType:
    """Import the module of a command without garbage collection: what imports make is never freed."""
    gc.disable()
    try:
        return import_module(_cli_module_name(name))
    finally:
        gc.freeze()
        gc.enable()


def _cli_command_not_loaded() -> None:
    """A placeholder for a command that this command line does not run."""


def _print_cli_version(requested: bool) -> None:
    if requested:
        typer.echo(f"timely {timely.__version__}")
        raise typer.Exit


def _timely_cli_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_cli_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """LLM plans for robots, in segments, each in time."""


def _print_cli_error(error: object, code: int) -> int:
    print("timely: " + " ".join(str(error).split()), file=sys.stderr)
    return code


def _refuse_cli_arguments(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if message.startswith("Usage:"):  # a group of commands, called without one
        print(message, file=sys.stderr)
        return BAD_INPUT
    where = context.command_path.removeprefix("timely").strip() if context else ""
    return _print_cli_error(f"{where}: {message}" if where else message, error.exit_code)


def _cli_install_hint(error: ImportError) -> str | None:
    """What to install where a package is absent, or another version; None for a mistake of ours."""
    name = error.name or ""
    if name.startswith("vllm.") and find_spec("vllm") is not None:
        from timely.engines.vllm.compatibility import SUPPORTED_VERSIONS

        return f"vLLM {metadata.version('vllm')} has other parts ({error}); supported: {SUPPORTED_VERSIONS}"
    extra = _cli_extra_of(name) if isinstance(error, ModuleNotFoundError) else None
    return None if extra is None else f"{name} is not installed; install timely-serving[{extra}]"


def _cli_extra_of(module: str) -> str | None:
    """The first extra of ours that brings a module under its own name; None where there is none."""
    for line in metadata.requires("timely-serving") or ():
        match = re.fullmatch(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[1].replace("-", "_") == module.partition(".")[0]:
            return match[2]
    return None


def _drop_cli_output() -> int:
    """Leave out what cannot be written: Python would complain when it flushes at exit."""
    sys.stdout = open("/dev/null", "w")  # noqa: SIM115
    return FAILED


if __name__ == "__main__":
    main()
