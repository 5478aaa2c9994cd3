"""Logs the commands and motions of an emulator, one JSON object a line, for people and tests."""

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Self

from timely.core.files import append_whole, file_errors


@dataclass(frozen=True, slots=True)
class MotionEnd:
    """A motion that is over: what to log, and what to answer (empty: nothing)."""

    command: str
    outcome: str
    start_s: float
    end_s: float
    reply: str = ""


class EmulatorCommandLog:
    """A thread-safe log of commands and motions, in a file and, bounded, in memory.

    Every record has ``t_s``, ``event`` (``command`` or ``motion``), ``command``, ``outcome``, ``start_s`` and
    ``end_s``. Times are seconds on the machine's monotonic clock. ``start_s`` and ``end_s`` are null for a command
    without motion. A command is written at its arrival, and a motion at its end.

    Args:
        path: the file, overwritten; None keeps the records in memory only.
        keep: maximum records in memory.

    Raises:
        InvalidInput: the file cannot be written; also from each method that writes.
    """

    def __init__(self, path: Path | None = None, *, keep: int = 100_000) -> None:
        self._file: FileIO | None = None
        if path is not None:
            with file_errors(path, "cannot write it"):
                path.write_bytes(b"")
                self._file = path.open("ab", buffering=0)
        self._keep = keep
        self._records: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def write(
        self,
        t_s: float,
        event: str,
        command: str,
        outcome: str,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        **more: object,
    ) -> None:
        record: dict[str, Any] = {
            "t_s": round(t_s, 6),
            "event": event,
            "command": command,
            "outcome": outcome,
            "start_s": None if start_s is None else round(start_s, 6),
            "end_s": None if end_s is None else round(end_s, 6),
            **more,
        }
        with self._lock:
            self._records.append(record)
            del self._records[: -self._keep]
            if self._file is not None:
                with file_errors(Path(self._file.name), "cannot write it"):
                    append_whole(self._file, json.dumps(record).encode() + b"\n")

    def write_ends(self, t_s: float, ends: Iterable[MotionEnd]) -> None:
        for end in ends:
            self.write(t_s, "motion", end.command, end.outcome, start_s=end.start_s, end_s=end.end_s)

    def records(self, event: str = "") -> list[dict[str, Any]]:
        with self._lock:
            return [record for record in self._records if event in ("", record["event"])]

    def close(self) -> None:
        """Close the file. Later records stay in memory only."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
