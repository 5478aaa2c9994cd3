"""Traces of tasks, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, Reader, body, fleet
from trace_collector import span_attributes, trace_collector

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def serve_task(served: Fleet, headers: dict[str, str]) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(), headers=headers) as response:
        reader = Reader(response)
        reader.next()
        served.run_for(200.0)
        reader.rest()


def run_task(headers: dict[str, str]) -> list[Any]:
    with trace_collector() as (url, spans), fleet(otlp_endpoint=url) as served:
        serve_task(served, headers)
    return spans


def test_a_task_is_a_span_below_its_clients_with_its_segments_inside() -> None:
    spans = run_task({"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (task,) = [span for span in spans if span.name == "task"]
    assert task.parent_span_id.hex() == PARENT
    inside = [span for span in spans if span is not task]
    assert sorted(span.name for span in inside) == ["execute", "execute", "generate", "generate"]
    assert {span.parent_span_id for span in inside} == {task.span_id}
    for span in inside:
        assert task.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    values = span_attributes(task)
    assert (values["timely.agent"], values["timely.outcome"]) == ("drone-1", "complete")


def test_the_generation_of_a_segment_says_its_steps_and_tokens_and_when_they_came() -> None:
    spans = run_task({})
    generated = sorted(
        (span for span in spans if span.name == "generate"),
        key=lambda span: span_attributes(span)["timely.segment"],
    )
    for span in generated:
        values = span_attributes(span)
        # The scripted engine makes one token a step.
        assert values["timely.engine_steps"] == values["gen_ai.usage.output_tokens"] > 1
        first, last = span.events
        assert (first.name, last.name) == ("first token", "last token")
        assert span.start_time_unix_nano <= first.time_unix_nano < last.time_unix_nano
        assert last.time_unix_nano == span.end_time_unix_nano
    # The second generation is parked before its first token.
    assert generated[1].events[0].time_unix_nano > generated[1].start_time_unix_nano


def test_a_task_that_a_stop_of_the_fleet_ended_says_so() -> None:
    with (
        trace_collector() as (url, spans),
        fleet(otlp_endpoint=url) as served,
        served.http.stream("POST", "/v1/tasks", json=body()) as response,
    ):
        reader = Reader(response)
        reader.next()
        assert served.http.post("/v1/stop", json={"deadline_s": 0.0}).status_code == 200
        reader.rest()
    (task,) = [span for span in spans if span.name == "task"]
    values = span_attributes(task)
    assert (values["timely.outcome"], values["timely.cause"]) == ("cancelled", "fleet_stop")


@pytest.mark.parametrize("trace_id", [TRACE, None])
def test_the_event_log_joins_a_task_and_its_trace(tmp_path: Path, trace_id: str | None) -> None:
    log = tmp_path / "events.jsonl"
    headers = {"traceparent": f"00-{trace_id}-{PARENT}-01"} if trace_id else {}
    with fleet(event_log=log) as served:
        serve_task(served, headers)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["trace_id"] for line in lines if line["event"] == "task"] == [trace_id]


def test_a_task_without_a_trace_begins_one() -> None:
    for headers in ({}, {"traceparent": "ff-nonsense"}):
        spans = run_task(headers)
        assert len({span.trace_id for span in spans}) == 1
        assert [span.name for span in spans if not span.parent_span_id] == ["task"]


def test_a_wrong_trace_context_in_a_body_is_named() -> None:
    with fleet() as served:
        answer = served.http.post("/v1/tasks", json=body(traceparent="00-1"))
    assert (answer.status_code, answer.json()["where"]) == (422, "traceparent")
