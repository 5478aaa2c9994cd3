"""The latch of the fleet's stop: set at once, cleared only by a reset, kept on disk across restarts."""

import json
import threading
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file

FILE = "stop.json"


class StopLatch:
    """True from a stop until a reset. Thread-safe.

    Args:
        folder: where the latch is kept; None keeps it in memory only. A file that cannot be read counts as set.

    Attributes:
        problem: why the latch could not be written last; empty if it could.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = folder / FILE if folder is not None else None
        self._lock = threading.Lock()
        self.problem = ""
        self._set = self._read()

    @property
    def set(self) -> bool:
        return self._set

    def put(self, stopped: bool) -> None:
        """Set or clear the latch; on disk when it returns, unless there is a ``problem``."""
        with self._lock:
            self._set = stopped
            self._write()

    def catch_up(self) -> None:
        """Write the latch again if the disk refused it; to be called about once a second."""
        if self.problem:
            with self._lock:
                self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            core_write_file(self._file, json.dumps({"stopped": self._set}))
            self.problem = ""
        except (OSError, InvalidInput) as error:
            self.problem = str(error)

    def set_in_memory(self) -> None:
        """Set the latch before the disk is written, because writing may take long."""
        self._set = True

    def _read(self) -> bool:
        if self._file is None or not self._file.exists():
            return False
        try:
            return bool(json.loads(self._file.read_text()) != {"stopped": False})
        except (OSError, ValueError):
            return True
