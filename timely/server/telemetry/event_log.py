"""The server's event log on disk: one JSON object a line, enough to make a trace of a fleet's day out of it.

Written by a thread of its own, so that a slow disk never holds up a robot. Times are seconds since the log was
opened, on the server's monotonic clock. Every line has ``t_s`` and ``event``; lines of a task have ``task_id``.

``opened``      ``timely_events`` (format version, 1), ``wall_time`` (ISO 8601, UTC), ``engine``, ``discipline``,
                ``mode``
``task``        a task was admitted: ``agent``, ``app`` (null or name), ``robot``, ``skill_set``, ``task``, ``scene``,
                ``history``, ``replans`` (null or the task it replaces), ``tuf`` (``ert_s``, ``alpha``, ``beta``),
                ``urgency`` (null or 0..4), ``priority``, ``network_s``
``segment``     a segment was released to the robot: ``index``, ``text``, ``tokens``, ``ready_s`` (when the engine had
                it, as ``t_s``), ``execution_s`` (expected), ``blocking``
``report``      a robot reported and it was news: ``segment``, ``kind`` and what else ``ExecutionReport`` has
``generated``   the generation ended: ``outcome``, ``prompt_tokens``, ``cached_tokens``, ``tokens``,
                ``recomputed_tokens``, ``preemptions``, ``suspensions``, ``first_token_s``, ``last_token_s`` (as
                ``t_s``, null without tokens)
``settled``     nothing more is expected: ``outcome``, ``code`` and ``detail`` (empty when all went well),
                ``response_time_s``, ``waiting_time_s``, ``completion_time_s``, ``utility``, ``measured`` (from reports,
                not estimates) and ``segments``: a list of ``index``, ``start_s``, ``end_s`` (as ``t_s``), ``reported``
                (the robot said so)
``urgency``     a request got a level at the door (``task_id`` is the ``id`` of an OpenAI answer): ``level``,
                ``source`` (``given``, ``predicted``, ``operator``), ``confidence``, ``text`` (its start); predicted
                ones ``model``, ``probabilities`` and, for a robot in a hurry, ``at_least_as_urgent_as``
``urgency_override``  an operator's word: ``from``, ``to``, ``operator``, ``reason``
``length``      a length was predicted at the door: ``bucket``, ``expected_tokens``, ``confidence``
``refused``     a request was turned away: ``agent``, ``code``, ``detail``
``discipline``  the queue discipline was switched: ``name``
``lost``        the disk could not keep up: ``lines`` not written
``closed``      the server ended in good order
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timely.core.clock import Clock
from timely.core.errors import InvalidInput

log = logging.getLogger(__name__)

VERSION = 1
MAX_WAITING = 100_000
"""Lines that may wait for the disk."""

CLOSE_TIMEOUT_S = 5.0


class EventLog:
    """Appends events to a file, or to nowhere.

    Args:
        path: the file; None writes nothing.
        clock: gives ``t_s``.

    Raises:
        InvalidInput: the file cannot be opened.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._clock = clock
        self._origin_s = clock.now()
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._lost = 0
        self._thread: threading.Thread | None = None
        if path is None:
            return
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"cannot open the event log: {error.strerror}", where=str(path)) from error
        self._thread = threading.Thread(target=self._write, name="event-log", daemon=True)
        self._thread.start()

    def opened(self, engine: str, discipline: str, mode: str) -> None:
        """Write the first line."""
        wall_time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.write(
            "opened",
            timely_events=VERSION,
            wall_time=wall_time,
            engine=engine,
            discipline=discipline,
            mode=mode,
        )

    def since_s(self, when_s: float | None) -> float | None:
        """A time of the clock as ``t_s``; None stays None."""
        return None if when_s is None else round(when_s - self._origin_s, 6)

    def write(self, event: str, /, **fields: Any) -> None:
        """Add a line; never waits for the disk."""
        if self._thread is None:
            return
        line: Mapping[str, Any] = {"t_s": self.since_s(self._clock.now()), "event": event, **fields}
        try:
            if self._lost:
                self._waiting.put_nowait(_line({"t_s": line["t_s"], "event": "lost", "lines": self._lost}))
                self._lost = 0
            self._waiting.put_nowait(_line(line))
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Write what waits and close the file; blocks for a few seconds at most. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(
                _line({"t_s": self.since_s(self._clock.now()), "event": "closed"}), timeout=CLOSE_TIMEOUT_S
            )
            self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            log.error("the event log's disk does not keep up: the end of the log is missing")
            return
        thread.join(CLOSE_TIMEOUT_S)

    def _write(self) -> None:
        with self._file as file:
            while (line := self._waiting.get()) is not None:
                try:
                    file.write(line)
                    if self._waiting.empty():
                        file.flush()
                except OSError as error:
                    log.error("event log: %s; a line is lost", error)


def _line(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, allow_nan=False, separators=(",", ":")) + "\n"
