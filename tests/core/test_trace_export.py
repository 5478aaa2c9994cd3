"""The export of spans, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import logging
import sys
import threading
import time

import pytest
from manual_clock import ManualClock
from trace_collector import trace_collector

from timely.core.errors import Unsupported
from timely.core.traces import TraceExporter, TraceSpan

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_span_may_have_the_ids_that_a_trace_context_names() -> None:
    with trace_collector() as (url, spans):
        traces = TraceExporter(url, ManualClock(), service="bridge")
        inside = TraceSpan("motion", 0.0, 1.0)
        traces.export_as(TraceSpan("goal", 0.0, 1.0, children=(inside,)), f"00-{TRACE}-{PARENT}-01")
        traces.export(TraceSpan("task", 0.0, 1.0), f"00-{TRACE}-{PARENT}-01")
        traces.export(TraceSpan("other", 0.0, 1.0), None)
        traces.close()
    by_name = {span.name: span for span in spans}
    ids = {name: (span.trace_id.hex(), span.parent_span_id.hex()) for name, span in by_name.items()}
    assert by_name["goal"].span_id.hex() == PARENT
    assert (ids["goal"], ids["motion"], ids["task"]) == ((TRACE, ""), (TRACE, PARENT), (TRACE, PARENT))
    assert TRACE not in ids["other"]


def test_a_span_without_a_usable_context_has_ids_of_its_own() -> None:
    with trace_collector() as (url, spans):
        traces = TraceExporter(url, ManualClock())
        for context in ("nonsense", f"00-{'0' * 32}-{PARENT}-01"):
            traces.export_as(TraceSpan("goal", 0.0, 1.0), context)
        traces.close()
    assert len({span.trace_id for span in spans}) == 2
    assert not any(span.parent_span_id for span in spans)


def test_what_happens_during_a_span_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr("timely.core.traces.time.time", lambda: 1000.0 + clock.now())
    with trace_collector() as (url, spans):
        traces = TraceExporter(url, clock)
        traces.export(
            TraceSpan("generate", 0.0, 2.0, events=(("first token", 1.0), ("last token", 2.0))), None
        )
        traces.close()
    (span,) = spans
    assert [(event.name, event.time_unix_nano / 1e9) for event in span.events] == [
        ("first token", 1001.0),
        ("last token", 1002.0),
    ]


def test_a_collector_that_hangs_holds_up_neither_an_export_nor_the_end() -> None:
    """Four batches would take four times the limit of each."""
    answer = threading.Event()
    with trace_collector(until=answer) as (url, spans):
        traces = TraceExporter(url, ManualClock())
        for _number in range(2000):
            traces.export(TraceSpan("task", 0.0, 1.0), None)
        begin_s = time.monotonic()
        traces.close(0.1)
        took_s = time.monotonic() - begin_s
        answer.set()
        for thread in threading.enumerate():
            if thread.name == "close traces":
                thread.join(30.0)
    assert took_s < 3.0
    assert len(spans) == 2000


def test_a_clock_that_is_set_while_the_server_runs_dates_the_next_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A computer without a battery for its clock gets the time from the network, perhaps after the server's start."""
    clock, wall_s = ManualClock(), [1000.0]
    monkeypatch.setattr("timely.core.traces.time.time", lambda: wall_s[0])
    with trace_collector() as (url, spans):
        traces = TraceExporter(url, clock)
        wall_s[0] = 2_000_000_000.0
        inside = TraceSpan("generate", clock.now() - 2.0, clock.now() - 1.0)
        traces.export(TraceSpan("task", clock.now() - 2.0, clock.now(), children=(inside,)), None)
        traces.close()
    times_s = {(span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9) for span in spans}
    assert times_s == {(1_999_999_998.0, 2_000_000_000.0), (1_999_999_998.0, 1_999_999_999.0)}


def test_each_outage_of_the_collector_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    lines = []
    with trace_collector([400, 400, 200, 400, 400]) as (url, _), caplog.at_level(logging.INFO, "timely"):
        traces = TraceExporter(url, ManualClock())
        for _ in range(5):
            traces.export(TraceSpan("task", 0.0, 1.0), None)
            traces.flush()
            lines.append(len(caplog.records))
        traces.close()
    assert lines == [1, 1, 1, 2, 2]
    assert f"traces are lost until {url} takes them again: Failed to export" in caplog.messages[0]
    assert "400" in caplog.messages[0]


def test_without_the_packages_the_server_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Unsupported, match=r"timely-serving\[trace\]"):
        TraceExporter("http://127.0.0.1:1/v1/traces", ManualClock())
