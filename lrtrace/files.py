"""Writes a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lrtrace.errors import BadInput


@contextmanager
def replaced_trace_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``. It replaces ``path`` when the block ends without an error.

    Raises:
        BadInput: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise BadInput(f"cannot write it: {error.strerror or error}", where=str(path)) from error
    finally:
        partial.unlink(missing_ok=True)
