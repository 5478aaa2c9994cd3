"""``--json FILE`` of every command: its option and the form of the data."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from timely.core.errors import InvalidInput
from timely.core.files import STDOUT, core_write_file
from timely.core.progress import Say


def check_cli_output_file(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before a long run instead of after it.

    Raises:
        InvalidInput: its folder does not exist or may not be written to, or it is a folder itself.
    """
    if path is None or path == STDOUT:
        return path
    if path.is_dir():
        raise InvalidInput("is a folder", where=str(path))
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", where=str(path))
    if not os.access(path.parent if not path.exists() else path, os.W_OK):
        raise InvalidInput("may not be written", where=str(path))
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=check_cli_output_file,
        help="Write the result as JSON; without FILE, or with -, to standard output.",
    ),
]
"""The type of a command's ``json_file: JsonFile = None`` parameter."""


def cli_say(json_file: Path | None) -> Say:
    """Prints lines of text; on standard error where the JSON goes to standard output."""
    return partial(typer.echo, err=json_file == STDOUT)


def write_cli_json(path: Path | None, data: object) -> None:
    """Write ``data`` to ``path`` as JSON; None writes nothing, ``-`` writes to standard output.

    Dataclasses, numpy numbers and arrays, sets (in no order) and paths are converted.
    NaN and infinity, which JSON does not have, become null.
    A regular file appears whole or not at all.

    Raises:
        InvalidInput: the file cannot be written.
        TypeError: ``data`` holds something else.
    """
    if path is None:
        return
    text = json.dumps(plain_cli_json(data), indent=2, allow_nan=False) + "\n"
    check_cli_output_file(path)
    core_write_file(path, text)


def plain_cli_json(data: object) -> Any:
    """Convert ``data`` to JSON's own types; raises TypeError where there is no such form."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(data, inf_nan_mode="null", fallback=_plain_cli_numbers)


def _plain_cli_numbers(value: object) -> object:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON form for {type(value).__name__}: {value!r}")
