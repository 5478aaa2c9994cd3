"""Results of a long evaluation, kept in a file: it can stop after any measurement and go on later."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import timely
from timely.bench.code_hash import benchmark_code_hash, benchmark_files_hash
from timely.core.errors import InvalidInput

Measurement = Callable[..., Any]
"""A function of its arguments alone, seeds among them, whose result is JSON."""
Arguments = tuple[str | int | float, ...]

VERSION_KEY = "timely_pieces"


class BenchOutOfTime(Exception):
    """The budget is used up; finished measurements are kept.

    Attributes:
        done: results kept in all.
        left: measurements still to do in the experiment that was stopped.
    """

    def __init__(self, done: int, left: int) -> None:
        super().__init__(f"{done} measurements are kept, {left} of this experiment are left")
        self.done = done
        self.left = left


class BenchCheckpoints:
    """Results by experiment and arguments.

    Each kept result carries the hash of the code it came from, and of the files that its arguments name. A result of
    other code or files is computed again.

    Args:
        path: JSON lines, appended to; None keeps everything in memory only.
        budget_s: no measurement begins later than this, seconds; None sets no limit.
        seconds: the stopwatch.
        jobs: measurements computed at once, in processes; more than one needs functions that can be pickled.

    Raises:
        InvalidInput: the file holds no checkpoints, or those of another version of this package.
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
        self._begin_s = seconds()
        self._results: dict[str, Any] = {}
        self._code: dict[str, str] = {}
        if path is not None:
            self._read(path)

    def __len__(self) -> int:
        return len(self._results)

    def map(self, experiment: str, function: Measurement, arguments: Sequence[Arguments]) -> list[Any]:
        """``function(*a)`` for all ``a``; only results that are not kept yet are computed.

        Raises:
            OutOfTime: the budget ended before the last measurement began.
        """
        todo = [
            a
            for a in dict.fromkeys(arguments)
            if self._code.get(_bench_checkpoint_key(experiment, a)) != _source(function, a)
        ]
        if self.jobs > 1 and len(todo) > 1:
            calls_left = self._compute_in_processes(experiment, function, todo)
        else:
            calls_left = self._compute_in_turn(experiment, function, todo)
        if calls_left:
            raise BenchOutOfTime(len(self), calls_left)
        return [self._results[_bench_checkpoint_key(experiment, a)] for a in arguments]

    @property
    def over(self) -> bool:
        return self._budget_s is not None and self._seconds() - self._begin_s >= self._budget_s

    def find(self, experiment: str, function: Measurement, arguments: Arguments) -> Any:
        key = _bench_checkpoint_key(experiment, arguments)
        return self._results[key] if self._code.get(key) == _source(function, arguments) else None

    def keep(self, experiment: str, function: Measurement, arguments: Arguments, value: Any) -> None:
        """Keep a result, also one that was computed elsewhere, such as in an event loop."""
        key, code = _bench_checkpoint_key(experiment, arguments), _source(function, arguments)
        # The result passes through JSON, so that this run and one that reads the file return the same.
        text = json.dumps(value, allow_nan=False)
        self._results[key] = json.loads(text)
        self._code[key] = code
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f'{{"key": {json.dumps(key)}, "code": "{code}", "value": {text}}}\n')

    def _compute_in_turn(self, experiment: str, function: Measurement, todo: Sequence[Arguments]) -> int:
        for number, arguments in enumerate(todo):
            if self.over:
                return len(todo) - number
            self.keep(experiment, function, arguments, function(*arguments))
        return 0

    def _compute_in_processes(self, experiment: str, function: Measurement, todo: Sequence[Arguments]) -> int:
        """A measurement is submitted only when a process is free, so that the budget holds."""
        waiting = list(reversed(todo))
        running: dict[Future[Any], Arguments] = {}
        with ProcessPoolExecutor(min(self.jobs, len(todo))) as pool:
            while running or (waiting and not self.over):
                while waiting and len(running) < self.jobs and not self.over:
                    arguments = waiting.pop()
                    running[pool.submit(function, *arguments)] = arguments
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self.keep(experiment, function, running.pop(future), future.result())
        return len(waiting)

    def _read(self, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({VERSION_KEY: timely.__version__}) + "\n", encoding="utf-8")
            return
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        version = _parse_bench_checkpoint(lines[0] if lines else "").get(VERSION_KEY)
        if version != timely.__version__:
            content = "not a file of checkpoints" if version is None else f"checkpoints of version {version}"
            raise InvalidInput(f"{content}; this is {timely.__version__}: begin another", where=str(path))
        good_bytes = len(lines[0])
        for line in lines[1:]:
            entry = _parse_bench_checkpoint(line)
            if not line.endswith("\n") or not isinstance(entry.get("key"), str) or "value" not in entry:
                break  # a run was killed while it wrote: this result and later ones are computed again
            self._results[entry["key"]] = entry["value"]
            self._code[entry["key"]] = str(entry.get("code", ""))
            good_bytes += len(line.encode())
        with path.open("rb+") as file:
            file.truncate(good_bytes)


def _parse_bench_checkpoint(line: str) -> dict[str, Any]:
    """The object in a line of JSON; empty if there is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _source(function: Measurement, arguments: Arguments) -> str:
    """The hashes of the code of a measurement and of the files that it reads."""
    files = (benchmark_files_hash(a) for a in arguments if isinstance(a, str))
    return "+".join((benchmark_code_hash(function), *filter(None, files)))


def _bench_checkpoint_key(experiment: str, arguments: Arguments) -> str:
    return "/".join((experiment, *(f"{a:g}" if isinstance(a, float) else str(a) for a in arguments)))
