"""Records what happens to tasks: event log, metrics and traces, in one place."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, get_args

from timely.core.clock import Clock
from timely.core.errors import EngineFailed, RateLimited, TimelyError
from timely.core.job import Segment
from timely.core.reports import ExecutionReport
from timely.core.traces import TraceExporter, TraceSpan
from timely.engines.base import EngineStats, SegmentReady
from timely.principals import Principal
from timely.server.access.usage import TokenBucket
from timely.server.settings import ServerSettings
from timely.server.tasks.request import TaskRequest, server_task_utility_to_wire
from timely.server.tasks.task import GENERATION_COUNTS, Outcome, Task
from timely.server.telemetry.event_log import TelemetryEventLog
from timely.server.telemetry.metrics import ServerMetrics

log = logging.getLogger(__name__)

ANONYMOUS_PER_S, ANONYMOUS_BURST = 1.0, 100
"""Lines of the audit log for requests without a principal: a second, and at once."""


class TaskRecorder:
    """Counts and logs; changes no task.

    Attributes:
        arrivals: requests for plans since the start, refused ones included.
    """

    def __init__(self, clock: Clock) -> None:
        self.metrics = ServerMetrics(get_args(Outcome))
        self.arrivals = 0
        self.mode = ""
        self._clock = clock
        self._log = self._audit_log = TelemetryEventLog(None, clock)
        self._traces: TraceExporter | None = None
        self._anonymous = TokenBucket(ANONYMOUS_PER_S, ANONYMOUS_BURST, clock.now())

    def open(self, settings: ServerSettings) -> None:
        """Open the event log, the audit log and the export of traces; blocks on the disk.

        Raises:
            InvalidInput: a file cannot be opened. Unsupported: traces without OpenTelemetry.
        """
        if settings.otlp_endpoint is not None:
            self._traces = TraceExporter(settings.otlp_endpoint, self._clock)
        self._audit_log = TelemetryEventLog(settings.audit_log, self._clock)
        self._log = TelemetryEventLog(settings.event_log, self._clock)

    def record_start(self, stats: EngineStats) -> None:
        self.mode = stats.mode
        self._log.write_header(stats.engine, stats.discipline, stats.mode)

    def engine_died(self, error: EngineFailed) -> None:
        """The engine ended by itself and is started again."""
        self.metrics.engine_deaths.inc()
        self.note("engine_died", detail=str(error))

    def close(self) -> None:
        """Close the logs and the export; blocks on the disk and the network."""
        self._log.close()
        self._audit_log.close()
        if self._traces is not None:
            self._traces.close()

    def note(self, event: str, **fields: Any) -> None:
        self._log.write(event, **fields)

    @contextmanager
    def audit_outcome(
        self, principal: Principal, action: str, target: str, detail: str = ""
    ) -> Iterator[None]:
        """Write what a principal did, with ``detail``, or why it was refused, to the audit log."""
        code = ""
        try:
            yield
        except TimelyError as error:
            code, detail = error.code, error.message
            raise
        finally:
            self.audit(principal.name, action, target, code, detail)

    def audit(self, principal: str, action: str, target: str, code: str = "", detail: str = "") -> None:
        """Write a line of the audit log; without a code the action was allowed."""
        if not self._audit_log.is_open:
            return
        self._audit_log.write(
            "audit",
            wall_time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            principal=principal,
            action=action,
            target=target,
            allowed=not code,
            code=code,
            detail=detail,
        )

    def audit_anonymous(self, action: str, target: str) -> None:
        """Write that a request had no principal; a flood of them leaves ``ANONYMOUS_PER_S`` lines a second."""
        if self._anonymous.take(self._clock.now()) == 0.0:
            self.audit("anonymous", action, target, "not_authenticated", "no principal has the token")

    def arrival(self) -> None:
        """A request for a plan arrived."""
        self.arrivals += 1
        self.metrics.arrivals.inc()

    def record_refusal(self, request: TaskRequest, error: TimelyError) -> None:
        self.metrics.count_end("refused", "urgent" if request.tuf.urgent else "normal")
        if isinstance(error, RateLimited):
            self.record_limit(error)
        self.note("refused", agent=request.agent, code=error.code, detail=error.message)

    def record_limit(self, error: RateLimited) -> None:
        """A request was over a limit of its principal."""
        self.metrics.rate_limits.labels(error.where).inc()

    def record_admission(self, task: Task) -> None:
        request = task.request
        self.note(
            "task", task_id=task.task_id, agent=request.agent, app=request.app, robot=task.profile.name,
            skill_set=task.skill_set.name, task=request.task, scene=request.scene, history=request.history,
            replans=task.replans, tuf=server_task_utility_to_wire(request.tuf), urgency=request.urgency,
            priority=request.priority, app_requests=request.app_requests, max_tokens=request.max_tokens,
            expected_tokens=request.expected_tokens, network_s=task.network_s,
            trace_id=request.trace_id,
        )  # fmt: skip

    def record_prediction(self, record: Mapping[str, Any]) -> None:
        """A predicted level or length, or an operator's override, which also goes to the server's log."""
        fields = {"task_id": record["job"]}
        fields |= {key: value for key, value in record.items() if key not in ("event", "t_s", "job")}
        if record["event"] == "urgency_override":
            log.warning("urgency of %(task_id)s: %(from)s -> %(to)s, says %(operator)s: %(reason)s", fields)
        self.note(str(record["event"]), **fields)

    def record_release(self, task: Task, segment: Segment) -> None:
        self.metrics.segments.inc()
        self.note(
            "segment", task_id=task.task_id, index=segment.index, text=segment.text, tokens=segment.tokens,
            ready_s=self._log.since_s(segment.ready_s), execution_s=segment.execution_s, blocking=segment.blocking,
        )  # fmt: skip

    def report(self, report: ExecutionReport, *, news: bool) -> None:
        self.metrics.reports.labels(report.kind, "yes" if news else "no").inc()

    def report_news(self, task: Task, report: ExecutionReport) -> None:
        self.note("report", task_id=task.task_id, **report.to_dict())

    def record_generation(self, task: Task) -> None:
        done = task.done
        self.note(
            "generated", task_id=task.task_id, outcome=task.outcome,
            **{name: getattr(done, name, None) for name in ("tokens", *GENERATION_COUNTS)},
            **{name: self._log.since_s(getattr(done, name, None)) for name in ("first_token_s", "last_token_s")},
        )  # fmt: skip

    def record_end(self, task: Task, now: float) -> None:
        """Nothing more is expected of the task."""
        track, ending, since_s = task.track, task.ending, self._log.since_s
        outcome = ending.outcome if ending else "cancelled"
        self.metrics.count_end(
            outcome,
            task.kind,
            response_s=track.response_time_s,
            waiting_s=track.waiting_time_s,
            utility=task.utility(now),
            utility_max=task.request.tuf.beta,
        )
        numbers = task.numbers(now)
        self.note(
            "settled", task_id=task.task_id, outcome=outcome,
            code=ending.code if ending else "", detail=ending.detail if ending else "",
            **{name: numbers[name] for name in (
                "response_time_s", "waiting_time_s", "completion_time_s", "utility", "measured")},
            segments=[
                {"index": segment.index, "start_s": since_s(segment.start_s), "end_s": since_s(segment.end_s),
                 "reported": segment.started}
                for segment in track.segments
            ],
        )  # fmt: skip

        if self._traces is not None:
            self._traces.export(_task_span(task, now), task.request.traceparent)


def _task_span(task: Task, now: float) -> TraceSpan:
    """The span of a settled task: what was generated and executed, and when. It is made now, so it costs no task."""
    ending, done = task.ending, task.done
    children = []
    begun_s = done.first_token_s if done and done.first_token_s is not None else task.arrival_s
    ready_events = {event.index: event for event in task.past if isinstance(event, SegmentReady)}
    for segment in task.track.segments:
        event, ready_s = ready_events.get(segment.index), segment.ready_s
        begun_s = min(begun_s, ready_s)
        events = [("last token", ready_s)]
        if event is not None and event.first_token_s is not None:
            events.insert(0, ("first token", min(max(begun_s, event.first_token_s), ready_s)))
        counts = {
            "timely.segment": segment.index,
            "timely.engine_steps": (event and event.steps) or None,
            "gen_ai.usage.output_tokens": segment.tokens,
        }
        children.append(TraceSpan("generate", begun_s, ready_s, counts, events=tuple(events)))
        begun_s = ready_s
        if math.isfinite(segment.end_s - segment.start_s):
            attributes = {"timely.segment": segment.index, "timely.reported": segment.started}
            children.append(TraceSpan("execute", segment.start_s, segment.end_s, attributes))
    return TraceSpan(
        "task",
        task.arrival_s,
        now,
        {
            "timely.task_id": task.task_id,
            "timely.agent": task.request.agent,
            "timely.skill_set": task.skill_set.name,
            "timely.class": task.kind,
            "timely.outcome": task.outcome,
            "timely.cause": (ending and ending.cause) or None,
            "timely.utility": task.utility(now),
            "gen_ai.usage.input_tokens": done.prompt_tokens if done is not None else None,
            "gen_ai.usage.output_tokens": done.tokens if done is not None else None,
        },
        f"{ending.code}: {ending.detail}" if ending is not None and ending.is_error else "",
        children=tuple(children),
    )
