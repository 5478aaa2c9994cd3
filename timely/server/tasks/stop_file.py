"""The latched stop and the robots that it concerns, on the server's disk: a restart changes neither."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file, file_errors, flush_file_names

log = logging.getLogger(__name__)

NAME = "stop.json"
ROBOTS_NAME = "robots.json"
RELEASED_NAME = "released-stops.json"

RETRY_S = 1.0
"""What the disk refused is written again so often."""


@dataclass(frozen=True, slots=True)
class SavedServerStop:
    """A latched stop, with the robots that it concerns and the latest stops that its reset releases too."""

    stop_id: str
    reason: str
    principal: str
    robots: tuple[str, ...]
    stop_ids: tuple[str, ...] = ()


class ServerStopFile:
    """Three files in the server's state folder. The methods block on the disk.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / NAME if folder is not None else None
        self._robots_path = folder / ROBOTS_NAME if folder is not None else None
        self._released_path = folder / RELEASED_NAME if folder is not None else None

    def read(self) -> SavedServerStop | None:
        """The stop of an earlier process, or None. A file that cannot be read counts as a stop."""
        if self._path is None:
            return None
        try:
            data = json.loads(self._path.read_bytes())
            robots = tuple(str(robot) for robot in data["robots"])
            stop_ids = tuple(str(one) for one in data.get("stop_ids", ()))
            return SavedServerStop(
                str(data["stop_id"]), str(data["reason"]), str(data["principal"]), robots, stop_ids
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return SavedServerStop("stop-unreadable", f"{self._path} cannot be read: {error}", "server", ())

    def write(self, stop: SavedServerStop | None, released_ids: Sequence[str] = ()) -> bool:
        """Keep a stop, or none and the ids of those that were released; False where nothing is kept.

        Raises:
            InvalidInput: the disk refuses.
        """
        if stop is not None:
            return _write_stop_file(self._path, json.dumps(asdict(stop)))
        if released_ids:
            _write_stop_file(self._released_path, json.dumps({"stop_ids": list(released_ids)}))
        return _write_stop_file(self._path, None)

    def read_released(self) -> list[str]:
        """The latest stops that earlier processes released; none from a file that cannot be read."""
        if self._released_path is None:
            return []
        try:
            stop_ids = json.loads(self._released_path.read_bytes())["stop_ids"]
            return [one for one in stop_ids if isinstance(one, str)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("bridges that missed a reset need ~/reset: %s: %s", self._released_path, error)
            return []

    def read_robots(self) -> tuple[dict[str, list[str]], bool]:
        """The robots of earlier processes with their bridges, and whether they are all.

        A robot of an earlier release has a bridge without an identity. A file that cannot be read has not all.
        """
        if self._robots_path is None:
            return {}, True
        try:
            data = json.loads(self._robots_path.read_bytes())
            bridges = data.get("bridges", {})
            robots = {str(robot): [str(one) for one in bridges.get(robot, [""])] for robot in data["robots"]}
            return robots, data["complete"] is True
        except FileNotFoundError:
            return {}, True
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.error("no stop is a success: %s cannot be read: %s", self._robots_path, error)
            return {}, False

    def write_robots(self, robots: Mapping[str, Sequence[str]], *, complete: bool) -> bool:
        """Keep the robots with their bridges; False where nothing is kept.

        Raises:
            InvalidInput: the disk refuses.
        """
        # Earlier releases read the names alone.
        bridges = {robot: ids for robot, ids in robots.items() if list(ids) != [""]}
        fields = {"robots": list(robots), "complete": complete, "bridges": bridges}
        return _write_stop_file(self._robots_path, json.dumps(fields))


class SavedServerState:
    """Brings a state to its file after each change, until the disk takes it.

    Args:
        snapshot: a call that writes the present state, as those of ``ServerStopFile``.

    Attributes:
        is_saved: the disk has the present state.
    """

    def __init__(self, snapshot: Callable[[], Callable[[], bool]], name: str) -> None:
        self.is_saved = False
        self._snapshot = snapshot
        self._name = name
        self._has_changes = self._disk_refuses = False
        self._saving: asyncio.Task[bool] | None = None
        self._retry: asyncio.TimerHandle | None = None

    def save(self) -> None:
        """Begin to save the state."""
        self._has_changes, self.is_saved = True, False
        self._begin()

    async def flush(self) -> bool:
        """Return when the disk has the state; False where nothing is kept or the disk refuses."""
        self._begin()
        return self.is_saved if self._saving is None else await asyncio.shield(self._saving)

    async def close(self) -> None:
        await self.flush()
        if self._has_changes:
            log.critical("%s: on no disk, so the next start will not have it", self._name)
        if self._retry is not None:
            self._retry.cancel()

    def _begin(self) -> None:
        if self._has_changes and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save(), name=f"save {self._name}")

    async def _save(self) -> bool:
        while self._has_changes:
            self._has_changes = False
            try:
                self.is_saved = await asyncio.to_thread(self._snapshot()) and not self._has_changes
                self._disk_refuses = False
            except InvalidInput as error:
                if not self._disk_refuses:
                    log.error("%s: not saved, and tried again: %s", self._name, error)
                self._has_changes = self._disk_refuses = True
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._begin)
                break
        return self.is_saved


def _write_stop_file(path: Path | None, content: str | None) -> bool:
    """Write a file, or remove it; False without a path.

    Raises:
        InvalidInput: the disk refuses.
    """
    if path is None:
        return False
    with file_errors(path, "cannot write it"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink(missing_ok=True)
            # It must be gone from the disk before the answer leaves.
            flush_file_names(path.parent)
        else:
            core_write_file(path, content)
    return True
