"""The server's event log on disk: one JSON object a line, from which ``lrtrace record`` makes a trace.

A thread of its own writes it, so a slow disk delays no robot. Times are seconds since the log was opened, on the
server's monotonic clock. Every line has ``t_s`` and ``event``; lines of a task have ``task_id``. The events and their
fields:

- ``opened``: ``timely_events`` (format version, 1), ``wall_time`` (ISO 8601, UTC), ``engine``, ``discipline``,
  ``mode``. In a file that was begun in the midst of a run: ``continues`` (true), and ``t_s`` goes on.
- ``task``, on admission: ``agent``, ``app``, ``robot``, ``skill_set``, ``task``, ``scene``, ``history``, ``replans``
  (the task it replaces), ``tuf`` (``ert_s``, ``alpha``, ``beta``), ``urgency`` (null or 0..4), ``priority``,
  ``network_s``. As the request has them also ``app_requests``, ``max_tokens`` and ``expected_tokens``. The
  ``trace_id`` is that of the request's ``traceparent``, or null.
- ``segment``, on release: ``index``, ``text``, ``tokens``, ``ready_s`` (end of its generation, as ``t_s``),
  ``execution_s`` (expected), ``blocking``.
- ``report``, for news only: ``segment``, ``kind`` and the other fields of ``ExecutionReport``.
- ``generated``, at the end of the generation: ``outcome``, ``prompt_tokens``, ``cached_tokens``, ``tokens``,
  ``recomputed_tokens``, ``preemptions``, ``suspensions``, ``first_token_s``, ``last_token_s`` (as ``t_s``).
- ``settled``, at the end of the task: ``outcome``, ``code`` and ``detail`` (empty without an error),
  ``response_time_s``, ``waiting_time_s``, ``completion_time_s``, ``utility``, ``measured`` (from reports). Its
  ``segments`` have ``index``, ``start_s``, ``end_s`` (as ``t_s``), ``reported`` (by the robot).
- ``urgency``, a level of a request: ``level``, ``source`` (``given``, ``predicted``, ``operator``), ``confidence``,
  ``text`` (its start). Predicted ones also ``model``, ``probabilities`` and, for an urgent robot,
  ``at_least_as_urgent_as``. ``task_id`` is the ``id`` of an OpenAI answer.
- ``urgency_override``, by an operator: ``from``, ``to``, ``operator``, ``reason``.
- ``length``, a predicted length: ``bucket``, ``expected_tokens``, ``confidence``.
- ``refused``: ``agent``, ``code``, ``detail``.
- ``discipline``, a switch: ``name``.
- ``engine_died``, before it is started again: ``detail``.
- ``lost``, lines that the disk was too slow for or refused: ``lines``.
- ``closed``: the server ended in good order.

A log follows its name. Where its file was renamed, removed or emptied, the next lines begin a new one.
"""

import fcntl
import json
import logging
import os
import queue
import stat
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from timely.core.clock import Clock
from timely.core.files import append_whole, file_ends_torn, file_errors

log = logging.getLogger(__name__)

VERSION = 1
MAX_WAITING = 100_000
"""Most lines that wait for the disk."""

CLOSE_TIMEOUT_S = 5.0


class TelemetryEventLog:
    """Appends events to a file.

    Args:
        path: of the file; None writes nothing.

    Raises:
        InvalidInput: the file cannot be opened, or another server writes it.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._origin_s = clock.now()
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._lost_lines = 0
        self._header: dict[str, Any] | None = None
        self._thread: threading.Thread | None = None
        if path is None:
            return
        self._path = path.absolute()
        with file_errors(path, "cannot be appended to"):
            self._file = self._open_file()
        self._thread = threading.Thread(target=self._write, name="event-log", daemon=True)
        self._thread.start()

    def write_header(self, engine: str, discipline: str, mode: str) -> None:
        self._header = {"timely_events": VERSION, "engine": engine, "discipline": discipline, "mode": mode}
        self.write("opened", wall_time=_event_log_wall_time(), **self._header)

    @property
    def is_open(self) -> bool:
        """Whether lines are written anywhere."""
        return self._thread is not None

    def since_s(self, when_s: float | None) -> float | None:
        """A time of the clock as ``t_s``; None stays None."""
        return None if when_s is None else round(when_s - self._origin_s, 6)

    def write(self, event: str, /, **fields: Any) -> None:
        """Append a line without waiting for the disk."""
        if not self.is_open:
            return
        line: Mapping[str, Any] = {"t_s": self.since_s(self._clock.now()), "event": event, **fields}
        try:
            if self._lost_lines:
                self._waiting.put_nowait(self._lost_line(self._lost_lines))
                self._lost_lines = 0
            self._waiting.put_nowait(_event_log_line(line))
        except queue.Full:
            self._lost_lines += 1

    def close(self) -> None:
        """Write the waiting lines and close the file; blocks for a few seconds at most. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(
                _event_log_line({"t_s": self.since_s(self._clock.now()), "event": "closed"}),
                timeout=CLOSE_TIMEOUT_S,
            )
            self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            log.error("%s: its disk does not keep up, and the end of the log is missing", self._path)
            return
        thread.join(CLOSE_TIMEOUT_S)

    def _write(self) -> None:
        """Write the waiting lines together, until the last one; count those that the disk refuses."""
        refused_lines, is_last, is_new = 0, False, False
        try:
            while not is_last:
                lines = [self._waiting.get()]
                while not self._waiting.empty():
                    lines.append(self._waiting.get_nowait())
                is_last = lines[-1] is None
                own_lines = [line for line in lines if line is not None]
                lost_lines = [self._lost_line(refused_lines)] if refused_lines else []
                try:
                    is_new |= self._follow_name()
                    header = self._later_header() if is_new else []
                    self._bytes = append_whole(self._file, "".join(header + lost_lines + own_lines).encode())
                    refused_lines, is_new = 0, False
                except OSError as error:
                    if not refused_lines:
                        log.error("%s: lines are lost from here on: %s", self._path, error.strerror)
                    refused_lines += len(own_lines)
        finally:
            self._file.close()

    def _open_file(self) -> FileIO:
        file = FileIO(self._path, "ab", opener=_open_event_log_at_once)
        try:
            _lock_event_log(file)
        except OSError:
            file.close()
            raise
        if file_ends_torn(self._path):
            file.write(b"\n")
            log.warning("%s: its last line was torn by the end of a server", self._path)
        self._bytes = 0
        return file

    def _follow_name(self) -> bool:
        """Open the file of the log's name if it is another one by now; true if it is, or was emptied."""
        own = os.fstat(self._file.fileno())
        if not stat.S_ISREG(own.st_mode):
            return False
        try:
            if os.path.samestat(os.stat(self._path), own):
                return own.st_size < self._bytes
        except FileNotFoundError:
            pass
        file, self._file = self._file, self._open_file()
        file.close()
        return True

    def _later_header(self) -> list[str]:
        """The first line of a file that goes on with a run; none for a log without a header."""
        if self._header is None:
            return []
        fields = {
            "t_s": self.since_s(self._clock.now()),
            "event": "opened",
            "wall_time": _event_log_wall_time(),
        }
        return [_event_log_line({**fields, **self._header, "continues": True})]

    def _lost_line(self, lines: int) -> str:
        return _event_log_line({"t_s": self.since_s(self._clock.now()), "event": "lost", "lines": lines})


def _open_event_log_at_once(path: str, flags: int) -> int:
    """Open a file without a wait: a pipe that nothing reads is an error, and would hold up the start and its end."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(handle, True)
    return handle


def _lock_event_log(file: FileIO) -> None:
    """Keep other servers from a file: the runs of two could not be told apart. Pipes and devices have many writers.

    Raises:
        BlockingIOError: another server has it.
    """
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, "another server writes it") from error
    except OSError as error:
        # Some network file systems have no locks.
        log.warning("%s: other servers cannot be kept from it: %s", file.name, error)


def _event_log_wall_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _event_log_line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, allow_nan=False, separators=(",", ":")) + "\n"
