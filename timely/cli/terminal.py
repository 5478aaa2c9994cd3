"""A clean terminal: a command's own lines on it, the output of its libraries and child processes in a log file."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from timely.core.errors import EngineFailed
from timely.core.json_log import JsonLogOutput
from timely.engines import vllm
from timely.engines.vllm.model import vllm_cache_folder

if TYPE_CHECKING:
    from rich.console import Console

VLLM_JSON_LOGGING = Path(vllm.__file__).parent / "json_logging.json"

KEPT_LOGS = 20
"""Log files of earlier commands that are kept."""

LOG_ROOM_BYTES = 256 * 1024
"""Free room on the disk of a log, else vLLM's first messages could not be written and its start would fail."""

CAUSE_ABOVE = "See root cause above"
"""How vLLM says that a process of its engine has ended and has logged why."""

CAUSE = re.compile(r" ERROR .*?\] ([\w.]+(?:Error|Exception): .*)")
"""The last line of a traceback in vLLM's log."""

Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show vLLM's and torch's messages here, not in a log file.")
]


class CliTerminal:
    """Prints a command's own lines as ``timely: LINE``.

    Args:
        stream: the terminal, or where standard error went.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        print(f"timely: {line}", file=self._stream, flush=True)

    @property
    def console(self) -> Console:
        """The terminal, for progress that rewrites its line."""
        from rich.console import Console

        return Console(file=self._stream)


class JsonCliTerminal(CliTerminal):
    """Makes every line a JSON object on standard error, also those of vLLM's processes (``JsonLogOutput``)."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        os.environ.setdefault("VLLM_LOGGING_CONFIG_PATH", str(VLLM_JSON_LOGGING))
        self._output = JsonLogOutput()

    def say(self, line: str) -> None:
        self._output.write("timely", "INFO", line)


class _CliOneLineFormatter(logging.Formatter):
    """A record as one line; its traceback is in the log file."""

    def format(self, record: logging.LogRecord) -> str:
        return "timely: " + " ".join(record.getMessage().split())


@contextlib.contextmanager
def quiet_cli_terminal(command: str, *, verbose: bool = False) -> Iterator[CliTerminal]:
    """Send everything that this process and its children print to a log file, except through the ``CliTerminal``.

    Warnings of the package ``timely`` are shown too, each as one line.
    File descriptors are redirected, because libraries and child processes do not print through Python.

    Args:
        verbose: redirect nothing, as also where no log file can be written; warnings of ``timely`` then have their
            tracebacks.

    Raises:
        EngineFailed: as raised within; the message then names the log file, and the error of an engine's process.
    """
    path = None if verbose else _new_cli_log(command)
    if path is None:
        with _show_cli_warnings(sys.stderr, logging.Formatter("timely: %(message)s")):
            yield CliTerminal(sys.stderr)
        return
    with (
        _redirect_cli_output(path) as stream,
        _show_cli_warnings(stream, _CliOneLineFormatter()),
        _show_cli_warnings(sys.stderr),
    ):
        terminal = CliTerminal(stream)
        terminal.say(f"vLLM's messages go to {path}")
        try:
            yield terminal
        except EngineFailed as error:
            cause = CAUSE.search(path.read_text(errors="replace")) if CAUSE_ABOVE in error.message else None
            message = f"vLLM did not start: {cause[1]}" if cause else error.message
            raise EngineFailed(f"{message}; see {path}", where=error.where) from error


@contextlib.contextmanager
def _show_cli_warnings(stream: TextIO, formatter: logging.Formatter | None = None) -> Iterator[None]:
    """Warnings of the package ``timely`` go to ``stream``, too."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    own = logging.getLogger("timely")
    own.addHandler(handler)
    try:
        yield
    finally:
        own.removeHandler(handler)


def _new_cli_log(command: str) -> Path | None:
    """A log file with room for the messages of a start; None, and the reason on standard error, where there is none."""
    folder = vllm_cache_folder() / "logs"
    path = folder / f"{command}-{os.getpid()}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        logs = sorted(folder.glob("*.log"), key=lambda file: file.stat().st_mtime)
        for file in logs[: -KEPT_LOGS + 1]:
            file.unlink(missing_ok=True)
        path.write_bytes(b"\n" * LOG_ROOM_BYTES)  # emptied as soon as it is used
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        reason = f"no log in {folder}: {error.strerror}; TIMELY_CACHE may name another folder"
        print(f"timely: {reason}; vLLM's messages come here", file=sys.stderr)
        return None
    return path


@contextlib.contextmanager
def _redirect_cli_output(path: Path) -> Iterator[TextIO]:
    """Standard output and standard error go to ``path``; yields the former standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptors = [os.dup(1), os.dup(2)]
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.close(log)
        with os.fdopen(os.dup(descriptors[1]), "w", encoding="utf-8") as stream:
            yield stream
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
