"""Requests that cannot be served in their time, and the room for urgent ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fleet import Fleet, Reader, body, fleet

SLOW = {"prefill_token_s": 0.1}
"""An engine that takes seconds for a prompt."""


def check_refusal(answer: httpx.Response) -> float:
    """The estimated time of service of a refused request."""
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "overloaded")
    assert int(answer.headers["retry-after"]) == pytest.approx(problem["eta_s"], abs=1.0)
    return float(problem["eta_s"])


def accepted(served: Fleet, stack: ExitStack, **fields: Any) -> None:
    """A task that stays in generation until the stack closes."""
    response = stack.enter_context(served.http.stream("POST", "/v1/tasks", json=body("long", **fields)))
    assert Reader(response).next()[1] == "accepted"


def test_a_task_is_refused_when_its_deadline_is_before_its_predicted_response() -> None:
    with fleet(engine=SLOW) as served, ExitStack() as stack:
        for _ in range(3):
            accepted(served, stack)
        eta_s = check_refusal(served.http.post("/v1/tasks", json=body(deadline_s=1.0)))
        assert eta_s > 1.0
        accepted(served, stack, deadline_s=10.0 * eta_s)


def test_a_late_task_is_refused_only_where_the_operator_wants_that() -> None:
    for share in (None, 0.0):
        with fleet(engine=SLOW, refuse_below=share) as served, ExitStack() as stack:
            accepted(served, stack, tuf={"ert_s": 1000.0, "alpha": -5.0, "beta": 1.0})
            if share is not None:
                assert check_refusal(served.http.post("/v1/tasks", json=body())) > 1.5
            else:
                accepted(served, stack)


@pytest.mark.parametrize("share", [None, 0.0, 1.0])
def test_a_response_is_promised_where_late_tasks_are_refused(share: float | None) -> None:
    with fleet(refuse_below=share) as served, ExitStack() as stack:
        accepted(served, stack)
        table = served.engine._controller.table
        served.until(lambda: len(table) == 1)
        assert table.promised.tolist() == [share == 1.0]


def test_urgent_tasks_have_room_of_their_own_and_a_full_server_names_a_time() -> None:
    with fleet(max_live_tasks=3, urgent_share=0.34) as served, ExitStack() as stack:
        with served.http.stream("POST", "/v1/tasks", json=body()) as response:
            Reader(response).next()
            served.run_for(10.0)
        for _ in range(2):
            accepted(served, stack)
        normal_s = check_refusal(served.http.post("/v1/tasks", json=body()))
        accepted(served, stack, tuf="urgent")
        assert check_refusal(served.http.post("/v1/tasks", json=body(tuf="urgent"))) < normal_s
