"""Predictors in front of a served discipline: what it reads is filled in, recorded, and an operator may overrule it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet import Reader, body, fleet
from manual_clock import ManualClock
from numpy.typing import NDArray
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from timely.core.errors import InvalidInput
from timely.disciplines.predictors.request_annotator import PredictorArrival, PredictorFiles, RequestAnnotator
from timely.disciplines.predictors.urgency import UrgencyPredictor
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.settings import ServerSettings

WAIT_S = 20.0


class RecordingClassifier:
    """A classifier that goes by one word; may be held up, or fail."""

    name = "told"
    classes = 5

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()
        self.called = threading.Event()
        self.fail = False

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        self.batches.append(list(texts))
        self.called.set()
        assert self.go.wait(WAIT_S)
        if self.fail:
            raise RuntimeError("no such tensor")
        levels = [1 if "long" in text else 3 for text in texts]
        return np.eye(5)[levels] * 0.9 + 0.02


def classifier_and_predictors() -> tuple[RecordingClassifier, PredictorFiles]:
    classifier = RecordingClassifier()
    return classifier, PredictorFiles(UrgencyPredictor(classifier))


def events(path: Path, *names: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["event"] in names]


def test_a_task_is_rated_where_the_discipline_goes_by_urgency(tmp_path: Path) -> None:
    classifier, predictors = classifier_and_predictors()
    log = tmp_path / "events.jsonl"
    with fleet(engine={"discipline": "semantic"}, predictors=predictors, event_log=log) as served:
        ids = []
        for fields in ({}, {"urgency": 4}, {"tuf": "urgent"}):
            with served.http.stream("POST", "/v1/tasks", json=body("short", **fields)) as response:
                reader = Reader(response)
                ids.append(reader.next()[2]["task_id"])
                annotation = served.http.get(f"/v1/tasks/{ids[-1]}").json()
                jobs = served.engine._controller.table
                assert int(jobs.urgency[jobs[ids[-1]].row]) == annotation["urgency"]
                served.run_for(30.0)
                reader.rest()
        views = [served.http.get(f"/v1/tasks/{task_id}").json() for task_id in ids]
    assert [(view["urgency"], view["urgency_source"]) for view in views] == [
        (3, "predicted"), (4, "given"), (1, "predicted"),
    ]  # fmt: skip
    assert classifier.batches == [["short"], ["short"]], "a level that was brought is not predicted"
    noted = events(log, "urgency")
    assert [line["task_id"] for line in noted] == ids
    assert noted[0]["model"] == "told"
    assert noted[0]["confidence"] == 0.92
    assert noted[2]["at_least_as_urgent_as"] == 1


def test_what_is_predicted_follows_a_switch_of_the_discipline() -> None:
    classifier, predictors = classifier_and_predictors()
    with fleet(predictors=predictors) as served:

        def ask() -> int | None:
            with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
                task_id = Reader(response).next()[2]["task_id"]
            level: int | None = served.http.get(f"/v1/tasks/{task_id}").json()["urgency"]
            served.http.delete(f"/v1/tasks/{task_id}")
            return level

        assert ask() is None, "timely does not read it"
        assert served.http.put("/v1/disciplines", json={"name": "hpjf"}).status_code == 200
        assert ask() == 1
        served.http.put("/v1/disciplines", json={"name": "fcfs"})
        assert ask() is None
    assert len(classifier.batches) == 1


def test_an_operator_overrules_a_live_task_and_signs_for_it(tmp_path: Path) -> None:
    _, predictors = classifier_and_predictors()
    log = tmp_path / "events.jsonl"
    with fleet(engine={"discipline": "semantic"}, predictors=predictors, event_log=log) as served:
        with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
            reader = Reader(response)
            task_id = reader.next()[2]["task_id"]
            path = f"/v1/tasks/{task_id}/urgency"
            for wrong in (
                {"urgency": 5, "operator": "jane"}, {"urgency": -1, "operator": "jane"}, {"urgency": 0},
                {"urgency": "0", "operator": "jane"}, {"urgency": 0, "operator": ""},
            ):  # fmt: skip
                answer = served.http.put(path, json=wrong)
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), wrong
            answer = served.http.put(
                path, json={"urgency": 0, "operator": "jane", "reason": "heard the call"}
            )
            assert answer.status_code == 200
            assert answer.json() == {
                "id": task_id, "urgency": 0, "operator": "jane", "before": 1, "before_source": "predicted",
            }  # fmt: skip
            table = served.engine._controller.table
            assert int(table.urgency[table[task_id].row]) == 0
            view = served.http.get(f"/v1/tasks/{task_id}").json()
            assert (view["urgency"], view["urgency_source"]) == (0, "operator")
            served.run_for(60.0)
            reader.rest()
        late = served.http.put(path, json={"urgency": 0, "operator": "jane"})
        assert (late.status_code, late.json()["code"]) == (409, "conflict")
        unknown = served.http.put("/v1/tasks/nobody/urgency", json={"urgency": 0, "operator": "jane"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_name")
    (noted,) = events(log, "urgency_override")
    assert (noted["task_id"], noted["from"], noted["to"]) == (task_id, 1, 0)
    assert (noted["operator"], noted["reason"]) == ("jane", "heard the call")


def test_a_discipline_whose_needs_are_not_met_is_a_conflict_that_says_what_to_do() -> None:
    with fleet() as served:
        answer = served.http.put("/v1/disciplines", json={"name": "laps-sd"})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "needs speculation: start the engine with" in answer.json()["detail"]
        assert served.http.get("/v1/disciplines").json()["current"] == "timely"


def chat(served: Any, payload: dict[str, Any], **headers: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What reaches the engine's own application of a chat request."""
    seen: list[tuple[dict[str, Any], dict[str, str]]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        names = {key.decode(): value.decode() for key, value in scope["headers"]}
        seen.append((json.loads((await receive())["body"]), names))
        await JSONResponse({})(scope, receive, send)

    served.engine.openai_app = inner
    assert served.http.post("/v1/chat/completions", json=payload, headers=headers).status_code == 200
    return seen[0]


USER = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "a long story, please"}]


def test_a_chat_request_is_named_rated_and_given_its_words() -> None:
    _, predictors = classifier_and_predictors()
    with fleet(engine={"discipline": "semantic"}, predictors=predictors) as served:
        passed, headers = chat(served, {"messages": USER})
        assert passed["timely"].pop("task_id") == f"chatcmpl-{headers['x-request-id']}"
        assert passed["timely"] == {"text": "a long story, please", "urgency": 1}
        passed, headers = chat(
            served, {"messages": USER, "timely": {"urgency": 4}}, **{"X-Request-Id": "mine"}
        )
        assert headers["x-request-id"] == "mine"
        assert passed["timely"] == {"task_id": "chatcmpl-mine", "text": "a long story, please", "urgency": 4}
        parts = [{"role": "user", "content": [{"type": "text", "text": "long"}, {"type": "image_url"}]}]
        assert chat(served, {"messages": parts})[0]["timely"]["urgency"] == 1
        large = [{"role": "user", "content": "long " * 100_000}]
        passed = chat(served, {"messages": large})[0]
        assert passed["messages"] == large
        assert (passed["timely"]["urgency"], len(passed["timely"]["text"])) == (1, 2000)
        hurried = chat(served, {"messages": [], "timely": {"tuf": {"ert_s": 0.2}}})[0]["timely"]
        assert hurried["urgency"] == 1


# --------------------------------------------------------------------------- batching, on a clock of its own


def queue(classifier: RecordingClassifier, **settings: Any) -> tuple[PredictionQueue, ManualClock]:
    clock = ManualClock(0.0)
    door = RequestAnnotator(PredictorFiles(UrgencyPredictor(classifier)))
    settings = {"prediction_timeout_s": WAIT_S} | settings
    made = PredictionQueue(door, ServerSettings(**settings), clock)
    made.serve(("urgency",))
    return made, clock


async def test_those_that_come_during_a_call_go_together_in_the_next() -> None:
    classifier = RecordingClassifier()
    classifier.go.clear()
    made, _ = queue(classifier)
    first = asyncio.create_task(made.annotate(PredictorArrival("a", "one")))
    assert await asyncio.to_thread(classifier.called.wait, WAIT_S)
    rest = [asyncio.create_task(made.annotate(PredictorArrival(name, f"long {name}"))) for name in "bcd"]
    for _ in range(20):
        await asyncio.sleep(0)
    classifier.go.set()
    async with asyncio.timeout(WAIT_S):
        assert (await first).urgency.level == 3
        assert [(await task).urgency.level for task in rest] == [1, 1, 1]
    assert classifier.batches == [["one"], ["long b", "long c", "long d"]]
    await made.stop()


async def test_a_request_that_leaves_during_the_call_leaves_its_level_to_no_other() -> None:
    classifier = RecordingClassifier()
    classifier.go.clear()
    made, _ = queue(classifier, prediction_batching="full", prediction_batch=2)
    left, stayed = (
        asyncio.create_task(made.annotate(PredictorArrival(text, text)))
        for text in ("long story", "short story")
    )
    assert await asyncio.to_thread(classifier.called.wait, WAIT_S)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    classifier.go.set()
    async with asyncio.timeout(WAIT_S):
        assert (await stayed).urgency.level == 3
    assert classifier.batches == [["long story", "short story"]]
    await made.stop()


async def test_a_level_that_does_not_exist_is_refused_before_it_shares_a_batch() -> None:
    made, _ = queue(RecordingClassifier())
    with pytest.raises(InvalidInput, match="urgency must be 0"):
        await made.annotate(PredictorArrival("a", "one", urgency=9))


async def test_full_batching_waits_for_a_batch_or_for_long_enough() -> None:
    classifier = RecordingClassifier()
    made, clock = queue(classifier, prediction_batching="full", prediction_batch=2, prediction_max_wait_s=0.5)
    tasks = [asyncio.create_task(made.annotate(PredictorArrival("a", "one")))]
    await clock.run_for(0.4)
    assert not classifier.batches
    tasks.append(asyncio.create_task(made.annotate(PredictorArrival("b", "two"))))
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*tasks)
    assert classifier.batches == [["one", "two"]]
    alone = asyncio.create_task(made.annotate(PredictorArrival("c", "three")))
    await clock.run_for(0.4)
    assert len(classifier.batches) == 1
    await clock.run_for(0.2)
    async with asyncio.timeout(WAIT_S):
        await alone
    assert classifier.batches[1:] == [["three"]]
    await made.stop()


async def test_a_predictor_that_is_slow_or_fails_delays_no_request() -> None:
    classifier = RecordingClassifier()
    classifier.go.clear()
    made, _ = queue(classifier, prediction_timeout_s=0.02)
    async with asyncio.timeout(WAIT_S):
        annotation = await made.annotate(PredictorArrival("a", "one"))
    assert (annotation.urgency.level, annotation.urgency.source) == (None, "none")
    classifier.fail = True
    classifier.go.set()
    made, _ = queue(classifier)
    async with asyncio.timeout(WAIT_S):
        assert (await made.annotate(PredictorArrival("b", "two"))).urgency.level is None
    classifier.fail = False
    async with asyncio.timeout(WAIT_S):
        assert (await made.annotate(PredictorArrival("c", "two"))).urgency.level == 3, "and it is asked again"
    await made.stop()


async def test_a_predictor_that_hangs_delays_no_further_request_and_keeps_none() -> None:
    classifier = RecordingClassifier()
    classifier.go.clear()
    made, _ = queue(classifier, prediction_timeout_s=0.2)
    async with asyncio.timeout(WAIT_S):
        for number in range(100):
            assert (await made.annotate(PredictorArrival(number, "next"))).urgency.level is None
    assert len(made._stage) <= 2, "the call that hangs, and what came before it hung for too long"
    classifier.go.set()
    async with asyncio.timeout(WAIT_S):
        assert made._runner is not None
        await made._runner
        assert (await made.annotate(PredictorArrival("z", "last"))).urgency.level == 3, (
            "and it is asked again"
        )
    await made.stop()
