"""Runs of a long evaluation as pieces that are kept in a file: it can stop after any of them and go on later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import timely
from timely.core.errors import InvalidInput

Piece = Callable[..., Any]
Arguments = tuple[str | int | float, ...]


class OutOfTime(Exception):
    """The budget is used up; what is done is kept.

    Attributes:
        done: pieces kept in all. left: pieces still to come of the experiment that was going on.
    """

    def __init__(self, done: int, left: int) -> None:
        super().__init__(f"{done} pieces are kept, {left} of this experiment are left")
        self.done = done
        self.left = left


class Pieces:
    """Results by experiment and arguments.

    A piece is a function of its arguments alone (seeds among them) whose result is JSON. Kept pieces are those of the
    code that made them: after a change to a discipline begin a new file.

    Args:
        path: JSON lines, appended to; None keeps everything in memory only.
        budget_s: after so many seconds no new piece is begun; None: there is no limit.
        seconds: the stopwatch.
        jobs: pieces computed at once, in processes; more than one needs functions that a process can be given.

    Raises:
        InvalidInput: the file is not one of pieces, or of another version of this package.
    """

    def __init__(
        self,
        path: Path | None = None,
        budget_s: float | None = None,
        seconds: Callable[[], float] = time.monotonic,
        jobs: int = 1,
    ) -> None:
        self._path = path
        self._budget_s = budget_s
        self._seconds = seconds
        self.jobs = jobs
        self._begun_s = seconds()
        self._kept: dict[str, Any] = {}
        if path is not None:
            self._read(path)

    def __len__(self) -> int:
        return len(self._kept)

    def map(self, experiment: str, function: Piece, arguments: Sequence[Arguments]) -> list[Any]:
        """``function(*a)`` for all ``a``, computed where it is not kept yet.

        Raises:
            OutOfTime: the budget ended before the last one was there.
        """
        missing = [a for a in dict.fromkeys(arguments) if _key(experiment, a) not in self._kept]
        if self.jobs > 1 and len(missing) > 1:
            left = self._side_by_side(experiment, function, missing)
        else:
            left = self._one_by_one(experiment, function, missing)
        if left:
            raise OutOfTime(len(self._kept), left)
        return [self._kept[_key(experiment, these)] for these in arguments]

    @property
    def _over(self) -> bool:
        return self._budget_s is not None and self._seconds() - self._begun_s >= self._budget_s

    def _one_by_one(self, experiment: str, function: Piece, missing: Sequence[Arguments]) -> int:
        for number, these in enumerate(missing):
            if self._over:
                return len(missing) - number
            self._keep(_key(experiment, these), function(*these))
        return 0

    def _side_by_side(self, experiment: str, function: Piece, missing: Sequence[Arguments]) -> int:
        """In processes of their own; none is begun before a place is free, so that the budget is kept."""
        waiting = list(reversed(missing))
        running: dict[Future[Any], Arguments] = {}
        with ProcessPoolExecutor(min(self.jobs, len(missing))) as pool:
            while running or (waiting and not self._over):
                while waiting and len(running) < self.jobs and not self._over:
                    these = waiting.pop()
                    running[pool.submit(function, *these)] = these
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self._keep(_key(experiment, running.pop(future)), future.result())
        return len(waiting)

    def _keep(self, key: str, value: Any) -> None:
        # What comes back must be what a later run will read.
        text = json.dumps(value, allow_nan=False)
        self._kept[key] = json.loads(text)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f'{{"key": {json.dumps(key)}, "value": {text}}}\n')

    def _read(self, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"timely_pieces": timely.__version__}) + "\n", encoding="utf-8")
            return
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        version = _object(lines[0] if lines else "").get("timely_pieces")
        if version != timely.__version__:
            found = "not a file of pieces" if version is None else f"pieces of version {version}"
            raise InvalidInput(f"{found}; this is {timely.__version__}: begin another", where=str(path))
        good = len(lines[0])
        for line in lines[1:]:
            piece = _object(line)
            if not line.endswith("\n") or not isinstance(piece.get("key"), str) or "value" not in piece:
                break  # a run that was killed while it wrote: this piece and what follows is done again
            self._kept[piece["key"]] = piece["value"]
            good += len(line.encode())
        with path.open("rb+") as file:
            file.truncate(good)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(experiment: str, arguments: Arguments) -> str:
    return "/".join((experiment, *(f"{a:g}" if isinstance(a, float) else str(a) for a in arguments)))
