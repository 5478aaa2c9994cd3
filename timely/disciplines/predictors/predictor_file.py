"""Predictor files: an ``npz`` of plain numbers with a JSON record; nothing in them is ever executed.

No pickle: a file from a stranger can be wrong, but it cannot run code. Sizes are checked before anything is
unpacked.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput
from timely.core.files import replaced_file

MAX_BYTES = 512 * 1024 * 1024
"""Most bytes a predictor file may unpack to."""

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Most bytes of the record alone."""

DAMAGE = (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError, OverflowError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Errors of the libraries that read such a file, if it is damaged, encrypted or made to be."""

_VERSION = 1


def predictor_kind(path: Path) -> str:
    """What a predictor file is: the ``format`` of its record, such as ``timely-text-classifier``.

    With its ``unit`` after a colon where it has one: ``timely-app-costs:kv``.

    Raises:
        InvalidInput: it cannot be read, or is no predictor file.
    """
    meta = _load_predictor_arrays(path, "predictor", ()).meta
    kind = meta.get("format")
    if not isinstance(kind, str):
        raise InvalidInput("not a predictor file", where=str(path))
    return f"{kind}:{meta['unit']}" if "unit" in meta else kind


class ArrayFile(dict[str, Floats]):
    """The arrays of a predictor file, and its record in ``meta``."""

    meta: dict[str, object]


def write_predictor_arrays(
    path: Path, kind: str, meta: Mapping[str, object], arrays: Mapping[str, Floats]
) -> None:
    """Write ``arrays`` (numbers only) with the record ``meta``, which is JSON.

    Raises:
        InvalidInput: an array does not hold numbers.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.kind not in "fiu":
            raise InvalidInput(f"array {name!r} holds no numbers", where=str(path))
    record = json.dumps({**meta, "format": kind, "version": _VERSION}).encode()
    with replaced_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, meta=np.frombuffer(record, dtype=np.uint8), **arrays)  # type: ignore[arg-type]


def read_predictor_arrays(path: Path, kind: str, names: tuple[str, ...] | None = None) -> ArrayFile:
    """Read what ``write_arrays`` wrote.

    Args:
        kind: the ``format`` its record must name.
        names: arrays it must hold; None takes whatever there is.

    Raises:
        InvalidInput: missing, too large, damaged, of another kind, or an array is missing, not of numbers or
            not finite.
    """
    out = _load_predictor_arrays(path, kind, names)
    if out.meta.get("format") != kind or out.meta.get("version") != _VERSION:
        raise InvalidInput(f"not a {kind} file of version {_VERSION}", where=str(path))
    for name, array in out.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InvalidInput(f"array {name!r} of this {kind} file holds no finite numbers", where=str(path))
    return out


def _load_predictor_arrays(path: Path, kind: str, names: tuple[str, ...] | None) -> ArrayFile:
    """These arrays, or all, and the record, after a look at their sizes."""
    out = ArrayFile()
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            record_size = archive.getinfo("meta.npy").file_size
        if size > MAX_BYTES or record_size > MAX_RECORD_BYTES:
            raise InvalidInput(f"a {kind} file of {size} bytes is too large", where=str(path))
        with np.load(path, allow_pickle=False) as data:
            out.meta = json.loads(data["meta"].tobytes())
            for name in [n for n in data.files if n != "meta"] if names is None else names:
                out[name] = data[name]
    except OSError as error:
        raise InvalidInput(f"cannot read it: {error.strerror or error}", where=str(path)) from error
    except DAMAGE as error:
        raise InvalidInput(f"not a {kind} file ({error})", where=str(path)) from error
    # numpy gives the bytes of a member that is no array.
    if not isinstance(out.meta, dict) or not all(isinstance(array, np.ndarray) for array in out.values()):
        raise InvalidInput(f"not a {kind} file", where=str(path))
    return out
