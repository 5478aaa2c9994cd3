"""Log lines as JSON objects, with the task and the trace that a line concerns."""

import atexit
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

LOG_FIELDS: ContextVar[Mapping[str, str | int]] = ContextVar("log fields")
"""What every line of a coroutine or a request has beside its own fields, such as ``task_id`` and ``trace_id``."""

MAX_LINE_BYTES = 65_536
"""A longer line of a library is several."""

END_S = 1.0
"""Longest wait at the end of the process for lines of its children."""

_TIMELY_ERROR = re.compile(r"(timely\w*): (.*)")
_ROS_LINE = re.compile(r"\[(DEBUG|INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[([\w./-]+)\]: (.*)")
_ROS_GOAL_TASK = re.compile(r"ros-([0-9a-f]{32})")


@contextmanager
def log_fields(fields: Mapping[str, str | int]) -> Iterator[None]:
    """Lines from within have these fields too, also those of coroutines that begin within; empty ones are left out."""
    present = {name: value for name, value in fields.items() if value != ""}
    token = LOG_FIELDS.set({**LOG_FIELDS.get({}), **present})
    try:
        yield
    finally:
        LOG_FIELDS.reset(token)


def ros_task_log_fields(task_id: str, **fields: str | int) -> AbstractContextManager[None]:
    """Lines from within have the task's id too, and that of its trace if a ROS 2 goal began the task."""
    goal = _ROS_GOAL_TASK.match(task_id)
    return log_fields({"task_id": task_id, "trace_id": goal[1] if goal else "", **fields})


@contextmanager
def unchanged_root_logger() -> Iterator[None]:
    """Undo what libraries do to the root logger when they are imported: to its level, its handlers and theirs."""
    root = logging.getLogger()
    level, handlers = root.level, [(handler, handler.level) for handler in root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = [handler for handler, _ in handlers]
        for handler, own_level in handlers:
            handler.setLevel(own_level)


class JsonLogFormatter(logging.Formatter):
    """One object a line: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``pid``, ``message``.

    A line about a task has ``LOG_FIELDS``, and one about an error its traceback as ``exception``. ASCII only, since
    some readers split lines at other characters too.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": record.levelname, "logger": record.name, "pid": record.process}
        fields |= {"message": record.getMessage(), **LOG_FIELDS.get({})}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class _JsonLogHandler(logging.StreamHandler[TextIO]):
    """Leaves out lines that standard error does not take: a line about them would come here again, without end."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def write(self, text: str) -> None:
        """Write a line as it is."""
        with suppress(OSError):
            self.acquire()
            try:
                self.stream.write(f"{text}\n")
                self.flush()
            finally:
                self.release()


class JsonLogOutput:
    """Makes every line that this process and its children write an object on standard error, until this process ends.

    Lines of loggers, also those of ROS 2, keep level and logger. A line ``timely: MESSAGE`` is an error of this logger,
    and all else one of the logger ``output``. JSON objects of children keep their fields.

    Args:
        redirects: False leaves what is printed past all loggers as it is. A process that crashes loses no text then.

    Attributes:
        written_ros_loggers: loggers of ROS 2 whose lines are objects already, so that their text is left out.
    """

    def __init__(self, *, redirects: bool = True) -> None:
        self.written_ros_loggers: set[str] = set()
        self._sink = os.fdopen(os.dup(2), "w", encoding="utf-8")
        self._handler = _JsonLogHandler(self._sink)
        self._handler.setFormatter(JsonLogFormatter())
        logging.getLogger().addHandler(self._handler)
        logging.captureWarnings(True)
        if not redirects:
            return
        self._source, sink = os.pipe()
        self._point_output_at(sink)
        os.close(sink)
        self._reader = threading.Thread(target=self._read, name="log lines", daemon=True)
        self._reader.start()
        atexit.register(self._close)

    def write(self, logger: str, level: str, line: str) -> None:
        """Write a line that no logger has written."""
        number = logging.getLevelNamesMapping().get(level, logging.ERROR)
        self._handler.handle(logging.LogRecord(logger, number, "", 0, line, None, None))

    def _close(self) -> None:
        """Read the last lines, but wait for no child that goes on."""
        self._point_output_at(self._sink.fileno())
        self._reader.join(END_S)

    def _point_output_at(self, descriptor: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number in (1, 2):
            os.dup2(descriptor, number)

    def _read(self) -> None:
        with os.fdopen(self._source, "rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                # A progress bar rewrites its line.
                self.write_printed(line.decode(errors="replace").rstrip().rpartition("\r")[2])

    def write_printed(self, text: str) -> None:
        """Write a line that was printed, by this process or a child."""
        if (fields := _json_object(text)) is not None:
            self.written_ros_loggers.add(str(fields.get("logger")))
            self._handler.write(json.dumps({**LOG_FIELDS.get({}), **fields}))
        elif line_parts := _TIMELY_ERROR.fullmatch(text):
            self.write(line_parts[1], "ERROR", line_parts[2])
        elif line_parts := _ROS_LINE.fullmatch(text):
            if line_parts[2] not in self.written_ros_loggers:
                self.write(line_parts[2], line_parts[1], line_parts[3])
        elif text:
            self.write("output", "INFO", text)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
