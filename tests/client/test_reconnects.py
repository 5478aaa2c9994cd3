"""How often clients of a lost server try to reach it, and how late they find one that is back."""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import ssl
from collections.abc import AsyncIterator
from weakref import WeakSet

import httpx
import pytest
from manual_clock import LeapingClock

from timely.client import AsyncTimelyClient
from timely.client.protocol import LONGEST_RECONNECT_S, ClientBackoff, ClientTaskTokens
from timely.core.errors import EngineFailed

FLEET = 400


def attempts_s(backoffs: list[ClientBackoff], until_s: float) -> list[float]:
    """When streams that lose the server together at 0 s try to reach it, in order."""
    agenda = [(backoff.delay_s(0.0, "lost", "server"), place) for place, backoff in enumerate(backoffs)]
    heapq.heapify(agenda)
    times: list[float] = []
    while agenda[0][0] < until_s:
        now, place = heapq.heappop(agenda)
        times.append(now)
        heapq.heappush(agenda, (now + backoffs[place].delay_s(now, "lost", "server"), place))
    return times


@pytest.mark.parametrize("away_s", [0.3, 1.0, 2.0, 4.0])
def test_a_server_that_is_back_is_found_within_a_tenth_of_its_absence(away_s: float) -> None:
    for number in range(20):
        times = attempts_s([ClientBackoff(math.inf, f"task-{number}", WeakSet())], away_s + 1.0)
        late_s = next(time_s for time_s in times if time_s >= away_s) - away_s
        assert late_s <= max(0.05, 0.1 * away_s)


def test_one_robot_tries_seldom_when_the_server_is_away_for_long() -> None:
    times = attempts_s([ClientBackoff(math.inf, "task", WeakSet())], 60.0)
    assert len([time_s for time_s in times if time_s > 10.0]) <= 50.0 / (0.5 * LONGEST_RECONNECT_S)


def test_the_robots_of_a_bridge_do_not_storm_a_server() -> None:
    lost: WeakSet[ClientBackoff] = WeakSet()
    fleet = [ClientBackoff(math.inf, f"task-{number}", lost) for number in range(FLEET)]
    times = attempts_s(fleet, 10.0)
    for second in range(1, 10):
        assert len([time_s for time_s in times if second <= time_s < second + 1]) <= FLEET * 1.2
    late_s = next(time_s for time_s in times if time_s >= 1.0) - 1.0
    assert late_s < 0.02


def test_programs_that_lost_a_server_together_do_not_come_back_together() -> None:
    fleet = [ClientBackoff(math.inf, f"task-{number}", WeakSet()) for number in range(FLEET)]
    times = attempts_s(fleet, 1.2)
    for moment in range(100, 120):
        some = [time_s for time_s in times if 0.01 * moment <= time_s < 0.01 * (moment + 1)]
        assert len(some) < 0.2 * FLEET


def test_streams_that_ended_are_not_counted() -> None:
    lost: WeakSet[ClientBackoff] = WeakSet()
    fleet = [ClientBackoff(1.0, f"task-{number}", lost) for number in range(FLEET)]
    attempts_s(fleet, 0.5)
    assert len(lost) == FLEET
    fleet[0].reset()
    with pytest.raises(EngineFailed, match="connection lost for 1 s"):
        fleet[1].delay_s(2.0, "lost", "server")
    assert len(lost) == FLEET - 2
    del fleet
    assert not lost


SEGMENT = b"id: 2\nevent: segment\ndata: %s\n\n" % json.dumps({
    "task_id": "t", "index": 0, "text": "mu(50);", "calls": [], "tokens": 5, "ready_s": 0.1, "execution_s": 1.0,
    "due_s": 1.1, "blocking": False,
}).encode()  # fmt: skip


async def stream(content: bytes = b": hello\n\n") -> AsyncIterator[bytes]:
    """A response that ends; by default without an event."""
    yield content


async def test_a_wait_that_is_cancelled_while_the_connection_is_opened_again_ends_no_stream() -> None:
    waits, cancelled = asyncio.Event(), asyncio.Event()
    answers = iter([b": hello\n\n", b"", SEGMENT])

    async def answer(request: httpx.Request) -> httpx.Response:
        content = next(answers)
        if not content and not cancelled.is_set():
            waits.set()
            await asyncio.Event().wait()
        return httpx.Response(200, content=stream(content))

    clock = LeapingClock()
    async with AsyncTimelyClient(
        transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        waiting = asyncio.ensure_future(anext(plan))
        await waits.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        cancelled.set()
        assert (await anext(plan)).text == "mu(50);"


class DamagedStream(httpx.AsyncByteStream):
    """A response that a fault of the network ends: TLS notices, and httpx maps such errors of its own calls only."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        raise ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed")


async def test_a_stream_that_the_network_damages_is_opened_again() -> None:
    answers = iter([DamagedStream(), httpx.ByteStream(SEGMENT)])
    clock = LeapingClock()
    async with AsyncTimelyClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=next(answers))),
        clock=clock,
        sleep=clock.sleep,
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        assert (await anext(plan)).text == "mu(50);"


async def reports_of(back_s: float, report: str, **fields: object) -> tuple[list[dict[str, object]], float]:
    """What a server that is back at ``back_s`` gets of one report, and when it has it."""
    clock, bodies = LeapingClock(), list[dict[str, object]]()

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/reports"):
            return httpx.Response(200, content=stream())
        if clock.now() < back_s:
            raise httpx.ConnectError("refused")
        bodies.extend(json.loads(request.content))
        return httpx.Response(200, json={"news": 1})

    async with AsyncTimelyClient(
        reconnect_s=20.0, transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        await getattr(plan, report)(0, **fields)
    return bodies, clock.now()


@pytest.mark.parametrize(
    ("report", "fields"),
    [
        ("report_started", {}),
        ("report_done", {"elapsed_s": 1.5}),
        ("report_failed", {"reason": "a wall"}),
        ("report_value", {"value": "True"}),
    ],
)
async def test_a_report_is_repeated_until_a_lost_server_is_back(
    report: str, fields: dict[str, object]
) -> None:
    (body,), taken_s = await reports_of(15.0, report, age_s=2.0, **fields)
    assert 15.0 <= taken_s < 16.0
    assert body["age_s"] == pytest.approx(2.0 + taken_s)
    (body,), taken_s = await reports_of(0.0, report, **fields)
    assert "age_s" not in body


async def test_reports_give_up_after_the_time_for_reconnecting_and_progress_at_once() -> None:
    with pytest.raises(EngineFailed, match="connection lost for 20 s"):
        await reports_of(math.inf, "report_done")
    with pytest.raises(EngineFailed, match="refused"):
        await reports_of(0.1, "report_progress", remaining_s=1.0)


@pytest.mark.parametrize(
    "busy",
    [
        httpx.Response(503, json={"code": "draining", "detail": "the engine is started again"}),
        httpx.Response(500),
        httpx.Response(502, text="<h1>Bad Gateway</h1>"),
        httpx.Response(200, text="<h1>Soon back</h1>"),
        httpx.Response(401, json={"code": "not_authenticated", "detail": "no principal has the token"}),
    ],
    ids=["503", "500", "proxy", "page", "withdrawn token"],
)
@pytest.mark.parametrize("request_kind", ["report", "stream"])
async def test_a_busy_server_is_asked_no_more_than_twice_a_second(
    busy: httpx.Response, request_kind: str
) -> None:
    if request_kind == "stream" and busy.is_success:
        pytest.skip("a stream reads no JSON")
    clock, requests = LeapingClock(), [0]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/tasks":
            return httpx.Response(200, content=stream())
        requests[0] += 1
        return busy

    async with AsyncTimelyClient(
        reconnect_s=20.0, transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        with pytest.raises(EngineFailed, match="connection lost for 20 s"):
            await (plan.report_done(0) if request_kind == "report" else anext(plan))
    assert 20 <= requests[0] <= 2.0 * clock.now() + 2


async def test_a_stream_that_is_lost_while_its_token_is_withdrawn_goes_on_once_the_token_is_back() -> None:
    clock, outages = LeapingClock(), set[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/tasks":
            return httpx.Response(200, content=stream())
        outages.add(plan.outage)
        if clock.now() < 15.0:
            return httpx.Response(401, json={"code": "not_authenticated", "detail": "no such token"})
        return httpx.Response(200, content=stream(SEGMENT))

    async with AsyncTimelyClient(
        reconnect_s=20.0, transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        assert (await anext(plan)).text == "mu(50);"
        assert 15.0 <= clock.now() < 16.0
        assert plan.outage == ""
    nothing, reason = sorted(outages)
    assert (nothing, reason.startswith("no principal has this program's token")) == ("", True)


async def test_a_stream_of_the_stop_says_why_it_is_not_open() -> None:
    """A proxy may pass all else, and no stop of the server would reach a robot."""
    clock, outages = LeapingClock(), list[str]()
    clear = httpx.Response(200, content=stream(b"event: clear\ndata: {}\n\n"))
    bad = httpx.Response(502, text="bad gateway")
    answers: list[httpx.Response | httpx.ConnectError] = [bad, httpx.ConnectError("refused"), clear]

    def answer(request: httpx.Request) -> httpx.Response:
        outages.append(orders.outage)
        response = answers.pop(0)
        if isinstance(response, httpx.ConnectError):
            raise response
        return response

    async with AsyncTimelyClient(
        transport=httpx.MockTransport(answer), clock=clock, sleep=clock.sleep
    ) as timely:
        orders = timely.stop_orders(["drone-1"])
        assert (await anext(orders)).kind == "clear"
    assert outages == ["", "HTTP 502: bad gateway", "ConnectError: refused"]
    assert orders.outage == ""


@pytest.mark.parametrize(("timeout_s", "longest_s"), [(10.0, 21.0), (3.0, 24.0)])
async def test_a_hanging_server_costs_a_report_the_time_for_reconnecting(
    timeout_s: float, longest_s: float
) -> None:
    clock = LeapingClock()

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/tasks":
            return httpx.Response(200, content=stream())
        await clock.sleep(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("no answer")

    async with AsyncTimelyClient(
        timeout_s=timeout_s,
        reconnect_s=20.0,
        transport=httpx.MockTransport(answer),
        clock=clock,
        sleep=clock.sleep,
    ) as timely:
        plan = await timely.submit("short", skill_set="tiny-drone")
        with pytest.raises(EngineFailed, match="connection lost for 20 s: ReadTimeout"):
            await plan.report_done(0)
    assert clock.now() <= longest_s


def test_tokens_are_kept_up_to_the_limit_and_the_oldest_goes() -> None:
    tokens = ClientTaskTokens()
    names = [str(number) for number in range(ClientTaskTokens.LIMIT)]
    for name in names:
        tokens.add(name, name)
    tokens.add(names[1], "again")
    assert tokens.header(names[0]) == {"Timely-Task-Token": names[0]}
    tokens.add("new", "new")
    assert tokens.header(names[0]) == {}
    assert [tokens.header(name)["Timely-Task-Token"] for name in (names[1], names[2], "new")] == [
        "again",
        names[2],
        "new",
    ]
    tokens.add("newer", "newer")
    assert tokens.header(names[2]) == {}
    assert tokens.header(names[1], "given") == {"Timely-Task-Token": "given"}
