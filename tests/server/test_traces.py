"""Traces of tasks, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, Reader, body, fleet
from manual_clock import ManualClock
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from timely.core.errors import Unsupported
from timely.server.telemetry.traces import TelemetryTaskSpan, TelemetryTraces

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector(statuses: Iterable[int] = ()) -> Iterator[tuple[str, list[Any]]]:
    """The URL of a collector, and the spans that it has received; it answers with the statuses, and then with 200."""
    spans: list[Any] = []
    answers = iter(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = ExportTraceServiceRequest.FromString(
                self.rfile.read(int(self.headers["Content-Length"]))
            )
            spans.extend(
                span for of in message.resource_spans for scope in of.scope_spans for span in scope.spans
            )
            self.send_response(next(answers, 200))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serve_task(served: Fleet, headers: dict[str, str]) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(), headers=headers) as response:
        reader = Reader(response)
        reader.next()
        served.run_for(200.0)
        reader.rest()


def run_task(headers: dict[str, str]) -> list[Any]:
    with collector() as (url, spans), fleet(otlp_endpoint=url) as served:
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
    values = {pair.key: pair.value for pair in task.attributes}
    assert values["timely.agent"].string_value == "drone-1"
    assert values["timely.outcome"].string_value == "complete"


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


def test_a_clock_that_is_set_while_the_server_runs_dates_the_next_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A computer without a battery for its clock gets the time from the network, perhaps after the server's start."""
    clock, wall_s = ManualClock(), [1000.0]
    monkeypatch.setattr("timely.server.telemetry.traces.time.time", lambda: wall_s[0])
    with collector() as (url, spans):
        traces = TelemetryTraces(url, clock)
        wall_s[0] = 2_000_000_000.0
        inside = TelemetryTaskSpan("generate", clock.now() - 2.0, clock.now() - 1.0)
        traces.export(TelemetryTaskSpan("task", clock.now() - 2.0, clock.now(), children=(inside,)), None)
        traces.close()
    times_s = {(span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9) for span in spans}
    assert times_s == {(1_999_999_998.0, 2_000_000_000.0), (1_999_999_998.0, 1_999_999_999.0)}


def test_each_outage_of_the_collector_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    lines = []
    with collector([400, 400, 200, 400, 400]) as (url, _), caplog.at_level(logging.INFO, "timely"):
        traces = TelemetryTraces(url, ManualClock())
        for _ in range(5):
            traces.export(TelemetryTaskSpan("task", 0.0, 1.0), None)
            traces.flush()
            lines.append(len(caplog.records))
        traces.close()
    assert lines == [1, 1, 1, 2, 2]
    assert f"traces are lost until {url} takes them again: Failed to export" in caplog.messages[0]
    assert "400" in caplog.messages[0]


def test_a_wrong_trace_context_in_a_body_is_named() -> None:
    with fleet() as served:
        answer = served.http.post("/v1/tasks", json=body(traceparent="00-1"))
    assert (answer.status_code, answer.json()["where"]) == (422, "traceparent")


def test_without_the_packages_the_server_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Unsupported, match=r"timely-serving\[trace\]"):
        TelemetryTraces("http://127.0.0.1:1/v1/traces", ManualClock())
