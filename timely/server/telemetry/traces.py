"""Traces in OpenTelemetry's form: one span a task, with a child for each generation and execution of a segment.

The spans of a task are made when it is settled, so tracing costs nothing while it runs. A thread of the exporter sends
them. Off unless an endpoint is set; the packages come with the extra ``trace``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from timely.core.clock import Clock
from timely.core.errors import Unsupported

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

EXPORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TelemetryTaskSpan:
    """A span before it is exported; times are on the server's clock, seconds."""

    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    error: str = ""
    children: tuple[TelemetryTaskSpan, ...] = ()


class TelemetryTraces:
    """Exports spans by OTLP over HTTP.

    Args:
        endpoint: URL of a collector, such as ``http://127.0.0.1:4318/v1/traces``.

    Raises:
        Unsupported: OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str, clock: Clock) -> None:
        self._clock = clock
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            exporter = _task_trace_exporter(endpoint)
        except ImportError as error:
            raise Unsupported(
                f"traces need the extra trace (pip install 'timely-serving[trace]'): {error}",
                where="--otlp-endpoint",
            ) from error
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "timely"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))

    def export(self, span: TelemetryTaskSpan, traceparent: str | None) -> None:
        """Export a span and its children, below the span that a W3C ``traceparent`` names."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = {"traceparent": traceparent} if traceparent else {}
        # The computer's time may have been set since the start.
        epoch_s = time.time() - self._clock.now()
        self._export(span, TraceContextTextMapPropagator().extract(parent), epoch_s)

    def _export(self, span: TelemetryTaskSpan, context: Context, epoch_s: float) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        otel_span = self._provider.get_tracer("timely").start_span(
            span.name,
            context,
            attributes={name: value for name, value in span.attributes.items() if value is not None},
            start_time=int((epoch_s + span.start_s) * 1e9),
        )
        if span.error:
            otel_span.set_status(Status(StatusCode.ERROR, span.error))
        inside = set_span_in_context(otel_span, context)
        for child in span.children:
            self._export(child, inside, epoch_s)
        otel_span.end(int((epoch_s + span.end_s) * 1e9))

    def flush(self) -> None:
        """Send what is left; blocks for ``EXPORT_TIMEOUT_S`` at most."""
        self._provider.force_flush(int(EXPORT_TIMEOUT_S * 1000))

    def close(self) -> None:
        """Flush, and send nothing more."""
        self.flush()
        self._provider.shutdown()


class _LatestTelemetryMessage(logging.Filter):
    """Keeps all lines of a logger from the log, and the text of the latest one."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False


def _task_trace_exporter(endpoint: str) -> SpanExporter:
    """An exporter that writes one line to the log for each outage of the collector, not one for each attempt."""
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    library_log = logging.getLogger(trace_exporter.__name__)

    class Exporter(trace_exporter.OTLPSpanExporter):
        _has_failed = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            message = _LatestTelemetryMessage()
            library_log.addFilter(message)
            try:
                result = super().export(spans)
            finally:
                library_log.removeFilter(message)
            has_failed = result is not SpanExportResult.SUCCESS
            if has_failed and not self._has_failed:
                log.warning("traces are lost until %s takes them again: %s", endpoint, message.text)
            self._has_failed = has_failed
            return result

    return Exporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
