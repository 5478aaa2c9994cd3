"""``--json FILE`` of every command: one option, and a writer that never leaves half a file."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from timely.core.errors import InvalidInput

STDOUT = Path("-")


def check_target(path: Path | None) -> Path | None:
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
        callback=check_target,
        help="Write the result as JSON; without FILE, or with -, to standard output.",
    ),
]
"""The type of a command's ``json_file: JsonFile = None`` parameter."""


def write_json(path: Path | None, data: object) -> None:
    """Write ``data`` to ``path`` as JSON; None writes nothing, ``-`` writes to standard output.

    Dataclasses, numpy numbers and arrays, sets and paths are taken. What JSON cannot say (NaN, infinity)
    becomes null. A regular file appears whole or not at all.

    Raises:
        InvalidInput: the file cannot be written.
        TypeError: ``data`` holds something else.
    """
    if path is None:
        return
    text = json.dumps(plain(data), indent=2, allow_nan=False) + "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        return
    check_target(path)
    if path.exists() and not path.is_file():  # a pipe, a terminal: nothing to rename over
        path.write_text(text)
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; a result is as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def plain(data: Any) -> Any:
    """``data`` in JSON's own types.

    Raises:
        TypeError: it holds something that has no such form.
    """
    if data is None or (isinstance(data, (bool, int, str)) and not isinstance(data, np.generic)):
        return data
    if isinstance(data, np.generic | np.ndarray):
        return plain(data.tolist())
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if isinstance(data, set | frozenset):
        return sorted(plain(value) for value in data)
    if isinstance(data, Path):
        return str(data)
    raise TypeError(f"no JSON form for {type(data).__name__}: {data!r}")
