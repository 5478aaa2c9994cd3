"""One task from the request to its last report, and its form on the wire."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from timely.core.errors import TimelyError, UnknownName
from timely.core.execution import ExecutionTrack
from timely.core.job import Segment
from timely.core.reports import ExecutionReport
from timely.disciplines.predictors.request_annotator import Annotation
from timely.engines.base import GenerationDone, PastReport, PlanHistory, SegmentReady
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import Operation, PlanCall, Value, Variable
from timely.plans.prompt import Prompt
from timely.plans.robot_profiles import RobotProfile
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_plan_segment
from timely.server.problems import problem_details
from timely.server.tasks.request import TaskRequest, server_task_utility_to_wire
from timely.server.tasks.task_events import TaskEvents

Outcome = Literal["complete", "cancelled", "failed", "unsafe_segment", "engine_failed", "refused", "expired"]
State = Literal["generating", "executing", "ended"]
GENERATION_COUNTS = ("prompt_tokens", "cached_tokens", "recomputed_tokens", "preemptions", "suspensions")
"""Of ``GenerationDone``: the numbers of tokens and events that a task's result and the event log have."""


@dataclass(frozen=True, slots=True)
class TaskEnding:
    """How a task ended. ``code`` and ``detail`` give the reason unless it is complete or cancelled."""

    outcome: Outcome
    code: str = ""
    detail: str = ""
    where: str = ""
    cause: Literal["", "no_reader", "fleet_stop"] = ""
    """Why a plan was cancelled without a request for it."""

    @property
    def is_error(self) -> bool:
        return bool(self.code)

    def problem(self) -> dict[str, Any]:
        return problem_details(self.code, self.detail, self.where).body()


@dataclass(eq=False, slots=True)
class Task:
    """A task and its state. Times are on the server's clock, seconds."""

    task_id: str
    token: str
    """Of its reports; empty for a task of an earlier life of the server, which keeps digests only."""
    token_digest: str
    request: TaskRequest
    skill_set: SkillSet
    profile: RobotProfile
    prompt: Prompt
    arrival_s: float
    network_s: float
    events: TaskEvents
    fingerprint: str = ""
    """Of what its plan follows from: prompt, skill set, robot and model."""
    track: ExecutionTrack = field(init=False)
    annotation: Annotation | None = None
    """Its urgency level with the source of it, and its predicted length."""
    owner: str = ""
    """Name of the principal that submitted it."""
    kv_tokens: int = 0
    """KV cache that its generation may hold, tokens; 0 where its principal had no limit."""
    value_wait_s: float = math.inf
    """How long its plan waits for a value after the expected end of the skill that returns it, seconds."""
    eta_s: float | None = None
    """When its first segment was predicted for at admission, seconds after the request came; None: not asked for."""
    replans: str | None = None
    """The task whose plan this one replaces."""
    executed_before: str = ""
    """What was executed of the plans that this one replaces."""
    past: list[SegmentReady | PastReport] = field(default_factory=list)
    """Segments that were sent and reports on them, in order: a restarted engine goes on behind them."""
    replaced_segments: int = 0
    """Segments of an earlier plan of this task, of a model or skill set that is no longer there."""
    parser: SegmentParser | None = None
    calls: list[list[dict[str, Any]]] = field(default_factory=list)
    """The calls of each released segment, as they went out."""
    state: State = "generating"
    ending: TaskEnding | None = None
    done: GenerationDone | None = None
    refusal: TimelyError | None = None
    """The engine's first answer was an error: the client gets it in place of a stream."""
    generated_s: float = math.nan
    settled_s: float = math.nan
    recovered_s: float = -math.inf
    """When a later life of the server took it up."""
    resumed: bool = False
    """Its generation goes on after a restart of the server or the engine."""
    stopping: bool = False
    """The generation is being ended early."""
    replanned_as: str | None = None
    """The task that replaced it."""
    readers: int = 0
    token_readers: int = 0
    """Readers with the token of the task."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """The engine has answered, or the generation is over."""
    reported: asyncio.Event = field(default_factory=asyncio.Event)
    """A report came since the event was cleared."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The generation is over."""
    runner: asyncio.Task[None] | None = None
    pump: asyncio.Task[None] | None = None
    grace: asyncio.Task[None] | None = None
    value_wait: asyncio.Task[None] | None = None
    """Ends the generation unless the value comes that it waits for."""

    def __post_init__(self) -> None:
        self.track = ExecutionTrack(self.arrival_s, self.network_s)
        self.reset_parser()

    @property
    def name(self) -> str:
        """The id by which its owner knows it: the one that it chose, also if a task of another principal has that."""
        return self.request.id or self.task_id

    @property
    def log_fields(self) -> dict[str, str]:
        """What a line of the log about the task has."""
        request = self.request
        fields = {"task_id": self.task_id, "robot": request.agent, "trace_id": request.trace_id}
        return {name: value for name, value in fields.items() if value}

    def reset_parser(self) -> None:
        """Check the next segment as the first one of a plan."""
        self.parser = SegmentParser(self.skill_set) if self.skill_set.language != "text" else None

    def check(self, text: str) -> list[PlanCall]:
        """The calls of the plan's next segment, parsed inside the blocks that earlier segments left open.

        Raises:
            UnsafeSegment: the segment must not reach the robot.
        """
        return check_plan_segment(text, self.skill_set, self.profile, parser_state=self.parser)

    def remember(self, report: ExecutionReport, at_s: float) -> None:
        """Keep a report of ``at_s`` in ``past``; of progress in a row, the first and the last."""
        event = PastReport(report, at_s)
        row = (*self.past[-2:], event)
        if len(row) == 3 and all(_is_task_progress(one, report.segment) for one in row):
            self.past.pop()
        self.past.append(event)

    def withdraw(self, segment: Segment) -> None:
        """Take the last segment back, which has not been sent."""
        if self.track.segments and self.track.segments[-1] is segment:
            self.track.segments.pop()
            self.calls.pop()
            self.past = [event for event in self.past if getattr(event, "index", None) != segment.index]

    @property
    def awaits_value(self) -> bool:
        """Its plan goes on when the robot reports the value of the last segment."""
        segments = self.track.segments
        return bool(segments) and segments[-1].blocking and segments[-1].index not in self.track.values

    @property
    def history(self) -> PlanHistory:
        """What an engine needs to go on with its plan."""
        return PlanHistory(self.arrival_s, tuple(self.past), self.replaced_segments)

    @property
    def kind(self) -> str:
        """Its class in reports and metrics."""
        return "urgent" if self.request.tuf.urgent else "normal"

    @property
    def outcome(self) -> Outcome | None:
        """None while it is open."""
        return None if self.ending is None else self.ending.outcome

    @property
    def plan(self) -> str:
        if self.done is not None and self.outcome == "complete":
            return self.done.text
        return "".join(segment.text for segment in self.track.segments)

    def utility(self, now: float) -> float:
        """Utility of its response time; before the first action, of the time since its arrival."""
        response_s = self.track.response_time_s
        if math.isnan(response_s):
            end_s = self.generated_s if not math.isnan(self.generated_s) else now
            response_s = end_s - self.arrival_s
        return self.request.tuf.value(response_s)

    def numbers(self, now: float) -> dict[str, Any]:
        """Its measures: durations in seconds, other times since its arrival, None without a value."""
        done = self.done
        return {
            "response_time_s": _task_number_data(self.track.response_time_s),
            "waiting_time_s": _task_number_data(self.track.waiting_time_s),
            "completion_time_s": _task_number_data(self.track.completion_time_s),
            "utility": round(self.utility(now), 6),
            "measured": self.track.measured,
            "tokens": done.tokens if done else sum(segment.tokens for segment in self.track.segments),
            **{name: getattr(done, name, None) for name in GENERATION_COUNTS},
            "first_token_s": self.since_arrival(done.first_token_s) if done else None,
            "last_token_s": self.since_arrival(done.last_token_s) if done else None,
        }

    def since_arrival(self, when_s: float | None) -> float | None:
        """A time of the clock, seconds after the task arrived."""
        return None if when_s is None else _task_number_data(when_s - self.arrival_s)

    def acceptance(self, *, with_token: bool = False) -> dict[str, Any]:
        """The data of its first event; only the response to the request has the token."""
        data: dict[str, Any] = {
            "task_id": self.name,
            "agent": self.request.agent,
            "skill_set": self.skill_set.name,
            "robot": self.profile.name,
            "tuf": server_task_utility_to_wire(self.request.tuf),
            "network_s": self.network_s,
            "replans": self.replans,
        }
        if self.eta_s is not None:
            data["eta_s"] = _task_number_data(self.eta_s)
        return {**data, "report_token": self.token} if with_token else data

    def segment(self, segment: Segment) -> dict[str, Any]:
        return {
            "task_id": self.name,
            "index": segment.index,
            "text": segment.text,
            "calls": self.calls[segment.index],
            "tokens": segment.tokens,
            "ready_s": self.since_arrival(segment.ready_s),
            "execution_s": _task_number_data(segment.execution_s),
            "due_s": self.since_arrival(segment.end_s),
            "blocking": segment.blocking,
        }

    def segment_event(self, segment: Segment) -> dict[str, Any]:
        """The data of the event that releases a segment."""
        return {**self.segment(segment), "skill_set_fingerprint": self.skill_set.fingerprint}

    def result(self, now: float) -> dict[str, Any]:
        """The data of its last event."""
        cause = self.ending.cause if self.ending is not None else ""
        return {
            "task_id": self.name,
            "outcome": self.outcome,
            "plan": self.plan,
            "tail": self.done.tail if self.done is not None else "",
            "segments": len(self.track.segments),
            **({"cause": cause} if cause else {}),
            **self.numbers(now),
        }

    def view(self, now: float) -> dict[str, Any]:
        """All of it but the token, for ``GET /v1/tasks/{id}``."""
        request, annotation = self.request, self.annotation
        urgency = None if annotation is None else annotation.urgency
        return {
            "task_id": self.name,
            "state": self.state,
            "outcome": self.outcome,
            "problem": self.ending.problem() if self.ending is not None and self.ending.is_error else None,
            "agent": request.agent,
            "app": request.app,
            "urgency": request.urgency if urgency is None else urgency.level,
            "urgency_source": None if urgency is None else urgency.source,
            "urgency_confidence": None if urgency is None else _task_number_data(urgency.confidence),
            "expected_tokens": (annotation or request).expected_tokens,
            "skill_set": self.skill_set.name,
            "robot": self.profile.name,
            "task": request.task,
            "scene": request.scene,
            "history": request.history,
            "replans": self.replans,
            "replanned_as": self.replanned_as,
            "tuf": server_task_utility_to_wire(request.tuf),
            "age_s": _task_number_data(now - self.arrival_s),
            "plan": self.plan,
            "segments": [
                {
                    **self.segment(segment),
                    "start_s": self.since_arrival(segment.start_s),
                    "end_s": self.since_arrival(segment.end_s),
                    "started": segment.started,
                    "done": segment.done,
                    "value": self.track.values.get(segment.index),
                }
                for segment in self.track.segments
            ],
            **self.numbers(now),
        }


def unknown_task(task_id: str) -> UnknownName:
    """The error for a task that does not exist, or that the requester may not see."""
    error = UnknownName("task", task_id, (), where="path.task_id")
    error.message = f"no task {task_id[:140]!r} here that you may see; ended ones are removed after a while"
    return error


def task_call_data(call: PlanCall) -> dict[str, Any]:
    """The wire form of a call: ``skill`` (full name) and ``args``."""
    return {"skill": call.skill, "args": [_task_value_data(argument) for argument in call.args]}


def _task_value_data(value: Value) -> Any:
    """The wire form of a value: a literal itself, or an object for what only the robot can evaluate."""
    if isinstance(value, Variable):
        return {"variable": value.name}
    if isinstance(value, PlanCall):
        return {"call": task_call_data(value)}
    if isinstance(value, Operation):
        return {
            "operator": value.op,
            "left": _task_value_data(value.left),
            "right": _task_value_data(value.right),
        }
    return value


def _task_number_data(value: float) -> float | None:
    """The number, or None where JSON has no form for it."""
    return round(value, 6) if math.isfinite(value) else None


def _is_task_progress(event: SegmentReady | PastReport, segment: int) -> bool:
    if isinstance(event, SegmentReady):
        return False
    return (event.report.kind, event.report.segment) == ("progress", segment)
