"""The interface every engine offers to the server, the replayer and the tests: requests in, segments out."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from timely.core.errors import EngineFailed, Unsupported
from timely.core.hints import NO_HINTS, RequestHints
from timely.core.job import PLAIN_SEGMENT_TOKENS, Job, JobId, JobSpec, Segment
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import DisciplineInfo

MAX_OUTPUT_TOKENS = 4096
"""Most tokens of one generation that a client may ask for."""

Mode = Literal["segmented", "stream", "whole"]
"""``segmented``: park at each boundary (TimelyLLM). ``stream``: generate on, send each segment (vLLM-stream).
``whole``: generate on, send the finished plan as one (vLLM)."""

FinishReason = Literal["complete", "length", "cancelled", "failed"]


def engine_job_spec(
    job_id: JobId,
    arrival_s: float,
    hints: RequestHints,
    mode: Mode,
    *,
    prompt_tokens: int,
    cached_tokens: int,
    max_tokens: int,
    plain: bool = False,
    whole_answer: bool = False,
    segment_tokens: int | None = None,
    acceptance: float | None = None,
    text: str | Callable[[], str] = "",
    adapter: int = 0,
) -> JobSpec:
    """The job of a request, the same on every engine; the arguments are the fields of ``JobSpec``.

    Args:
        mode: only ``segmented`` parks at boundaries, and plain requests have none.
        segment_tokens: None for a plain request, whose segments disciplines only assume.
    """
    if mode == "whole" and not plain:
        # The plan is one segment: of how long it is, only its limit says anything.
        whole_answer, segment_tokens = True, max_tokens
    return JobSpec(
        job_id=job_id,
        arrival_s=arrival_s,
        hints=hints,
        prompt_tokens=max(1, prompt_tokens),
        cached_tokens=cached_tokens,
        max_tokens=max_tokens,
        segment_tokens=PLAIN_SEGMENT_TOKENS if segment_tokens is None else segment_tokens,
        segmented=mode == "segmented" and not plain,
        plain=plain,
        whole_answer=whole_answer,
        acceptance=acceptance,
        text=text,
        adapter=adapter,
    )


ForcedSegment = tuple[str, int, float] | tuple[str, int, float, bool]
"""Text, tokens and execution time in seconds; the fourth, true: the generation waits for the robot's value."""


@dataclass(frozen=True, slots=True)
class ForcedPlan:
    """What a replay or a calibration generates, instead of what the model would.

    Attributes:
        segments: the plan; boundaries follow its token counts. Empty: an ordinary request, which has none.
        prompt_token_ids: the exact prompt; None: from the text.
        output_token_ids: the exact output; None: the model's own tokens.
        stop_token_id: it ends the answer before the limit that the request names; None: only that limit does.
        segment_tokens: longest segment of the skill set, tokens; None: that of this plan.
        whole_answer: the one segment is the whole answer, which no skill set bounds.
    """

    segments: tuple[ForcedSegment, ...]
    prompt_token_ids: Sequence[int] | None = None
    output_token_ids: Sequence[int] | None = None
    stop_token_id: int | None = None
    segment_tokens: int | None = None
    whole_answer: bool = False


@dataclass(frozen=True, slots=True)
class PastReport:
    """A report that an earlier life of the server took at ``at_s``, seconds on the engine's clock."""

    report: ExecutionReport
    at_s: float


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """What happened to a plan before the server or its engine was restarted.

    Attributes:
        arrival_s: when the task arrived, seconds on the engine's clock.
        events: segments that were sent and reports on them, in order.
        replaced_segments: so many first segments belong to plans that this one replaces. The prompt describes them,
            and the context does not have their tokens.
    """

    arrival_s: float
    events: tuple[SegmentReady | PastReport, ...] = ()
    replaced_segments: int = 0

    @property
    def segments(self) -> list[SegmentReady]:
        """The segments that were sent."""
        return [event for event in self.events if isinstance(event, SegmentReady)]

    @property
    def own_segments(self) -> list[SegmentReady]:
        """Those of this plan: the generation goes on behind them."""
        return self.segments[self.replaced_segments :]

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One plan to generate.

    Attributes:
        task_id: unique among live tasks.
        prompt: the full prompt text, chat template not yet applied.
        system: the fixed part (skills, guidance, examples); kept in the prefix cache.
        skill_set: name of the skill set: gives the grammar and the boundaries.
        robot: name of the robot profile: gives the execution-time model.
        constrained: decode under the skill set's grammar.
        task: what is asked, in the words that predictors read; empty: the prompt.
        hints: what the scheduler may go by.
        forced: for replays: what is generated, exactly.
        keep_prompt: the prompt's blocks are the last that the prefix cache gives up.
        history: a plan that was begun before a restart, which goes on behind its segments.
        arrival_s: when the task arrived, seconds on the engine's clock; None: on its arrival in the engine.
        skill_set_fingerprint: of the copy by which the segments are checked; an engine that reads another copy refuses
            the plan. Empty: it is not compared.
    """

    task_id: str
    prompt: str
    system: str = ""
    task: str = ""
    skill_set: str = ""
    robot: str = ""
    hints: RequestHints = NO_HINTS
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    constrained: bool = True
    forced: ForcedPlan | None = None
    keep_prompt: bool = False
    history: PlanHistory | None = None
    arrival_s: float | None = None
    skill_set_fingerprint: str = ""

    @property
    def words(self) -> str:
        """What predictors read."""
        return self.task or self.prompt


@dataclass(frozen=True, slots=True)
class SegmentReady:
    """A closed segment, checked against nothing yet but its boundary.

    Attributes:
        ready_s: when it was complete in the engine, seconds on the engine's clock.
        execution_s: execution time by the robot's profile, seconds.
        due_s: when the robot is expected to have finished it, seconds on the engine's clock.
        blocking: the generation waits for a value report on this segment.
        pace: what this robot's earlier reports make of the profile's time: a factor.
        token_ids: what the model generated for it; empty where the engine has no tokens.
        last: the plan ended with it.
        steps: engine steps that gave tokens of it; 0: not known, as after a restart.
        first_token_s: when its first token came, seconds on the engine's clock; None: not known.
    """

    task_id: str
    index: int
    text: str
    tokens: int
    ready_s: float
    execution_s: float
    due_s: float
    blocking: bool = False
    pace: float = 1.0
    token_ids: tuple[int, ...] = ()
    last: bool = False
    steps: int = 0
    first_token_s: float | None = None

    @classmethod
    def of(
        cls,
        task_id: str,
        segment: Segment,
        *,
        blocking: bool,
        token_ids: Sequence[int] = (),
        last: bool = False,
        steps: int = 0,
        first_token_s: float | None = None,
    ) -> SegmentReady:
        """The event of a segment that was released."""
        return cls(
            task_id=task_id,
            index=segment.index,
            text=segment.text,
            tokens=segment.tokens,
            ready_s=segment.ready_s,
            execution_s=segment.execution_s,
            due_s=segment.end_s,
            blocking=blocking,
            pace=segment.pace,
            token_ids=tuple(token_ids),
            last=last,
            steps=steps,
            first_token_s=first_token_s,
        )

    def segment(self) -> Segment:
        return Segment(
            index=self.index,
            text=self.text,
            tokens=self.tokens,
            ready_s=self.ready_s,
            execution_s=self.execution_s,
            blocking=self.blocking,
            pace=self.pace,
        )


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The last event of a generation.

    Attributes:
        text: everything generated. ``tail`` is what followed the last segment without completing one.
        recomputed_tokens: tokens computed more than once (evictions); 0 without memory pressure.
        suspensions: how often it was parked.
    """

    task_id: str
    reason: FinishReason
    text: str
    tail: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    suspensions: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    error: str = ""


EngineEvent = SegmentReady | GenerationDone


JobState = Literal["waiting", "running", "parked", "blocked", "evicted"]


@dataclass(frozen=True, slots=True)
class JobView:
    """One line of the live view. Times are seconds; ``slack_s`` is until the robot runs dry (or the ERT)."""

    task_id: str
    agent: str
    state: JobState
    segment: int
    slack_s: float
    output_tokens: int
    urgent: bool

    @classmethod
    def of(cls, task_id: str, job: Job, state: JobState, now: float) -> JobView:
        """The line of a live job."""
        table, row, hints = job.table, job.row, job.spec.hints
        segment = int(table.segment[row])
        grace_s = 0.0 if segment else hints.utility.ert_s
        slack_s = float(table.due_s[row]) + grace_s - now
        tokens = int(table.output_tokens[row])
        return cls(task_id, hints.agent, state, segment, slack_s, tokens, hints.utility.urgent)


NOTHING_AHEAD: Mapping[str, RequestHints] = MappingProxyType({})

URGENT_ROOM = 0.1
"""Share of the time of other tasks that their admission leaves to urgent tasks which come later."""


@dataclass(frozen=True, slots=True)
class ResponsePrediction:
    """The time until the first segment of a request that comes now is complete, seconds.

    Attributes:
        eta_s: as likely too long as too short.
        upper_s: 98% of urgent requests and 91.25% of others take less. It is at least the time that makes no promised
            response late.
    """

    eta_s: float
    upper_s: float

    def comes_before(self, limit_s: float, *, urgent: bool) -> bool:
        """Whether the first segment all but surely comes in that time, with room left for urgent tasks to come."""
        return self.upper_s <= limit_s * (1.0 if urgent else 1.0 - URGENT_ROOM)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine; all counters since its start."""

    engine: str
    discipline: str
    mode: Mode
    now_s: float
    waiting: int = 0
    running: int = 0
    parked: int = 0
    blocked: int = 0
    runnable: int = 0
    """Waiting or running, without parked ones that lost their KV cache."""
    kv_usage: float = 0.0
    """0..1."""
    evictable_kv: float = 0.0
    """Share of all KV cache that parked generations hold alone, 0..1."""
    backlog_s: Mapping[str, float] = field(default_factory=dict)
    """Predicted work of runnable generations by class, seconds."""
    busy_s: float = 0.0
    """Time of all steps."""
    steps: int = 0
    tokens: int = 0
    segments: int = 0
    evictions: int = 0
    recomputed_tokens: int = 0
    step_s: float = 0.0
    """Time of a recent step."""
    decide_s: float = 0.0
    """Time of a recent scheduling decision."""
    jobs: tuple[JobView, ...] = ()
    paces: Mapping[str, float] = field(default_factory=dict)
    """By agent, for robots that have reported: measured over expected execution time, 0.5 to 1."""


class Engine(ABC):
    """Generates plans in segments. All methods are safe to call concurrently from one event loop."""

    name: str
    planner_skill_sets: frozenset[str] = frozenset()
    """Skill sets that the loaded model was trained to plan for: their prompts need no examples."""

    @property
    def identity(self) -> str:
        """What generates: a plan goes on only where it is equal."""
        return self.name

    @abstractmethod
    async def start(self) -> None:
        """Load what is needed; returns when requests can be taken.

        Raises:
            EngineFailed: it could not start; the message says why.
        """

    @abstractmethod
    async def stop(self) -> None:
        """End all generations and release everything; safe to call twice."""

    async def answer(self) -> None:
        """Return when the engine has ended the step that it computes; for the supervisor, which sets a limit."""
        await self.stats()

    async def kill(self) -> None:
        """End an engine that answers nothing; ``wait_dead`` returns then."""
        await self.stop()

    @property
    def dead(self) -> bool:
        """It was started and has ended by itself."""
        return False

    async def wait_dead(self) -> EngineFailed:
        """Return when the engine, which has been started, ends by itself; the error says why.

        It can be started again after ``stop``.
        """
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    @abstractmethod
    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        """Generate: ``SegmentReady`` in order, each once, then one ``GenerationDone``.

        A request with a history goes on with the segment after its last one; earlier ones do not come again.

        Closing the iterator early cancels the generation and frees its KV cache. A reader that does not read
        delays no other one.

        Raises:
            InvalidInput: at the first ``anext``: the request cannot be served (prompt too long, unknown names).
            Conflict: it cannot go on with the request's history.
            EngineDied: the engine ended. EngineFailed: it broke its contract.
        """

    @abstractmethod
    async def report(self, task_id: str, report: ExecutionReport) -> None:
        """Take a report of the robot, which replaces the estimate. Unknown or finished tasks are ignored.

        Raises:
            Conflict: the task has no such segment yet, or it awaits no value.
        """

    @abstractmethod
    async def cancel(self, task_id: str) -> bool:
        """End a generation now; its iterator yields ``GenerationDone`` with reason ``cancelled``. False if unknown."""

    @abstractmethod
    async def set_discipline(self, name: str) -> None:
        """Switch the queue discipline while serving; nothing is lost or repeated.

        Raises:
            UnknownName: no such discipline.
        """

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        """Set the urgency level of a live generation, as an operator decided. False if it is not live.

        Raises:
            InvalidInput: no such level. Unsupported: this engine cannot.
        """
        raise Unsupported(f"engine {self.name!r} cannot change the urgency of a task", where="urgency")

    @abstractmethod
    async def stats(self) -> EngineStats:
        """A snapshot, cheap enough to take several times a second."""

    async def predict_response(
        self, utility: TimeUtility, ahead: Mapping[str, RequestHints] = NOTHING_AHEAD
    ) -> ResponsePrediction | None:
        """When a request of that utility would be served that comes now; None: not known.

        Args:
            ahead: of admitted tasks that may not have reached the engine, by id.
        """
        return None

    def disciplines(self) -> tuple[DisciplineInfo, ...]:
        """What ``set_discipline`` takes, the default first. Imports every discipline: not for a hot path."""
        return tuple(registry.discipline_infos())

    async def tokenize(self, text: str) -> list[int]:
        """Token ids of ``text`` under the engine's tokenizer, or one id a word where there is none."""
        return list(range(len(text.split())))

    def metrics_page(self) -> bytes:
        """Metrics of the engine's own for Prometheus, beside those that the server makes of ``stats``; may be empty."""
        return b""

    @property
    def special_texts(self) -> frozenset[str]:
        """Texts that the engine's tokenizer reads as special tokens, such as ``<|im_end|>``."""
        return frozenset()

    @property
    def max_prompt_tokens(self) -> int:
        return 1 << 20

    def end_answers(self) -> None:
        """End the answers of ``openai_app`` that are in generation, with an error: the server shuts down."""

    def openai_fields(self, hints: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """Fields for the body of an OpenAI request, by which ``openai_app`` gets its hints in the same asyncio task.

        Args:
            hints: checked, by their names under ``timely``.
        """
        return {"timely": dict(hints)}
