"""Full garbage collections, which stop every plan: none over what the start made, and few while plans are generated."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fleet import PLANS, WAIT_S, Reader, body, catalogue, fleet
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from timely.core import garbage
from timely.core.garbage import collect_idle_garbage, short_gc_pauses
from timely.engines.scripted import ScriptedEngine
from timely.server import http_server
from timely.server.run import run_server


class Cycle:
    """Garbage as soon as no variable names it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def no_collection_by_chance() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    yield
    gc.set_threshold(*before)


def test_a_full_collection_skips_what_the_start_made() -> None:
    gc.collect()
    before, objects = gc.get_threshold(), len(gc.get_objects())
    with short_gc_pauses():
        assert gc.get_freeze_count() >= 0.9 * objects
        assert len(gc.get_objects()) < 0.1 * objects
        assert gc.get_threshold()[2] == garbage.BUSY_FACTOR * before[2]
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


@pytest.mark.parametrize("due", [False, True])
def test_a_collection_is_made_when_python_would_make_one(*, due: bool) -> None:
    limit = gc.get_threshold()[2]
    with short_gc_pauses():
        cycle = Cycle()
        reference = weakref.ref(cycle)
        gc.collect(1)
        del cycle
        for _ in range(limit if due else limit - 1):
            gc.collect(1)
        assert reference() is not None
        collect_idle_garbage()
        assert (reference() is None) == due


def test_a_server_in_a_thread_leaves_collections_to_python() -> None:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    gc.collect(1)
    del cycle
    for _ in range(2 * gc.get_threshold()[2]):
        gc.collect(1)
    collect_idle_garbage()
    assert reference() is not None


async def test_a_server_skips_its_imports() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_server(ScriptedEngine(PLANS), None, None, catalogue(), port=0, on_ready=ready.set_result)
    )
    async with asyncio.timeout(WAIT_S):
        await ready
        assert gc.get_freeze_count()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
    assert not gc.get_freeze_count()


def test_a_server_collects_while_no_plan_is_in_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(http_server, "collect_idle_garbage", lambda: calls.append(1))
    with fleet() as served:
        calls.clear()
        served.call(lambda: served.server._server.on_tick(1))
        assert calls
        with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
            Reader(response).next()
            calls.clear()
            served.call(lambda: served.server._server.on_tick(1))
            assert not calls


def test_a_server_makes_no_full_collection_while_it_serves_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(http_server, "collect_idle_garbage", lambda: calls.append(1))

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        calls.clear()
        await served.server._server.on_tick(1)
        await JSONResponse({"collections": len(calls)})(scope, receive, send)

    with fleet() as served:
        served.engine.openai_app = inner  # type: ignore[attr-defined]
        answer = served.http.post("/v1/chat/completions", json={"messages": []})
        assert answer.json() == {"collections": 0}
        calls.clear()
        served.call(lambda: served.server._server.on_tick(1))
        assert calls
