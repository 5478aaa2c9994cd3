"""Request bodies, events, results and errors as data, without any input or output."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from timely.core import errors
from timely.core.errors import EngineFailed, InvalidInput, NotAllowed, Overloaded, TimelyError
from timely.core.reports import ExecutionReport, ReportKind
from timely.core.utility import NORMAL, URGENT, TimeUtility

Utility = TimeUtility | Literal["normal", "urgent"]
LONGEST_RECONNECT_S = 2.0
MAX_EVENT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a skill; ``args`` are literals, or objects for what only the robot can evaluate."""

    skill: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """An executable piece of a plan.

    Attributes:
        index: from 0, without gaps.
        text: the plan text; ``calls`` the skills in it.
        execution_s: how long the server expects it to take, seconds.
        ready_s: when it was complete, seconds after the task arrived at the server.
        due_s: when the server expects it to have been executed, on the same axis.
        blocking: the plan goes on only after ``report_value``.
    """

    task_id: str
    index: int
    text: str
    calls: tuple[Call, ...]
    tokens: int
    ready_s: float
    execution_s: float
    due_s: float
    blocking: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a plan ended. Times ending in ``_time_s`` are durations, None where there is nothing to measure.

    Attributes:
        outcome: ``complete`` or ``cancelled``; every other outcome is raised as an error.
        tail: text after the last segment that executes nothing (closing braces, a return).
        utility: of the response time, as far as known when the plan was complete.
        measured: the response time is from a report, not from an estimate.
        data: the whole event.
    """

    task_id: str
    outcome: str
    plan: str
    tail: str
    segments: int
    response_time_s: float | None
    waiting_time_s: float | None
    completion_time_s: float | None
    utility: float
    measured: bool
    data: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event."""

    event_id: int
    name: str
    data: Mapping[str, Any]


class EventDecoder:
    """Decodes server-sent events from a byte stream that may be split anywhere."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """The events that ``data`` completes.

        Raises:
            EngineFailed: ``data`` is no event stream.
        """
        self._buffer += data
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise EngineFailed(f"an event of more than {MAX_EVENT_BYTES} bytes", where="events")
        *blocks, self._buffer = self._buffer.replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            event = _event(block)
            if event is not None:
                yield event


def _event(block: bytes) -> ServerEvent | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n"):
        key, _, value = line.partition(b":")
        if key:  # a line that starts with a colon is a comment
            fields.setdefault(key, []).append(value.removeprefix(b" "))
    if b"data" not in fields:
        return None
    try:
        data = json.loads(b"\n".join(fields[b"data"]))
        event_id = int(fields.get(b"id", [b"0"])[-1])
        name = fields.get(b"event", [b"message"])[-1].decode()
    except ValueError as error:
        raise EngineFailed(
            f"the server sent an event that cannot be read: {error}", where="events"
        ) from error
    if not isinstance(data, dict):
        raise EngineFailed("the server sent an event that is no object", where="events")
    return ServerEvent(event_id, name, data)


class PlanState:
    """How far a plan has been read. Repeated events are dropped, so segments come exactly once and in order.

    Args:
        after: id of the last event that was read.
        next_index: index of the next segment; None accepts any.
    """

    def __init__(self, *, after: int = 0, next_index: int | None = 0) -> None:
        self.last_id = after
        self.result: TaskResult | None = None
        self.token: str | None = None
        self._next = next_index

    def take(self, event: ServerEvent) -> Segment | None:
        """The segment of an event, if it is a new one.

        Raises:
            TimelyError: the event is an error of the server, or a segment is missing.
        """
        if event.event_id <= self.last_id:
            return None
        self.last_id = event.event_id
        if event.name == "segment":
            segment = _segment(event.data)
            if self._next is not None and segment.index != self._next:
                raise EngineFailed(f"segment {segment.index} came instead of {self._next}", where="events")
            self._next = segment.index + 1
            return segment
        if event.name == "accepted":
            self.token = event.data.get("report_token", self.token)
        elif event.name == "result":
            self.result = _result(event.data)
        elif event.name == "error":
            raise error_from_problem(event.data, 500)
        return None


def _segment(data: Mapping[str, Any]) -> Segment:
    try:
        return Segment(
            task_id=data["task_id"],
            index=data["index"],
            text=data["text"],
            calls=tuple(Call(call["skill"], tuple(call["args"])) for call in data["calls"]),
            tokens=data["tokens"],
            ready_s=data["ready_s"],
            execution_s=data["execution_s"],
            due_s=data["due_s"],
            blocking=data["blocking"],
        )
    except (KeyError, TypeError) as error:
        raise EngineFailed(f"a segment that cannot be read: {error}", where="events") from error


def _result(data: Mapping[str, Any]) -> TaskResult:
    try:
        return TaskResult(
            task_id=data["task_id"],
            outcome=data["outcome"],
            plan=data["plan"],
            tail=data["tail"],
            segments=data["segments"],
            response_time_s=data["response_time_s"],
            waiting_time_s=data["waiting_time_s"],
            completion_time_s=data["completion_time_s"],
            utility=data["utility"],
            measured=data["measured"],
            data=data,
        )
    except KeyError as error:
        raise EngineFailed(f"a result that cannot be read: {error} is missing", where="events") from error


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The state of the fleet's stop, as a bridge receives it.

    Attributes:
        kind: ``stop``: halt every robot and keep it halted. ``reset``: release the stop of this id. ``clear``: the
            server has none latched; a bridge that has one keeps it.
    """

    kind: Literal["stop", "reset", "clear"]
    stop_id: str = ""
    reason: str = ""


def stop_order(event: ServerEvent) -> StopOrder | None:
    """The order of an event; None for an event of another kind."""
    if event.name not in ("stop", "reset", "clear"):
        return None
    kind: Literal["stop", "reset", "clear"] = event.name  # type: ignore[assignment]
    return StopOrder(kind, str(event.data.get("stop_id", "")), str(event.data.get("reason", "")))


class Backoff:
    """The waits between attempts to open a lost connection again.

    Args:
        limit_s: after so long without a connection the attempts end, seconds.
    """

    FIRST_S, LONGEST_S = 0.05, LONGEST_RECONNECT_S

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s: float | None = None
        self._next_s = self.FIRST_S

    def delay_s(self, now: float, cause: object, where: str) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            EngineFailed: ``limit_s`` has passed since the connection was lost.
        """
        if self._since_s is None:
            self._since_s = now
        if now - self._since_s >= self._limit_s:
            raise EngineFailed(
                f"connection lost for {self._limit_s:g} s: {type(cause).__name__}: {cause}", where=where
            )
        delay, self._next_s = self._next_s, min(2 * self._next_s, self.LONGEST_S)
        return delay

    def reset(self) -> None:
        """The connection works again."""
        self._since_s, self._next_s = None, self.FIRST_S


def v1_url_path(*parts: str) -> str:
    """The URL path ``/v1/...`` with every part quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def task_body(
    task: str,
    *,
    skill_set: str,
    robot: str | None,
    scene: str,
    history: str,
    utility: Utility,
    agent: str,
    app: str | None,
    urgency: int | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The body of ``POST /v1/tasks``; id and report token are chosen here, so a repeated request is harmless."""
    body: dict[str, Any] = {"task": task, "skill_set": skill_set, "tuf": _tuf(utility), "agent": agent}
    body |= {"id": f"task-{secrets.token_hex(12)}", "report_token": secrets.token_urlsafe(24)}
    optional = {"robot": robot, "scene": scene, "history": history, "app": app, "urgency": urgency}
    body |= {name: value for name, value in optional.items() if value not in (None, "")}
    body |= {name: value for name, value in options.items() if value is not None}
    return body


def replan_body(agent: str, *, utility: Utility = "urgent", **fields: Any) -> dict[str, Any]:
    """The body of ``POST /v1/tasks/{id}/replan``; the id is chosen here, so a repeated request is harmless."""
    body: dict[str, Any] = {"tuf": _tuf(utility), "agent": agent}
    body |= {"id": f"task-{secrets.token_hex(12)}", "report_token": secrets.token_urlsafe(24)}
    return body | {name: value for name, value in fields.items() if value not in (None, "")}


def _tuf(utility: Utility) -> object:
    if isinstance(utility, TimeUtility):
        if utility in (NORMAL, URGENT):
            return "normal" if utility == NORMAL else "urgent"
        return {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta}
    return utility


def segment_index(segment: Segment | int) -> int:
    """A segment, or its index."""
    return segment.index if isinstance(segment, Segment) else segment


def make_report_body(kind: ReportKind, segment: Segment | int, **fields: Any) -> ExecutionReport:
    """A report of that kind.

    Raises:
        InvalidInput: a field is unusable.
    """
    return ExecutionReport(segment=segment_index(segment), kind=kind, **fields)


def reports_body(
    reports: ExecutionReport | Iterable[ExecutionReport], agent: str | None = None
) -> list[dict[str, Any]]:
    """The body of ``POST /v1/tasks/{id}/reports``."""
    items: Sequence[ExecutionReport] = [reports] if isinstance(reports, ExecutionReport) else list(reports)
    sender = {} if agent is None else {"agent": agent}
    return [{**report.to_dict(), **sender} for report in items]


def bearer_header(token: str | None) -> dict[str, str]:
    """The header that identifies the principal."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def task_token(token: str | None) -> dict[str, str]:
    """The header that proves the ownership of a task."""
    return {} if token is None else {"Timely-Task-Token": token}


class TaskTokens:
    """The tokens of the tasks that a program submitted, so that it may name a task by its id alone."""

    LIMIT = 10_000

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def add(self, task_id: str, token: str) -> None:
        """Keep a token; the oldest is removed at ``LIMIT``."""
        if len(self._tokens) >= self.LIMIT:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[task_id] = token

    def header(self, task_id: str, token: str | None = None) -> dict[str, str]:
        """The header for a task: with ``token``, or with the one that was kept."""
        return task_token(self._tokens.get(task_id) if token is None else token)


def _by_code(kind: type[TimelyError]) -> dict[str, type[TimelyError]]:
    classes = {kind.code: kind}
    for child in kind.__subclasses__():
        classes |= {code: cls for code, cls in _by_code(child).items() if cls.__module__ == errors.__name__}
    return classes


CODES: Mapping[str, type[TimelyError]] = _by_code(TimelyError)
"""Stable code -> class of ``timely.core.errors``."""

TASK_ENDINGS = ("expired", "execution_failed", "truncated")
"""Codes of tasks whose request and server were in order: raised as plain ``TimelyError``."""


def error_from_problem(data: Mapping[str, Any], status: int) -> TimelyError:
    """The error that a problem document stands for; ``error.code`` is the server's."""
    code = str(data.get("code", "")) or f"http_{status}"
    kind = CODES.get(code) or _kind_of(code, status)
    error = kind.__new__(kind)
    TimelyError.__init__(error, str(data.get("detail", "no reason given")), where=str(data.get("where", "")))
    error.code = code
    return error


def _kind_of(code: str, status: int) -> type[TimelyError]:
    """The class for a code that no class of the tree has."""
    if code in TASK_ENDINGS:
        return TimelyError
    if code == "not_authenticated":
        return NotAllowed
    if code == "shutting_down" or status == 503:
        return Overloaded
    return InvalidInput if status < 500 else EngineFailed


def error_from_response(status: int, body: bytes) -> TimelyError:
    """The error of a response that is no success."""
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        data = {"detail": f"HTTP {status}: {body[:200].decode(errors='replace')}"}
    return error_from_problem(data, status)
