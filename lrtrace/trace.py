"""Reads and writes trace files ``*.lrtrace.jsonl`` as a stream: a header line, then one job a line."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.job import TraceHeader, TraceJob
from lrtrace.jsonl import (
    decode_jsonl,
    encode_jsonl,
    open_trace_input,
    open_trace_output,
    raw_trace_lines,
    read_jsonl,
)


class _JobNumbers:
    """Job numbers so far: one bit each up to ``DENSE``, so that a million take 125 kB."""

    DENSE = 2**27

    def __init__(self) -> None:
        self._bits = bytearray(1024)
        self._rest: set[int] = set()

    def add(self, number: int) -> bool:
        if number >= self.DENSE:
            new = number not in self._rest
            self._rest.add(number)
            return new
        byte, bit = number >> 3, 1 << (number & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1, 2 * len(self._bits)) - len(self._bits)))
        new = not self._bits[byte] & bit
        self._bits[byte] |= bit
        return new


class Trace:
    """A trace file, read as a stream, so that memory does not grow with the number of jobs.

    The constructor reads ``header``. Each iteration reads the jobs anew.

    Raises:
        BadInput: the file is unreadable or a pipe, the header is broken or, while iterating, a job is broken. The
            message is ``FILE:LINE: FIELD: REASON``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_fifo():
            raise BadInput("a pipe: a trace is read more than once, so it has to be a file", where=str(path))
        with closing(read_jsonl(self.path)) as lines:
            for number, raw in lines:
                try:
                    self.header = TraceHeader.from_dict(raw)
                except BadInput as error:
                    raise BadInput(error.message, where=self._where(number)) from error
                break
            else:
                raise BadInput("empty: a trace starts with a header line", where=self._where(1))

    def __iter__(self) -> Iterator[TraceJob]:
        return self.jobs()

    def jobs(self) -> Iterator[TraceJob]:
        """Jobs in the order of the file. They must be ordered by arrival, with each number once.

        Raises:
            BadInput: see the class. ``jobs_by_arrival`` reads unordered files.
        """
        earlier_jobs, previous = _JobNumbers(), 0.0
        with closing(read_jsonl(self.path)) as lines:
            next(lines, None)
            for number, raw in lines:
                job = self._job(number, raw, earlier_jobs)
                if job.arrival_s < previous:
                    raise BadInput(
                        f"arrival_s: {job.arrival_s} is before {previous} of the job above;"
                        " order the jobs by arrival (lrtrace sort)",
                        where=self._where(number),
                    )
                previous = job.arrival_s
                yield job

    def jobs_by_arrival(self) -> Iterator[TraceJob]:
        """Jobs ordered by arrival, also of an unordered file (a stable sort; 24 bytes per job).

        Raises:
            BadInput: see the class.
        """
        arrivals, offsets, numbers = array("d"), array("q"), array("q")
        earlier_jobs = _JobNumbers()
        with open_trace_input(self.path) as file:
            records = raw_trace_lines(self.path, file)
            next(records, None)
            for number, offset, line in records:
                arrivals.append(
                    self._job(number, decode_jsonl(self.path, number, line), earlier_jobs).arrival_s
                )
                offsets.append(offset)
                numbers.append(number)
            for index in sorted(range(len(arrivals)), key=arrivals.__getitem__):
                file.seek(offsets[index])
                number = numbers[index]
                yield self._job(number, decode_jsonl(self.path, number, file.readline()), None)

    def _job(self, number: int, raw: Mapping[str, Any], earlier_jobs: _JobNumbers | None) -> TraceJob:
        try:
            job = TraceJob.from_dict(raw)
            if earlier_jobs is not None and not earlier_jobs.add(job.job):
                raise BadInput(f"job: {job.job} was there before; each job needs its own number")
        except BadInput as error:
            raise BadInput(error.message, where=self._where(number)) from error
        return job

    def _where(self, number: int) -> str:
        return f"{self.path}:{number}"


def write_trace(path: str | Path, header: TraceHeader, jobs: Iterable[TraceJob]) -> int:
    """Write a whole trace; returns the number of jobs. The file appears under its name when it is complete.

    Args:
        jobs: in any order, each number once.

    Raises:
        BadInput: the file cannot be written, or a job number comes twice.
    """
    target, earlier_jobs, count = Path(path), _JobNumbers(), 0
    with open_trace_output(target) as file:
        file.write(encode_jsonl(header.to_dict()))
        for job in jobs:
            if not earlier_jobs.add(job.job):
                raise BadInput(f"job: {job.job} was written before", where=str(target))
            file.write(encode_jsonl(job.to_dict()))
            count += 1
    return count
