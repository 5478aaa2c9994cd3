"""Writes a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lrtrace.errors import BadInput


@contextmanager
def replaced_trace_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``. It replaces ``path`` when the block ends without an error.

    A pipe or a device is written directly: a file in its place would end it for every other program.

    Raises:
        BadInput: the file cannot be written.
    """
    check_trace_output(path)
    direct = path.exists() and not path.is_file()
    partial = path if direct else path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            yield partial
            if not direct:
                os.replace(partial, path)
        finally:
            if not direct:  # a file system that is read-only refuses this too
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(path)) from error


def check_trace_output(path: Path) -> None:
    """Raise BadInput for a folder, and for a file in a folder that does not exist."""
    try:
        is_folder, has_folder = path.is_dir(), path.parent.is_dir()
        path.exists()
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror}", where=str(path)) from error
    if is_folder:
        raise BadInput("cannot write it: it is a folder", where=str(path))
    if not has_folder:
        raise BadInput("cannot write it: No such file or directory", where=str(path))
