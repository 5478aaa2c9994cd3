"""Temporary folders that do not outlive killed processes for long: the next process of their kind removes them."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = ".in-use"
"""The file that the process of a folder locks. The lock goes with the process."""
YOUNG_S = 30.0
"""Between making this file and locking it a process takes less."""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder in the system's folder for temporary files, removed at the end of the block.

    Before, folders of this user and prefix go whose processes were killed. One without a lock file stays: it is not
    known to be free.
    """
    for entry in os.scandir(tempfile.gettempdir()):
        if entry.name.startswith(prefix):
            with suppress(OSError):  # in use, or another process has just removed it
                _remove_free_folder(Path(entry.path))
    with tempfile.TemporaryDirectory(prefix=prefix) as name, (Path(name) / LOCK).open("x") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield Path(name)


def _remove_free_folder(folder: Path) -> None:
    """Remove a folder of this user that no process uses; raises OSError if one does, or may."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    with (folder / LOCK).open() as lock:
        if time.time() - os.fstat(lock.fileno()).st_ctime >= YOUNG_S:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
