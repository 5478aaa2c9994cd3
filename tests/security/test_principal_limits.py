"""How much of the server one principal may use: requests, generations, KV cache, connections, and for how long."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fleet import OWNER, PLANS, Reader, body, fleet
from guarded import Guarded, write_principals
from manual_clock import ManualClock
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from timely.core.errors import RateLimited, TooLarge
from timely.engines.scripts import Script, ScriptedSegment
from timely.principals import Principal, PrincipalLimits, PrincipalRegistry
from timely.server.access.usage import ACTIVE_S, PrincipalUsage, TokenBucket
from timely.server.tasks import task_table
from timely.server.tasks.task_table import HeldPlace


@contextmanager
def limited(
    folder: Path,
    places: int = 512,
    state: Path | None = None,
    plans: dict[str, Script] | None = None,
    retained: int = 2000,
    **limits: Any,
) -> Iterator[Guarded]:
    """A server with so many places whose principal `drones` has these limits, and `arms` none.

    Args:
        retained: ended tasks that it keeps.
    """
    path = folder / "principals.yaml"
    drones = {"name": "drones", "roles": ["robot"], "agents": ["drone-*"], "limits": limits}
    write_principals(path, [drones, {"name": "arms", "roles": ["robot"], "agents": ["drone-1"]}])
    clock = ManualClock(100.0)
    registry = PrincipalRegistry(path, None, clock)
    settings: dict[str, Any] = {"max_live_tasks": places, "state_dir": state, "max_retained_tasks": retained}
    with fleet(plans, clock=clock, registry=registry, **settings) as running:
        yield Guarded(running, path)


def check_refusal(answer: httpx.Response, where: str) -> dict[str, Any]:
    """The problem of a request over a limit of its principal."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"], problem["where"]) == (429, "rate_limited", where)
    assert int(answer.headers["retry-after"]) >= 1
    return problem


def test_a_bucket_permits_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(2.0, 3, 10.0)
    assert [bucket.take(10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take(10.25) == pytest.approx(0.25)
    assert bucket.take(10.5) == 0.0
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(100.0) == 0.5


def test_a_changed_rate_fills_no_bucket() -> None:
    clock = ManualClock(0.0)
    usage = PrincipalUsage(clock)

    def request(rate_per_s: float, burst: int) -> None:
        limits = PrincipalLimits(requests_per_s=rate_per_s, burst=burst)
        principal = Principal("drones", frozenset(["robot"]), limits=limits)
        usage.count_request(principal, int, 1, lambda ends: None)

    for _ in range(2):
        request(0.1, 2)
    with pytest.raises(RateLimited) as refused:
        request(0.05, 4)
    assert refused.value.eta_s == pytest.approx(20.0)
    clock.advance(20.0)
    request(0.05, 4)


@pytest.mark.parametrize("rate_per_s", [3, 7, 0.3])
def test_a_client_that_waits_as_long_as_it_was_told_is_served(tmp_path: Path, rate_per_s: float) -> None:
    with (
        limited(tmp_path, requests_per_s=rate_per_s, burst=1) as server,
        server.as_("drones") as drones,
    ):
        assert drones.post("/v1/tasks", json=body(skill_set="none")).status_code == 422
        problem = check_refusal(drones.post("/v1/tasks", json=body(skill_set="none")), "requests_per_s")
        server.fleet.run_for(problem["eta_s"])
        assert drones.post("/v1/tasks", json=body(skill_set="none")).status_code == 422


def test_a_request_of_several_generations_waits_for_as_many_ends() -> None:
    usage = PrincipalUsage(ManualClock(0.0))
    principal = Principal("drones", frozenset(["robot"]), limits=PrincipalLimits(live_plans=10))
    with pytest.raises(RateLimited) as refused:
        usage.count_request(principal, lambda: 9, 4, lambda ends: 0.5 * ends)
    assert refused.value.eta_s == 1.5


def test_a_fair_share_is_rounded_up_and_counts_the_active_principals() -> None:
    clock = ManualClock(0.0)
    usage = PrincipalUsage(clock)
    for name in ("first", "second", "third"):
        usage.count_request(Principal(name, frozenset(["robot"])), int, 1, lambda ends: None)
    assert usage.fair_share(8) == 3
    usage.restore("of an earlier start", 0.0, None)
    assert usage.fair_share(8) == 2
    clock.advance(ACTIVE_S - 1.0)
    usage.count_request(Principal("first", frozenset(["robot"])), int, 1, lambda ends: None)
    assert usage.fair_share(8) == 2
    clock.advance(1.0)
    assert usage.fair_share(8) == 8


def test_a_principal_without_limits_costs_no_count() -> None:
    def count(ends: int = 1) -> int:
        raise AssertionError("nothing depends on it")

    usage, principal = PrincipalUsage(ManualClock(0.0)), Principal("drones", frozenset(["robot"]))
    usage.count_request(principal, count, 3, count)
    usage.check_kv(principal, count, 1_000_000, count)


def test_connections_count_until_they_end() -> None:
    usage = PrincipalUsage(ManualClock(0.0))
    drones = Principal("drones", frozenset(["robot"]), limits=PrincipalLimits(connections=2))
    for _ in range(2):
        for _ in range(2):
            usage.begin_connection(drones)
        with pytest.raises(RateLimited):
            usage.begin_connection(drones)
        for _ in range(2):
            usage.end_connection(drones)


def test_a_principal_may_hold_its_limit_of_kv_cache_and_no_token_more() -> None:
    drones = Principal("drones", frozenset(["robot"]), limits=PrincipalLimits(kv_tokens=100))
    PrincipalUsage.check_kv(drones, lambda: 60, 40, lambda: 5.0)
    for held_tokens, tokens in ((60, 41), (1, 100)):
        with pytest.raises(RateLimited) as refused:
            PrincipalUsage.check_kv(drones, partial(int, held_tokens), tokens, lambda: 5.0)
        assert refused.value.eta_s == 5.0
    with pytest.raises(TooLarge):
        PrincipalUsage.check_kv(drones, int, 101, lambda: 5.0)


def test_requests_over_the_rate_are_refused_with_the_time_of_the_next_one(tmp_path: Path) -> None:
    with limited(tmp_path, requests_per_s=0.25, burst=1) as server, server.as_("drones") as drones:
        assert drones.post("/v1/tasks", json=body(skill_set="none")).status_code == 422
        problem = check_refusal(drones.post("/v1/tasks", json=body()), "requests_per_s")
        assert problem["eta_s"] == pytest.approx(4.0)
        with server.as_("arms") as arms:
            assert arms.post("/v1/tasks", json=body(skill_set="none")).status_code == 422
        server.fleet.run_for(4.1)
        with drones.stream("POST", "/v1/tasks", json=body()) as response:
            assert Reader(response).next()[1] == "accepted"


def test_plans_over_the_limit_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    with limited(tmp_path, live_plans=1) as server, server.as_("drones", **OWNER) as drones:
        with drones.stream("POST", "/v1/tasks", json=body(id="first")) as response:
            Reader(response).next()
            check_refusal(drones.post("/v1/tasks", json=body()), "live_plans")
            assert drones.delete("/v1/tasks/first").status_code == 200
        with drones.stream("POST", "/v1/tasks", json=body()) as response:
            assert Reader(response).next()[1] == "accepted"


def test_the_repeat_of_a_request_is_a_conflict_also_at_the_limit(tmp_path: Path) -> None:
    """Its answer was lost: a refusal would say that the server does not have the task."""
    with (
        limited(tmp_path, live_plans=1, requests_per_s=0.1, burst=1) as server,
        server.as_("drones") as drones,
        drones.stream("POST", "/v1/tasks", json=body("long", id="mine")) as plan,
    ):
        Reader(plan).next()
        again = drones.post("/v1/tasks", json=body("long", id="mine"))
        assert (again.status_code, again.json()["where"]) == (409, "id")
        check_refusal(drones.post("/v1/tasks", json=body("long", id="other")), "live_plans")


def test_requests_that_are_prepared_and_chats_count_as_plans(tmp_path: Path) -> None:
    with limited(tmp_path, live_plans=1) as server, server.as_("drones", **OWNER) as drones:
        service = server.fleet.service
        principal = Principal(
            "drones", frozenset(["robot"]), ("drone-*",), limits=PrincipalLimits(live_plans=1)
        )

        def chat(generations: int = 1) -> AbstractContextManager[str]:
            return service.admitted_request("chat", generations, principal, "drone-1")

        # No wait would help.
        with pytest.raises(TooLarge, match="2 generations; drones may have 1"), chat(2):
            pass
        for place in (service.tasks.reserve("task", HeldPlace("drones")), chat()):
            with place:
                check_refusal(drones.post("/v1/tasks", json=body()), "live_plans")
        with drones.stream("POST", "/v1/tasks", json=body()) as response:
            assert Reader(response).next()[1] == "accepted"
            with pytest.raises(RateLimited), chat():
                pass


def test_plans_over_the_kv_cache_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    with limited(tmp_path, kv_tokens=300) as server, server.as_("drones", **OWNER) as drones:
        too_long = drones.post("/v1/tasks", json=body(max_tokens=299))
        assert (too_long.status_code, too_long.json()["where"]) == (413, "kv_tokens")
        with drones.stream("POST", "/v1/tasks", json=body(id="first", max_tokens=100)) as response:
            Reader(response).next()
            held = server.fleet.service.tasks.kv_tokens_of("drones")
            assert 100 < held < 150, "the words of the prompt and the longest plan"
            check_refusal(drones.post("/v1/tasks", json=body(max_tokens=200)), "kv_tokens")
            with server.as_("arms") as arms, arms.stream("POST", "/v1/tasks", json=body()) as other:
                assert Reader(other).next()[1] == "accepted"
            assert drones.delete("/v1/tasks/first").status_code == 200
        with drones.stream("POST", "/v1/tasks", json=body(max_tokens=200)) as response:
            assert Reader(response).next()[1] == "accepted"
        page = server.fleet.service.recorder.metrics.page(None).decode()
        assert 'timely_requests_limited_total{limit="kv_tokens"} 1.0' in page


def test_a_refusal_names_the_time_until_a_plan_of_the_principal_ends(tmp_path: Path) -> None:
    with limited(tmp_path, live_plans=1) as server, server.as_("drones", **OWNER) as drones:
        for task_id in ("first", "second"):
            with drones.stream("POST", "/v1/tasks", json=body("long", id=task_id)) as response:
                Reader(response).next()
                problem = check_refusal(drones.post("/v1/tasks", json=body()), "live_plans")
                assert problem.get("eta_s") == (None if task_id == "first" else pytest.approx(2.0))
                server.fleet.run_for(2.0)
                assert drones.delete(f"/v1/tasks/{task_id}").status_code == 200


def finish(server: Guarded, client: httpx.Client, task_id: str, after_s: float) -> None:
    """Request a plan, and end it after so long."""
    with client.stream("POST", "/v1/tasks", json=body("long", id=task_id)) as response:
        Reader(response).next()
        server.fleet.run_for(after_s)
        assert client.delete(f"/v1/tasks/{task_id}").status_code == 200


def test_the_plans_of_other_principals_are_no_measure_of_that_time(tmp_path: Path) -> None:
    with limited(tmp_path, live_plans=1) as server, server.as_("drones", **OWNER) as drones:
        finish(server, drones, "short", 0.5)
        with server.as_("arms", **OWNER) as arms:
            for number in range(3):
                finish(server, arms, f"arm-{number}", 4.0)
        with drones.stream("POST", "/v1/tasks", json=body("long")) as response:
            Reader(response).next()
            problem = check_refusal(drones.post("/v1/tasks", json=body()), "live_plans")
            assert problem["eta_s"] == pytest.approx(0.5)


def test_the_ended_tasks_of_a_principal_displace_no_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that requests and cancels all the time made the tasks of others unreadable within seconds."""
    monkeypatch.setattr(task_table, "MAX_RECENT", 3)
    with limited(tmp_path, retained=3) as server, server.as_("drones", **OWNER) as drones:
        with server.as_("arms", **OWNER) as arms:
            finish(server, arms, "arm", 0.0)
            for number in range(5):
                finish(server, drones, f"drone-{number}", 0.0)
            assert arms.get("/v1/tasks/arm").status_code == 200
            assert [task["task_id"] for task in arms.get("/v1/status").json()["recent"]][-1] == "arm"
        states = [drones.get(f"/v1/tasks/drone-{number}").status_code for number in range(5)]
        assert states == [404, 404, 404, 200, 200]


def test_a_plan_ends_after_the_longest_life_of_its_principal(tmp_path: Path) -> None:
    with (
        limited(tmp_path, plan_s=1.5) as server,
        server.as_("drones") as drones,
        drones.stream("POST", "/v1/tasks", json=body("long", deadline_s=60.0)) as response,
    ):
        reader = Reader(response)
        reader.next()
        server.fleet.run_for(1.6)
        assert reader.rest()[-1][2]["code"] == "expired"


@pytest.mark.parametrize("reported", [False, True])
def test_a_plan_waits_for_a_value_as_long_as_its_principal_may(tmp_path: Path, reported: bool) -> None:
    value = {"segment": 0, "kind": "value", "value": "true"}
    plans: dict[str, Script] = {"ask": [PLANS["ask"][0], ScriptedSegment("mu(50);", 2.0, 500)]}
    with (
        limited(tmp_path, plans=plans, value_wait_s=3.0) as server,
        server.as_("drones", **OWNER) as drones,
    ):
        with drones.stream("POST", "/v1/tasks", json=body("ask", id="ask", max_tokens=600)) as response:
            reader = Reader(response)
            server.fleet.run_for(3.0)
            assert [reader.next()[1] for _ in range(2)] == ["accepted", "segment"]
            if reported:
                assert drones.post("/v1/tasks/ask/reports", json=value).status_code == 200
            server.fleet.run_for(6.0 if reported else 1.0)
            name, data = reader.rest()[-1][1:]
        assert (name, data.get("code")) == (("result", None) if reported else ("error", "expired"))


def test_limits_hold_over_a_restart(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"kv_tokens": 300, "value_wait_s": 3.0}
    states = [tmp_path / "first", tmp_path / "killed"]
    held = []
    for state in states:
        with limited(tmp_path, state=state, **limits) as server, server.as_("drones", **OWNER) as drones:
            service = server.fleet.service
            if state is states[0]:
                with drones.stream("POST", "/v1/tasks", json=body("ask", id="ask")) as response:
                    server.fleet.run_for(1.0)
                    Reader(response).next()
                    shutil.copytree(states[0], states[1])
            held.append(service.tasks.kv_tokens_of("drones"))
            server.fleet.run_for(2.0)
            assert service.tasks.get("ask").state == "generating"
            server.fleet.run_for(2.0)
            assert service.tasks.get("ask").outcome == "expired"
    assert held[0] == held[1] > 0


def test_a_restart_fills_no_bucket(tmp_path: Path) -> None:
    states = [tmp_path / "first", tmp_path / "killed"]
    for state in states:
        with (
            limited(tmp_path, state=state, requests_per_s=0.01, burst=2) as server,
            server.as_("drones", **OWNER) as drones,
        ):
            if state is states[0]:
                # A request that is refused later counts, too.
                assert drones.post("/v1/tasks", json=body(skill_set="none")).status_code == 422
                with drones.stream("POST", "/v1/tasks", json=body("ask")) as response:
                    assert Reader(response).next()[1] == "accepted"
                    shutil.copytree(states[0], states[1])
            server.fleet.run_for(25.0)
            problem = check_refusal(drones.post("/v1/tasks", json=body()), "requests_per_s")
            assert problem["eta_s"] == pytest.approx(75.0)
            assert server.fleet.service.usage.fair_share(8) == 8
            with server.as_("arms") as arms:
                assert arms.post("/v1/tasks", json=body(skill_set="none")).status_code == 422
            assert server.fleet.service.usage.fair_share(8) == 4


def test_an_answer_counts_with_the_body_of_its_request(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "a story"}], "timely": {"agent": "drone-1"}}
    held = []
    with limited(tmp_path, kv_tokens=500) as server, server.as_("drones") as drones:
        tasks = server.fleet.service.tasks

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            held.append(tasks.kv_tokens_of("drones"))
            await JSONResponse({})(scope, receive, send)

        server.fleet.engine.openai_app = application  # type: ignore[attr-defined]
        for fields, status in (({"max_tokens": 100}, 200), ({"max_tokens": 100, "n": 8}, 413), ({}, 413)):
            assert drones.post("/v1/chat/completions", json={**chat, **fields}).status_code == status
        assert tasks.kv_tokens_of("drones") == 0
    assert len(held) == 1
    assert 100 < held[0] < 150


def test_the_last_places_are_for_principals_below_their_fair_share(tmp_path: Path) -> None:
    with limited(tmp_path, places=4) as server, server.as_("drones", **OWNER) as drones, ExitStack() as stack:

        def submit(client: httpx.Client) -> None:
            answer = stack.enter_context(client.stream("POST", "/v1/tasks", json=body("long")))
            assert Reader(answer).next()[1] == "accepted"

        for _ in range(3):
            submit(drones)
        arms = stack.enter_context(server.as_("arms"))
        submit(arms)
        assert arms.post("/v1/tasks", json=body()).json()["code"] == "overloaded"
        check_refusal(drones.post("/v1/tasks", json=body()), "fair_share")


@pytest.mark.parametrize(("drones_plans", "arms_plans", "ends", "of_plans"), [(14, 1, 2, 15), (8, 7, 1, 8)])
def test_a_refusal_for_the_fair_share_names_when_a_place_is_for_every_principal(
    tmp_path: Path, drones_plans: int, arms_plans: int, ends: int, of_plans: int
) -> None:
    """Two of 16 places are for principals below their share of 8."""
    with (
        limited(tmp_path, places=16) as server,
        server.as_("drones", **OWNER) as drones,
        ExitStack() as stack,
    ):
        arms = stack.enter_context(server.as_("arms"))

        def submit(client: httpx.Client, **fields: Any) -> None:
            answer = stack.enter_context(client.stream("POST", "/v1/tasks", json=body("long", **fields)))
            assert Reader(answer).next()[1] == "accepted"

        submit(drones, id="first")
        server.fleet.run_for(2.0)
        assert drones.delete("/v1/tasks/first").status_code == 200
        for _ in range(drones_plans):
            submit(drones, tuf="urgent")
        for _ in range(arms_plans):
            submit(arms, tuf="urgent")
        problem = check_refusal(drones.post("/v1/tasks", json=body()), "fair_share")
        assert problem["eta_s"] == pytest.approx(2.0 * ends / of_plans, abs=1e-3)


def test_connections_over_the_limit_are_refused_but_for_reports_and_stops(tmp_path: Path) -> None:
    report = {"segment": 0, "kind": "started"}
    with (
        limited(tmp_path, connections=1) as server,
        server.as_("drones", **OWNER) as drones,
        drones.stream("POST", "/v1/tasks", json=body(id="first")) as response,
    ):
        reader = Reader(response)
        reader.next()
        check_refusal(drones.get("/v1/tasks/first"), "connections")
        with server.as_("arms") as arms:
            assert arms.get("/v1/status").status_code == 200
        server.fleet.run_for(0.5)
        reader.next()
        assert drones.post("/v1/tasks/first/reports", json=report).status_code == 200
        assert drones.post("/v1/stop", json={"deadline_s": 0.0}).status_code == 200
        reader.rest()
        for _ in range(2):
            server.fleet.until(lambda: not server.fleet.service.usage._connections)
            assert drones.get("/v1/tasks/first").status_code == 200
