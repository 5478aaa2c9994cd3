"""Reads the event log of a Timely server (JSON lines, format version 1) into recorded tasks.

Each line has ``t_s`` (seconds since the start of the log) and ``event``; events of a task have ``task_id``. The reader
uses the events ``opened``, ``task``, ``segment``, ``report``, ``generated`` and ``settled``, and ignores other events
and unknown fields. A file may hold several server runs, each from its ``opened`` on. A run may go on in another file.
"""

import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrtrace.errors import BadInput
from lrtrace.importers.recorded_tasks import ImportedSegment, ImportedTask
from lrtrace.job import NORMAL, Tuf
from lrtrace.jsonl import decode_jsonl, is_finite_jsonl_number, open_trace_input, raw_trace_lines

messages = logging.getLogger(__name__)

VERSION = 1
OPEN_EVENT = re.compile(rb'\{"t_s": ?[0-9.e-]+, ?"event": ?"opened"')
"""The first line of a server run. Inside a text its quotation marks would be escaped."""

HINTS = ("priority", "app_requests", "max_tokens", "expected_tokens")
"""Fields of a request that a trace has by the same names; 0 and null are as good as none."""

RESTART_GAP_S = 1.0
"""Gap between two server runs of one file, whose clocks are unrelated. Tasks may go on behind it."""


@dataclass(slots=True)
class _ImportedLog:
    """State of the reader."""

    path: Path
    tasks: list[ImportedTask] = field(default_factory=list)
    live: dict[str, ImportedTask] = field(default_factory=dict)
    origin_s: float = 0.0
    latest_s: float = 0.0
    opened: bool = False


def import_event_log(path: str | Path) -> list[ImportedTask]:
    """Every task of an event log, by arrival.

    Raises:
        BadInput: no event log, another version, or a broken line; the message names file, line and field.
    """
    log = _ImportedLog(Path(path))
    tear: BadInput | None = None
    with open_trace_input(log.path) as file:
        for number, _, line in raw_trace_lines(log.path, file):
            whole, restarted = _imported_line_after_tear(line)
            if tear is not None and not restarted:
                raise tear
            if tear is not None:
                messages.warning("%s; it is left out", tear)
            tear = None
            if restarted and whole != line:
                messages.warning("%s:%d: torn by the end of a server; it is left out", path, number)
            try:
                raw = decode_jsonl(log.path, number, whole)
            except BadInput as error:
                # A killed server leaves its last line incomplete. The next one begins with 'opened'.
                tear = error
                continue
            try:
                _import_event(log, number, raw)
            except BadInput as error:
                raise BadInput(error.message, where=error.where or f"{path}:{number}") from error
    if tear is not None:
        if line.endswith(b"\n"):
            raise tear
        messages.warning("%s; it is left out", tear)
    if not log.opened:
        raise BadInput("empty: an event log starts with the event 'opened'", where=f"{path}:1")
    return sorted(log.tasks, key=lambda task: task.arrival_s)


def _imported_line_after_tear(line: bytes) -> tuple[bytes, bool]:
    """A line without the torn one that it was appended to, and whether a server's start wrote it."""
    match = OPEN_EVENT.search(line)
    return (line, False) if match is None else (line[match.start() :], True)


def _import_event(log: _ImportedLog, number: int, raw: dict[str, Any]) -> None:
    event = raw.get("event")
    if not isinstance(event, str):
        raise BadInput(f"event: must be a name, got {event!r}")
    if event == "opened":
        if raw.get("timely_events") != VERSION:
            raise BadInput(f"timely_events: must be {VERSION}, got {raw.get('timely_events')!r}")
        if log.opened and raw.get("continues") is True:
            return
        log.origin_s = log.latest_s + RESTART_GAP_S if log.opened else 0.0
        log.opened = True
        return
    if not log.opened:
        raise BadInput("an event log starts with the event 'opened'")
    at_s = log.origin_s + _imported_time_s(raw, "t_s")
    log.latest_s = max(log.latest_s, at_s)
    if event == "task":
        new_task = _import_task(raw, at_s, f"{log.path}:{number}")
        log.tasks.append(new_task)
        log.live[new_task.task_id] = new_task
    elif event in _TASK_EVENTS and (task := log.live.get(_imported_text(raw, "task_id"))) is not None:
        _TASK_EVENTS[event](task, raw)
        if event == "settled":
            del log.live[task.task_id]


def _import_task(raw: dict[str, Any], at_s: float, where: str) -> ImportedTask:
    tuf = raw.get("tuf")
    if tuf is not None and not isinstance(tuf, dict):
        raise BadInput(f"tuf: must be an object, got {tuf!r}")
    return ImportedTask(
        _imported_text(raw, "task_id"),
        at_s,
        where,
        agent=_imported_text(raw, "agent", ""),
        app=None if raw.get("app") is None else _imported_text(raw, "app"),
        robot=_imported_text(raw, "robot", ""),
        skill_set=_imported_text(raw, "skill_set", ""),
        task=_imported_text(raw, "task", ""),
        scene=_imported_text(raw, "scene", ""),
        tuf=NORMAL if tuf is None else _imported_utility(tuf),
        urgency=raw.get("urgency"),
        network_s=None if raw.get("network_s") is None else _imported_delay_s(raw, "network_s"),
        hints={name: _imported_hint(raw, name) for name in HINTS if raw.get(name)},
    )


def _import_segment(task: ImportedTask, raw: dict[str, Any]) -> None:
    index = _imported_count(raw, "index")
    task.segments[index] = ImportedSegment(
        index,
        _imported_text(raw, "text"),
        _imported_count(raw, "tokens"),
        max(0.0, _imported_time_s(raw, "execution_s")),
        blocking=raw.get("blocking") is True,
    )


def _import_report(task: ImportedTask, raw: dict[str, Any]) -> None:
    segment = task.segments.get(_imported_count(raw, "segment"))
    if segment is None:
        return
    kind = raw.get("kind")
    if kind == "failed":
        segment.failed = True
    is_end = kind in ("done", "value")
    segment.done = segment.done or is_end
    if is_end and raw.get("elapsed_s") is not None:
        segment.elapsed_s = max(0.0, _imported_time_s(raw, "elapsed_s"))


def _import_generation(task: ImportedTask, raw: dict[str, Any]) -> None:
    for name in ("prompt_tokens", "cached_tokens"):
        if raw.get(name) is not None:
            setattr(task, name, _imported_count(raw, name))


def _import_settlement(task: ImportedTask, raw: dict[str, Any]) -> None:
    task.outcome = _imported_text(raw, "outcome", "")
    lines = raw.get("segments") or []
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise BadInput(f"segments: must be a list of objects, got {lines!r}")
    for line in lines:
        segment = task.segments.get(_imported_count(line, "index"))
        # A robot's own elapsed time is better than the arrival times of its reports. Without a report of the end,
        # ``end_s`` is only an estimate.
        is_measured = segment is not None and segment.done and line.get("reported") is True
        if segment is not None and is_measured and math.isnan(segment.elapsed_s):
            segment.elapsed_s = max(0.0, _imported_time_s(line, "end_s") - _imported_time_s(line, "start_s"))


_TASK_EVENTS: dict[str, Callable[[ImportedTask, dict[str, Any]], None]] = {
    "segment": _import_segment,
    "report": _import_report,
    "generated": _import_generation,
    "settled": _import_settlement,
}


def _imported_hint(raw: dict[str, Any], name: str) -> float:
    value = raw[name]
    if not is_finite_jsonl_number(value):
        raise BadInput(f"{name}: must be a number, got {str(value)[:40]}")
    return value


def _imported_time_s(raw: dict[str, Any], name: str) -> float:
    value = raw.get(name)
    if not is_finite_jsonl_number(value):
        raise BadInput(f"{name}: must be a number of seconds, got {str(value)[:40]}")
    return float(value)


def _imported_delay_s(raw: dict[str, Any], name: str) -> float:
    delay_s = _imported_time_s(raw, name)
    if delay_s < 0.0:
        raise BadInput(f"{name}: must be zero or more seconds, got {delay_s}")
    return delay_s


def _imported_utility(raw: dict[str, Any]) -> Tuf:
    try:
        return Tuf.from_dict(raw)
    except BadInput as error:
        raise BadInput(f"tuf.{error.message}") from error


def _imported_count(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{name}: must be an integer of 0 or more, got {value!r}")
    return value


def _imported_text(raw: dict[str, Any], name: str, default: str | None = None) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str):
        raise BadInput(f"{name}: must be text, got {value!r}")
    return value
