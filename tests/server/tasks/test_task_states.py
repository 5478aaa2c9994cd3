"""Cancellation, stop, drain, engine death and restart against a task in each of its states."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fleet import OWNER, WAIT_S, Fleet, Reader, body, fleet
from manual_clock import ManualClock

from timely.engines.scripts import Script, ScriptedSegment

PLANS: dict[str, Script] = {"slow": [ScriptedSegment("tc(10);", 1.0, 400)]}
"""Its first segment takes 4 s to generate."""

STATES = ("before its first segment", "parked", "awaits a value", "executes", "ended")
OPEN_STATES = STATES[:-1]


@contextmanager
def task_in(state: str, served: Fleet) -> Iterator[Reader]:
    """A task ``one`` in this state, and its reader."""
    name = {STATES[0]: "slow", STATES[1]: "long", STATES[2]: "ask"}.get(state, "short")
    with served.http.stream("POST", "/v1/tasks", json=body(name, id="one")) as stream:
        reader = Reader(stream)
        reader.next()
        if state == "parked":
            served.run_for(0.5)
        elif state == "awaits a value":
            served.run_for(2.0)
        elif state in ("executes", "ended"):
            served.run_for(2.0)
            for segment in range(2 if state == "ended" else 1):
                kind = {"segment": segment, "kind": "done"}
                assert served.http.post("/v1/tasks/one/reports", json=kind).status_code == 200
            served.run_for(0.1)
        view = served.http.get("/v1/tasks/one").json()
        assert view["state"] == {"executes": "executing", "ended": "ended"}.get(state, "generating"), view
        yield reader


@pytest.fixture
def served() -> Iterator[Fleet]:
    with fleet(PLANS) as running:
        yield running


def view(served: Fleet) -> dict[str, Any]:
    data: dict[str, Any] = served.http.get("/v1/tasks/one").json()
    return data


@pytest.mark.parametrize("state", STATES)
def test_a_task_is_cancelled_once_and_its_stream_ends(served: Fleet, state: str) -> None:
    with task_in(state, served) as reader:
        planned = state in ("executes", "ended")
        for _ in range(2):
            answer = served.http.delete("/v1/tasks/one")
            assert (answer.status_code, answer.json()["outcome"]) == (
                200,
                "complete" if planned else "cancelled",
            )
        assert reader.rest()[-1][1] == "result"
    assert served.stats().jobs == ()
    assert served.http.delete("/v1/tasks/one").status_code == 200


@pytest.mark.parametrize("state", STATES)
def test_a_task_whose_robot_drops_it_is_over_in_every_state(served: Fleet, state: str) -> None:
    with task_in(state, served) as reader:
        outcome = "complete" if state == "ended" else "cancelled"
        for _ in range(2):
            answer = served.http.delete("/v1/tasks/one", params={"dropped": "true"}).json()
            assert answer["outcome"] == outcome
        served.run_for(0.1)
        assert (view(served)["state"], view(served)["outcome"]) == ("ended", outcome)
        assert reader.rest()[-1][1] == "result"


@pytest.mark.parametrize("state", STATES)
def test_a_stop_ends_it(served: Fleet, state: str) -> None:
    with task_in(state, served) as reader:
        assert served.http.post("/v1/stop", json={"deadline_s": 0.0}).status_code == 200
        assert (view(served)["state"], view(served)["outcome"]) == (
            "ended",
            "complete" if state == "ended" else "cancelled",
        )
        assert reader.rest()[-1][1] == "result"
    assert served.stats().jobs == ()


@pytest.mark.parametrize("state", OPEN_STATES)
def test_it_goes_on_after_a_kill_and_is_cancelled_then(tmp_path: Path, state: str) -> None:
    first = tmp_path / "first"
    with fleet(PLANS, state_dir=first) as served, task_in(state, served):
        before = view(served)
        shutil.copytree(first, tmp_path / "killed")
    clock = ManualClock(served.clock.now() + 1.0)
    with fleet(PLANS, clock=clock, state_dir=tmp_path / "killed") as again:
        after = view(again)
        for name in ("state", "outcome", "plan", "segments", "tuf", "urgency", "agent"):
            assert after[name] == before[name], name
        assert again.http.post("/v1/tasks", json=body("short", id="one")).status_code == 409
        cancelled = again.http.delete("/v1/tasks/one", headers=OWNER)
        assert cancelled.json()["outcome"] == ("complete" if state == "executes" else "cancelled")
        assert again.stats().jobs == ()


@pytest.mark.parametrize("state", OPEN_STATES)
def test_it_goes_on_while_the_server_drains_and_the_engine_dies(state: str) -> None:
    with fleet(PLANS, drain_s=60.0) as served, task_in(state, served) as reader:
        loop = served.server.loop
        assert loop is not None
        finishing = asyncio.run_coroutine_threadsafe(served.service.finish(), loop)
        served.until(lambda: served.service._draining)
        deaths = served.service.engine.supervisor.deaths
        served.call(served.engine.kill)
        served.until(lambda: served.service.engine.supervisor.deaths > deaths)
        if state == "awaits a value":
            served.run_for(1.0)
            value = {"segment": 0, "kind": "value", "value": "True"}
            assert served.http.post("/v1/tasks/one/reports", json=value).json()["news"] == 1
        served.run_for(40.0)
        finishing.result(WAIT_S)
        assert reader.rest()[-1][2]["outcome"] == "complete"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", ["started", "progress", "done", "failed", "value"])
def test_no_report_makes_an_error_of_the_server(served: Fleet, state: str, kind: str) -> None:
    fields = {"remaining_s": 1.0} if kind == "progress" else {"value": "x"} if kind == "value" else {}
    with task_in(state, served):
        for segment in (0, 1, 10**6):
            report = {"segment": segment, "kind": kind, **fields}
            answer = served.http.post("/v1/tasks/one/reports", json=report)
            assert answer.status_code in (200, 409), answer.text
        served.run_for(1.0)
        assert served.http.get("/v1/tasks/one").status_code == 200
    assert served.http.get("/healthz").status_code == 200
