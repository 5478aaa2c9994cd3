"""Reads JSON lines as a stream, with file and line in every error, and writes them whole or not at all."""

import json
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeGuard

from lrtrace.errors import BadInput
from lrtrace.files import replaced_trace_file

MAX_LINE_BYTES = 8_000_000
"""Longest line that can be read."""

MAX_FLOAT = sys.float_info.max


def read_jsonl(path: Path) -> Generator[tuple[int, dict[str, Any]], None, None]:
    """(line number from 1, object) of every line that is not blank.

    Raises:
        BadInput: unreadable, a line is too long, not UTF-8, not JSON, no object, or has a key twice; names file and
            line.
    """
    with open_trace_input(path) as file:
        for number, _, line in raw_trace_lines(path, file):
            yield number, decode_jsonl(path, number, line)


def raw_trace_lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """(line number, byte offset, bytes) of every line that is not blank.

    Raises:
        BadInput: a line is too long, or cannot be read.
    """
    number, offset = 0, 0
    while True:
        number += 1
        try:
            line = file.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            raise BadInput(f"cannot read it: {error.strerror}", where=f"{path}:{number}") from error
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            raise BadInput(f"longer than {MAX_LINE_BYTES} bytes", where=f"{path}:{number}")
        if line.strip():
            yield number, offset, line
        offset += len(line)


def decode_jsonl(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """One line's object. Raises BadInput as ``read_jsonl``."""
    where = f"{path}:{number}"
    try:
        value = _DECODER.decode(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput("not UTF-8 text", where=where) from error
    except RecursionError as error:
        raise BadInput("not valid JSON: nested too deeply", where=where) from error
    except json.JSONDecodeError as error:
        raise BadInput(f"not valid JSON: {error.msg} at column {error.colno}", where=where) from error
    except ValueError as error:
        raise BadInput(f"not valid JSON: {error}", where=where) from error
    if not isinstance(value, dict):
        raise BadInput(f"must be an object, got {type(value).__name__}", where=where)
    return value


def is_finite_jsonl_number(value: object) -> TypeGuard[float]:
    """Whether a value from JSON is a number that a float can hold; no truth value is."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT


def is_utf8_jsonl_text(value: object) -> TypeGuard[str]:
    """Whether a value from JSON is a text that can be written again; half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _refuse_jsonl_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)[:64]!r} is given twice")
    return values


def open_trace_input(path: Path) -> IO[bytes]:
    """The file, opened for reading. Raises BadInput, also for a file compressed with gzip."""
    try:
        file = path.open("rb")
        compressed = file.peek(2).startswith(b"\x1f\x8b")
    except OSError as error:
        raise BadInput(f"cannot read it: {error.strerror or error}", where=str(path)) from error
    if compressed:
        file.close()
        raise BadInput("compressed with gzip; unpack it first", where=str(path))
    return file


@contextmanager
def open_trace_output(path: Path) -> Iterator[IO[str]]:
    """A text file that appears under its name when the block ends without an error.

    Raises:
        BadInput: it cannot be written.
    """
    with replaced_trace_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def encode_jsonl(values: Mapping[str, Any]) -> str:
    """An object as one line."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


def write_jsonl(path: Path, lines: Iterable[Mapping[str, Any]]) -> int:
    """Write objects, one a line; returns how many. Raises BadInput."""
    count = 0
    with open_trace_output(path) as file:
        for values in lines:
            file.write(encode_jsonl(values))
            count += 1
    return count


_DECODER = json.JSONDecoder(parse_constant=_refuse_jsonl_constant, object_pairs_hook=_unique)
"""One decoder for all lines: ``json.loads`` with an argument would make one per line."""
