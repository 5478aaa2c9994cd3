"""A collector of OpenTelemetry for tests: it takes spans over HTTP, refuses them or hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@contextmanager
def trace_collector(
    statuses: Iterable[int] = (), until: threading.Event | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """The URL of a collector, and the spans that it has received; it answers with the statuses, and then with 200.

    Args:
        until: it answers nothing before, for ten seconds at most.
    """
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
            if until is not None:
                until.wait(10.0)
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


def span_attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span by name."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}
