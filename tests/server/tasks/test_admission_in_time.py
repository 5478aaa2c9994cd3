"""Requests that cannot be served in their time, and the room for urgent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import pytest
from fleet import TINY, Fleet, Reader, body, fleet

from timely.core.errors import Overloaded, TimelyError
from timely.core.hints import RequestHints
from timely.core.utility import TimeUtility
from timely.engines.base import ResponsePrediction
from timely.engines.scripted import ScriptedEngine
from timely.plans.robot_profiles import RobotProfile
from timely.principals import LOCAL
from timely.server.tasks.request import TaskRequest
from timely.server.tasks.task import Task

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


def test_an_admitted_task_is_told_its_predicted_time_where_that_was_asked_for() -> None:
    with fleet() as served, ExitStack() as stack:
        for fields in ({"deadline_s": 30.0}, {}):
            request = body("long", **fields)
            data = Reader(stack.enter_context(served.http.stream("POST", "/v1/tasks", json=request))).next()[
                2
            ]
            if fields:
                assert 0.0 < data["eta_s"] < 30.0
            else:
                assert "eta_s" not in data


def test_a_late_task_is_refused_only_where_the_operator_wants_that() -> None:
    for share in (None, 0.0):
        with fleet(engine=SLOW, refuse_below=share) as served, ExitStack() as stack:
            accepted(served, stack, tuf={"ert_s": 1000.0, "alpha": -5.0, "beta": 1.0})
            if share is not None:
                assert check_refusal(served.http.post("/v1/tasks", json=body())) > 1.5
            else:
                accepted(served, stack)


def test_the_network_of_the_robot_takes_its_part_of_the_deadline() -> None:
    with fleet() as served, ExitStack() as stack:
        eta_s = check_refusal(served.http.post("/v1/tasks", json=body(deadline_s=0.01)))
        # The profile says 8 ms.
        check_refusal(served.http.post("/v1/tasks", json=body(deadline_s=eta_s + 0.004)))
        accepted(served, stack, deadline_s=eta_s + 0.004, network_s=0.0)


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


SOON = {"ert_s": 1.0, "alpha": -2.0, "beta": 1.0}
"""An engine with ``BUSY`` bears the prompts of a few such tasks in time."""

BUSY = {"prefill_token_s": 0.0005}


def submit_together(served: Fleet, *bodies: dict[str, Any]) -> list[Task | TimelyError]:
    """Submit tasks in one turn of the event loop; time stands still meanwhile."""

    async def submit_all() -> list[Any]:
        tasks = [served.service.submit(TaskRequest.model_validate(one), LOCAL) for one in bodies]
        return await asyncio.gather(*tasks, return_exceptions=True)

    results: list[Task | TimelyError] = served.call(submit_all)
    return results


def admitted(results: list[Task | TimelyError]) -> list[Task]:
    assert all(isinstance(result, Task | Overloaded) for result in results)
    return [result for result in results if isinstance(result, Task)]


def check_in_time(served: Fleet, tasks: list[Task]) -> None:
    served.run_for(5.0)
    responses_s = [task.track.response_time_s for task in tasks]
    assert all(response_s is not None and response_s <= 1.0 for response_s in responses_s)


async def delayed_prediction(engine: ScriptedEngine, *args: Any) -> Any:
    """As of an engine in another process, which answers several questions after a step."""
    for _ in range(5):
        await asyncio.sleep(0)
    return await ScriptedEngine.predict_response(engine, *args)


@pytest.fixture(params=[False, True], ids=["", "delayed"])
def busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """A server that refuses late tasks; its engine answers a question at once, or later."""
    with fleet(engine=BUSY, refuse_below=1.0, grace_s=60.0) as served:
        if request.param:
            monkeypatch.setattr(served.engine, "predict_response", partial(delayed_prediction, served.engine))
        yield served


@pytest.mark.parametrize("earlier_tasks", [0, 8])
def test_a_burst_is_admitted_only_as_far_as_it_fits(busy: Fleet, earlier_tasks: int) -> None:
    for _ in range(earlier_tasks):
        check_in_time(busy, admitted(submit_together(busy, body(tuf=SOON))))
    tasks = admitted(submit_together(busy, *[body(tuf=SOON)] * 50))
    assert 1 < len(tasks) < 50
    # Nor is there room that the refused ones left.
    assert not admitted(submit_together(busy, body(tuf=SOON)))
    check_in_time(busy, tasks)


def test_tasks_that_are_being_checked_count_with_the_network_of_their_robots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    networks_s: list[list[float]] = []
    lookups: list[str] = []

    async def predict(utility: TimeUtility, ahead: Mapping[str, RequestHints]) -> ResponsePrediction:
        for _ in range(5):
            await asyncio.sleep(0)
        networks_s.append([hints.network_s for hints in ahead.values()])
        return ResponsePrediction(0.0, 0.0)

    async def profile(name: str) -> RobotProfile:
        lookups.append(name)
        return await type(names).profile(names, name)

    with fleet(refuse_below=1.0) as served:
        names = served.service.catalogue
        monkeypatch.setattr(served.engine, "predict_response", predict)
        monkeypatch.setattr(names, "profile", profile)
        admitted(submit_together(served, body(), body(network_s=0.05), body(network_s=0.0)))
    assert networks_s == [[], [TINY.network_s], [TINY.network_s, 0.05]]
    assert len(lookups) == 3


def test_what_a_task_waits_before_it_reaches_the_engine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def predict(utility: TimeUtility, ahead: Mapping[str, RequestHints]) -> ResponsePrediction:
        """The answer of an engine that computes a step."""
        served.clock.advance(0.3)
        return ResponsePrediction(0.5, 0.5)

    with fleet(refuse_below=1.0) as served:
        monkeypatch.setattr(served.engine, "predict_response", predict)
        arrival_s = served.clock.now()
        results = submit_together(served, body(tuf=SOON | {"ert_s": 0.95}))
        assert [task.arrival_s for task in admitted(results)] == [arrival_s]
        assert served.engine._controller.table.arrival_s.tolist() == [arrival_s]
        assert not admitted(submit_together(served, body(tuf=SOON | {"ert_s": 0.85})))


def test_no_limit_is_called_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    async def predict(utility: TimeUtility, ahead: Mapping[str, RequestHints]) -> ResponsePrediction:
        """A machine that was suspended meanwhile."""
        served.clock.advance(40.0)
        return ResponsePrediction(0.5, 0.5)

    with fleet() as served:
        monkeypatch.setattr(served.engine, "predict_response", predict)
        answer = served.http.post("/v1/tasks", json=body(deadline_s=10.0))
        assert check_refusal(answer) == 0.5
        assert answer.json()["detail"] == "the first segment would come after about 0.50 s; its time is over"


def test_tasks_that_are_refused_take_no_room(busy: Fleet) -> None:
    patient = {"ert_s": 5.0, "alpha": -1.0, "beta": 1.0}
    tasks = admitted(submit_together(busy, *[body(tuf=SOON)] * 60, body(tuf=patient)))
    assert tasks[-1].request.tuf.ert_s == 5.0


def test_a_task_counts_until_the_engine_has_answered(busy: Fleet) -> None:
    tasks = admitted(submit_together(busy, *[body(tuf=SOON)] * 2))
    assert list(busy.call(busy.service.tasks.ahead_of)) == [task.task_id for task in tasks]
    busy.run_for(5.0)
    assert busy.call(busy.service.tasks.ahead_of) == {}
