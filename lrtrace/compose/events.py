"""Parses events and trace ids, and checks events and arrivals."""

import math
import re
from collections.abc import Sequence

from lrtrace.compose.tasks import find_workload_task
from lrtrace.compose.workload import CHAT
from lrtrace.errors import BadInput

Event = Sequence[int]


def check_workload_arrivals(arrivals: Sequence[float] | None) -> list[float] | None:
    """Event times as a list. Raises BadInput if they are negative, infinite or decrease."""
    if arrivals is None:
        return None
    times = [float(time) for time in arrivals]
    for index, time in enumerate(times):
        if not 0 <= time < math.inf or (index and time < times[index - 1]):
            raise BadInput(
                f"arrival {index + 1}: must be zero or more and not before the one above, got {time:g}"
            )
    if not times:
        raise BadInput("no arrivals")
    return times


def check_workload_events(events: Sequence[Event] | None) -> list[tuple[int, ...]] | None:
    """Events as a list. Raises BadInput for an empty event, UnknownName for an unknown task."""
    if events is None:
        return None
    id_lists = [tuple(event) for event in events]
    if not id_lists:
        raise BadInput("no events")
    for event in id_lists:
        if not event:
            raise BadInput("an event needs at least one task")
        for trace_id in event:
            if trace_id != CHAT:
                find_workload_task(trace_id)
    return id_lists


_EVENT = re.compile(r"\s*(?:\((?P<several>[^()]*)\)|(?P<one>[^(),]+))\s*(?:,|$)")
_TASK = re.compile(r"\s*(?:Trace_?)?(\d{1,3})\s*", re.IGNORECASE)


def parse_workload_events(text: str) -> list[tuple[int, ...]]:
    """Parse events in the paper's form ``{(Trace1, Trace2), Trace8}`` or shorter ``(1,2),8``: two events.

    Raises:
        BadInput: the text is no list of events; the message says where.
    """
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    events: list[tuple[int, ...]] = []
    at = 0
    while at < len(inner):
        match = _EVENT.match(inner, at)
        if match is None:
            raise BadInput(f"cannot read an event at {inner[at : at + 20]!r}; write (1,2),8 for two events")
        ids_text = match["one"] if match["several"] is None else match["several"]
        tasks = [_TASK.fullmatch(part) for part in ids_text.split(",")]
        if not all(tasks):
            raise BadInput(f"cannot read the tasks {ids_text.strip()!r}; write trace ids like 1 or Trace1")
        events.append(tuple(int(task[1]) for task in tasks if task))
        at = match.end()
    return check_workload_events(events) or []


def parse_workload_trace_ids(text: str) -> tuple[int, ...]:
    """Parse trace ids in the form of Table 3: ``[1-8]``, ``1,2,9-11``.

    Raises:
        BadInput: the text is no list of trace ids.
    """
    ids: list[int] = []
    for part in text.strip().strip("[]").split(","):
        match = re.fullmatch(r"\s*(\d{1,3})\s*(?:-\s*(\d{1,3})\s*)?", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise BadInput(f"cannot read the trace ids {part.strip()!r}; write 1-8 or 1,2,9")
        first = int(match[1])
        ids.extend(range(first, int(match[2] or first) + 1))
    return tuple(ids)
