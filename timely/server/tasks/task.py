"""One task as the server keeps it, from the request to its last report, and how it looks from outside."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from timely.core.errors import TimelyError
from timely.core.execution import ExecutionTrack
from timely.core.job import Segment
from timely.core.utility import NORMAL, TimeUtility
from timely.disciplines.predictors.request_annotator import Annotation
from timely.engines.base import GenerationDone
from timely.plans.language.parser import SegmentParser
from timely.plans.language.syntax import Call, Operation, Value, Variable
from timely.plans.robot_profiles import RobotProfile
from timely.plans.skill_set import SkillSet
from timely.plans.validation import check_segment
from timely.server.problems import problem
from timely.server.tasks.task_events import EventLog

Outcome = Literal["complete", "cancelled", "failed", "unsafe_segment", "engine_failed", "refused", "expired"]
State = Literal["generating", "executing", "ended"]


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What a client asks for. Fields: see the schema of ``POST /v1/tasks``; None takes the skill set's default."""

    task: str
    skill_set: str
    robot: str | None = None
    scene: str = ""
    history: str = ""
    utility: TimeUtility = NORMAL
    agent: str = ""
    app: str | None = None
    urgency: int | None = None
    app_requests: int | None = None
    expected_tokens: float | None = None
    priority: float = 0.0
    max_tokens: int | None = None
    temperature: float = 0.0
    seed: int | None = None
    network_s: float | None = None
    deadline_s: float | None = None
    task_id: str | None = None
    report_token: str | None = None
    replans: str | None = None
    """The task whose plan this one replaces."""
    executed_before: str = ""
    """What was carried out of the plans that this one replaces."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a task ended. ``code`` and ``detail`` say why when it is not simply complete or cancelled."""

    outcome: Outcome
    code: str = ""
    detail: str = ""
    where: str = ""

    @property
    def is_error(self) -> bool:
        """The client learns of it by an ``error`` event."""
        return bool(self.code)

    def problem(self) -> dict[str, Any]:
        """As problem details."""
        return problem(self.code, self.detail, self.where).body()


@dataclass(eq=False, slots=True)
class Task:
    """A task and everything the server knows about it. Times are on the server's clock, seconds."""

    task_id: str
    token: str
    request: TaskRequest
    skill_set: SkillSet
    profile: RobotProfile
    arrival_s: float
    network_s: float
    events: EventLog
    track: ExecutionTrack = field(init=False)
    annotation: Annotation | None = None
    """What its request went on with: its urgency level and who says so, and its predicted length."""
    parser: SegmentParser | None = None
    calls: list[list[dict[str, Any]]] = field(default_factory=list)
    """The calls of each released segment, as they went out."""
    state: State = "generating"
    ending: Ending | None = None
    done: GenerationDone | None = None
    refusal: TimelyError | None = None
    """The engine's first word was an error: it goes to the client instead of a stream."""
    generated_s: float = math.nan
    settled_s: float = math.nan
    stopping: bool = False
    """Somebody is ending the generation."""
    replanned_as: str | None = None
    """The task that has taken its place."""
    readers: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """The engine has said something, or the generation is over."""
    reported: asyncio.Event = field(default_factory=asyncio.Event)
    """A report has come since the last look."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The generation is over."""
    runner: asyncio.Task[None] | None = None
    pump: asyncio.Task[None] | None = None
    grace: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.track = ExecutionTrack(self.arrival_s, self.network_s)
        if self.skill_set.language != "text":
            self.parser = SegmentParser(self.skill_set)

    def check(self, text: str) -> list[Call]:
        """The calls of the plan's next segment, understood in the blocks that earlier ones left open.

        Raises:
            UnsafeSegment: it must not reach the robot.
        """
        return check_segment(text, self.skill_set, self.profile, parser_state=self.parser)

    @property
    def kind(self) -> str:
        """Its class in reports and metrics."""
        return "urgent" if self.request.utility.urgent else "normal"

    @property
    def outcome(self) -> Outcome | None:
        """None while it is open."""
        return None if self.ending is None else self.ending.outcome

    @property
    def plan(self) -> str:
        """The text that went to the robot."""
        if self.done is not None and self.outcome == "complete":
            return self.done.text
        return "".join(segment.text for segment in self.track.segments)

    def utility(self, now: float) -> float:
        """Utility of its response time; of the time it has taken so far while there is no first action."""
        response_s = self.track.response_time_s
        if math.isnan(response_s):
            end_s = self.generated_s if not math.isnan(self.generated_s) else now
            response_s = end_s - self.arrival_s
        return self.request.utility.value(response_s)

    def numbers(self, now: float) -> dict[str, Any]:
        """Its measures; durations in seconds, other times since its arrival, None where there is nothing yet."""
        done = self.done
        return {
            "response_time_s": _number(self.track.response_time_s),
            "waiting_time_s": _number(self.track.waiting_time_s),
            "completion_time_s": _number(self.track.completion_time_s),
            "utility": round(self.utility(now), 6),
            "measured": self.track.measured,
            "tokens": done.tokens if done else sum(segment.tokens for segment in self.track.segments),
            "prompt_tokens": done.prompt_tokens if done else None,
            "cached_tokens": done.cached_tokens if done else None,
            "recomputed_tokens": done.recomputed_tokens if done else None,
            "preemptions": done.preemptions if done else None,
            "suspensions": done.suspensions if done else None,
            "first_token_s": self.since_arrival(done.first_token_s) if done else None,
            "last_token_s": self.since_arrival(done.last_token_s) if done else None,
        }

    def since_arrival(self, when_s: float | None) -> float | None:
        """A time of the clock, seconds after the task arrived."""
        return None if when_s is None else _number(when_s - self.arrival_s)

    def segment(self, segment: Segment) -> dict[str, Any]:
        """A released segment as its event has it."""
        return {
            "task_id": self.task_id,
            "index": segment.index,
            "text": segment.text,
            "calls": self.calls[segment.index],
            "tokens": segment.tokens,
            "ready_s": self.since_arrival(segment.ready_s),
            "execution_s": _number(segment.execution_s),
            "due_s": self.since_arrival(segment.end_s),
            "blocking": segment.blocking,
        }

    def result(self, now: float) -> dict[str, Any]:
        """How it ended, as its last event has it."""
        return {
            "task_id": self.task_id,
            "outcome": self.outcome,
            "plan": self.plan,
            "tail": self.done.tail if self.done is not None else "",
            "segments": len(self.track.segments),
            **self.numbers(now),
        }

    def view(self, now: float) -> dict[str, Any]:
        """All of it but the token, for ``GET /v1/tasks/{id}``."""
        request = self.request
        return {
            "task_id": self.task_id,
            "state": self.state,
            "outcome": self.outcome,
            "problem": self.ending.problem() if self.ending is not None and self.ending.is_error else None,
            "agent": request.agent,
            "app": request.app,
            "urgency": request.urgency if self.annotation is None else self.annotation.urgency.level,
            "urgency_source": None if self.annotation is None else self.annotation.urgency.source,
            "urgency_confidence": None
            if self.annotation is None
            else _number(self.annotation.urgency.confidence),
            "expected_tokens": request.expected_tokens
            if self.annotation is None
            else self.annotation.expected_tokens,
            "skill_set": self.skill_set.name,
            "robot": self.profile.name,
            "task": request.task,
            "scene": request.scene,
            "history": request.history,
            "replans": request.replans,
            "replanned_as": self.replanned_as,
            "tuf": tuf(request.utility),
            "age_s": _number(now - self.arrival_s),
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


def tuf(utility: TimeUtility) -> dict[str, float]:
    """A time-utility function as the wire has it."""
    return {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta}


def call_data(call: Call) -> dict[str, Any]:
    """A call as the wire has it: ``skill`` (full name) and ``args``."""
    return {"skill": call.skill, "args": [_value(argument) for argument in call.args]}


def _value(value: Value) -> Any:
    """Literals as themselves; what only the robot can evaluate as an object that says what it is."""
    if isinstance(value, Variable):
        return {"variable": value.name}
    if isinstance(value, Call):
        return {"call": call_data(value)}
    if isinstance(value, Operation):
        return {"operator": value.op, "left": _value(value.left), "right": _value(value.right)}
    return value


def _number(value: float) -> float | None:
    """JSON knows no nan."""
    return round(value, 6) if math.isfinite(value) else None
