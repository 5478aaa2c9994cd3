"""A server that is killed in the midst of a task: its state folder, copied while it runs, is what a kill leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet import Fleet, Reader, body, fleet
from manual_clock import ManualClock

from timely.engines.scripts import Script

Events = list[tuple[int, str, dict[str, Any]]]


@contextmanager
def server(folder: Path, now: float = 100.0, plans: dict[str, Script] | None = None) -> Iterator[Fleet]:
    with fleet(plans, clock=ManualClock(now), state_dir=folder) as served:
        yield served


def report(served: Fleet, segment: int, kind: str, **fields: Any) -> dict[str, Any]:
    response = served.http.post("/v1/tasks/one/reports", json={"segment": segment, "kind": kind, **fields})
    assert response.status_code == 200, response.text
    data: dict[str, Any] = response.json()
    return data


def cut(tmp_path: Path, task: str, *, seconds: float, **reports: str) -> tuple[Path, Events]:
    """The state of a server that was killed after ``seconds`` of a task, and the events that its client has."""
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body(task, id="one", deadline_s=1000.0)) as stream,
    ):
        reader = Reader(stream)
        events = [reader.next()]
        served.run_for(seconds)
        for index, kind in reports.items():
            report(served, int(index[1:]), kind, value="True" if kind == "value" else None)
        served.run_for(0.0)  # what follows from them is in the log
        assert "timely_state_unsaved 0.0" in served.http.get("/metrics").text
        return kill(served, reader, events, tmp_path), events


def kill(served: Fleet, reader: Reader, events: Events, tmp_path: Path) -> Path:
    """What a kill of the server in ``first`` leaves, when its client has read all events so far."""
    sent = len(served.service.tasks.get("one").events)
    events += [reader.next() for _ in range(sent - len(events))]
    return shutil.copytree(tmp_path / "first", tmp_path / "killed")


def texts(events: Events) -> list[str]:
    """The segments among them."""
    return [data["text"] for _, name, data in events if name == "segment"]


def rest(served: Fleet, after: int, seconds: float = 60.0) -> Events:
    """The events after ``after``; the robot never reports."""
    headers = {"Last-Event-ID": str(after)}
    with served.http.stream("GET", "/v1/tasks/one/events", headers=headers) as stream:
        served.run_for(seconds)
        return Reader(stream).rest()


def whole(tmp_path: Path, task: str) -> list[str]:
    """The segments of an undisturbed task."""
    with (
        server(tmp_path / "undisturbed") as served,
        served.http.stream("POST", "/v1/tasks", json=body(task, id="one")) as stream,
    ):
        served.run_for(60.0)
        return texts(Reader(stream).rest())
