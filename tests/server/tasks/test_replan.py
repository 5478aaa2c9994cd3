"""Re-planning over real HTTP: the rest of a plan is dropped, and the next one knows what was done."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fleet import DRONE, TINY, TOKEN, WAIT_S, Fleet, Reader, body, events_of, fleet

from timely.principals import LOCAL
from timely.server.tasks import replanning
from timely.server.tasks.replanning import CUT, replan_task_history
from timely.server.tasks.request import ReplanRequest


def begin(served: Fleet, task: str = "long", **fields: Any) -> tuple[str, str]:
    """A task whose first segment is out; its id and token."""
    with served.http.stream("POST", "/v1/tasks", json=body(task, **fields)) as response:
        reader = Reader(response)
        accepted = reader.next()[2]
        served.run_for(0.3)
        assert reader.next()[2]["index"] == 0
    return accepted["task_id"], accepted["report_token"]


def replan(served: Fleet, task_id: str, **fields: Any) -> httpx.Response:
    """The whole answer to a request for another plan."""
    fields.setdefault("agent", "drone-1")
    fields.setdefault("report_token", TOKEN)
    with served.http.stream("POST", f"/v1/tasks/{task_id}/replan", json=fields) as response:
        if response.status_code == 200:
            served.run_for(30.0)
        response.read()
    return response


def test_after_a_failure_the_next_plan_knows_what_was_done_and_is_urgent(served: Fleet) -> None:
    old, _ = begin(served)
    reports = f"/v1/tasks/{old}/reports"
    served.http.post(reports, json={"segment": 0, "kind": "done", "agent": "drone-1"})
    served.run_for(0.3)
    assert len(served.service.tasks.get(old).track.segments) == 2
    served.http.post(
        reports, json={"segment": 1, "kind": "failed", "reason": "a door is shut", "agent": "drone-1"}
    )
    answer = replan(served, old, task="short")
    events = events_of(answer.text)
    assert [name for _, name, _ in events] == ["accepted", "segment", "segment", "result"]
    accepted = events[0][2]
    assert accepted["replans"] == old
    assert accepted["tuf"] == {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0}
    view = served.http.get(f"/v1/tasks/{accepted['task_id']}").json()
    assert view["history"] == "plan tc(10);tc(20); failed because a door is shut; executed so far: tc(10);"
    assert (view["agent"], view["robot"], view["urgency"]) == ("drone-1", "tiny", 0)
    assert served.http.get(f"/v1/tasks/{old}").json()["replanned_as"] == accepted["task_id"]


@pytest.mark.parametrize("task", ["long", "short"], ids=["still written", "all written"])
def test_a_new_scene_cuts_the_plan_off(served: Fleet, task: str) -> None:
    old, _ = begin(served, task, scene="a cat")
    if task == "short":
        served.run_for(3.0)
        assert served.service.tasks.get(old).state == "executing"
    released = len(served.service.tasks.get(old).track.segments)
    events = events_of(replan(served, old, task="short", scene="a dog", reason="a dog came").text)
    new = served.http.get(f"/v1/tasks/{events[0][2]['task_id']}").json()
    assert new["scene"] == "a dog"
    assert "failed because a dog came; executed so far: nothing" in new["history"]
    view = served.http.get(f"/v1/tasks/{old}").json()
    assert (view["state"], view["outcome"], len(view["segments"])) == ("ended", "cancelled", released)
    assert served.stats().parked == 0


def test_what_was_done_is_carried_on_through_several_plans(served: Fleet) -> None:
    old, _ = begin(served)
    served.http.post(f"/v1/tasks/{old}/reports", json={"segment": 0, "kind": "done", "agent": "drone-1"})
    change = {"agent": "drone-1", "task": "short", "reason": "one", "report_token": TOKEN}
    with served.http.stream("POST", f"/v1/tasks/{old}/replan", json=change) as response:
        reader = Reader(response)
        second = reader.next()[2]["task_id"]
        served.run_for(0.3)
        reader.next()
        served.http.post(
            f"/v1/tasks/{second}/reports", json={"segment": 0, "kind": "done", "agent": "drone-1"}
        )
    third = events_of(replan(served, second, reason="two").text)[0][2]["task_id"]
    history = served.http.get(f"/v1/tasks/{third}").json()["history"]
    assert history.endswith("failed because two; executed so far: tc(10);mu(50);")


def test_a_plan_whose_replanning_failed_within_can_be_replanned(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named a plan that does not exist: every further try was a conflict."""
    old, _ = begin(served)

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    change = ReplanRequest(agent="drone-1", report_token=TOKEN)
    with monkeypatch.context() as patched:
        patched.setattr(served.service, "submit", fail)
        with pytest.raises(RuntimeError, match="a mistake of ours"):
            served.call(lambda: served.service.replan(old, change, LOCAL, TOKEN))
    assert replan(served, old).status_code == 200


def test_only_its_robot_may_and_only_once(served: Fleet) -> None:
    old, token = begin(served)
    assert replan(served, old, agent="drone-2").status_code == 403
    assert served.service.tasks.get(old).state == "generating"
    assert replan(served, "no-such-task").status_code == 404
    assert replan(served, old, id="second", report_token="another-token-0123456789").status_code == 200
    # The same again, as a client does that did not hear the answer: refused, and the task is there to be followed.
    again = replan(served, old, id="second")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert "'second'" in again.json()["detail"]
    assert served.http.get("/v1/tasks/second/events").status_code == 200
    other = httpx.post(
        f"{served.url}/v1/tasks/second/replan",
        json={},
        headers={"Authorization": f"Bearer {token}"},
        timeout=WAIT_S,
    )
    assert other.status_code == 403


@pytest.mark.parametrize(
    ("fields", "status", "where"),
    [
        ({"reason": "x" * 2001}, 422, "reason"),
        ({"scene": "x" * 40_000}, 413, "scene"),
        ({"task": " "}, 422, "task"),
        ({"tuf": {"alpha": 1.0}}, 422, "tuf.alpha"),
        ({"plan": "mine"}, 422, "plan"),
        ({"urgency": 5}, 422, "urgency"),
    ],
)
def test_bad_requests_leave_the_plan_alone(
    served: Fleet, fields: dict[str, Any], status: int, where: str
) -> None:
    old, _ = begin(served)
    answer = replan(served, old, **fields)
    assert answer.status_code == status, answer.text
    assert where.rpartition(".")[2] in json.dumps(answer.json())
    assert served.service.tasks.get(old).state == "generating"
    assert served.service.tasks.get(old).replanned_as is None


def test_a_new_plan_that_is_refused_may_be_asked_for_again() -> None:
    with fleet(max_live_tasks=1) as served:
        old, _ = begin(served)
        with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
            assert response.status_code == 503
        assert replan(served, old, id="next").status_code == 200


def test_a_long_past_is_cut_at_its_beginning(served: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = begin(served)
    task = served.service.tasks.get(old)
    assert (DRONE.name, TINY.name) == (task.skill_set.name, task.profile.name)
    monkeypatch.setattr(replanning, "MAX_HISTORY_CHARS", 200)
    text = replan_task_history(task, ReplanRequest(reason="r", executed="mu(20);" * 100 + "tc(7);"))
    assert len(text) <= 200
    assert text.endswith("tc(7);")
    assert f"executed so far: {CUT}" in text
