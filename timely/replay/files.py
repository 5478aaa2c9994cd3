"""Writing what a replay leaves: whole files or none, one line a job, so that a result can be read and diffed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput

STDOUT = Path("-")


def write_text(path: Path, text: str) -> None:
    """Write a text file; it appears whole or not at all. ``-`` is standard output.

    Raises:
        InvalidInput: it cannot be written.
    """
    if path == STDOUT:
        sys.stdout.write(text)
        return
    try:
        if path.exists() and not path.is_file():  # a pipe, a terminal: nothing to rename over
            path.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes the file private; a result is as readable as any other new file.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidInput(f"cannot write it: {error.strerror or error}", where=str(path)) from error


def result_text(result: Mapping[str, Any]) -> str:
    """A result as JSON: a line for each field, each job and each column."""
    lines = [f"{_json(name)}: {_field(name, value)}" for name, value in result.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _field(name: str, value: Any) -> str:
    if name == "jobs" and value:
        return "[\n" + ",\n".join(f"  {_json(job)}" for job in value) + "\n]"
    if name in ("summary", "series", "journal", "counters") and isinstance(value, dict):
        return "{\n" + ",\n".join(f"  {_json(key)}: {_json(part)}" for key, part in value.items()) + "\n}"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_result(path: Path) -> dict[str, Any]:
    """A result file.

    Raises:
        InvalidInput: unreadable, or not the result of a replay; names the file.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read it: {error.strerror or error}", where=str(path)) from error
    except ValueError as error:
        raise InvalidInput(f"not valid JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list) or "discipline" not in data:
        raise InvalidInput("not the result of `timely replay --json`", where=str(path))
    return data
