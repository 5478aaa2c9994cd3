"""The latch of the fleet's stop: set at once, cleared only by a reset, kept on disk across restarts."""

import json
import threading
from concurrent.futures import Future
from pathlib import Path

from timely_robots.disk_thread import DriverDiskThread

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

FILE = "stop.json"


class BridgeStopLatch:
    """True from a stop until a reset. Thread-safe, and no call waits for the disk.

    Args:
        disk: writes the latch.
        folder: where the latch is kept; None keeps it in memory only. A file that cannot be read counts as set.

    Attributes:
        own: a stop that the server does not know of set it, so no reset of the server clears it.
        problem: why the latch could not be written last; empty if it could.
    """

    def __init__(self, disk: DriverDiskThread, folder: Path | None = None) -> None:
        self._disk = disk
        self._file = folder / FILE if folder is not None else None
        self._lock = threading.Lock()
        self._writing: Future[None] | None = None
        self.problem = ""
        self._set, self.own = self._read()

    @property
    def set(self) -> bool:
        return self._set

    @property
    def unsaved(self) -> bool:
        """There is a folder for the latch, and the disk does not have it yet: a restart may not know of it."""
        is_writing = self._writing is not None and not self._writing.done()
        return self._file is not None and (is_writing or bool(self.problem))

    def put(self, stopped: bool, *, own: bool = False) -> Future[None]:
        """Set or clear the latch at once; it is on the disk when the future is done, unless there is a ``problem``.

        Args:
            own: see above; such a stop stays one until the latch is cleared.
        """
        with self._lock:
            self._set, self.own = stopped, stopped and (own or self.own)
            self._writing = self._disk.submit(self._write, stopped, self.own)
            return self._writing

    def catch_up(self) -> None:
        """Write the latch again if the disk refused it; to be called about once a second."""
        with self._lock:
            if self.problem and (self._writing is None or self._writing.done()):
                self._writing = self._disk.submit(self._write, self._set, self.own)

    def _write(self, stopped: bool, own: bool) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Any other content than that of a latch that is clear counts as set, also for earlier releases.
            state = {"stopped": True, "own": own} if stopped else {"stopped": False}
            core_write_file(self._file, json.dumps(state))
            self.problem = ""
        except (OSError, InvalidInput) as error:
            self.problem = str(error)

    def _read(self) -> tuple[bool, bool]:
        if self._file is None or not self._file.exists():
            return False, False
        try:
            state = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return True, True
        return state != {"stopped": False}, state not in ({"stopped": False}, {"stopped": True, "own": False})
