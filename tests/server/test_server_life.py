"""Start and stop: live streams are told, nothing hangs, addresses and engines that cannot be had are said so."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fleet import OWNER, PLANS, WAIT_S, Reader, body, catalogue, fleet
from manual_clock import ManualClock
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from timely.core.errors import EngineFailed, InvalidInput
from timely.engines.base import EngineEvent, GenerationRequest, SegmentReady
from timely.engines.scripted import ScriptedEngine
from timely.server.app import create_app
from timely.server.listener import bind_server_socket
from timely.server.run import run_server
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings


def test_on_shutdown_live_streams_get_a_last_error_and_the_engine_is_stopped() -> None:
    with fleet() as served:
        with (
            served.http.stream("POST", "/v1/tasks", json=body("long", agent="a")) as first,
            served.http.stream("POST", "/v1/tasks", json=body("ask", agent="b")) as second,
        ):
            readers = [Reader(first), Reader(second)]
            for reader in readers:
                reader.next()
            served.run_for(0.3)
            stopping = threading.Thread(target=served.server.stop)
            stopping.start()
            for reader in readers:
                *_, (_, name, error) = reader.rest()
                assert (name, error["code"], error["outcome"]) == ("error", "shutting_down", "cancelled")
            stopping.join(WAIT_S)
            assert not stopping.is_alive()
        with pytest.raises(httpx.ConnectError):
            served.http.get("/healthz")
        assert len(served.engine._live) == 0
        served.server.stop()


@pytest.mark.parametrize("stopped", [False, True])
def test_bridges_that_follow_the_stop_do_not_hold_up_shutdown(
    stopped: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their streams end by themselves: uvicorn cancels what is left after seconds, with a traceback."""
    with fleet() as served, served.http.stream("GET", "/v1/stop/events?agent=a") as response:
        reader = Reader(response)
        assert reader.next()[1] == "clear"
        if stopped:
            served.call(lambda: served.service.fleet_stop.latch.latch("smoke", "", []))
        served.server.stop()
        assert [name for _, name, _ in reader.rest()] == ["stop"] * stopped
    assert "graceful" not in capfd.readouterr().err


def test_a_reader_that_never_reads_does_not_hold_up_shutdown() -> None:
    with fleet() as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as deaf:
            content = httpx.Request("POST", served.url, json=body("long")).content
            head = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            deaf.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            served.until(lambda: len(served.service.tasks.generating()) == 1)
            before = time.monotonic()
            served.server.stop()
            assert time.monotonic() - before < 5.0


def test_an_engine_that_does_not_start_is_said_so() -> None:
    class Broken(ScriptedEngine):
        async def start(self) -> None:
            raise EngineFailed("no such model", where="model")

    with pytest.raises(EngineFailed, match="no such model"), ServerThread(create_app(Broken())):
        pass


def test_an_engine_that_does_not_stop_is_left_behind() -> None:
    class Stuck(ScriptedEngine):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    app = create_app(Stuck(), ServerSettings(stop_timeout_s=0.1))
    with ServerThread(app) as server:
        assert httpx.get(server.url + "/healthz").status_code == 200


def test_an_engine_that_ignores_a_cancel_does_not_keep_the_task() -> None:
    class Deaf(ScriptedEngine):
        async def cancel(self, task_id: str) -> bool:
            return True

    clock = ManualClock()
    engine = Deaf(PLANS, clock=clock)
    app = create_app(engine, ServerSettings(engine_timeout_s=0.05), clock, catalogue())
    with (
        ServerThread(app) as server,
        httpx.Client(base_url=server.url, timeout=WAIT_S, headers=OWNER) as http,
        http.stream("POST", "/v1/tasks", json=body("long")) as response,
    ):
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        assert http.delete(f"/v1/tasks/{task_id}").json()["outcome"] == "cancelled"
        assert reader.rest()[-1][1] == "result"
        assert not engine._live  # closing its iterator is enough


def test_an_engine_that_answers_nothing_is_a_typed_error_not_a_hang() -> None:
    class Silent(ScriptedEngine):
        async def report(self, task_id: str, report: object) -> None:
            await asyncio.Event().wait()

    clock = ManualClock()
    app = create_app(Silent(PLANS, clock=clock), ServerSettings(engine_timeout_s=0.05), clock, catalogue())
    with (
        ServerThread(app) as server,
        httpx.Client(base_url=server.url, timeout=WAIT_S, headers=OWNER) as http,
        http.stream("POST", "/v1/tasks", json=body("long")) as response,
    ):
        task_id = Reader(response).next()[2]["task_id"]
        loop = server.loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(clock.run_for(0.5), loop).result(WAIT_S)
        report = {"segment": 0, "kind": "done", "agent": "drone-1"}
        answer = http.post(f"/v1/tasks/{task_id}/reports", json=report)
        assert (answer.status_code, answer.json()["code"]) == (502, "engine_failed")


async def test_an_engine_that_is_interrupted_while_it_loads_is_stopped() -> None:
    starting, stopped = asyncio.Event(), []

    class Slow(ScriptedEngine):
        async def start(self) -> None:
            starting.set()
            await asyncio.Event().wait()

        async def stop(self) -> None:
            stopped.append(True)

    serving = asyncio.create_task(run_server(Slow(), port=0))
    await asyncio.wait_for(starting.wait(), WAIT_S)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, WAIT_S)
    assert stopped
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("lie", [{"index": 7}, {"execution_s": math.nan}, {"execution_s": -1.0}, None])
def test_an_engine_that_breaks_its_promise_fails_that_task_only(lie: dict[str, float] | None) -> None:
    class Liar(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
            async for event in super().generate(request):
                if request.hints.agent == "unlucky" and lie is None:
                    return
                if request.hints.agent == "unlucky" and isinstance(event, SegmentReady):
                    yield replace(event, **lie)  # type: ignore[arg-type]
                else:
                    yield event

    with fleet() as served:
        served.service.engine.engine = liar = Liar(PLANS, clock=served.clock)
        served.call(liar.start)
        with (
            served.http.stream("POST", "/v1/tasks", json=body(agent="unlucky")) as first,
            served.http.stream("POST", "/v1/tasks", json=body(agent="lucky")) as second,
        ):
            served.run_for(10.0)
            assert Reader(first).rest()[-1][2]["code"] == "engine_failed"
            assert Reader(second).rest()[-1][2]["outcome"] == "complete"
        assert served.call(liar.stats).jobs == ()
        served.call(liar.stop)


def test_an_address_that_is_taken_is_said_before_the_engine_loads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match="cannot listen") as caught:
            bind_server_socket("127.0.0.1", port, authenticated=False)
        assert caught.value.where == f"127.0.0.1:{port}"
    for host, port in (("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("127.0.0.1", -1)):
        with pytest.raises(InvalidInput):
            bind_server_socket(host, port, authenticated=True)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    # asyncio sets TCP_NODELAY only on sockets of this protocol number.
    with bind_server_socket("127.0.0.1", 0, authenticated=False) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_serve_returns_when_it_is_cancelled_and_leaves_nothing() -> None:
    engine = ScriptedEngine(PLANS)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_server(engine, None, None, catalogue(), port=0, on_ready=ready.set_result, stop_timeout_s=1.0)
    )
    async with asyncio.timeout(WAIT_S):
        url = await ready
        async with httpx.AsyncClient() as http:
            assert (await http.get(url + "/healthz")).status_code == 200
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("signals", [1, 2])
async def test_sigterm_lets_plans_finish_unless_it_comes_twice(signals: int) -> None:
    clock, urls = ManualClock(), asyncio.Queue[str]()
    settings = ServerSettings(drain_s=1000.0)
    engine = ScriptedEngine(PLANS, clock=clock)
    serving = asyncio.create_task(
        run_server(engine, settings, clock, catalogue(), port=0, on_ready=urls.put_nowait, stop_timeout_s=2.0)
    )
    async with asyncio.timeout(WAIT_S), httpx.AsyncClient(headers=OWNER) as http:
        url = await urls.get()
        async with http.stream("POST", url + "/v1/tasks", json=body("short")) as response:
            lines = response.aiter_lines()
            assert await anext(lines) == "id: 1"
            os.kill(os.getpid(), signal.SIGTERM)
            while (await http.get(url + "/readyz")).status_code == 200:
                continue
            if signals == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                await clock.run_for(60.0)
            rest = "".join([line async for line in lines])
            assert ("shutting_down" if signals == 2 else '"outcome":"complete"') in rest
        assert await serving == signal.SIGTERM


@pytest.mark.parametrize("signals", [1, 2])
async def test_answers_of_the_openai_endpoint_may_finish_after_sigterm(signals: int) -> None:
    """After a second signal the engine ends them, and the client may ask another server."""
    urls: asyncio.Queue[str] = asyncio.Queue()
    request_event, answer_event = asyncio.Event(), asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        request_event.set()
        await answer_event.wait()
        await JSONResponse({}, 200 if signals == 1 else 500)(scope, receive, send)

    class Answering(ScriptedEngine):
        openai_app = staticmethod(application)

        def end_answers(self) -> None:
            answer_event.set()

    settings = ServerSettings(drain_s=1000.0)
    serving = asyncio.create_task(
        run_server(Answering(PLANS), settings, None, catalogue(), port=0, on_ready=urls.put_nowait)
    )
    async with asyncio.timeout(WAIT_S), httpx.AsyncClient(headers=OWNER) as http:
        url = await urls.get()
        chat = asyncio.create_task(http.post(url + "/v1/chat/completions", json={"messages": []}))
        await request_event.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        while (ready := await http.get(url + "/readyz")).status_code == 200:
            continue
        for _ in range(20):
            assert ready.json()["code"] == "draining"
            ready = await http.get(url + "/readyz")
        if signals == 1:
            answer_event.set()
            assert (await chat).status_code == 200
        else:
            os.kill(os.getpid(), signal.SIGTERM)
            answer = await chat
            assert (answer.status_code, answer.json()["detail"]) == (503, "the server is shutting down")
        assert await serving == signal.SIGTERM


PROGRAM = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from fleet import PLANS, catalogue
from timely.engines.scripted import ScriptedEngine
from timely.server.run import run_server

def ready(url):
    print(url, flush=True)

serving = run_server(
    ScriptedEngine(PLANS), None, None, catalogue(), port=0, on_ready=ready, stop_timeout_s=2.0
)
number = asyncio.run(serving)
print("ended by", number, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_in_good_order(number: signal.Signals) -> None:
    program = PROGRAM.format(folder=str(Path(__file__).parents[1] / "support"))
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx.stream("POST", url + "/v1/tasks", json=body("ask"), timeout=WAIT_S) as response:
                reader = Reader(response)
                reader.next()
                os.kill(process.pid, number)
                assert reader.rest()[-1][2]["code"] == "shutting_down"
            out, err = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert out.strip() == f"ended by {int(number)}"
    assert err == ""


OWN_TERMINAL = """
import fcntl, os, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
"""Makes the terminal at standard input that of the process, as in a window."""


@pytest.mark.process
def test_a_terminal_that_closes_ends_the_server_in_good_order() -> None:
    program = OWN_TERMINAL + PROGRAM.format(folder=str(Path(__file__).parents[1] / "support"))
    window, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            os.close(terminal)
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx.stream("POST", url + "/v1/tasks", json=body("ask"), timeout=WAIT_S) as response:
                reader = Reader(response)
                reader.next()
                os.close(window)
                assert reader.rest()[-1][2]["code"] == "shutting_down"
            out, err = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert out.strip() == f"ended by {int(signal.SIGTERM)}"


@pytest.mark.process
def test_a_server_without_a_terminal_takes_no_notice_of_a_hangup() -> None:
    """Service managers and logrotate send SIGHUP for "read your files again", which the server does by itself."""
    program = PROGRAM.format(folder=str(Path(__file__).parents[1] / "support"))
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            os.kill(process.pid, signal.SIGHUP)
            assert httpx.get(url + "/livez", timeout=WAIT_S).status_code == 200
            os.kill(process.pid, signal.SIGTERM)
            out, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert out.strip() == f"ended by {int(signal.SIGTERM)}"


@pytest.mark.process
def test_tasks_are_served_without_an_http_library_until_the_application_is_made() -> None:
    program = (
        "import sys, timely.cli.serve, timely.engines.scripted, timely.server.tasks.service, timely.server.run;"
        "print(*sorted({'email_validator', 'fastapi', 'starlette', 'uvicorn'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
