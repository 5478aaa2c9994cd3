"""Locks between all test runs of a machine: workers, checkouts and people."""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path
from typing import IO

FOLDER = Path(tempfile.gettempdir()) / "timely-test-locks"


def try_lock(name: str) -> IO[bytes] | None:
    """An open file that holds the lock until it is closed; None while another process holds it."""
    FOLDER.mkdir(mode=0o777, exist_ok=True)
    file = (FOLDER / name).open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
