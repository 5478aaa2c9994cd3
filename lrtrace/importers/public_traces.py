"""Converts public request traces of Azure, Mooncake and BurstGPT.

They have arrival times and lengths, but no texts and no robots. Each request becomes a job with one segment without
execution time. Times count from the first request.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lrtrace.csv_rows import read_csv_rows
from lrtrace.errors import BadInput, UnknownName
from lrtrace.job import NORMAL, TraceHeader, TraceJob, TraceSegment, Tuf
from lrtrace.jsonl import read_jsonl

MOONCAKE_BLOCK_TOKENS = 512
"""Tokens per entry of Mooncake's ``hash_ids``."""

MAX_S = 1e12
"""Largest time of a source, seconds: seconds since 1970 are below it, milliseconds taken for seconds above."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One row: seconds on the source's own axis, tokens and further fields."""

    line: int
    time_s: float
    prompt_tokens: int
    output_tokens: int
    agent: str
    shared_tokens: int
    extra: dict[str, Any]


@dataclass(slots=True)
class ImportTally:
    """Counts of an import; complete after the last job."""

    jobs: int = 0
    skipped: int = 0
    """Number of rows without prompt or answer (failed requests)."""


class PublicTraceImport:
    """A public trace as ``header`` and streamed ``jobs``; ``tally`` counts during iteration.

    Args:
        source: ``azure``, ``mooncake`` or ``burstgpt``.
        path: the file.
        tuf: time-utility function of every request.
        limit: maximum number of requests.
        speed: 2 makes everything arrive twice as fast.
        network_s: delay to the users, seconds.

    Raises:
        UnknownName: no such source. BadInput: ``speed`` or ``limit`` is out of range. While iterating, a row is
            broken, which the message names with file, line, column and reason, or there is no request.
    """

    def __init__(
        self,
        source: str,
        path: str | Path,
        *,
        tuf: Tuf = NORMAL,
        limit: int | None = None,
        speed: float = 1.0,
        network_s: float = 0.0,
    ) -> None:
        if source not in SOURCES:
            raise UnknownName("trace format", source, SOURCES)
        if not 0 < speed < math.inf:
            raise BadInput(f"speed: must be positive, got {speed}")
        if limit is not None and limit < 1:
            raise BadInput(f"limit: must be 1 or more, got {limit}")
        self.path = Path(path)
        self.tally = ImportTally()
        self._source, self._tuf, self._limit, self._speed = source, tuf, limit, speed
        imported: dict[str, Any] = {"format": source, "speed": speed}
        if limit is not None:
            imported["limit"] = limit
        self.header = TraceHeader(self.path.stem, None, network_s, {"imported": imported})

    @property
    def jobs(self) -> Iterator[TraceJob]:
        """The jobs. Each iteration reads them anew."""
        self.tally = ImportTally()
        return self._jobs()

    def _jobs(self) -> Iterator[TraceJob]:
        tally = self.tally
        origin, previous = math.nan, -math.inf
        for row in SOURCES[self._source](self.path):
            if row.time_s < previous:
                raise BadInput(
                    "its time is before that of the row above; sort the rows by time",
                    where=f"{self.path}:{row.line}",
                )
            previous = row.time_s
            if row.prompt_tokens == 0 or row.output_tokens == 0:
                tally.skipped += 1
                continue
            if self._limit is not None and tally.jobs == self._limit:
                return
            origin = row.time_s if math.isnan(origin) else origin
            try:
                yield self._job(row, (row.time_s - origin) / self._speed)
            except BadInput as error:
                raise BadInput(error.message, where=f"{self.path}:{row.line}") from error
            tally.jobs += 1
        if not tally.jobs:
            raise BadInput("holds no request with a prompt and an answer", where=str(self.path))

    def _job(self, row: TraceRequest, arrival_s: float) -> TraceJob:
        return TraceJob(
            self.tally.jobs,
            round(arrival_s, 6),
            row.prompt_tokens,
            (TraceSegment("", row.output_tokens),),
            agent=row.agent,
            shared_prefix_tokens=min(row.shared_tokens, row.prompt_tokens),
            tuf=self._tuf,
            extra=row.extra,
        )


def _imported_trace_number(
    path: Path, line: int, name: str, value: object, most: float, expected: str
) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= most:
        raise BadInput(f"{name}: must be {expected}, got {value!r}", where=f"{path}:{line}")
    return number


def _imported_trace_count(path: Path, line: int, name: str, value: object) -> int:
    number = _imported_trace_number(path, line, name, value, 1e9, "a count of tokens")
    if number != int(number):
        raise BadInput(f"{name}: must be a count of tokens, got {value!r}", where=f"{path}:{line}")
    return int(number)


def _imported_trace_seconds(path: Path, line: int, name: str, value: object) -> float:
    return _imported_trace_number(path, line, name, value, MAX_S, f"seconds, 0 to {MAX_S:g}")


def _imported_trace_ms(path: Path, line: int, name: str, value: object) -> float:
    most = 1000.0 * MAX_S
    return _imported_trace_number(path, line, name, value, most, f"milliseconds, 0 to {most:g}")


def import_azure_trace(path: Path) -> Iterator[TraceRequest]:
    """Azure LLM inference traces: ``TIMESTAMP`` (date and time), ``ContextTokens``, ``GeneratedTokens``."""
    for line, row in read_csv_rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        yield TraceRequest(
            line,
            _imported_azure_time_s(path, line, row["TIMESTAMP"]),
            _imported_trace_count(path, line, "ContextTokens", row["ContextTokens"]),
            _imported_trace_count(path, line, "GeneratedTokens", row["GeneratedTokens"]),
            "",
            0,
            {},
        )


def _imported_azure_time_s(path: Path, line: int, text: str) -> float:
    """``2023-11-16 18:17:03.9799600``, with or without an offset; seconds since 1970."""
    whole, _, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
        fraction = float(f"0.{digits or '0'}")
    except ValueError:
        raise BadInput(f"TIMESTAMP: must be a date and time, got {text!r}", where=f"{path}:{line}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() + fraction


def import_mooncake_trace(path: Path) -> Iterator[TraceRequest]:
    """Mooncake traces: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` of the prompt's blocks.

    Equal leading ids mean an equal prefix, so they give the length of the prefix shared with an earlier request.
    """
    earlier_blocks: set[int] = set()
    for line, row in read_jsonl(path):
        for name in ("timestamp", "input_length", "output_length"):
            if name not in row:
                raise BadInput(f"{name}: is missing", where=f"{path}:{line}")
        ids = row.get("hash_ids", [])
        if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
            raise BadInput(
                f"hash_ids: must be a list of integers, got {str(ids)[:60]}", where=f"{path}:{line}"
            )
        shared_blocks = next(
            (index for index, number in enumerate(ids) if number not in earlier_blocks), len(ids)
        )
        earlier_blocks.update(ids)
        yield TraceRequest(
            line,
            _imported_trace_ms(path, line, "timestamp", row["timestamp"]) / 1000.0,
            _imported_trace_count(path, line, "input_length", row["input_length"]),
            _imported_trace_count(path, line, "output_length", row["output_length"]),
            "",
            shared_blocks * MOONCAKE_BLOCK_TOKENS,
            {"hash_ids": ids} if ids else {},
        )


def import_burstgpt_trace(path: Path) -> Iterator[TraceRequest]:
    """BurstGPT traces: ``Timestamp`` (s), ``Request tokens``, ``Response tokens``, ``Model``, ``Log Type``.

    Failed requests have no response tokens. Newer files have a ``Session ID``, which becomes the agent.
    """
    for line, row in read_csv_rows(path, ("Timestamp", "Request tokens", "Response tokens")):
        session = row.get("Session ID", "")
        yield TraceRequest(
            line,
            _imported_trace_seconds(path, line, "Timestamp", row["Timestamp"]),
            _imported_trace_count(path, line, "Request tokens", row["Request tokens"]),
            _imported_trace_count(path, line, "Response tokens", row["Response tokens"]),
            f"session-{session}" if session else "",
            0,
            {name.lower().replace(" ", "_"): row[name] for name in ("Model", "Log Type") if row.get(name)},
        )


SOURCES: dict[str, Callable[[Path], Iterator[TraceRequest]]] = {
    "azure": import_azure_trace,
    "mooncake": import_mooncake_trace,
    "burstgpt": import_burstgpt_trace,
}
"""Formats by name."""
