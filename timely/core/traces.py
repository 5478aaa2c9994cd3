"""Export of traces in OpenTelemetry's form: spans that are made when all of their times are known.

A thread of the exporter sends them, so neither a collector that is away nor one that hangs delays a task. The packages
come with the extra ``trace``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timely.core.clock import Clock
from timely.core.errors import Unsupported

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

EXPORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span before it is exported; times are on the exporter's clock, seconds.

    Attributes:
        error: why it failed; empty if it did not.
        events: names of what happened during it, with their times.
    """

    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    error: str = ""
    events: tuple[tuple[str, float], ...] = ()
    children: tuple[TraceSpan, ...] = ()


class TraceExporter:
    """Exports spans by OTLP over HTTP.

    Args:
        endpoint: URL of a collector, such as ``http://127.0.0.1:4318/v1/traces``.
        service: name of the service in all spans.
        where: the option that gave the endpoint.

    Raises:
        Unsupported: OpenTelemetry is not installed.
    """

    def __init__(
        self, endpoint: str, clock: Clock, *, service: str = "timely", where: str = "--otlp-endpoint"
    ) -> None:
        self._clock = clock
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            exporter, self._ids = _otlp_trace_exporter(endpoint), _trace_id_generator()
        except ImportError as error:
            raise Unsupported(
                f"traces need the extra trace (pip install 'timely-serving[trace]'): {error}", where=where
            ) from error
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service}),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))

    def export(self, span: TraceSpan, traceparent: str | None) -> None:
        """Export a span and its children, below the span that a W3C ``traceparent`` names."""
        self._export(span, _trace_context(traceparent), self._epoch_s())

    def export_as(self, span: TraceSpan, traceparent: str) -> None:
        """Export a span and its children as the first span of a trace, with the ids of a W3C ``traceparent``.

        All calls come from one thread.
        """
        from opentelemetry.context import Context
        from opentelemetry.trace import get_current_span

        own = get_current_span(_trace_context(traceparent)).get_span_context()
        self._ids.next_ids = (own.trace_id, own.span_id) if own.is_valid else None
        self._export(span, Context(), self._epoch_s())

    def _epoch_s(self) -> float:
        # The computer's time may have been set since the start.
        return time.time() - self._clock.now()

    def _export(self, span: TraceSpan, context: Context, epoch_s: float) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        otel_span = self._provider.get_tracer("timely").start_span(
            span.name,
            context,
            attributes={name: value for name, value in span.attributes.items() if value is not None},
            start_time=int((epoch_s + span.start_s) * 1e9),
        )
        if span.error:
            otel_span.set_status(Status(StatusCode.ERROR, span.error))
        for name, at_s in span.events:
            otel_span.add_event(name, timestamp=int((epoch_s + at_s) * 1e9))
        inside = set_span_in_context(otel_span, context)
        for child in span.children:
            self._export(child, inside, epoch_s)
        otel_span.end(int((epoch_s + span.end_s) * 1e9))

    def flush(self) -> None:
        """Send what is left; each batch of 512 spans may take ``EXPORT_TIMEOUT_S``."""
        self._provider.force_flush()

    def close(self, timeout_s: float = EXPORT_TIMEOUT_S) -> None:
        """Send what is left, and take nothing more; what a collector does not take in time may be lost."""
        # OpenTelemetry's own limits do not hold for several batches.
        closing = threading.Thread(target=self._provider.shutdown, name="close traces", daemon=True)
        closing.start()
        closing.join(timeout_s)


def _trace_context(traceparent: str | None) -> Context:
    """The context of the span that a W3C ``traceparent`` names; an empty one for text that names none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent} if traceparent else {})


def _trace_id_generator() -> Any:
    """Random ids, but for a first span whose ids are given in ``next_ids``."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        next_ids: tuple[int, int] | None = None

        def generate_trace_id(self) -> int:
            return self.next_ids[0] if self.next_ids else super().generate_trace_id()

        def generate_span_id(self) -> int:
            ids, self.next_ids = self.next_ids, None
            return ids[1] if ids else super().generate_span_id()

    return Ids()


class _LatestTraceMessage(logging.Filter):
    """Keeps all lines of a logger from the log, and the text of the latest one."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False


def _otlp_trace_exporter(endpoint: str) -> SpanExporter:
    """An exporter that writes one line to the log for each outage of the collector, not one for each attempt."""
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    library_log = logging.getLogger(trace_exporter.__name__)

    class Exporter(trace_exporter.OTLPSpanExporter):
        _has_failed = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            message = _LatestTraceMessage()
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
