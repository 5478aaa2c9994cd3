"""The latched stop and the robots that it concerns, on the server's disk: a restart changes neither."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file, flush_file_names

log = logging.getLogger(__name__)

NAME = "stop.json"
ROBOTS_NAME = "robots.json"


@dataclass(frozen=True, slots=True)
class SavedStop:
    """A latched stop, with the robots that it concerns."""

    stop_id: str
    reason: str
    principal: str
    robots: tuple[str, ...]


class StopFile:
    """Two files in the server's state folder. The methods block on the disk.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder is not None else None
        self._robots_path = folder / ROBOTS_NAME if folder is not None else None

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
        if stop is None:
            return _write(self._path, None)
        fields = {name: getattr(stop, name) for name in ("stop_id", "reason", "principal", "robots")}
        return _write(self._path, json.dumps(fields))

    def read_robots(self) -> tuple[tuple[str, ...], bool]:
        """The robots of earlier processes, and whether they are all; a file that cannot be read has not all."""
        if self._robots_path is None:
            return (), True
        try:
            data = json.loads(self._robots_path.read_bytes())
            return tuple(str(robot) for robot in data["robots"]), data["complete"] is True
        except FileNotFoundError:
            return (), True
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("no stop is a success: %s cannot be read: %s", self._robots_path, error)
            return (), False

    def write_robots(self, robots: tuple[str, ...], *, complete: bool) -> bool:
        """Keep the robots; False where nothing is kept.

        Raises:
            InvalidInput: the disk refuses.
        """
        return _write(self._robots_path, json.dumps({"robots": robots, "complete": complete}))


def _write(path: Path | None, content: str | None) -> bool:
    """Write a file, or remove it; False without a path.

    Raises:
        InvalidInput: the disk refuses.
    """
    if path is None:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            core_write_file(path, content)
        # The name itself must reach the disk before the answer leaves.
        flush_file_names(path.parent)
    except OSError as error:
        raise InvalidInput(f"cannot write it: {error.strerror or error}", where=str(path)) from error
    return True
