"""Hashes of a model's weights and of files, by which an adapter knows its base model and a training its start."""

import hashlib
import json
import mmap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput


def training_weights_hash(folder: Path) -> str:
    """SHA-256 over the tensors of a model folder by name, independent of the file layout.

    Raises:
        InvalidInput: it holds no weights in safetensors, or a broken file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InvalidInput("holds no weights in safetensors", where=str(folder))
    digests: dict[str, str] = {}
    for path in files:
        digests |= _training_tensor_hashes(path)
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _training_tensor_hashes(path: Path) -> dict[str, str]:
    """SHA-256 of each tensor, in threads and without a copy: a start waits for it, and files have gigabytes."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # checks the header
            pass
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            header_end = 8 + int.from_bytes(content[:8], "little")
            header: dict[str, dict[str, Any]] = json.loads(content[8:header_end])
            header.pop("__metadata__", None)
            with memoryview(content) as view, view[header_end:] as tensors, ThreadPoolExecutor() as threads:
                hashes = threads.map(partial(_tensor_hash, tensors), header.values())
                return dict(zip(header, hashes, strict=True))
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"is corrupted: {error}", where=str(path)) from error


def _tensor_hash(tensors: memoryview, entry: dict[str, Any]) -> str:
    digest = hashlib.sha256(f"{entry['dtype']} {entry['shape']}".encode())
    begin, end = entry["data_offsets"]
    with tensors[begin:end] as data:
        digest.update(data)
    return digest.hexdigest()


def training_file_hash(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
