"""Removes what killed ROS 2 programs left in shared memory: half a megabyte each, until /dev/shm is full.

Fast DDS talks through files in /dev/shm. A program that ends deletes its own. The files of a program that is killed
stay, unless another program spoke to it. A file in use is locked (``_el``, ``_sl`` beside it), and the lock goes with
its process. So a file that can be locked is not in use.

A port without a lock file stays. Its reader ended in good order, and living programs may still write to it. The next
reader takes the same file; in a new one it would never get their messages. The vendor's ``fastdds shm clean`` does the
same.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")
MEMORY = re.compile(r"(?:fastdds|fastrtps)_(?:[0-9a-f]{16}|port\d{1,5})")
LOCKS = ("_el", "_sl")
YOUNG_S = 30.0
"""Between making a file and locking it a program takes less."""


def clean_ros_shared_memory(folder: Path = FOLDER) -> list[str]:
    """Delete this user's files that killed programs left; returns their names. Does nothing where there are none."""
    try:
        names = {entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)}
    except OSError:
        return []
    owners = {name.removesuffix("_el").removesuffix("_sl") for name in names}
    file_names: list[str] = []
    for owner in sorted(owners):
        if MEMORY.fullmatch(owner):
            file_names += _drop_ros_shared_memory(folder, owner, names)
    return file_names


def _drop_ros_shared_memory(folder: Path, owner: str, names: set[str]) -> list[str]:
    files = [owner, *(owner + lock for lock in LOCKS), f"sem.{owner}_mutex"]
    present = [name for name in files if name in names]
    lock_files = [owner + lock for lock in LOCKS if owner + lock in names]
    if not lock_files:
        return []
    file_names: list[str] = []
    with contextlib.ExitStack() as locks:
        try:
            stats = [(folder / name).stat() for name in present]
            if any(one.st_uid != os.getuid() or time.time() - one.st_ctime < YOUNG_S for one in stats):
                return []
            for lock_file in lock_files:
                locks.enter_context(_lock_ros_shared_memory(folder / lock_file))
        except OSError:
            return []  # another program uses it, or has just removed it
        for name in present:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
                file_names.append(name)
    return file_names


@contextlib.contextmanager
def _lock_ros_shared_memory(file: Path) -> Iterator[None]:
    """Hold a lock file; raises OSError if another process holds it."""
    handle = os.open(file, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
