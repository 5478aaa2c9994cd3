"""What a queue discipline is: from the table of jobs and a step's limits to the composition of that step.

Pure: time is an argument, and there is no clock, no I/O and no engine here. The decision is plain data
(``StepPlan``), so it can be printed, compared and replayed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, Self

from timely.core import arrays
from timely.core.errors import InvalidInput
from timely.core.job import Job, JobId, JobSpec, JobTable

Floats = arrays.Floats
Rows = arrays.Ints


class Speed(Protocol):
    """What the engine has learned about its own step times."""

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        """Predicted time of one step, seconds; without ``context_tokens`` its sequences attend to as many as usual."""

    @property
    def token_s(self) -> float:
        """Time the most recent tokens took, each, seconds (TimelyLLM section 4.4)."""

    @property
    def prefill_token_s(self) -> float:
        """Predicted time a prompt token adds to a step, seconds."""

    def mixing_s(self, context_tokens: float) -> float:
        """What prompts and decoding sequences in one step add to it, beside what each adds, seconds.

        Args:
            context_tokens: sum over the decoding sequences of the tokens they attend to.
        """


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """An image or another input in a prompt that the encoder computes before the prompt goes on.

    Attributes:
        begin, end: its tokens in the prompt, counted from the first one still to be computed.
        embeddings: what it takes of the encoder's budget and cache.
        key: equal for equal inputs; they are computed and stored once.
        stored: the encoder cache holds it, so it takes nothing of the budget.
    """

    begin: int
    end: int
    embeddings: int
    key: str
    stored: bool


class Encoder(Protocol):
    """What the encoder of images and other inputs can do in a step."""

    @property
    def budget(self) -> int:
        """Most embeddings computed in the step."""

    @property
    def cache(self) -> int:
        """Embeddings that the encoder cache holds; jobs outside the step lay no claim to it."""

    @property
    def whole(self) -> bool:
        """Whether a chunk of a prompt must not end inside an input."""

    def inputs(self, job: Job) -> Iterable[EncoderInput]:
        """The inputs of the job's prompt still to be passed, in order."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step may hold.

    Attributes:
        now: seconds, the clock of the table.
        token_budget: most tokens computed in the step.
        max_batch: most sequences in the step.
        max_resident: most jobs that may hold KV at once (parked ones included), a slot each.
        prefill_chunk: most prompt tokens of one job in the step.
        free_blocks: KV blocks that can be taken without an eviction.
        block_tokens: tokens a KV block holds.
        speed: step times as learned so far.
        ending_rows: decoding rows whose last token a step in flight computes. A plan may name them; they take a slot,
            but neither tokens nor blocks.
        max_adapters: most LoRA adapters in the step; None: the engine serves none.
        encoder: computes images and the like; None: the engine serves none.
        swap_s_per_token: to bring one token's KV back from host memory, seconds; ``inf`` where the engine cannot.
        headroom_blocks: free blocks that an admission has to leave.
        cache_blocks: KV blocks of the engine; 0: the free ones and those that jobs hold.
        defers_prompts: the step computes no prompt but for a last token.
        drafter_tokens: of the budget, that a drafter takes for each sequence beside those that the sequence computes.
    """

    now: float
    token_budget: int
    max_batch: int
    max_resident: int
    prefill_chunk: int
    free_blocks: int
    block_tokens: int
    speed: Speed
    swap_s_per_token: float = math.inf
    ending_rows: frozenset[int] = frozenset()
    max_adapters: int | None = None
    encoder: Encoder | None = None
    headroom_blocks: int = 0
    cache_blocks: int = 0
    defers_prompts: bool = False
    drafter_tokens: int = 0


@dataclass(slots=True)
class StepPlan:
    """The composition of a step.

    Attributes:
        tokens: job id -> tokens to compute for it in this step, most important first. 1 for a decoding job,
            whatever draft tokens it has.
        evict: jobs that lose their KV cache before the step, in order.
        keep: evicted job id -> tokens of its context to save to host memory, the last ones, instead of computing
            them again. Jobs not named, and engines that cannot, save none.
        wake_s: when nothing runs: the next time a decision may change by itself; ``inf`` if only an event can.
        limited_by: why runnable jobs were left out (``batch``, ``tokens``, ``memory`` ...); empty: none were.
        rows: of the jobs in ``tokens`` and in their order, right until a job leaves the table; empty: not noted.
        keys: rows that were ranked, and the key of each, larger first, for records; None: no numbers ranked them.
        steady: the next steps are bound to equal this one. That ends when a job joins, closes a segment, becomes
            runnable or runs short of blocks.
    """

    tokens: dict[JobId, int] = field(default_factory=dict)
    evict: list[JobId] = field(default_factory=list)
    keep: dict[JobId, int] = field(default_factory=dict)
    wake_s: float = math.inf
    limited_by: str = ""
    steady: bool = False
    rows: Sequence[int] = field(default=(), compare=False, repr=False)
    keys: tuple[Rows, Floats] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DisciplineInfo:
    """How ``timely disciplines`` presents a discipline."""

    name: str
    summary: str
    source: str
    needs: tuple[str, ...] = ()
    good_at: str = ""
    starves: str = ""
    """Empty, or which requests may starve and why the source accepts that."""


class Discipline(ABC):
    """Decides each step. Hooks keep a discipline's own structures; all are optional."""

    info: ClassVar[DisciplineInfo]
    predictor_kind: ClassVar[str] = ""
    """Kind of the predictor files it takes (``predictor_kind``); empty: it takes none."""

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        """The discipline with what it predicts by read from a file.

        Raises:
            InvalidInput: it predicts nothing, or this is no such file.
        """
        raise InvalidInput(f"{cls.info.name!r} takes no predictor file, got {path}", where="discipline")

    def knowledge(self) -> object | None:
        """What it has learned while serving, to be handed on to another one of its ``predictor_kind``."""
        return None

    def recall(self, knowledge: object) -> None:
        """Go on with what another one of its ``predictor_kind`` has learned; before any job arrives."""

    @abstractmethod
    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """Compose the next step. Must not change the table.

        Jobs with ``resume_s > now`` are not runnable: no step starts for them. A parked one that holds its KV cache
        may take part in a step that runs anyway, unless it awaits a value (``resume_s`` NEVER).
        """

    def check(self, spec: JobSpec) -> None:
        """Asked before a job joins: whether this discipline can take it. Changes nothing.

        Raises:
            InvalidInput: it cannot; the message names the field. The job never existed.
        """

    def arrived(self, job: Job, now: float) -> None:
        """A job has joined the table."""

    @property
    def follows_tokens(self) -> bool:
        """Whether it has to be informed of each job that progressed; an engine may leave these calls out otherwise."""
        return type(self).progressed is not Discipline.progressed

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        """``tokens`` new output tokens exist for the job."""

    def accepted(self, job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        """Speculative decoding: of ``draft_tokens`` verified in one step ``right_tokens`` were right.

        Called before ``progressed`` of the same step, by engines that speculate.
        """

    def parked(self, job: Job, now: float) -> None:
        """The job closed a segment and is suspended until its ``resume_s``."""

    def due_changed(self, job: Job, now: float) -> None:
        """A report or a value moved ``due_s`` or ``resume_s``, or an operator the urgency."""

    def evicted(self, job: Job, now: float) -> None:
        """The job lost its KV cache."""

    def finished(self, job: Job, now: float) -> None:
        """The job is about to leave the table, for whatever reason."""

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        """Work that need not wait for the next scheduling point, done while the accelerator computes.

        An engine may leave it out: ``compose`` decides the same without it. ``limits`` are the last step's.
        """

    def lead_s(self, job: Job, speed: Speed) -> float:
        """How long before the robot runs dry a parked generation becomes runnable, seconds.

        It covers the longest segment of the skill set at the recent speed, twice. Added are the computation of an
        evicted context and the way to the robot.
        """
        bound = float(job.table.segment_bound[job.row])
        context_s = float(job.table.prefill_left[job.row]) * speed.prefill_token_s
        return 2.0 * bound * speed.token_s + context_s + job.spec.hints.network_s + 0.05
