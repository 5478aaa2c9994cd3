"""The client against a real server: plans, reports, errors, and connections that break anywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import httpx
import pytest
from cutting_proxy import CuttingProxy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from timely.client import URGENT, AsyncTimelyClient, Call, ExecutionReport, TimelyClient, TimeUtility
from timely.core.errors import (
    Conflict,
    EngineFailed,
    InvalidInput,
    NotAllowed,
    Overloaded,
    TimelyError,
    TooLarge,
    UnknownName,
    UnsafeSegment,
    Unsupported,
)
from timely.server.server_thread import ServerThread

WAIT_S = 10.0
SKILLS = "tiny-drone"


def client_of(server: ServerThread, **options: object) -> TimelyClient:
    return TimelyClient(server.url, agent="drone-1", **options)  # type: ignore[arg-type]


def test_a_robot_in_a_few_lines(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("ask", skill_set=SKILLS, utility=URGENT)
        texts = []
        for segment in plan:
            texts.append(segment.text)
            plan.report_started(segment)
            if segment.blocking:
                plan.report_value(segment, True)
            else:
                plan.report_done(segment, elapsed_s=0.001)
        assert texts == ["lk('cat');", "mu(50);"]
        assert (plan.result.outcome, plan.result.plan) == ("complete", "lk('cat');mu(50);")
        assert plan.result.measured
        assert plan.result.response_time_s is not None
        assert plan.result.utility == pytest.approx(URGENT.value(plan.result.response_time_s), abs=1e-3)
        view = timely.task(plan.task_id)
        assert [part["value"] for part in view["segments"]] == ["True", None]
        assert list(plan) == []


def test_a_failed_segment_and_the_plan_after_it(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        first = timely.submit("ask", skill_set=SKILLS)
        first.report_failed(next(first), "the lamp is out")
        second = first.replan(scene="a dark room", task="short")
        assert [segment.text for segment in second] == ["mu(50);", "tc(90);"]
        view = timely.task(second.task_id)
        assert view["history"] == "plan lk('cat'); failed because the lamp is out; executed so far: nothing"
        assert (view["scene"], view["replans"], view["tuf"]["beta"]) == ("a dark room", first.task_id, 2.0)
        with pytest.raises(Conflict, match="re-planned as"):
            first.replan()


async def test_another_plan_with_asyncio(quick: ServerThread) -> None:
    async with AsyncTimelyClient(quick.url, agent="drone-1") as timely, asyncio.timeout(WAIT_S):
        first = await timely.submit("endless", skill_set=SKILLS)
        await anext(first)
        second = await first.replan("a dog came", task="short", utility="normal")
        assert [segment.text async for segment in second] == ["mu(50);", "tc(90);"]
        assert (await timely.task(first.task_id))["outcome"] == "cancelled"


async def test_the_same_with_asyncio(quick: ServerThread) -> None:
    async with AsyncTimelyClient(quick.url, agent="drone-1") as timely, asyncio.timeout(WAIT_S):
        plan = await timely.submit("ask", skill_set=SKILLS, utility=URGENT)
        texts = []
        async for segment in plan:
            texts.append(segment.text)
            await plan.report_started(segment)
            if segment.blocking:
                answer = await timely.set_urgency(plan.task_id, 0, operator="jane", reason="a drill")
                assert (answer["urgency"], answer["operator"], answer["before"]) == (0, "jane", None)
                await plan.report_value(segment, "True")
            else:
                await plan.report_progress(segment, 0.001, elapsed_s=0.0)
                await plan.report_done(segment)
        assert texts == ["lk('cat');", "mu(50);"]
        assert plan.result.outcome == "complete"
        assert (await timely.task(plan.task_id))["task"] == "ask"
        assert (await timely.disciplines())["current"] == "timely"
        assert (await timely.set_discipline("edf"))["current"] == "edf"
        assert (await timely.stats())["engine"]["discipline"] == "edf"
        assert await timely.skill_sets() == ["tiny-chat", SKILLS]
        assert (await timely.skill_set(SKILLS))["name"] == SKILLS
        assert await timely.robot_profiles() == ["one-arm", "tiny"]
        assert (await timely.robot_profile("tiny"))["deny"] == ["dive"]
        assert (await timely.health())["status"] == "ok"
        assert (await timely.live())["engine_deaths"] == 0


@pytest.mark.process
async def test_as_many_plans_as_there_are_robots_and_reports_share_a_connection(quick: ServerThread) -> None:
    robots = 101  # httpx would wait for a connection after 100, and after 20 open one for each report
    async with AsyncTimelyClient(quick.url, agent="drone-1") as timely, asyncio.timeout(6 * WAIT_S):
        plans = [await timely.submit("endless", skill_set=SKILLS) for _ in range(robots)]
        for plan in plans[:5]:
            segment = await anext(plan)
            await plan.report_started(segment)
        pool = timely._connection.http._transport._pool  # type: ignore[attr-defined]
        assert len(pool.connections) == robots + 1
        for plan in plans:
            await plan.close()


def test_what_the_server_knows(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        assert timely.disciplines()["current"] == "timely"
        assert timely.set_discipline("fcfs")["current"] == "fcfs"
        with pytest.raises(UnknownName, match=r"known: .*fcfs"):
            timely.set_discipline("nope")
        with pytest.raises(UnknownName, match="nothing of the name 'nobody'"):
            timely.set_urgency("nobody", 0, operator="jane")
        with pytest.raises(InvalidInput):
            timely.set_urgency("nobody", 9, operator="jane")
        assert timely.stats()["server"]["arrived"] == 0
        assert timely.skill_sets() == ["tiny-chat", SKILLS]
        assert timely.robot_profile("tiny")["network_s"] == 0.01
        assert timely.health()["engine"] == "scripted"
        requests: list[Callable[[], object]] = [
            lambda: timely.skill_set("nope"),
            lambda: timely.robot_profile("../x"),
            lambda: timely.task("x"),
        ]
        for request in requests:
            with pytest.raises((UnknownName, InvalidInput)):
                request()


def test_segments_carry_calls_and_times(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        first, second = timely.submit("short", skill_set=SKILLS, network_s=0.0)
        assert first.calls == (Call("move_up", (50,)),)
        assert (first.index, second.index) == (0, 1)
        assert first.due_s == pytest.approx(first.ready_s + first.execution_s, abs=1e-5)


@pytest.mark.parametrize(
    ("fields", "error", "where"),
    [
        ({"skill_set": "nope"}, UnknownName, "skill_set"),
        ({"skill_set": SKILLS, "robot": "nope"}, UnknownName, "robot"),
        ({"skill_set": SKILLS, "scene": "x" * 40_000}, TooLarge, "scene"),
        ({"skill_set": SKILLS, "urgency": 9}, InvalidInput, "urgency"),
        ({"skill_set": SKILLS, "surprise": 9}, InvalidInput, "surprise"),
        ({"skill_set": SKILLS, "id": ""}, InvalidInput, "id"),
        ({"skill_set": SKILLS, "report_token": ""}, InvalidInput, "report_token"),
    ],
)
def test_refusals_are_raised_by_submit(
    quick: ServerThread, fields: dict[str, object], error: type[TimelyError], where: str
) -> None:
    with client_of(quick) as timely, pytest.raises(error) as caught:
        timely.submit("short", **fields)  # type: ignore[arg-type]
    assert type(caught.value) is error
    assert caught.value.where == where
    with pytest.raises(InvalidInput):
        TimeUtility(1.0, 0.5, 1.0)


def test_how_a_plan_ends_is_raised_where_it_is_read(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("unsafe", skill_set=SKILLS)
        assert next(plan).text == "mu(50);"
        with pytest.raises(UnsafeSegment, match="250"):
            next(plan)
        with pytest.raises(StopIteration):
            next(plan)
        with pytest.raises(Conflict):
            print(plan.result)
        plan = timely.submit("ask", skill_set=SKILLS, deadline_s=0.1)
        with pytest.raises(TimelyError) as expired:
            list(plan)
        assert expired.value.code == "expired"
        plan = timely.submit("endless", skill_set=SKILLS)
        plan.report_failed(next(plan), "a wall")
        with pytest.raises(TimelyError, match="a wall") as failed:
            next(plan)
        assert failed.value.code == "execution_failed"


def test_cancelling_ends_the_iteration(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("endless", skill_set=SKILLS)
        next(plan)
        plan.cancel()
        plan.cancel()
        assert list(plan) == []
        assert plan.result.outcome == "cancelled"
        with timely.submit("endless", skill_set=SKILLS) as left:
            next(left)
        assert timely.task(left.task_id)["outcome"] == "cancelled"


def test_reports_of_others_are_refused_and_late_ones_are_conflicts(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("endless", skill_set=SKILLS)
        first = next(plan)
        done = ExecutionReport(first.index, "done")
        with pytest.raises(NotAllowed):
            timely.report(plan.task_id, done, agent="drone-2")
        with pytest.raises(NotAllowed):
            timely.report(plan.task_id, done, token="x" * 20)
        with pytest.raises(Conflict):
            plan.report_done(5)
        with pytest.raises(UnknownName):
            timely.report("none", done)
        assert timely.report(plan.task_id, [done, done])["news"] == 1
        assert plan.token is not None
        assert timely.report(plan.task_id, done, token=plan.token)["news"] == 0


def test_a_restarted_program_resumes_where_it_was(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("long", skill_set=SKILLS)
        seen = [next(plan).index, next(plan).index]
        plan.close()
        again = timely.resume(plan.task_id, after=plan.last_event_id)
        seen += [segment.index for segment in again]
        assert seen == list(range(12))
        assert [segment.index for segment in timely.resume(plan.task_id)] == list(range(12))
        with pytest.raises(UnknownName):
            timely.resume("none")


@pytest.mark.process
@settings(
    max_examples=examples(25),
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cuts=st.lists(st.integers(1, 4000), max_size=4))
def test_wherever_the_connection_is_cut_segments_come_exactly_once(
    quick: ServerThread, cuts: list[int]
) -> None:
    with (
        CuttingProxy(quick.url, cuts) as proxy,
        TimelyClient(proxy.url, agent="drone-1", sleep=lambda seconds: None) as timely,
    ):
        plan = timely.submit("long", skill_set=SKILLS)
        assert [segment.index for segment in plan] == list(range(12))
        assert plan.result.outcome == "complete"


async def test_the_async_client_resumes_too(quick: ServerThread) -> None:
    async def at_once(seconds: float) -> None:
        await asyncio.sleep(0)

    for cuts in ([1], [300], [700, 900, 400]):
        with CuttingProxy(quick.url, cuts) as proxy:
            async with AsyncTimelyClient(proxy.url, sleep=at_once) as timely, asyncio.timeout(WAIT_S):
                plan = await timely.submit("long", skill_set=SKILLS)
                assert [segment.index async for segment in plan] == list(range(12))
                assert plan.result.outcome == "complete"
                assert proxy.connections > 1


def test_without_a_server_the_error_says_where() -> None:
    with TimelyClient("http://127.0.0.1:9", timeout_s=1.0) as timely:
        for ask in (
            lambda: timely.submit("short", skill_set=SKILLS),
            lambda: timely.resume("t1"),
            timely.health,
        ):
            with pytest.raises(EngineFailed, match=r"127\.0\.0\.1:9"):
                ask()


async def test_without_a_server_nothing_is_resumed() -> None:
    async with AsyncTimelyClient("http://127.0.0.1:9", timeout_s=1.0) as timely:
        with pytest.raises(EngineFailed, match=r"127\.0\.0\.1:9"):
            await timely.resume("t1")


def test_a_connection_that_does_not_come_back_is_given_up_in_time() -> None:
    now = [0.0]

    class Clock:
        def now(self) -> float:
            return now[0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken")

    with TimelyClient(
        reconnect_s=20.0, transport=httpx.MockTransport(answer), clock=Clock(), sleep=sleep
    ) as timely:
        with pytest.raises(EngineFailed, match="connection lost for 20 s"):
            timely.submit("short", skill_set=SKILLS)
        assert 20.0 <= now[0] < 23.0


def test_shutdown_of_the_server_is_overloaded_and_ends_the_plan(quick: ServerThread) -> None:
    with client_of(quick) as timely:
        plan = timely.submit("endless", skill_set=SKILLS)
        next(plan)
        stopping = threading.Thread(target=quick.stop)
        stopping.start()
        with pytest.raises(Overloaded) as caught:
            next(plan)
        assert caught.value.code == "shutting_down"
        stopping.join(WAIT_S)
        assert not stopping.is_alive()


@pytest.mark.parametrize(
    ("status", "data", "kind", "code"),
    [
        (501, {"code": "unsupported", "detail": "d"}, Unsupported, "unsupported"),
        (503, {"code": "overloaded", "detail": "d"}, Overloaded, "overloaded"),
        (502, {"code": "engine_failed", "detail": "d"}, EngineFailed, "engine_failed"),
        (415, {"code": "unsupported_media_type", "detail": "d"}, InvalidInput, "unsupported_media_type"),
        (500, {"code": "internal_error", "detail": "d"}, EngineFailed, "internal_error"),
        (500, None, EngineFailed, "http_500"),
        (404, None, InvalidInput, "http_404"),
        (200, None, EngineFailed, "engine_failed"),
    ],
)
def test_problems_become_the_errors_they_were(
    status: int, data: dict[str, str] | None, kind: type[TimelyError], code: str
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, json=data) if data else httpx.Response(status, text="<html>")

    with TimelyClient(transport=httpx.MockTransport(answer)) as timely, pytest.raises(kind) as caught:
        timely.health()
    assert type(caught.value) is kind
    assert caught.value.code == code


@pytest.mark.parametrize(
    "content",
    [
        b"id: 1\nevent: segment\ndata: {\n\n",
        b"id: 1\nevent: segment\ndata: []\n\n",
        b"id: 1\nevent: segment\ndata: {}\n\n",
        b"id: 1\nevent: result\ndata: {}\n\n",
        b"id: x\nevent: result\ndata: {}\n\n",
    ],
)
def test_a_stream_that_cannot_be_read_is_an_error_of_the_server(content: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=httpx.ByteStream(content)))
    with TimelyClient(transport=transport) as timely, pytest.raises(EngineFailed):
        list(timely.submit("short", skill_set=SKILLS))


def test_an_event_stream_is_not_compressed_on_its_way() -> None:
    """Caddy, for one, compresses every text that a client takes so, and events were waited for in vain."""
    encodings: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        encodings.append(request.headers["accept-encoding"])
        content = b"id: 1\nevent: accepted\ndata: {}\n\n"
        return httpx.Response(200, stream=httpx.ByteStream(content))

    with TimelyClient(transport=httpx.MockTransport(answer)) as timely:
        timely.submit("short", skill_set=SKILLS)
        timely.resume("t").close()
    assert encodings == ["identity"] * 2


def test_a_damaged_answer_is_a_lost_connection() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        """As a proxy that changes a body and keeps its header."""
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    with (
        TimelyClient(transport=httpx.MockTransport(answer)) as timely,
        pytest.raises(EngineFailed, match="DecodingError"),
    ):
        timely.health()


@pytest.mark.parametrize("replans", [False, True])
@pytest.mark.parametrize(("wait_s", "attempts"), [(0.0, 1), (2.0, 1), (8.0, 3)])
def test_a_refused_task_is_submitted_again_at_the_time_that_the_server_names(
    wait_s: float, attempts: int, *, replans: bool
) -> None:
    now, times = [0.0], []

    class Clock:
        def now(self) -> float:
            return now[0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def answer(request: httpx.Request) -> httpx.Response:
        times.append(now[0])
        return httpx.Response(503, json={"code": "overloaded", "detail": "full", "eta_s": 3.0})

    with TimelyClient(transport=httpx.MockTransport(answer), clock=Clock(), sleep=sleep) as timely:
        request = partial(timely.submit, skill_set=SKILLS) if not replans else timely.replan
        with pytest.raises(Overloaded) as caught:
            request("short", wait_s=wait_s)
    assert times == [3.0 * attempt for attempt in range(attempts)]
    assert caught.value.eta_s == 3.0


@pytest.mark.parametrize("between", [0, 2])
def test_a_task_whose_answer_was_lost_is_followed_also_after_a_refusal(between: int) -> None:
    """The server has the task, so its id is in use; in between it refuses all requests, as it does while it starts."""
    result = b'id: 1\nevent: error\ndata: {"code": "expired", "detail": "late"}\n\n'
    methods: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        if request.method == "GET":
            return httpx.Response(200, stream=httpx.ByteStream(result))
        if len(methods) == 1:
            raise httpx.ReadError("broken")
        if len(methods) <= 1 + between:
            return httpx.Response(503, json={"code": "overloaded", "detail": "full", "eta_s": 1.0})
        return httpx.Response(409, json={"code": "conflict", "detail": "in use", "where": "id"})

    with TimelyClient(transport=httpx.MockTransport(answer), sleep=lambda seconds: None) as timely:
        plan = timely.submit("short", skill_set=SKILLS, wait_s=5.0)
        with pytest.raises(TimelyError, match="late"):
            list(plan)
    assert methods == ["POST"] * (2 + between) + ["GET"]


def test_a_stop_of_the_fleet_is_no_sign_that_the_server_has_the_task() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if not methods:
            methods.append(request.method)
            raise httpx.ReadError("broken")
        return httpx.Response(409, json={"code": "conflict", "detail": "stopped", "where": "stop"})

    methods: list[str] = []
    with (
        TimelyClient(transport=httpx.MockTransport(answer), sleep=lambda seconds: None) as timely,
        pytest.raises(Conflict, match="stopped"),
    ):
        timely.submit("short", skill_set=SKILLS)


def test_a_reset_whose_answer_was_lost_is_not_sent_again() -> None:
    """Another stop may have come meanwhile, which a second reset would release."""
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.url.path)
        raise httpx.ReadTimeout("late") if len(requests) < 3 else httpx.ConnectError("refused")

    with TimelyClient(transport=httpx.MockTransport(answer)) as timely:
        with pytest.raises(EngineFailed, match="ReadTimeout"):
            timely.reset_stop()
        assert len(requests) == 1
        with pytest.raises(EngineFailed):
            timely.stop_fleet()
        assert len(requests) == 3
        with pytest.raises(EngineFailed, match="ConnectError"):
            timely.reset_stop()
        assert len(requests) == 5, "the first was not sent"


def test_a_proxy_that_answers_for_a_server_that_is_away_ends_no_plan() -> None:
    result = b'id: 2\nevent: error\ndata: {"code": "expired", "detail": "late"}\n\n'
    answers = [
        httpx.Response(200, stream=httpx.ByteStream(b"id: 1\nevent: accepted\ndata: {}\n\n")),
        httpx.Response(502, text="<html>Bad Gateway"),
        httpx.Response(504, text="<html>Gateway Time-out"),
        httpx.Response(200, stream=httpx.ByteStream(result)),
    ]
    transport = httpx.MockTransport(lambda request: answers.pop(0))
    with TimelyClient(transport=transport, sleep=lambda seconds: None) as timely:
        plan = timely.submit("short", skill_set=SKILLS)
        with pytest.raises(TimelyError, match="late"):
            list(plan)
    assert not answers


def test_a_cancellation_may_say_that_the_robot_drops_the_plan() -> None:
    urls = []

    def answer(request: httpx.Request) -> httpx.Response:
        urls.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"outcome": "cancelled"})

    with TimelyClient(transport=httpx.MockTransport(answer)) as timely:
        timely.cancel("a/b")
        timely.cancel("a/b", dropped=True)
    assert urls == ["/v1/tasks/a%2Fb", "/v1/tasks/a%2Fb?dropped=true"]


@pytest.mark.parametrize("leaves_by", [KeyboardInterrupt, ZeroDivisionError, None])
def test_a_server_that_is_gone_hides_no_error_of_the_program(leaves_by: type[BaseException] | None) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, stream=httpx.ByteStream(b": hello\n\n"))

    with TimelyClient(transport=httpx.MockTransport(answer)) as timely:
        plan = timely.submit("short", skill_set=SKILLS)

        def leave() -> None:
            with plan:
                if leaves_by is not None:
                    raise leaves_by

        with pytest.raises(leaves_by or EngineFailed):
            leave()
        assert plan.ended


@pytest.mark.parametrize("token", ["two words-of-a-file", "schlüssel-der-flotte", "a-token\nHost: elsewhere"])
def test_a_token_that_no_header_carries_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(InvalidInput, match="TIMELY_TOKEN") as caught:
        TimelyClient(token=token)
    assert token not in str(caught.value)


def test_a_token_out_of_a_file_may_end_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"sent": request.headers["Authorization"]})

    monkeypatch.setenv("TIMELY_TOKEN", "the-token\n")
    with TimelyClient(transport=httpx.MockTransport(answer)) as timely:
        assert timely.stats() == {"sent": "Bearer the-token"}


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "http://", "http://[::1", "http://h:99999", "http://h:1\n", "ftp://h"]
)
def test_an_address_without_a_server_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"url: must be like http://127\.0\.0\.1:8000"):
        TimelyClient(url)
