"""Hashes of a model's weights and of files, by which an adapter knows its base model and a training its start."""

import hashlib
import json
from pathlib import Path

from timely.core.errors import InvalidInput


def weights_hash(folder: Path) -> str:
    """SHA-256 over the tensors of a model folder by name, independent of the file layout.

    Raises:
        InvalidInput: it holds no weights in safetensors, or a broken file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InvalidInput("holds no weights in safetensors", where=str(folder))
    digests: dict[str, str] = {}
    for path in files:
        digests |= _tensor_hashes(path)
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _tensor_hashes(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, deserialize

    try:
        tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"is corrupted: {error}", where=str(path)) from error
    return {
        name: hashlib.sha256(f"{tensor['dtype']} {tensor['shape']}".encode() + tensor["data"]).hexdigest()
        for name, tensor in tensors
    }


def planner_file_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
