"""Records what happens to tasks: event log, metrics and running totals, in one place."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timely.core.clock import Clock
from timely.core.errors import TimelyError
from timely.core.job import Segment
from timely.core.reports import ExecutionReport
from timely.engines.base import EngineStats
from timely.server.access.principals import Principal
from timely.server.tasks.request import TaskRequest, task_utility_to_wire
from timely.server.tasks.task import Task
from timely.server.telemetry.event_log import EventLog
from timely.server.telemetry.metrics import ServerMetrics
from timely.server.telemetry.totals import Totals

log = logging.getLogger(__name__)


class TaskRecorder:
    """Counts and logs; changes no task.

    Attributes:
        arrived: requests for plans since the start, refused ones included.
        totals: sums over the ended tasks, by class.
    """

    def __init__(self) -> None:
        self.metrics = ServerMetrics()
        self.arrived = 0
        self.totals: dict[str, Totals] = {"urgent": Totals(), "normal": Totals()}
        self._log: EventLog | None = None
        self._audit_log: EventLog | None = None

    def open(self, event_log: Path | None, audit_log: Path | None, clock: Clock) -> None:
        """Open the event log and the audit log; blocks on the disk.

        Raises:
            InvalidInput: a file cannot be opened.
        """
        self._audit_log = EventLog(audit_log, clock)
        self._log = EventLog(event_log, clock)

    def started(self, stats: EngineStats) -> None:
        """The engine runs."""
        if self._log is not None:
            self._log.opened(stats.engine, stats.discipline, stats.mode)

    def close(self) -> None:
        """Close the logs; blocks on the disk."""
        for file in (self._log, self._audit_log):
            if file is not None:
                file.close()

    def note(self, event: str, **fields: Any) -> None:
        """Write an event of any kind."""
        if self._log is not None:
            self._log.write(event, **fields)

    @contextmanager
    def audited(self, principal: Principal, action: str, target: str) -> Iterator[None]:
        """Write what a principal did, or why it was refused, to the audit log."""
        code = detail = ""
        try:
            yield
        except TimelyError as error:
            code, detail = error.code, error.message
            raise
        finally:
            if self._audit_log is not None:
                self._audit_log.write(
                    "audit",
                    wall_time=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    principal=principal.name,
                    action=action,
                    target=target,
                    allowed=not code,
                    code=code,
                    detail=detail,
                )

    def arrival(self) -> None:
        """A request for a plan arrived."""
        self.arrived += 1
        self.metrics.arrived.inc()

    def refused(self, request: TaskRequest, error: TimelyError) -> None:
        """The request did not become a task."""
        self._count("refused", "urgent" if request.tuf.urgent else "normal")
        self.note("refused", agent=request.agent, code=error.code, detail=error.message)

    def admitted(self, task: Task) -> None:
        """The request became a task."""
        request = task.request
        self.note(
            "task", task_id=task.task_id, agent=request.agent, app=request.app, robot=task.profile.name,
            skill_set=task.skill_set.name, task=request.task, scene=request.scene, history=request.history,
            replans=task.replans, tuf=task_utility_to_wire(request.tuf), urgency=request.urgency,
            priority=request.priority,
            network_s=task.network_s,
        )  # fmt: skip

    def predicted(self, record: Mapping[str, Any]) -> None:
        """A predicted level or length, or an operator's override, which also goes to the server's log."""
        fields = {"task_id": record["job"]}
        fields |= {key: value for key, value in record.items() if key not in ("event", "t_s", "job")}
        if record["event"] == "urgency_override":
            log.warning("urgency of %(task_id)s: %(from)s -> %(to)s, says %(operator)s: %(reason)s", fields)
        self.note(str(record["event"]), **fields)

    def released(self, task: Task, segment: Segment) -> None:
        """A segment is on its way to the robot."""
        self.metrics.segments.inc()
        self.note(
            "segment", task_id=task.task_id, index=segment.index, text=segment.text, tokens=segment.tokens,
            ready_s=self._since(segment.ready_s), execution_s=segment.execution_s, blocking=segment.blocking,
        )  # fmt: skip

    def report(self, report: ExecutionReport, *, news: bool) -> None:
        """A robot reported."""
        self.metrics.reports.labels(report.kind, "yes" if news else "no").inc()

    def report_news(self, task: Task, report: ExecutionReport) -> None:
        """A report changed the estimates."""
        self.note("report", task_id=task.task_id, **report.to_dict())

    def generated(self, task: Task) -> None:
        """The generation is over."""
        done = task.done
        self.note(
            "generated", task_id=task.task_id, outcome=task.outcome,
            prompt_tokens=done.prompt_tokens if done else None, cached_tokens=done.cached_tokens if done else None,
            tokens=done.tokens if done else None, recomputed_tokens=done.recomputed_tokens if done else None,
            preemptions=done.preemptions if done else None, suspensions=done.suspensions if done else None,
            first_token_s=self._since(done.first_token_s) if done else None,
            last_token_s=self._since(done.last_token_s) if done else None,
        )  # fmt: skip

    def settled(self, task: Task, now: float) -> None:
        """Nothing more is expected of the task."""
        track, ending = task.track, task.ending
        outcome = ending.outcome if ending else "cancelled"
        self._count(
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
                {"index": segment.index, "start_s": self._since(segment.start_s), "end_s": self._since(segment.end_s),
                 "reported": segment.started}
                for segment in track.segments
            ],
        )  # fmt: skip

    def _count(self, outcome: str, kind: str, **measures: float) -> None:
        self.metrics.settled(outcome, kind, **measures)
        self.totals[kind].add(outcome, **measures)

    def _since(self, when_s: float | None) -> float | None:
        return self._log.since_s(when_s) if self._log is not None else None
