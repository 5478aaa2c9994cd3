"""The goals in progress, on the disk: a bridge that was killed ends them when it is started again."""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from timely.core.errors import InvalidInput
from timely.core.files import append_file_line, core_write_file

FILE, LOCK = "goals.jsonl", "lock"
MAX_BYTES = 1_000_000
"""A longer journal is written anew, without the goals that have ended."""


@dataclass(slots=True)
class GoalEntry:
    """A goal: its robot, and the tokens of its plans by task id. A token is empty until the server has accepted it."""

    robot: str
    tokens: dict[str, str] = field(default_factory=dict)


class GoalJournal:
    """Writes a line for each change. A line is in the file when a call returns, so it survives the end of the process.

    All calls come from one thread. The folder belongs to one bridge at a time, which ``close`` ends.

    Args:
        folder: where the journal is kept; None keeps nothing.

    Attributes:
        unfinished: goals that an earlier life of the bridge left.
        problem: why the last line could not be written; empty if it could. Goals go on without the journal.

    Raises:
        InvalidInput: the folder or the file cannot be used, or another bridge uses it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file: Path | None = None
        self._lock: IO[bytes] | None = None
        self._goals: dict[str, GoalEntry] = {}
        self.problem = ""
        if folder is not None:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = (folder / LOCK).open("wb")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file = folder / FILE
                lines = self._file.read_bytes().split(b"\n") if self._file.exists() else []
            except OSError as error:
                self.close()
                reason = "another bridge uses it" if isinstance(error, BlockingIOError) else error.strerror
                raise InvalidInput(f"cannot be used: {reason}", where=str(folder)) from error
            for line in lines:
                self._read(line)
            self._write()
        self.unfinished = dict(self._goals)

    def put(self, goal: str, robot: str, task_id: str, token: str) -> None:
        """A plan of a goal begins, or its token has become known."""
        self._goals.setdefault(goal, GoalEntry(robot)).tokens[task_id] = token
        self._append({"goal": goal, "robot": robot, "task": task_id, "token": token})

    def end(self, goal: str) -> None:
        """A goal has ended."""
        self._goals.pop(goal, None)
        self._append({"goal": goal, "ended": True})

    def close(self) -> None:
        """Give the folder up; nothing is written any more."""
        self._file = None
        if self._lock is not None:
            self._lock.close()

    def _append(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            if append_file_line(self._file, json.dumps(line).encode()) > MAX_BYTES:
                self._write()
            self.problem = ""
        except (OSError, InvalidInput) as error:
            self.problem = str(error)

    def _write(self) -> None:
        lines = [
            json.dumps({"goal": name, "robot": goal.robot, "task": task_id, "token": token})
            for name, goal in self._goals.items()
            for task_id, token in goal.tokens.items()
        ]
        if self._file is not None:
            core_write_file(self._file, "".join(line + "\n" for line in lines))

    def _read(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            name = str(entry["goal"])
            if entry.get("ended"):
                self._goals.pop(name, None)
            else:
                goal = self._goals.setdefault(name, GoalEntry(str(entry["robot"])))
                goal.tokens[str(entry["task"])] = str(entry["token"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # empty, or cut off by a crash: nothing of that plan was requested yet
