"""How much of the server one principal may use: requests, plans in generation, connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fleet import OWNER, Reader, body, fleet
from guarded import Guarded, write_principals
from manual_clock import ManualClock

from timely.server.access.principals import PrincipalRegistry
from timely.server.access.usage import TokenBucket


@contextmanager
def limited(folder: Path, places: int = 512, **limits: Any) -> Iterator[Guarded]:
    """A server with so many places whose principal `drones` has these limits, and `arms` none."""
    path = folder / "principals.yaml"
    drones = {"name": "drones", "roles": ["robot"], "agents": ["drone-*"], "limits": limits}
    write_principals(path, [drones, {"name": "arms", "roles": ["robot"], "agents": ["drone-1"]}])
    clock = ManualClock(100.0)
    with fleet(clock=clock, registry=PrincipalRegistry(path, None, clock), max_live_tasks=places) as running:
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
