"""A server that was killed goes on with its tasks: streams, reports, tokens and plans.

A killed server is one whose state folder is copied while it runs: the copy is what a kill leaves.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fleet import (
    ARM,
    CHAT,
    DRONE,
    OWNER,
    PLANS,
    TINY,
    TOKEN,
    WAIT_S,
    Fleet,
    MemoryCatalogue,
    Reader,
    body,
    catalogue,
    events_of,
    fleet,
)
from guarded import Guarded, write_principals
from killed_server import cut, report, rest, server, texts, whole
from manual_clock import ManualClock

from timely.core.record_log import read_record_log, record_log_line
from timely.engines.base import EngineEvent, GenerationDone, GenerationRequest, PastReport, PlanHistory
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.plans.skill_set import SkillSet
from timely.principals import LOCAL, PrincipalRegistry
from timely.server import app
from timely.server.run import run_server
from timely.server.settings import ServerSettings
from timely.server.tasks.request import ReportBody, TaskRequest
from timely.server.tasks.service import TaskService
from timely.server.tasks.stop_file import SavedServerStop, ServerStopFile


def text_of(event: bytes) -> str | None:
    text: str | None = json.loads(event.splitlines()[2].removeprefix(b"data: ")).get("text")
    return text


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_a_plan_goes_on_behind_the_segments_that_were_sent(tmp_path: Path, seconds: float) -> None:
    state, before = cut(tmp_path, "long", seconds=seconds)
    with server(state, now=100.0 + seconds + 3.0) as served:
        after = rest(served, before[-1][0])
    ids = [number for number, _, _ in before + after]
    assert ids == list(range(1, len(ids) + 1))
    assert texts(before + after) == whole(tmp_path, "long")
    assert (after[-1][1], after[-1][2]["outcome"]) == ("result", "complete")


async def test_at_every_record_the_rest_of_the_plan_is_the_same(tmp_path: Path) -> None:
    """Cut the log behind each record, and inside the next one, as kills at those moments would."""

    async def run(folder: Path, now: float) -> list[bytes]:
        """Start a server, request the task unless it is there, report its value, and return its events."""
        clock = ManualClock(now)
        settings = ServerSettings(state_dir=folder, grace_s=1000.0, recovery_grace_s=1000.0)
        service = TaskService(ScriptedEngine(PLANS, clock=clock), settings, clock, catalogue())
        await service.start()
        task = service.tasks.find("one")
        if task is None:
            task = await service.submit(TaskRequest.model_validate(body("ask", id="one")), LOCAL)
        await clock.run_for(2.0)
        await service.report("one", [ReportBody(0, "value", value="True")], LOCAL, TOKEN)
        await clock.run_for(10.0)
        events = list(task.events._events)
        await service.log.close()  # and no graceful end
        await service.stop()
        return events

    whole = await run(tmp_path / "whole", 100.0)
    (file,) = (tmp_path / "whole" / "tasks").glob("*.log")
    lines = file.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line[9:]).get("kind") for line in lines]
    assert kinds == [None, "task", "segment", "report", "segment", "generated"]
    for number in range(1, len(lines)):
        for torn in (0, 30):
            folder = tmp_path / f"{number}-{torn}"
            (folder / "tasks").mkdir(parents=True)
            left = b"".join(lines[:number]) + lines[number][:torn]
            (folder / "tasks" / file.name).write_bytes(left)
            events = await run(folder, 112.0)
            assert [text_of(event) for event in events] == [text_of(event) for event in whole]
            sent = kinds[:number].count("segment")
            assert events[: 1 + sent] == whole[: 1 + sent]


class TokenEngine(ScriptedEngine):
    """An engine with tokens, which takes the second segment for the last one; keeps its requests."""

    requests: list[GenerationRequest]

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        self.requests.append(request)
        async for event in super().generate(request):
            if isinstance(event, GenerationDone):
                yield event
            else:
                # Of steps and first tokens nothing is kept.
                kept = replace(event, steps=0, first_token_s=None)
                yield replace(kept, pace=1.5, token_ids=(7, event.index), last=event.index == 1)


async def test_the_next_engine_gets_all_that_happened_to_a_plan(tmp_path: Path) -> None:
    histories = list[PlanHistory]()
    for now in (100.0, 103.0):
        clock = ManualClock(now)
        engine = TokenEngine({"ask": [*PLANS["ask"], *PLANS["long"]]}, clock=clock)
        engine.requests = []
        settings = ServerSettings(state_dir=tmp_path, grace_s=1000.0)
        service = TaskService(engine, settings, clock, catalogue())
        await service.start()
        if not histories:
            await service.submit(TaskRequest.model_validate(body("ask", id="one")), LOCAL)
            await clock.run_for(1.0)
            await service.report("one", [ReportBody(0, "value", value="True")], LOCAL, TOKEN)
            await clock.run_for(1.0)
        histories.append(service.tasks.get("one").history)
        await clock.run_for(0.0)
        await service.log.close()  # and no graceful end
        await service.stop()
        assert engine.requests[0].history == (histories[1] if now > 100.0 else None)
    before, after = histories
    assert len(before.segments) == 2
    assert (after.arrival_s, after.segments) == (before.arrival_s, before.segments)
    [(report_before, report_after)] = [
        (event.report, other.report)
        for event, other in zip(before.events, after.events, strict=True)
        if isinstance(event, PastReport) and isinstance(other, PastReport) and event.at_s == other.at_s
    ]
    assert report_after.to_dict() == report_before.to_dict()


async def test_a_plan_goes_on_while_the_application_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, before = await asyncio.to_thread(cut, tmp_path, "long", seconds=0.0)
    clock, services, urls = ManualClock(103.0), list[TaskService](), asyncio.Queue[str]()
    segment_sent = threading.Event()
    create = app.create_task_app

    def create_late(service: TaskService, *arguments: Any) -> FastAPI:
        services.append(service)
        assert segment_sent.wait(WAIT_S)
        return create(service, *arguments)

    monkeypatch.setattr(app, "create_task_app", create_late)
    engine = ScriptedEngine(PLANS, clock=clock)
    settings = ServerSettings(state_dir=state)
    serving = asyncio.create_task(
        run_server(engine, settings, clock, catalogue(), port=0, on_ready=urls.put_nowait)
    )
    async with asyncio.timeout(WAIT_S):
        while (
            not services or (task := services[0].tasks.find("one")) is None or len(task.events) == len(before)
        ):
            await clock.run_for(0.1)
        segment_sent.set()
        url = await urls.get()
        async with httpx.AsyncClient(headers=OWNER) as http:
            assert (await http.get(url + "/v1/tasks/one")).json()["segments"]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize(("limits", "fields"), [({}, {"app": "x" * 128}), ({"plan_s": 100_000.0}, {})])
def test_what_the_limits_of_a_principal_made_of_a_request_is_restored(
    tmp_path: Path, limits: dict[str, float], fields: dict[str, Any]
) -> None:
    """No client could send it so: the name of the application is longer, or the deadline out of range."""
    principals = tmp_path / "principals.yaml"
    write_principals(principals, [{"name": "drones", "roles": ["robot"], "agents": ["*"], "limits": limits}])

    def guarded(folder: str, now: float) -> AbstractContextManager[Fleet]:
        clock = ManualClock(now)
        registry = PrincipalRegistry(principals, None, clock)
        return fleet(clock=clock, state_dir=tmp_path / folder, registry=registry)

    (tmp_path / "first").mkdir()
    with guarded("first", 100.0) as served, Guarded(served, principals).as_("drones") as http:
        request = {**body("long", id="one"), **fields}
        with http.stream("POST", "/v1/tasks", json=request) as stream:
            Reader(stream).next()
            shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with guarded("killed", 100.5) as served:
        assert served.service.tasks.get("one").state == "generating"


def test_earlier_events_are_the_same_for_a_late_reader(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0, s0="done")
    with server(state, now=104.0) as served:
        again = rest(served, 0)
    before[0][2].pop("report_token")
    assert before[0][2]["eta_s"] > 0.0
    assert again[: len(before)] == before


def test_a_value_is_not_asked_for_again(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "ask", seconds=1.0, s0="value")
    assert [name for _, name, _ in before] == ["accepted", "segment"]
    with server(state, now=102.0) as served:
        assert report(served, 0, "value", value="True")["news"] == 0
        assert [name for _, name, _ in rest(served, 2)] == ["segment", "result"]


def test_a_plan_that_awaits_a_value_still_does(tmp_path: Path) -> None:
    state, _ = cut(tmp_path, "ask", seconds=1.0)
    with server(state, now=102.0) as served:
        headers = {"Last-Event-ID": "2"}
        with served.http.stream("GET", "/v1/tasks/one/events", headers=headers) as stream:
            served.run_for(5.0)
            assert served.stats().blocked == 1
            report(served, 0, "value", value="True")
            served.run_for(5.0)
            assert [name for _, name, _ in Reader(stream).rest()] == ["segment", "result"]


def test_the_token_holds_and_is_on_no_disk(tmp_path: Path) -> None:
    state, _ = cut(tmp_path, "long", seconds=1.0)
    assert all(TOKEN.encode() not in file.read_bytes() for file in state.rglob("*") if file.is_file())
    with server(state, now=102.0) as served:
        wrong = served.http.delete("/v1/tasks/one", headers={"Timely-Task-Token": "another-token-of-a-task"})
        assert wrong.status_code == 403
        assert served.http.delete("/v1/tasks/one", headers=OWNER).json()["outcome"] == "cancelled"


def test_a_restored_task_counts_as_live_and_its_id_is_in_use(tmp_path: Path) -> None:
    state, _ = cut(tmp_path, "long", seconds=1.0)
    with server(state, now=102.0) as served:
        assert len(served.service.tasks.generating()) == 1
        assert served.http.post("/v1/tasks", json=body("long", id="one")).json()["code"] == "conflict"


def test_a_failure_that_was_reported_ends_the_plan(tmp_path: Path) -> None:
    state, _ = cut(tmp_path, "long", seconds=2.0)
    line = {"kind": "report", "task": "one", "report": {"segment": 0, "kind": "failed"}, "at_s": 101.0}
    with (state / "tasks" / "00000001.log").open("ab") as file:
        file.write(record_log_line(line))
    with server(state, now=103.0) as served:
        assert rest(served, 0)[-1][2]["code"] == "execution_failed"


def test_an_ended_task_is_readable_until_its_retention_is_over(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "short", seconds=30.0)
    assert before[-1][1] == "result"
    with server(state, now=140.0) as served:
        assert rest(served, len(before) - 1, seconds=0.0) == before[-1:]
        assert len(served.service.tasks.generating()) == 0
        assert served.http.get("/v1/tasks/one").json()["state"] == "ended"
        served.run_for(400.0)
        assert served.http.get("/v1/tasks/one").status_code == 404
    with server(state, now=140.0) as served:
        assert served.http.get("/v1/tasks/one").status_code == 404


def test_a_plan_of_another_script_ends_typed_and_can_be_replanned(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0, s0="done")
    other: dict[str, Script] = {"long": [ScriptedSegment("mu(20);", 1.0, 4)]}
    with server(state, now=105.0, plans=other) as served:
        *_, (_, name, error) = rest(served, len(before), seconds=1.0)
        assert (name, error["code"], error["outcome"]) == ("error", "interrupted", "failed")
        with served.http.stream("POST", "/v1/tasks/one/replan", json={"id": "two"}) as stream:
            served.run_for(10.0)
            assert Reader(stream).rest()[-1][2]["outcome"] == "complete"
        assert "tc(10);" in served.http.get("/v1/tasks/two").json()["history"]


def test_another_model_goes_on_behind_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0, s0="done")
    monkeypatch.setattr(ScriptedEngine, "identity", "another model")
    sent = texts(before)
    with server(state, now=105.0, plans={"long": ["mu(50);", "mu(60);", "mu(70);"]}) as served:
        served.run_for(0.5)
        history = served.http.get("/v1/tasks/one").json()["history"]
        assert history.endswith(
            f"another model, skill set or robot profile; executed so far: {''.join(sent)}"
        )
        again = tmp_path / "killed-again"
        served.run_for(3.0)
        shutil.copytree(state, again)
    with server(again, now=110.0, plans={"long": ["mu(50);", "mu(60);", "mu(70);"]}) as served:
        report(served, 0, "done")  # of the first plan
        events = rest(served, 0)
    segments = [data for _, name, data in events if name == "segment"]
    assert [data["index"] for data in segments] == list(range(len(sent) + 3))
    assert [data["text"] for data in segments] == [*sent, "mu(50);", "mu(60);", "mu(70);"]
    assert (events[-1][1], events[-1][2]["plan"]) == ("result", "".join([*sent, "mu(50);mu(60);mu(70);"]))


def test_another_model_asks_again_for_a_value_that_had_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = cut(tmp_path, "ask", seconds=1.0)
    monkeypatch.setattr(ScriptedEngine, "identity", "another model")
    with server(state, now=102.0) as served:
        served.run_for(2.0)
        assert served.http.get("/v1/tasks/one").json()["history"].endswith("executed so far: nothing")
        report(served, 0, "value", value="False")
        report(served, 1, "value", value="True")
        assert rest(served, 0)[-1][2]["plan"] == "lk('cat');lk('cat');mu(50);"


def test_inside_a_branch_no_other_model_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: dict[str, Script] = {"turn": [ScriptedSegment("?lk('cat'){tc(10);", 5.0, 4), "tc(20);", "}"]}
    with (
        server(tmp_path / "first", plans=plans) as served,
        served.http.stream("POST", "/v1/tasks", json=body("turn", id="one")),
    ):
        served.run_for(1.0)
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    monkeypatch.setattr(ScriptedEngine, "identity", "another model")
    with server(tmp_path / "killed", now=102.0, plans=plans) as served:
        assert rest(served, 0, seconds=0.0)[-1][2]["code"] == "interrupted"


def test_a_refused_task_does_not_come_back(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        served.engine._max_prompt_tokens = 20
        assert served.http.post("/v1/tasks", json=body("long", id="one")).status_code == 413
        shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    with server(tmp_path.with_name("killed")) as served:
        assert served.service.tasks.all_tasks() == []


def test_a_recovered_plan_that_nobody_reads_is_cancelled(tmp_path: Path) -> None:
    state, _ = cut(tmp_path, "ask", seconds=1.0)
    with server(state, now=102.0) as served:
        served.run_for(29.0)
        assert served.http.get("/v1/tasks/one").json()["state"] == "generating"
        served.run_for(2.0)
        assert served.http.get("/v1/tasks/one").json()["outcome"] == "cancelled"


def test_a_task_whose_last_event_was_lost_ends_all_the_same(tmp_path: Path) -> None:
    """A power failure may take a record of an older file and leave one of a newer file."""
    state, before = cut(tmp_path, "short", seconds=30.0)
    file = state / "tasks" / "00000001.log"
    lines = file.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line[9:]).get("kind") != "generated"]
    assert len(kept) == len(lines) - 1
    file.write_bytes(b"".join(kept))
    with server(state, now=131.0) as served:
        assert [name for _, name, _ in rest(served, 0)] == [name for _, name, _ in before]
        assert served.http.get("/v1/tasks/one").json()["state"] == "ended"


@pytest.mark.parametrize("kept", ["report", "settled"])
def test_a_failure_in_execution_is_one_after_the_restart_too(tmp_path: Path, kept: str) -> None:
    state, _ = cut(tmp_path, "short", seconds=3.0, s1="failed")
    (file,) = (state / "tasks").glob("*.log")
    lines = file.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line[9:]).get("kind") for line in lines]
    assert kinds[-3:] == ["generated", "report", "settled"]
    file.write_bytes(b"".join(lines[: 1 + len(kinds) - 1 - kinds[::-1].index(kept)]))
    with server(state, now=104.0) as served:
        served.run_for(0.1)
        view = served.http.get("/v1/tasks/one").json()
        assert (view["state"], view["outcome"]) == ("ended", "failed")
        assert view["problem"]["code"] == "execution_failed"


def test_a_plan_that_another_one_replaced_is_cancelled_after_the_restart_too(tmp_path: Path) -> None:
    with server(tmp_path / "first") as served:
        with served.http.stream("POST", "/v1/tasks", json=body("short", id="one")) as stream:
            Reader(stream).next()
            served.run_for(3.0)
        with served.http.stream("POST", "/v1/tasks/one/replan", json={"id": "two"}) as stream:
            assert Reader(stream).next()[1] == "accepted"
        before = served.http.get("/v1/tasks/one").json()
        assert (before["state"], before["outcome"]) == ("ended", "cancelled")
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with server(tmp_path / "killed", now=104.0) as served:
        after = served.http.get("/v1/tasks/one").json()
        assert (after["outcome"], after["replanned_as"]) == ("cancelled", "two")


def test_a_value_that_was_refused_does_not_count_after_the_restart(tmp_path: Path) -> None:
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        Reader(stream).next()
        served.run_for(0.5)
        value = {"segment": 0, "kind": "value", "value": "True"}
        assert served.http.post("/v1/tasks/one/reports", json=value).status_code == 409
        assert not served.http.get("/v1/tasks/one").json()["segments"][0]["done"]
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with server(tmp_path / "killed", now=101.0) as served:
        segment = served.http.get("/v1/tasks/one").json()["segments"][0]
        assert (segment["done"], segment["value"]) == (False, None)


def test_a_plan_with_a_skill_that_is_gone_ends_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0)
    skills = [skill for skill in DRONE.skills if skill.name != "turn_cw"]
    smaller = SkillSet.model_validate(
        {**DRONE.model_dump(), "skills": [skill.model_dump() for skill in skills]}
    )
    monkeypatch.setattr("fleet.catalogue", lambda: MemoryCatalogue([smaller, CHAT], [TINY, ARM]))
    with server(state, now=104.0) as served:
        ((_, name, error),) = rest(served, before[-1][0], seconds=1.0)
        assert (name, error["code"], error["segments"]) == ("error", "interrupted", len(before) - 1)


async def test_a_signal_during_the_recovery_ends_the_engine_and_loses_no_task(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "long", seconds=1.5)
    reached = asyncio.Event()

    class Slow(MemoryCatalogue):
        async def skill_set(self, name: str) -> SkillSet:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    engine, clock = ScriptedEngine(PLANS, clock=ManualClock(102.0)), ManualClock(102.0)
    service = TaskService(engine, ServerSettings(state_dir=state), clock, Slow([], []))
    starting = asyncio.create_task(service.start())
    await reached.wait()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await service.stop()
    assert engine._loop_task is None, "the engine runs on"
    again = TaskService(
        ScriptedEngine(PLANS, clock=clock), ServerSettings(state_dir=state), clock, catalogue()
    )
    await again.start()
    assert again.tasks.get("one").state == "generating"
    assert len(again.tasks.get("one").events) == len(before)
    await again.stop()


def test_a_stop_ends_a_plan_in_execution_whose_end_was_not_kept(tmp_path: Path) -> None:
    """The stop is on the disk before the record of what it did, if the kill comes between."""
    state, _ = cut(tmp_path, "short", seconds=3.0)
    ServerStopFile(state).write(SavedServerStop("stop-1", "smoke", "local", ("drone-1",)))
    with server(state, now=104.0) as served:
        served.run_for(0.1)
        view = served.http.get("/v1/tasks/one").json()
        assert (view["state"], view["outcome"]) == ("ended", "cancelled")


def test_a_plan_that_a_stop_ends_does_not_go_on_after_a_reset_and_a_kill(tmp_path: Path) -> None:
    """The engine hangs, so that the plan has not ended when an operator resets the stop and the server is killed."""
    with (
        server(tmp_path / "first") as served,
        ThreadPoolExecutor(1) as pool,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        Reader(stream).next()
        served.run_for(1.5)
        served.call(served.engine.hang)
        stopping = pool.submit(served.http.post, "/v1/stop", json={"reason": "smoke", "deadline_s": 0.0})
        served.until(lambda: served.service.tasks.get("one").stopping)
        assert served.http.post("/v1/stop/reset").json()["saved"]
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
        assert served.service.tasks.get("one").state == "generating"
        served.call(served.engine.kill)
        stopping.result(WAIT_S)
    with server(tmp_path / "killed", now=104.0) as served:
        served.run_for(0.1)
        assert served.stats().jobs == ()
        with served.http.stream("GET", "/v1/tasks/one/events") as response:
            _, _, data = Reader(response).rest()[-1]
        assert (data["outcome"], data["cause"]) == ("cancelled", "fleet_stop")


@pytest.mark.parametrize("lost", [1, 2])
def test_a_reader_that_is_ahead_of_what_the_machine_kept_gets_the_rest_once(
    tmp_path: Path, lost: int
) -> None:
    """A power failure takes the records of the last milliseconds, and the reader has these segments."""
    state, before = cut(tmp_path, "long", seconds=3.0)
    (file,) = (state / "tasks").glob("*.log")
    lines = file.read_bytes().splitlines(keepends=True)
    assert all(json.loads(line[9:])["kind"] == "segment" for line in lines[-lost:])
    file.write_bytes(b"".join(lines[:-lost]))
    with server(state, now=104.0) as served:
        after = rest(served, before[-1][0])
    ids = [number for number, _, _ in before + after]
    assert ids == list(range(1, len(ids) + 1))
    assert texts(before + after) == whole(tmp_path, "long")


def test_a_reader_that_is_ahead_gets_the_end_of_a_plan_that_ends_before(tmp_path: Path) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0)
    (file,) = (state / "tasks").glob("*.log")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    last_id = before[-1][0]
    for_reader = {"Last-Event-ID": str(last_id)}
    with server(state, now=104.0) as served:
        with served.http.stream("GET", "/v1/tasks/one/events", headers=for_reader) as stream:
            assert served.http.delete("/v1/tasks/one").json()["outcome"] == "cancelled"
            ((number, name, data),) = Reader(stream).rest()
        assert (number, name, data["outcome"]) == (last_id + 1, "result", "cancelled")
        again = events_of(served.http.get("/v1/tasks/one/events", headers=for_reader).text)
        assert again == [(number, name, data)]


def test_a_cancelled_task_stays_so_after_a_power_failure(tmp_path: Path) -> None:
    with (
        server(tmp_path) as served,
        served.http.stream("POST", "/v1/tasks", json=body("ask", id="one")) as stream,
    ):
        Reader(stream).next()
        served.run_for(1.0)
        assert served.http.put("/v1/tasks/one/urgency", json={"urgency": 0, "operator": "x"}).is_success
        assert served.service.log._on_disk == served.service.log._written_count
        assert served.http.delete("/v1/tasks/one").json()["outcome"] == "cancelled"
        records = read_record_log(next((tmp_path / "tasks").glob("*.log"))).records
        generated = next(at for at, record in enumerate(records) if record.get("kind") == "generated")
        assert served.service.log._on_disk >= generated


def test_room_for_urgent_tasks_is_kept_over_a_restart(tmp_path: Path) -> None:
    """One place of four is for urgent tasks alone."""
    places: dict[str, Any] = {
        "max_live_tasks": 4,
        "urgent_share": 0.25,
        "grace_s": 1000.0,
        "recovery_grace_s": 1000.0,
    }

    def status(served: Fleet, task_id: str, **fields: Any) -> int:
        with served.http.stream("POST", "/v1/tasks", json=body("ask", id=task_id, **fields)) as stream:
            return stream.status_code

    with fleet(state_dir=tmp_path / "first", **places) as served:
        assert [status(served, f"normal-{number}") for number in range(4)] == [200, 200, 200, 503]
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with fleet(clock=ManualClock(101.0), state_dir=tmp_path / "killed", **places) as served:
        assert status(served, "normal-4") == 503
        assert [status(served, f"urgent-{number}", tuf="urgent") for number in range(2)] == [200, 503]
