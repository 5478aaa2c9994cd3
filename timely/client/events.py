"""Server-sent events as data: segments, results, orders of the stop."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from timely.client.problems import client_error_from_problem
from timely.core.errors import EngineFailed

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
        skill_set_fingerprint: of the skill set by which the server checked it; empty from a server that gives none.
            A driver compares it with its own copy.
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
    skill_set_fingerprint: str = ""


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


class ClientEventDecoder:
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
            event = _decode_client_event(block)
            if event is not None:
                yield event


def _decode_client_event(block: bytes) -> ServerEvent | None:
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


class ClientPlanState:
    """How far a plan has been read. Repeated events are dropped, so segments come exactly once and in order.

    Args:
        after: id of the last event that was read.
        next_index: index of the next segment; None accepts any.
    """

    def __init__(self, *, after: int = 0, next_index: int | None = 0) -> None:
        self.last_id = after
        self.result: TaskResult | None = None
        self.token: str | None = None
        self.eta_s: float | None = None
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
            segment = _client_segment_from_data(event.data)
            if self._next is not None and segment.index != self._next:
                raise EngineFailed(f"segment {segment.index} came instead of {self._next}", where="events")
            self._next = segment.index + 1
            return segment
        if event.name == "accepted":
            self.token = event.data.get("report_token", self.token)
            self.eta_s = event.data.get("eta_s")
        elif event.name == "result":
            self.result = _client_result_from_data(event.data)
        elif event.name == "error":
            raise client_error_from_problem(event.data, 500)
        return None


def _client_segment_from_data(data: Mapping[str, Any]) -> Segment:
    try:
        calls = tuple(Call(call["skill"], tuple(call["args"])) for call in data["calls"])
        values = _client_event_values(Segment, {"skill_set_fingerprint": "", **data})
        return Segment(**values | {"calls": calls})
    except (KeyError, TypeError) as error:
        raise EngineFailed(f"a segment that cannot be read: {error}", where="events") from error


def _client_result_from_data(data: Mapping[str, Any]) -> TaskResult:
    try:
        return TaskResult(**_client_event_values(TaskResult, {**data, "data": data}))
    except KeyError as error:
        raise EngineFailed(f"a result that cannot be read: {error} is missing", where="events") from error


def _client_event_values(kind: type[Segment | TaskResult], data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``kind`` out of an event, which has them under the same names."""
    return {own.name: data[own.name] for own in fields(kind)}


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The state of the fleet's stop, as a bridge receives it.

    Attributes:
        kind: ``stop``: halt every robot and keep it halted. ``reset``: release the stop of this id. ``clear``: the
            server has none latched; a bridge that has one keeps it.
        stop_ids: of a reset: the stops that it releases, the latest last. A bridge may have missed the last.
    """

    kind: Literal["stop", "reset", "clear"]
    stop_id: str = ""
    reason: str = ""
    stop_ids: tuple[str, ...] = ()


def client_stop_order(event: ServerEvent) -> StopOrder | None:
    """The order of an event; None for an event of another kind."""
    if event.name not in ("stop", "reset", "clear"):
        return None
    kind: Literal["stop", "reset", "clear"] = event.name  # type: ignore[assignment]
    stop_id = str(event.data.get("stop_id", ""))
    # Earlier servers name the last stop alone.
    ids = event.data.get("stop_ids", [stop_id]) if kind == "reset" else ()
    return StopOrder(kind, stop_id, str(event.data.get("reason", "")), tuple(map(str, ids)))
