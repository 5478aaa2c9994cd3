"""Limits of connections, headers, bodies and readers; TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from fleet import PLANS, WAIT_S, Fleet, Reader, body, catalogue, fleet
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from timely.client import AsyncTimelyClient, TimelyClient
from timely.core.errors import InvalidInput, NotAllowed
from timely.core.json_log import JsonLogFormatter
from timely.core.repeat_limit import REPEATS, LogRepeatLimit
from timely.engines.base import EngineStats
from timely.engines.scripted import ScriptedEngine
from timely.server.http import connections
from timely.server.http.body_limit import SMALL_BODY_BYTES, HttpBodyLimit
from timely.server.http.connections import BoundedHttpProtocol, HttpConnectionPlaces
from timely.server.http.unread import HttpUnreadTime
from timely.server.listener import RenewedServerTls, ServerTlsFiles, server_tls
from timely.server.run import run_server
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_client import ANSWER_S
from timely.server.tasks.engine_heartbeat import PERIOD_S
from timely.server.tasks.stop_service import ServerStopService

ROOT = Path(__file__).resolve().parents[2]
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def connected(served: Fleet) -> Iterator[socket.socket]:
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WAIT_S) as connection:
        yield connection


@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\n", HEAD + b"X-Slow: "])
def test_a_connection_without_a_complete_header_is_closed(start: bytes) -> None:
    with fleet(header_timeout_s=0.1) as served, connected(served) as connection:
        connection.sendall(start)
        assert connection.recv(100) == b""


def test_a_kept_connection_has_the_same_limit_for_its_next_header() -> None:
    with fleet(header_timeout_s=0.5) as served, connected(served) as connection:
        connection.sendall(HEAD + b"\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(10_000)
        connection.sendall(HEAD)
        assert connection.recv(100) == b""


def test_a_header_over_its_limit_is_431() -> None:
    with fleet(max_header_bytes=2_000) as served, connected(served) as connection:
        connection.sendall(HEAD)
        try:
            for number in range(100):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 500))
            answer = connection.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            answer = b"HTTP/1.1 431"  # The answer was lost with the connection.
        assert answer.startswith(b"HTTP/1.1 431")
        assert served.http.get("/healthz").status_code == 200


def test_a_long_header_in_one_piece_is_431_too() -> None:
    with fleet(max_header_bytes=2_000) as served:
        assert served.http.get("/healthz", headers={"X-Long": "y" * 1_000}).status_code == 200
        answer = served.http.get("/healthz", headers={"X-Long": "y" * 3_000})
        assert (answer.status_code, answer.json()["where"]) == (431, "header")


def test_a_request_with_a_long_header_is_not_executed() -> None:
    with fleet(max_header_bytes=2_000) as served:
        answer = served.http.post("/v1/stop", headers={"X-Long": "y" * 3_000})
        assert answer.status_code == 431
        assert not served.http.get("/v1/stop").json()["stopped"]


STOP_EVENTS = b"GET /v1/stop/events?agent=drone-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""Its response does not end."""


def test_a_reader_that_pipelined_another_request_is_missed_when_it_leaves() -> None:
    """Uvicorn tells the latest request of a connection that its client has left, and no other."""
    with fleet(keepalive_s=0.01) as served:
        latch = served.service.fleet_stop.latch
        with connected(served) as connection:
            connection.sendall(STOP_EVENTS)
            connection.recv(1)
            connection.sendall(HEAD + b"\r\n")
            served.until(lambda: latch.view()["bridges"] == 1)
        served.until(lambda: latch.view()["bridges"] == 0, "no bridge follows the stop")


def test_a_pipelined_request_logs_no_task_of_the_one_before(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uvicorn begins it within the request before."""
    caplog.handler.setFormatter(JsonLogFormatter())
    get = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with fleet() as served, served.http.stream("POST", "/v1/tasks", json=body("ask", id="one")):
        monkeypatch.setattr(ServerStopService, "view", None)
        with connected(served) as connection:
            connection.sendall(get % b"/v1/tasks/one" + get % b"/v1/stop")
            served.until(lambda: "GET /v1/stop" in caplog.text, "the error is in the log")
    (line,) = (json.loads(text) for text in caplog.text.splitlines() if "GET /v1/stop" in text)
    assert "task_id" not in line


@pytest.mark.parametrize(
    "start",
    [
        STOP_EVENTS + HEAD,
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
    ids=["behind an event stream", "trailers of a body"],
)
def test_a_header_has_its_limit_while_another_request_is_served(start: bytes) -> None:
    with fleet(max_header_bytes=2_000, body_timeout_s=WAIT_S) as served, connected(served) as connection:
        open_connections = served.server._server.server_state.connections
        connection.sendall(start)
        served.until(lambda: bool(open_connections), "the connection is open")
        with suppress(ConnectionResetError, BrokenPipeError):
            for number in range(100):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 500))
        served.until(lambda: not open_connections, "the connection has ended")


def test_a_request_for_a_web_socket_is_answered_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    with fleet() as served:
        answers = [served.http.get(path, headers=upgrade).status_code for path in ("/livez", "/socket")]
    assert answers == [200, 404]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_what_is_no_http_is_a_problem_too() -> None:
    with fleet() as served, connected(served) as connection:
        connection.sendall(b"GET \x00 nonsense\r\n\r\n")
        answer = b""
        while chunk := connection.recv(10_000):
            answer += chunk
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"application/problem+json" in head
    assert json.loads(content)["code"] == "invalid_input"


def test_a_flood_of_what_is_no_http_leaves_few_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with fleet() as served:
        for _ in range(2 * REPEATS):
            with connected(served) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                while connection.recv(10_000):
                    pass
    assert len(caplog.messages) == REPEATS


def test_a_message_that_is_logged_again_says_how_many_were_left_out() -> None:
    limit = LogRepeatLimit()
    record = logging.makeLogRecord(
        {
            "msg": "no HTTP from %s",
            "args": ("here",),
            "created": 1000.0,
            "levelno": logging.WARNING,
            "lineno": 7,
        }
    )
    assert [limit.filter(record) for _ in range(REPEATS + 2)] == [True] * REPEATS + [False] * 2
    same_place = logging.makeLogRecord({**vars(record), "msg": "no HTTP from there"})
    assert not limit.filter(same_place), "a text with a client's words in it is no other message"
    for other in ({"lineno": 8}, {"levelno": logging.INFO}):
        assert limit.filter(logging.makeLogRecord({**vars(record), **other}))
    record.created = 990.0  # the clock was set back
    assert limit.filter(record)
    assert record.getMessage() == "no HTTP from here (3 more were left out)"


@pytest.mark.process
def test_a_client_that_does_not_read_its_responses_loses_its_connection() -> None:
    """Without a token it may ask for the live page, again and again."""
    page = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with fleet(send_timeout_s=0.1) as served, connected(served) as connection:
        open_connections = served.server._server.server_state.connections
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(page * 500)
        served.until(lambda: bool(open_connections), "the connection is open")
        served.until(lambda: not open_connections, "the connection has ended")


def test_a_client_that_reads_a_little_now_and_then_has_a_limit_too() -> None:
    unread = HttpUnreadTime(30.0)
    unread.begin(0.0, 1_000)
    assert not unread.is_over(30.0, 900)
    unread.end(40.0)
    unread.begin(50.0, 5_000)
    looks = [unread.is_over(50.0 + 30.0 * look, 5_000 - look) for look in range(1, 10)]
    assert looks == [False] * 8 + [True], "after 300 s of waits"
    idle = HttpUnreadTime(30.0)
    idle.begin(0.0, 1_000)
    assert idle.is_over(30.0, 1_000)


def test_waits_of_a_long_life_do_not_add_up() -> None:
    """An event stream of days meets a full buffer now and then."""
    unread = HttpUnreadTime(30.0)
    for hour in range(100):
        unread.begin(3600.0 * hour, 1_000)
        assert not unread.is_over(3600.0 * hour + 20.0, 900)
        unread.end(3600.0 * hour + 20.0)


def test_connections_over_the_limit_get_503() -> None:
    with fleet(max_connections=3) as served, connected(served), connected(served), connected(served):
        answer = httpx.get(served.url + "/v1/skill_sets")
        assert answer.status_code == 503


def test_one_address_takes_a_part_of_the_connections() -> None:
    with fleet(max_client_connections=2) as served, connected(served), connected(served):
        answer = httpx.get(served.url + "/v1/skill_sets")
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["connection"] == "close"


def test_a_stop_passes_the_limits_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_SPARE_CONNECTIONS", 2)
    with fleet(max_client_connections=1) as served, connected(served), ExitStack() as idle:
        for _ in range(4):
            idle.enter_context(connected(served))
        answer = httpx.post(served.url + "/v1/stop", json={"deadline_s": 0.0})
        assert (answer.status_code, answer.json()["stopped"]) == (200, True)
        assert answer.headers["connection"] == "close"
        assert httpx.get(served.url + "/healthz").status_code == 200
        assert httpx.get(served.url + "/v1/status").status_code == 503


def test_a_connection_over_the_limit_answers_stops_only_however_it_begins() -> None:
    with fleet(max_client_connections=1) as served, connected(served), connected(served) as connection:
        connection.sendall((HEAD + b"\r\n") + b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while chunk := connection.recv(10_000):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"discipline" not in answer


def test_a_refused_connection_delays_no_accepted_one() -> None:
    with fleet(max_connections=2) as served, connected(served):
        assert served.http.get("/healthz").status_code == 200
        with connected(served), connected(served), connected(served):
            assert served.http.get("/healthz").status_code == 200


def test_a_place_is_free_again_after_a_connection_ends() -> None:
    with fleet(max_connections=1) as served:
        with connected(served) as connection:
            connection.sendall(HEAD + b"Connection: close\r\n\r\n")
            while connection.recv(10_000):
                pass
        assert httpx.get(served.url + "/v1/skill_sets").status_code == 200


def test_an_idle_connection_is_closed() -> None:
    with fleet(idle_timeout_s=0.1) as served, connected(served) as connection:
        connection.sendall(HEAD + b"\r\n")
        answer = b""
        while chunk := connection.recv(10_000):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200")


def test_a_tokenizer_that_hangs_is_a_typed_error() -> None:
    class Slow(ScriptedEngine):
        max_prompt_tokens = 100

        async def tokenize(self, text: str) -> list[int]:
            await asyncio.Event().wait()
            return []

    with fleet(engine_timeout_s=0.1) as served:
        served.service.engine.engine = Slow(PLANS, clock=served.clock)
        answer = served.http.post("/v1/tasks", json=body("x" * 2_000))
        assert (answer.status_code, answer.json()["code"]) == (502, "engine_failed")


def test_health_asks_the_engine_once_for_many_readers() -> None:
    with fleet() as served:
        calls: list[float] = []
        stats = served.engine.stats

        async def counted() -> Any:
            calls.append(served.clock.now())
            return await stats()

        served.engine.stats = counted  # type: ignore[method-assign]
        served.run_for(1.0)
        for _ in range(20):
            assert served.http.get("/healthz").status_code == 200
        assert len(calls) == 1


def test_readers_do_not_queue_for_an_engine_that_hangs() -> None:
    """Each would wait for the deadlines of all before it."""
    with fleet(engine_timeout_s=0.2) as served:
        assert served.http.get("/v1/status").json()["engine"]["problem"] == ""
        questions: list[float] = []

        async def unanswered() -> Any:
            questions.append(served.clock.now())
            await asyncio.Event().wait()

        served.engine.stats = unanswered  # type: ignore[method-assign]
        served.run_for(1.0)

        async def ask() -> list[str]:
            client = served.service.engine
            return [problem for _, problem in await asyncio.gather(*(client.last_stats() for _ in range(8)))]

        assert served.call(ask) == ["no answer within 0.2 s"] * 8
        assert len(questions) == 1


def test_health_and_status_wait_for_no_engine_that_hangs() -> None:
    """A probe with a limit of 1 s would see a dead server."""
    with fleet(engine_timeout_s=2 * WAIT_S, engine_hang_s=1000.0) as served:
        assert served.http.get("/healthz").json()["engine_silent_s"] == 0.0
        served.call(served.engine.hang)
        served.run_for(1.0)

        async def ask() -> EngineStats:
            question = asyncio.create_task(served.service.engine.stats())
            await served.clock.run_for(ANSWER_S)
            return await question

        assert served.call(ask).engine == "scripted"
        health, engine = served.http.get("/healthz"), served.http.get("/v1/status").json()["engine"]
        assert (health.status_code, health.json()["engine_silent_s"]) == (200, 1.0 + ANSWER_S)
        assert (engine["problem"], engine["silent_s"]) == ("", 1.0 + ANSWER_S)
        served.run_for(PERIOD_S + 2 * WAIT_S)
        health, engine = served.http.get("/healthz"), served.http.get("/v1/status").json()["engine"]
        words = f"no answer for {1.0 + ANSWER_S + PERIOD_S + 2 * WAIT_S:.1f} s"
        assert (health.status_code, health.json()["detail"], engine["problem"]) == (503, words, words)
        for path in ("/livez", "/readyz", "/metrics"):
            assert served.http.get(path).status_code == 200


def test_a_task_has_so_many_readers() -> None:
    with fleet(max_readers=2) as served, served.http.stream("POST", "/v1/tasks", json=body("long")) as first:
        # A reader that is garbage closes its stream.
        readers = [Reader(first)]
        url = f"/v1/tasks/{readers[0].next()[2]['task_id']}/events"
        with served.http.stream("GET", url) as second:
            readers.append(Reader(second))
            readers[1].next()
            answer = served.http.get(url)
            assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")


def test_strangers_do_not_keep_the_holder_of_the_token_from_reading() -> None:
    with (
        fleet(max_readers=1) as served,
        TimelyClient(served.url, agent="drone-1") as owner,
        httpx.Client(base_url=served.url, timeout=WAIT_S) as stranger,
    ):
        plan = owner.submit("long", skill_set="tiny-drone")
        url = f"/v1/tasks/{plan.task_id}/events"
        plan.close()
        served.until(lambda: not served.service.tasks.get(plan.task_id).readers)
        with stranger.stream("GET", url) as reading:
            reader = Reader(reading)
            reader.next()
            assert stranger.get(url).status_code == 503
            again = owner.resume(plan.task_id)
            served.run_for(1.5)
            assert next(again).index == 0
            again.close()


def test_bodies_share_a_limit() -> None:
    with fleet(max_buffered_bytes=1_000, max_body_bytes=5_000) as served:
        answer = served.http.post("/v1/tasks", json=body("x" * 2_000))
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        assert served.http.post("/v1/tasks", json=body(skill_set="nope")).status_code == 422


def test_bodies_of_chats_leave_room_for_those_of_robots() -> None:
    """A few slow bodies of megabytes, sent again and again, kept every robot without a plan."""
    with (
        fleet(max_buffered_bytes=8_000, body_timeout_s=WAIT_S) as served,
        ExitStack() as slow,
    ):
        for _ in range(8):
            connection = slow.enter_context(connected(served))
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
            connection.sendall(head + b"x" * 1_000)
        while served.http.post("/v1/chat/completions", content=b"x" * 1_000).status_code != 503:
            pass  # the server has not read all of them yet
        assert served.http.post("/v1/tasks", json=body(skill_set="nope")).status_code == 422


async def test_a_body_counts_until_its_response_begins() -> None:
    """The application may need seconds for it, and several copies."""
    begins, goes_on = asyncio.Event(), asyncio.Event()

    async def works(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        begins.set()
        await goes_on.wait()
        await Response()(scope, receive, send)

    limit = HttpBodyLimit(works, ServerSettings(max_buffered_bytes=10))
    async with (
        asyncio.timeout(WAIT_S),
        httpx.AsyncClient(transport=httpx.ASGITransport(limit), base_url="http://x") as http,
    ):
        first = asyncio.create_task(http.post("/", content=b"x" * 8))
        await begins.wait()
        assert (await http.post("/", content=b"x" * 8)).status_code == 503
        goes_on.set()
        assert (await first).status_code == 200
        assert (await http.post("/", content=b"x" * 8)).status_code == 200


def test_a_stop_and_reports_pass_the_limit_of_bodies() -> None:
    with fleet(max_buffered_bytes=1) as served:
        assert served.http.post("/v1/tasks", json=body()).status_code == 503
        assert served.http.post("/v1/stop", json={"deadline_s": 0.0}).status_code == 200
        report = {"segment": 0, "kind": "done"}
        assert served.http.post("/v1/tasks/x/reports", json=report).status_code == 404
        large = [report | {"reason": "x" * SMALL_BODY_BYTES}]
        assert served.http.post("/v1/tasks/x/reports", json=large).status_code == 413


def test_a_body_over_its_limit_is_too_large_also_where_its_end_does_not_arrive() -> None:
    with fleet(body_timeout_s=0.5) as served, connected(served) as connection:
        chunk = b"x" * (SMALL_BODY_BYTES + 1)
        connection.sendall(
            b"POST /v1/stop/reset HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(chunk), chunk)
        )
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 413")


def test_robots_stop_whatever_the_size_of_the_body() -> None:
    with fleet() as served:
        answer = served.http.post(
            "/v1/stop", json={"reason": "x" * SMALL_BODY_BYTES, "deadline_s": 0.0}
        ).json()
        assert answer["stopped"]
        assert "the limit is 65536" in answer["ignored"]


@pytest.mark.parametrize("closes", [False, True])
def test_robots_stop_although_the_body_does_not_arrive(closes: bool) -> None:
    """The network of a robot may fail in the middle of the request."""
    with fleet(body_timeout_s=0.05) as served:
        with connected(served) as connection:
            connection.sendall(
                b"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )
            if closes:
                connection.shutdown(socket.SHUT_WR)
            else:
                answer = connection.makefile("rb").read()
                assert answer.startswith(b"HTTP/1.1 200")
                assert b"the body did not arrive" in answer
                assert b"connection: close" in answer.lower()
        served.until(lambda: served.service.fleet_stop.latch.is_latched, "stopped")


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def certificate(folder: Path, name: str = "cert", host: str = "localhost") -> ServerTlsFiles:
    """A certificate signed by itself, and its key."""
    files = ServerTlsFiles(folder / f"{name}.pem", folder / f"{name}.key")
    openssl(
        "req", "-x509", *NEW_KEY, "-days", "2", "-subj", f"/CN={host}",
        "-addext", f"subjectAltName=DNS:{host},IP:127.0.0.1",
        "-addext", "keyUsage=critical,digitalSignature,keyCertSign",
        "-keyout", files.key, "-out", files.certificate,
    )  # fmt: skip
    return files


def signed(folder: Path, name: str, authority: ServerTlsFiles) -> ServerTlsFiles:
    """A client's certificate, signed by an authority."""
    files, request = ServerTlsFiles(folder / f"{name}.pem", folder / f"{name}.key"), folder / f"{name}.csr"
    openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", files.key, "-out", request)
    openssl(
        "x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial",
        "-days", "2", "-out", files.certificate,
    )  # fmt: skip
    return files


@asynccontextmanager
async def serving_tls(files: ServerTlsFiles, **limits: Any) -> AsyncIterator[str]:
    """The URL of a server with these files and settings."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        run_server(
            ScriptedEngine(PLANS),
            ServerSettings(**limits),
            None,
            catalogue(),
            port=0,
            on_ready=ready.set_result,
            tls=RenewedServerTls(files),
        )
    )
    try:
        async with asyncio.timeout(WAIT_S):
            yield await ready
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.process
async def test_the_server_speaks_tls_and_the_client_checks_its_certificate(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    async with serving_tls(files) as url:
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=files.certificate)

        def health() -> str:
            with TimelyClient(url, verify=trusting) as timely:
                return str(timely.health()["status"])

        assert await asyncio.to_thread(health) == "ok"
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient() as stranger:
                await stranger.get(url)


@pytest.mark.process
async def test_a_renewed_certificate_needs_no_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = certificate(tmp_path)
    old = ssl.create_default_context(cafile=files.certificate)
    async with serving_tls(files) as url:

        async def is_trusted(context: ssl.SSLContext) -> bool:
            try:
                async with httpx.AsyncClient(verify=context) as http:
                    return (await http.get(url + "/livez")).is_success
            except httpx.ConnectError:
                return False

        renewed = certificate(tmp_path, "renewed")
        new = ssl.create_default_context(cafile=renewed.certificate)
        # A program that renews it replaces one file after the other, so for a moment they do not fit.
        renewed.key.replace(files.key)
        async with asyncio.timeout(WAIT_S):
            while "the certificate stays as it was" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await is_trusted(old)
            renewed.certificate.replace(files.certificate)
            while not await is_trusted(new):
                pass
        assert not await is_trusted(old)


@pytest.mark.process
async def test_a_connection_has_its_place_before_its_tls_handshake(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=files.certificate)
    async with serving_tls(files, max_client_connections=2, header_timeout_s=WAIT_S) as url:
        parts = urlsplit(url)
        async with AsyncExitStack() as silent, httpx.AsyncClient(base_url=url, verify=trusting) as http:
            writers = [(await asyncio.open_connection(parts.hostname, parts.port))[1] for _ in range(2)]
            for writer in writers:
                silent.callback(writer.close)
            assert (await http.get("/v1/skill_sets")).status_code == 503
            assert (await http.get("/healthz")).status_code == 200
            answer = await http.post("/v1/stop", json={"deadline_s": 0.0})
            assert answer.json()["stopped"]
        async with httpx.AsyncClient(base_url=url, verify=trusting) as http:
            while (await http.get("/v1/skill_sets")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0)  # the server has not seen yet that the others left


@pytest.mark.process
@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_tls_handshake_that_does_not_end_is_ended(tmp_path: Path, start: bytes) -> None:
    async with serving_tls(certificate(tmp_path), header_timeout_s=0.1) as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(start)
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()


LARGE = 32 * 1024 * 1024
"""Bytes of a response that the buffers of no socket hold."""


@asynccontextmanager
async def serving_large_responses(
    files: ServerTlsFiles | None, **limits: Any
) -> AsyncIterator[tuple[int, set[Any]]]:
    """Port and open connections of a server that answers with ``LARGE`` bytes, over TLS if it has files."""
    settings = ServerSettings(**limits)
    config = uvicorn.Config(
        Response(bytes(LARGE)),
        http=partial(BoundedHttpProtocol, HttpConnectionPlaces(settings)),  # type: ignore[arg-type]
        timeout_keep_alive=2 * round(WAIT_S),
    )
    config.load()
    state, protocol = ServerState(), config.http_protocol_class
    if files is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files.certificate, files.key)
        protocol = partial(connections.HttpTlsProtocol, protocol, context)  # type: ignore[assignment]
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
        "127.0.0.1",
    )
    async with server, asyncio.timeout(WAIT_S):
        yield server.sockets[0].getsockname()[1], state.connections


@pytest.mark.process
@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_client_that_does_not_read_one_large_response_loses_its_connection(
    tmp_path: Path, over_tls: bool
) -> None:
    """TLS gives all of it to the transport at once, and its own buffer stays empty."""
    files = certificate(tmp_path) if over_tls else None
    context = ssl.create_default_context(cafile=files.certificate) if files else None
    async with serving_large_responses(files, send_timeout_s=0.1) as (port, open_connections):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        writer.write(HEAD + b"\r\n")
        await reader.readexactly(1)
        while open_connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
        writer.transport.abort()


@pytest.mark.process
async def test_a_large_response_over_tls_is_not_cut_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time for the end of TLS begins when its client has read the response."""
    monkeypatch.setattr(connections, "TLS_SHUTDOWN_S", 0.005)
    files = certificate(tmp_path)
    context = ssl.create_default_context(cafile=files.certificate)
    async with serving_large_responses(files) as (port, _):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        writer.write(HEAD + b"Connection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert len(await reader.read()) == LARGE
        writer.close()


@pytest.mark.process
async def test_with_an_authority_of_the_clients_each_must_show_its_certificate(tmp_path: Path) -> None:
    authority, other = certificate(tmp_path, "authority", "ca"), certificate(tmp_path, "other", "other-ca")
    own = certificate(tmp_path)
    files = ServerTlsFiles(own.certificate, own.key, authority.certificate)

    def health(client: ServerTlsFiles | None) -> str:
        trusting = ssl.create_default_context(cafile=own.certificate)
        if client is not None:
            trusting.load_cert_chain(client.certificate, client.key)
        with TimelyClient(url, verify=trusting, reconnect_s=0.0) as timely:
            return str(timely.health()["status"])

    async with serving_tls(files) as url:
        assert await asyncio.to_thread(health, signed(tmp_path, "robot-1", authority)) == "ok"
        for stranger in (
            None,
            signed(tmp_path, "stranger", other),
            certificate(tmp_path, "forged", "robot-1"),
        ):
            with pytest.raises(NotAllowed, match="refuses this program's certificate"):
                await asyncio.to_thread(health, stranger)


@pytest.mark.process
async def test_a_client_learns_what_is_wrong_with_its_certificate(tmp_path: Path) -> None:
    own = certificate(tmp_path)
    files = ServerTlsFiles(own.certificate, own.key, own.certificate)
    async with serving_tls(files) as url:
        trusting = ssl.create_default_context(cafile=own.certificate)
        port = urlsplit(url).port
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting, family=socket.AF_INET)
        with pytest.raises(ssl.SSLError, match="certificate required"):
            await reader.read()
        writer.close()


@pytest.mark.process
async def test_a_renewed_authority_of_the_clients_needs_no_restart(tmp_path: Path) -> None:
    before, after = certificate(tmp_path, "before", "ca"), certificate(tmp_path, "after", "other-ca")
    own = certificate(tmp_path)
    authorities = tmp_path / "clients.pem"
    shutil.copy(before.certificate, authorities)
    files = ServerTlsFiles(own.certificate, own.key, authorities)
    clients = [signed(tmp_path, name, authority) for name, authority in (("old", before), ("new", after))]

    async def accepted() -> list[bool]:
        return [await is_accepted(client) for client in clients]

    async def is_accepted(client: ServerTlsFiles) -> bool:
        context = ssl.create_default_context(cafile=own.certificate)
        context.load_cert_chain(client.certificate, client.key)
        try:
            async with httpx.AsyncClient(verify=context) as http:
                return (await http.get(url + "/livez")).is_success
        except (httpx.TransportError, ssl.SSLError):
            return False

    async with serving_tls(files) as url:
        assert await accepted() == [True, False]
        shutil.copy(after.certificate, authorities)
        async with asyncio.timeout(WAIT_S):
            while await accepted() != [False, True]:
                pass


def test_the_documented_certificates_satisfy_strict_clients(tmp_path: Path) -> None:
    """Clients in Python 3.13 and later check them as RFC 5280 has it."""
    text = (ROOT / "docs" / "operations.md").read_text()
    commands = re.findall(r"^openssl .*$", text, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True, timeout=60)
    openssl("verify", "-x509_strict", "-CAfile", tmp_path / "ca.pem", tmp_path / "server.pem")


async def test_clients_show_the_certificate_of_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, own = certificate(tmp_path, "authority", "ca"), certificate(tmp_path)
    files = ServerTlsFiles(own.certificate, own.key, authority.certificate)
    client = signed(tmp_path, "robot-1", authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(own.certificate))
    async with serving_tls(files) as url:
        for certfile, keyfile, accepted in (
            (str(client.certificate), str(client.key), True),
            ("", "", False),
        ):
            monkeypatch.setenv("TIMELY_CLIENT_CERTFILE", certfile)
            monkeypatch.setenv("TIMELY_CLIENT_KEYFILE", keyfile)
            async with AsyncTimelyClient(url, reconnect_s=1.0) as timely:
                if accepted:
                    assert (await timely.health())["status"] == "ok"
                else:
                    with pytest.raises(
                        NotAllowed, match=r"^\$TIMELY_CLIENT_CERTFILE: .*certificate required"
                    ):
                        await timely.health()
                    # It repeats a request whose answer was lost, and this one has been answered.
                    with pytest.raises(NotAllowed):
                        await timely.submit("short", skill_set="tiny-drone")
                    with pytest.raises(NotAllowed):
                        await timely.cancel("one")
    for name in ("TIMELY_CLIENT_CERTFILE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent.pem"))
        with pytest.raises(InvalidInput, match=rf"\${name} .*absent\.pem: unusable"):
            AsyncTimelyClient("https://127.0.0.1")


def test_unusable_files_for_tls_are_named(tmp_path: Path) -> None:
    assert server_tls(None, None, None) is None
    with pytest.raises(InvalidInput, match="needs a certificate and a key"):
        server_tls(tmp_path / "cert.pem", None, None)
    with pytest.raises(InvalidInput, match="unusable"):
        server_tls(tmp_path / "cert.pem", tmp_path / "key.pem", None)


def test_the_limits_hold_with_one_parser_whatever_else_is_installed() -> None:
    """Uvicorn's own choice depends on other packages, and its parser in Python refuses long headers otherwise."""
    assert issubclass(BoundedHttpProtocol, HttpToolsProtocol)
