"""Ids of tasks: one principal neither learns of another's nor is kept from using them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fleet import TOKEN, Fleet, Reader, body, fleet
from guarded import PRINCIPALS, Guarded, write_principals
from manual_clock import ManualClock

from timely.principals import PrincipalRegistry

AGENTS = {"drones": "drone-1", "arms": "arm-1"}
PROOF = {"Timely-Task-Token": TOKEN}


@contextmanager
def two_tenants(guarded: Guarded) -> Iterator[None]:
    """Each has a task ``one``, with its first segment released."""
    with ExitStack() as stack:
        for name, agent in AGENTS.items():
            http = stack.enter_context(guarded.as_(name))
            plan = stack.enter_context(
                http.stream("POST", "/v1/tasks", json=body("long", id="one", agent=agent))
            )
            accepted = Reader(plan).next()[2]
            assert (accepted["task_id"], plan.headers["Timely-Task-Id"]) == ("one", "one")
        guarded.fleet.run_for(0.3)
        yield


def get(guarded: Guarded, name: str, path: str) -> dict[str, Any]:
    with guarded.as_(name) as http:
        answer: dict[str, Any] = http.get(path).json()
    return answer


def test_an_id_of_another_principal_is_free(guarded: Guarded) -> None:
    with two_tenants(guarded):
        for name, agent in AGENTS.items():
            seen = get(guarded, name, "/v1/tasks/one")
            assert (seen["task_id"], seen["agent"]) == ("one", agent)
            assert {row["task_id"] for row in get(guarded, name, "/v1/status")["robots"]} == {"one"}
            assert {segment["task_id"] for segment in seen["segments"]} == {"one"}
            with guarded.as_(name) as http:
                again = http.post("/v1/tasks", json=body("long", id="one", agent=agent))
                assert (again.status_code, again.json()["where"]) == (409, "id")
        with guarded.as_("planner") as http:
            assert http.get("/v1/tasks/one").status_code == 404


def test_each_steers_the_task_that_it_means(guarded: Guarded) -> None:
    with two_tenants(guarded):
        with guarded.as_("arms", **PROOF) as arms:
            report = {"segment": 0, "kind": "started"}
            assert arms.post("/v1/tasks/one/reports", json=report).json()["news"] == 1
            answer = arms.delete("/v1/tasks/one").json()
            assert (answer["task_id"], answer["outcome"]) == ("one", "cancelled")
            with arms.stream("POST", "/v1/tasks/one/replan", json={"id": "two"}) as again:
                assert Reader(again).next()[2]["replans"] == "one"
            assert arms.get("/v1/tasks/one").json()["replanned_as"] == "two"
        other = get(guarded, "drones", "/v1/tasks/one")
        assert (other["state"], other["outcome"], other["replanned_as"]) == ("generating", None, None)
        assert not other["segments"][0]["started"]


def test_an_operator_tells_them_apart_and_is_refused_an_id_that_it_sees(guarded: Guarded) -> None:
    with two_tenants(guarded), guarded.as_("ops") as ops:
        rows = {row["agent"]: row["task_id"] for row in ops.get("/v1/status").json()["robots"]}
        for agent, task_id in rows.items():
            seen = ops.get(f"/v1/tasks/{task_id}").json()
            assert (seen["task_id"], seen["agent"]) == (task_id, agent)
            urgency = {"urgency": 1, "operator": "jane"}
            assert ops.put(f"/v1/tasks/{task_id}/urgency", json=urgency).status_code == 200
            assert ops.get(f"/v1/tasks/{task_id}").json()["urgency"] == 1
        assert len(set(rows.values())) == 2
        assert ops.post("/v1/tasks", json=body(id="one")).status_code == 409


def start(folder: Path, principals: Path, now_s: float) -> Any:
    clock = ManualClock(now_s)
    return fleet(clock=clock, registry=PrincipalRegistry(principals, None, clock), state_dir=folder)


def test_both_tasks_go_on_after_a_kill(tmp_path: Path) -> None:
    principals, folder = tmp_path / "principals.yaml", tmp_path / "first"
    write_principals(principals, PRINCIPALS)

    def check(running: Fleet) -> None:
        for name, agent in AGENTS.items():
            seen = get(Guarded(running, principals), name, "/v1/tasks/one")
            assert (seen["state"], seen["agent"]) == ("generating", agent)

    with start(folder, principals, 100.0) as running, two_tenants(Guarded(running, principals)):
        check(running)
        shutil.copytree(folder, tmp_path / "killed")
    with start(tmp_path / "killed", principals, 101.0) as running:
        check(running)
