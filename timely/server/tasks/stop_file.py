"""The latched stop on the server's disk, so that a restart does not release it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

NAME = "stop.json"


@dataclass(frozen=True, slots=True)
class SavedStop:
    """A latched stop, with the robots that it concerns."""

    stop_id: str
    reason: str
    principal: str
    robots: tuple[str, ...]


class StopFile:
    """One file in the server's state folder. Its methods block on the disk.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder is not None else None

    def read(self) -> SavedStop | None:
        """The stop of an earlier process, or None. A file that cannot be read counts as a stop."""
        if self._path is None:
            return None
        try:
            data = json.loads(self._path.read_bytes())
            robots = tuple(str(robot) for robot in data["robots"])
            return SavedStop(str(data["stop_id"]), str(data["reason"]), str(data["principal"]), robots)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            return SavedStop("stop-unreadable", f"{self._path} cannot be read: {error}", "server", ())

    def write(self, stop: SavedStop | None) -> bool:
        """Keep a stop, or none; False where nothing is kept.

        Raises:
            InvalidInput: the disk refuses.
        """
        if self._path is None:
            return False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if stop is None:
                self._path.unlink(missing_ok=True)
            else:
                fields = {name: getattr(stop, name) for name in ("stop_id", "reason", "principal", "robots")}
                core_write_file(self._path, json.dumps(fields))
            # The name itself must reach the disk before the answer leaves.
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise InvalidInput(
                f"cannot write it: {error.strerror or error}", where=str(self._path)
            ) from error
        return True
