"""Writing files that appear whole or not at all: no reader ever sees half a result."""

import errno
import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

from timely.core.errors import InvalidInput

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

STDOUT = Path("-")
"""As the name of a file: standard output."""

STATE_DIR_VARIABLE = "TIMELY_STATE_DIR"
DEFAULT_STATE_DIR = "~/.local/state/timely"


def default_state_folder(where: str = STATE_DIR_VARIABLE) -> Path:
    """Where servers, drivers and bridges keep what they must know after a restart, unless a folder is named.

    Raises:
        InvalidInput: it would be in the home folder, and the user has none, as in some containers.
    """
    try:
        return Path(os.environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR).expanduser()
    except RuntimeError as error:
        raise InvalidInput(f"the user has no home folder: name a folder ({error})", where=where) from error


@contextmanager
def file_errors(path: Path, problem: str = "cannot read it") -> Iterator[None]:
    """An OSError of the block becomes InvalidInput of the file ``path``: the problem, and the system's reason."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{problem}: {error.strerror or error}", where=str(path)) from error


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, to be written in the block; it takes the name ``path`` at its end.

    The content is on the disk before the name is, and both are at the end. If the block raises, ``path`` stays as it
    was.

    Raises:
        InvalidInput: the file cannot be written. The new content may be there, if the disk did not take the name.
    """
    with file_errors(path, "cannot write it"):
        temporary = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
        # As readable as any other new file.
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            flush_file_names(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def core_write_file(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all; text is UTF-8, and ``-`` is standard output.

    A pipe or a device is written directly: nothing can be renamed over it.

    Raises:
        InvalidInput: the file cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    if path == STDOUT:
        sys.stdout.write(data.decode())
        return
    if path.exists() and not path.is_file():
        with file_errors(path, "cannot write it"):
            path.write_bytes(data)
        return
    with replaced_file(path) as temporary:
        temporary.write_bytes(data)


def check_folder_writable(folder: Path) -> None:
    """Make a folder unless it is there, and check that it takes files. A full disk may have room later.

    Raises:
        InvalidInput: it is no folder, or takes none.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise InvalidInput(f"cannot be used: {error.strerror or error}", where=str(folder)) from error


def core_read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        InvalidInput: it cannot be read, holds no JSON object, or an object has a key twice; names the file.
    """
    with file_errors(path):
        text = path.read_bytes()
    try:
        value = core_decode_json(text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not valid JSON: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise InvalidInput("holds no JSON object", where=str(path))
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)[:64]!r} is given twice")
    return result


core_decode_json = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique).decode
"""A value from JSON as the standard has it; raises ValueError also for NaN, infinities, and a key given twice."""


def append_whole(file: FileIO, data: bytes, *, flush: bool = False) -> int:
    """Append lines to a file that is open for appending; returns its size, bytes.

    What a full disk takes in part is removed again: half a line would spoil the next one.

    Args:
        flush: the lines are on the disk when the call returns; else they survive the end of the process only.

    Raises:
        OSError: the disk refuses; the file is as before.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if flush:
            os.fsync(file.fileno())
    except OSError:
        # A pipe or a device cannot be cut.
        with suppress(OSError):
            file.truncate(size)
        raise
    return size + len(data)


def append_file_line(path: Path, line: bytes, *, flush: bool = False) -> int:
    """Append a line and its end; returns the size of the file, bytes. Arguments and errors as ``append_whole``."""
    with path.open("ab", buffering=0) as file:
        return append_whole(file, line + b"\n", flush=flush)


def flush_file_names(folder: Path) -> None:
    """Bring the names of new and removed files to the disk. Raises OSError if the disk refuses.

    A file system that cannot flush a folder, and a folder that cannot be read, bring them there by themselves.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def file_stamp(path: Path) -> tuple[int, int, int]:
    """What differs once a file was written again or replaced: inode, time in ns, bytes. Raises OSError."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def file_ends_torn(path: Path) -> bool:
    """Whether the last line of a file lacks its end, as a killed program leaves it; false for pipes and devices."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
