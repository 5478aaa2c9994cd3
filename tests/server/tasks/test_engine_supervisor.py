"""An engine that dies is started again; its tasks go on behind what was sent, and a task that kills it is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

import pytest
from fleet import PLANS, TOKEN, WAIT_S, Fleet, Reader, body, catalogue, fleet
from killed_server import texts
from manual_clock import ManualClock

from timely.core.errors import EngineFailed, Overloaded
from timely.core.job import Job
from timely.core.json_log import JsonLogFormatter
from timely.engines.base import EngineEvent, EngineStats, GenerationRequest
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.principals import LOCAL
from timely.server.tasks.engine_client import ANSWER_S
from timely.server.tasks.request import TaskRequest
from timely.server.tasks.service import TaskService

POISON: dict[str, Script] = {
    "poison": [ScriptedSegment("mu(50);", 1.0, 4), ScriptedSegment("tc(90);", 1.0, 9)]
}


@pytest.fixture
def served() -> Iterator[Fleet]:
    with fleet(POISON) as running:
        yield running


@contextmanager
def tasks(served: Fleet, *names: str) -> Iterator[list[Reader]]:
    """Readers of one task for each name; the id of a task is its number."""
    if not names:
        yield []
        return
    with (
        tasks(served, *names[:-1]) as readers,
        served.http.stream("POST", "/v1/tasks", json=body(names[-1], id=str(len(names)))) as stream,
    ):
        reader = Reader(stream)
        reader.next()
        yield [*readers, reader]


def crash(served: Fleet, reason: str = "out of memory") -> None:
    served.call(lambda: served.engine.crash(reason))


LONG = [f"tc({10 * n});" for n in range(1, 13)]


def test_plans_go_on_behind_what_was_sent(served: Fleet) -> None:
    with tasks(served, "long", "long") as readers:
        for _ in range(3):
            served.run_for(0.8)
            crash(served)
        served.run_for(60.0)
        for reader in readers:
            events = reader.rest()
            assert [number for number, _, _ in events] == list(range(2, 15))
            assert texts(events) == LONG
            assert events[-1][2]["outcome"] == "complete"
    assert served.http.get("/livez").json() == {"status": "ok", "engine_deaths": 3}
    assert "timely_engine_deaths_total 3.0" in served.http.get("/metrics").text


def test_resumed_plans_wait_for_the_queue_of_the_next_engine(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, refused = served.engine.generate, 0

    async def limited(request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        nonlocal refused
        if request.history is not None and refused < 5:
            refused += 1
            raise Overloaded("the queue is full", where="vllm")
        async with aclosing(generate(request)) as events:
            async for event in events:
                yield event

    with tasks(served, "long", "long") as readers:
        served.run_for(0.8)
        monkeypatch.setattr(served.engine, "generate", limited)
        crash(served)
        served.run_for(60.0)
        assert [texts(reader.rest()) for reader in readers] == [LONG, LONG]
    assert refused == 5


def test_an_engine_that_hangs_is_killed_and_plans_go_on() -> None:
    with fleet(POISON, engine_hang_s=20.0) as served, tasks(served, "long", "long") as readers:
        served.run_for(0.8)
        served.call(served.engine.hang)
        served.run_for(19.0)
        assert served.service.engine.supervisor.deaths == 0
        served.run_for(60.0)
        assert [texts(reader.rest()) for reader in readers] == [LONG, LONG]
        assert served.http.get("/livez").json()["engine_deaths"] == 1


def test_a_question_that_a_dead_engine_left_open_hides_no_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise EngineFailed("no memory", where="vllm")

    async def unanswered() -> EngineStats:
        await asyncio.Event().wait()
        raise AssertionError

    with fleet(engine_timeout_s=2 * WAIT_S) as served:
        assert served.http.get("/healthz").status_code == 200
        monkeypatch.setattr(served.engine, "stats", unanswered)
        monkeypatch.setattr(served.engine, "start", broken)
        served.run_for(1.0)

        async def ask() -> None:
            question = asyncio.create_task(served.service.engine.stats())
            await served.clock.run_for(ANSWER_S)
            await question

        served.call(ask)
        assert served.http.get("/healthz").status_code == 200
        crash(served)
        served.run_for(1.0)
        assert served.http.get("/healthz").status_code == 503
        assert served.http.get("/v1/status").json()["engine"]["problem"].endswith("no memory")
        monkeypatch.undo()
        served.run_for(40.0)


def test_while_no_engine_runs_tasks_wait_and_new_ones_are_refused(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise EngineFailed("no memory", where="vllm")

    with tasks(served, "ask") as (reader,):
        served.run_for(1.0)
        monkeypatch.setattr(served.engine, "start", broken)
        crash(served)
        served.run_for(20.0)
        for path, status in {"/livez": 200, "/metrics": 200, "/readyz": 503, "/healthz": 503}.items():
            assert served.http.get(path).status_code == status, path
        state = served.http.get("/v1/status").json()
        assert state["engine"]["problem"].endswith("no memory")
        # Starts after 0, 0.5, 1.5, 3.5, 7.5 and 15.5 s failed.
        assert state["engine"]["restart"] == {"attempt": 7, "next_try_s": 11.5}
        assert (state["engine"]["discipline"], state["engine"]["running"]) == ("timely", 0)
        (robot,) = state["robots"]
        assert (robot["generation"], robot["segments"], robot["dry"]) == ("interrupted", 1, True)
        assert served.http.get("/v1/disciplines").json()["current"] == "timely"
        for path in ("/v1/tasks", "/v1/chat/completions"):
            refused = served.http.post(path, json=body())
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert refused.headers["Retry-After"]
        urgency = {"urgency": 0, "operator": "Ada", "reason": "smoke"}
        for path, change in {"/v1/disciplines": {"name": "edf"}, "/v1/tasks/1/urgency": urgency}.items():
            refused = served.http.put(path, json=change)
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert refused.headers["Retry-After"] == "12"
        value = served.http.post("/v1/tasks/1/reports", json={"segment": 0, "kind": "value", "value": "True"})
        assert value.json()["news"] == 1
        monkeypatch.undo()
        served.run_for(40.0)
        assert texts(reader.rest()) == ["lk('cat');", "mu(50);"]
    state = served.http.get("/v1/status").json()["engine"]
    assert (state["problem"], state["restart"]) == ("", None)
    assert served.http.get("/readyz").status_code == 200
    assert served.http.get("/healthz").status_code == 200


def test_a_task_ends_while_no_engine_runs(served: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise EngineFailed("no memory", where="vllm")

    with tasks(served, "long", "ask") as readers:
        served.run_for(0.5)
        monkeypatch.setattr(served.engine, "start", broken)
        crash(served)
        served.run_for(2.0)
        assert served.http.delete("/v1/tasks/1").json()["outcome"] == "cancelled"
        served.run_for(900.0)
        assert readers[1].rest()[-1][2]["code"] == "expired"


def test_the_next_engine_has_the_discipline_and_the_urgency_that_were_set(served: Fleet) -> None:
    with tasks(served, "long"):
        served.run_for(0.3)
        assert served.http.put("/v1/disciplines", json={"name": "edf"}).status_code == 200
        urgency = {"urgency": 0, "operator": "Ada", "reason": "smoke"}
        assert served.http.put("/v1/tasks/1/urgency", json=urgency).status_code == 200
        crash(served)
        supervisor = served.service.engine.supervisor
        # A discipline is loaded by a thread.
        served.until(lambda: supervisor.deaths == 1 and supervisor.running)
        served.run_for(0.1)
        assert served.stats().discipline == "edf"
        table = served.engine._controller.table
        assert int(table.urgency[table["1"].row]) == 0


def kill_by(
    served: Fleet, monkeypatch: pytest.MonkeyPatch, task_id: str, segment: int, *, hangs: bool
) -> None:
    """The engine dies or hangs while it computes that segment of that task."""
    compute = served.engine._compute

    def deadly(job: Job, share: int, now: float) -> None:
        if job.job_id == task_id and len(job.segments) == segment and job.table.segment_tokens[job.row] > 2:
            if hangs:
                served.engine.hang()
                return
            raise RuntimeError("an illegal memory access was encountered")
        compute(job, share, now)

    monkeypatch.setattr(served.engine, "_compute", deadly)


@pytest.mark.parametrize(("others", "deaths", "hangs"), [(0, 2, False), (3, 3, False), (0, 2, True)])
def test_a_task_that_kills_the_engine_is_quarantined(
    served: Fleet, monkeypatch: pytest.MonkeyPatch, others: int, deaths: int, *, hangs: bool
) -> None:
    """Others that were computed at the same deaths go on."""
    kill_by(served, monkeypatch, str(others + 1), segment=1, hangs=hangs)
    monkeypatch.setattr("timely.server.tasks.quarantine.BUSY_S", float("inf"))
    with tasks(served, *["long"] * others, "poison") as readers:
        served.run_for(200.0)
        *innocent, guilty = [reader.rest() for reader in readers]
    error = guilty[-1][2]
    assert (error["code"], error["outcome"]) == ("quarantined", "engine_failed")
    assert f"task '{others + 1}'" in error["detail"]
    assert [texts(events) for events in innocent] == [LONG] * others
    assert served.http.get("/livez").json()["engine_deaths"] == deaths


def test_a_hang_counts_against_no_task_that_came_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet(POISON, engine_hang_s=20.0) as served:
        kill_by(served, monkeypatch, "1", segment=1, hangs=True)
        with tasks(served, "poison") as (guilty,):
            served.run_for(30.0)
            with served.http.stream("POST", "/v1/tasks", json=body("short", id="late")) as stream:
                late = Reader(stream)
                late.next()
                served.run_for(100.0)
                assert guilty.rest()[-1][2]["code"] == "quarantined"
                assert late.rest()[-1][2]["outcome"] == "complete"
        assert served.http.get("/livez").json()["engine_deaths"] == 2


def test_plans_finish_before_the_server_ends() -> None:
    with fleet(drain_s=8.0) as served, tasks(served, "short", "ask") as (short, endless):
        served.run_for(0.1)
        assert served.server.loop is not None
        finishing = asyncio.run_coroutine_threadsafe(served.service.finish(), served.server.loop)
        ready = served.http.get("/readyz")
        assert (ready.status_code, ready.json()["code"]) == (503, "draining")
        refused = served.http.post("/v1/tasks", json=body())
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.headers["Retry-After"]
        assert served.http.get("/livez").status_code == 200
        served.run_for(7.0)
        assert texts(short.rest()) == ["mu(50);", "tc(90);"]
        assert not finishing.done()
        served.run_for(2.0)
        finishing.result(WAIT_S)
        served.server.stop()
        assert endless.rest()[-1][2]["code"] == "shutting_down"


def test_an_engine_whose_stop_fails_is_started_again_all_the_same(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        monkeypatch.undo()
        raise RuntimeError("its socket is closed")

    with tasks(served, "long") as (reader,):
        served.run_for(0.8)
        monkeypatch.setattr(served.engine, "stop", broken)
        crash(served)
        served.run_for(60.0)
        assert texts(reader.rest()) == LONG


@pytest.mark.parametrize("is_stop", [False, True])
def test_a_task_ends_whatever_the_engine_raises_at_its_cancellation(
    served: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_stop: bool
) -> None:
    """The line about it has the task's id also where a stop of the fleet ends the task."""
    caplog.handler.setFormatter(JsonLogFormatter())

    async def broken(task_id: str) -> bool:
        raise RuntimeError("its socket is closed")

    monkeypatch.setattr(served.engine, "cancel", broken)
    with tasks(served, "long") as (reader,):
        served.run_for(0.8)
        (task,) = served.service.tasks.open_tasks()
        if is_stop:
            served.http.post("/v1/stop", json={"deadline_s": 0.0})
        else:
            assert served.http.delete(f"/v1/tasks/{task.task_id}").json()["outcome"] == "cancelled"
        assert reader.rest()[-1][2]["outcome"] == "cancelled"
    (line,) = (json.loads(text) for text in caplog.text.splitlines() if "its socket is closed" in text)
    assert line["task_id"] == task.task_id


async def test_no_segment_leaves_once_its_task_is_to_end() -> None:
    clock = ManualClock(100.0)
    service = TaskService(ScriptedEngine(PLANS, clock=clock, token_s=0.01), None, clock, catalogue())
    await service.start()
    task = await service.submit(TaskRequest.model_validate(body("long", id="one")), LOCAL)
    async with service.lifecycle._releasing:
        await clock.run_for(1.0)
        ending = asyncio.create_task(service.cancel("one", LOCAL, TOKEN))
        await clock.run_for(0.1)
    await ending
    assert (task.outcome, task.track.segments) == ("cancelled", [])
    await service.stop()


async def test_a_plan_whose_generation_is_just_over_is_dropped_too() -> None:
    """The generation is over some turns of the event loop before the task executes."""
    clock = ManualClock(100.0)
    service = TaskService(ScriptedEngine(PLANS, clock=clock, token_s=0.01), None, clock, catalogue())
    await service.start()
    task = await service.submit(TaskRequest.model_validate(body("short", id="one")), LOCAL)
    states: list[str] = []

    async def drop_at_once() -> None:
        await task.over.wait()
        states.append(task.state)
        await service.cancel("one", LOCAL, TOKEN, dropped=True)

    async with asyncio.timeout(WAIT_S):
        dropping = asyncio.create_task(drop_at_once())
        await clock.run_for(2.0)
        await dropping
    assert states == ["generating"]
    assert (task.state, task.outcome) == ("ended", "cancelled")
    await service.stop()
