"""Limits and times of the server, each with its unit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the operator of a server may set.

    Attributes:
        max_live_tasks: tasks in generation at once; further ones are refused with ``overloaded``.
        urgent_share: share of ``max_live_tasks`` that only urgent tasks may use.
        refuse_below: refuse a task whose utility may fall below this share of its initial one; None: never. A task
            whose ``deadline_s`` is earlier than its predicted response is always refused.
        max_retained_tasks: ended tasks kept for late readers; the oldest of the principal that has most are removed
            first. As many complete plans wait for the first report of their robots; others end in the same order.
        retention_s: how long an ended task can still be read and resumed, seconds.
        grace_s: how long a generation runs without a reader before it is cancelled, seconds.
        max_task_s: longest life of a generation, seconds; then it ends as ``expired``.
        settle_s: wait for a first report after the expected end of a complete plan, seconds.
        settle_reporting_s: the same for a robot that has reported before, seconds.
        drain_s: how long plans and answers in generation may finish after SIGTERM, seconds; no task is admitted
            meanwhile.
        keepalive_s: silence after which an event stream carries a comment, seconds.
        send_timeout_s: how long a client may leave what was sent unread at a time, seconds. Altogether it may do so ten
            times as long, less the time in which it has read all.
        ack_timeout_s: how long a client's machine may acknowledge nothing before its connection ends, seconds; longer
            than a robot's client tries to come back.
        body_timeout_s: how long a request body may take to arrive, seconds.
        engine_timeout_s: deadline of the engine's answer to a report, a cancel or a query, seconds.
        engine_hang_s: an engine that has answered nothing for so long is killed and started again, seconds. Four times
            its longest answer so far, if that is more.
        stop_timeout_s: deadline of the engine's stop, seconds.
        admission_wait_s: wait for the engine's own refusal before a stream is opened, seconds.
        max_body_bytes: of a request body; ``max_openai_body_bytes``: of a body for the engine's OpenAI API.
        max_buffered_bytes: of all request bodies whose response has not begun; an eighth is not for chats.
        max_reports: most reports in one request.
        prompt_examples: put the skill set's examples into the prompt; a model trained for it needs none.
        prediction_batching: when predictors are called. ``immediate``: whenever none runs, with all waiting requests.
            ``full``: with ``prediction_batch`` requests, or when one has waited ``prediction_max_wait_s``.
        prediction_batch: most requests in one call of a predictor.
        prediction_max_wait_s: longest wait for a batch to fill, seconds.
        prediction_timeout_s: after that a request is queued without a prediction, seconds.
        max_connections: open connections and requests; further ones get 503 for all but stops and health.
        max_client_connections: the same for open connections of one address.
        max_header_bytes: of a request; header_timeout_s: how long a connection may take to send it, seconds.
        idle_timeout_s: how long a connection stays open between two requests, seconds.
        objectives: priority of a chat request by the objective that its gateway names; larger is more important.
        client_grammars: chats may ask for structured outputs; their grammars are compiled beside the robots' plans.
        max_readers: most event streams of one task with its token, and as many without.
        max_stop_deadline_s: longest wait of ``POST /v1/stop`` for acknowledgements, seconds.
        state_dir: folder of the latched stop and of the tasks, so that both hold over a restart; None keeps them in
            memory.
        flush_segments: a segment is on the disk before it is sent. Without, it is with the operating system, so that
            only the end of the whole machine can lose it.
        recovery_grace_s: as ``grace_s``, for generations of an earlier life of the server, seconds.
        audit_log: file to append one JSON line to for each action of a principal, or None.
        otlp_endpoint: URL that receives OpenTelemetry traces by OTLP over HTTP, or None.
        event_log: file to append one JSON line an event to, or None. Schema: ``timely.server.telemetry.event_log``.
    """

    max_live_tasks: int = 512
    urgent_share: float = 0.0625
    refuse_below: float | None = None
    max_retained_tasks: int = 2000
    retention_s: float = 300.0
    grace_s: float = 5.0
    max_task_s: float = 900.0
    settle_s: float = 5.0
    settle_reporting_s: float = 120.0
    drain_s: float = 0.0
    keepalive_s: float = 10.0
    send_timeout_s: float = 30.0
    ack_timeout_s: float = 60.0
    body_timeout_s: float = 10.0
    engine_timeout_s: float = 5.0
    engine_hang_s: float = 60.0
    stop_timeout_s: float = 15.0
    admission_wait_s: float = 0.02
    max_body_bytes: int = 256 * 1024
    max_openai_body_bytes: int = 16 * 1024 * 1024
    max_buffered_bytes: int = 128 * 1024 * 1024
    max_reports: int = 256
    prompt_examples: bool = True
    prediction_batching: Literal["immediate", "full"] = "immediate"
    prediction_batch: int = 64
    prediction_max_wait_s: float = 0.1
    prediction_timeout_s: float = 1.0
    max_connections: int = 4096
    max_client_connections: int = 1024
    max_header_bytes: int = 32 * 1024
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0
    objectives: Mapping[str, int] = field(default_factory=dict)
    client_grammars: bool = False
    max_readers: int = 8
    max_stop_deadline_s: float = 30.0
    state_dir: Path | None = None
    flush_segments: bool = False
    recovery_grace_s: float = 30.0
    otlp_endpoint: str | None = None
    audit_log: Path | None = None
    event_log: Path | None = None

    @property
    def promises_responses(self) -> bool:
        """Whether a task that is admitted has its first segment in time."""
        return self.refuse_below == 1.0
