"""``--json FILE`` of every command: its option and the form of the data."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from timely.core.errors import InvalidInput
from timely.core.files import STDOUT, core_write_file


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


def cli_say(json_file: Path | None) -> Callable[[str], None]:
    """Prints lines of text; on standard error where the JSON goes to standard output."""
    return partial(typer.echo, err=json_file == STDOUT)


def write_cli_json(path: Path | None, data: object) -> None:
    """Write ``data`` to ``path`` as JSON; None writes nothing, ``-`` writes to standard output.

    Dataclasses, numpy numbers and arrays, sets and paths are converted.
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


def plain_cli_json(data: Any) -> Any:
    """Convert ``data`` to JSON's own types; raises TypeError where there is no such form."""
    if data is None or (isinstance(data, (bool, int, str)) and not isinstance(data, np.generic)):
        return data
    if isinstance(data, np.generic | np.ndarray):
        return plain_cli_json(data.tolist())
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain_cli_json(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {str(key): plain_cli_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain_cli_json(value) for value in data]
    if isinstance(data, set | frozenset):
        return sorted(plain_cli_json(value) for value in data)
    if isinstance(data, Path):
        return str(data)
    raise TypeError(f"no JSON form for {type(data).__name__}: {data!r}")
