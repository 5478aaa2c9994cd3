"""What a replay hands to an engine and gets back: planned tasks in, one record a task out, engine-neutral.

A planned task carries the recorded plan with its token counts. So any engine generates exactly that plan, and only the
timing is its own.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

from timely.core.errors import UnknownName
from timely.core.execution import waiting_time_s
from timely.core.hints import NO_HINTS, RequestHints
from timely.engines.base import Mode
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import PLAN_MAX_TOKENS

Outcome = Literal["complete", "refused", "unfinished", "cancelled", "failed"]
"""``refused``: could never fit into the engine. ``unfinished``: the run ended (or was interrupted) before it did."""


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One segment of a recorded plan.

    Attributes:
        tokens: output tokens, one or more.
        execution_s: how long the robot really takes, seconds.
        estimate_s: what the server expects it to take, seconds; None: exactly ``execution_s``.
        blocking: generation waits for the value the robot returns at its end.
        forced: of each token, whether grammar and names leave no choice about it, so that it can be drafted; empty:
            of none.
    """

    text: str
    tokens: int
    execution_s: float
    estimate_s: float | None = None
    blocking: bool = False
    forced: tuple[bool, ...] = ()


BLOCK_ID_TOKENS = 512
"""Tokens of a block that ``PlannedTask.block_ids`` names, as in Mooncake's traces."""

PLAIN_MAX_TOKENS = 4096
"""Most output tokens of a plain request that names no limit."""


def engine_replay_limit_tokens(limit_tokens: int, output_tokens: int) -> int:
    """A request's limit, doubled until the recorded answer fits."""
    while limit_tokens < output_tokens:
        limit_tokens *= 2
    return limit_tokens


@cache
def _engine_plan_max_tokens(skill_set: str) -> int:
    """Most output tokens of a plan whose request names no limit, as ``timely serve`` has it."""
    try:
        return find_skill_set(skill_set).max_tokens
    except UnknownName:
        return PLAN_MAX_TOKENS


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One task of a trace. ``arrival_s`` is when the service receives it, seconds from the trace's origin.

    ``prefix`` names the shared beginning of the prompt (skill set and robot); ``shared_prefix_tokens`` of the
    ``prompt_tokens`` belong to it. A request that needs the answers of others of its application names them in
    ``after``. It is sent ``after_s`` seconds after the last of them ended, never before ``arrival_s``. ``max_tokens``
    is the limit it names; None: the default of its skill set.
    """

    job: int | str
    arrival_s: float
    plan: tuple[PlannedSegment, ...]
    prompt_tokens: int = 1
    shared_prefix_tokens: int = 0
    prefix: str = ""
    block_ids: tuple[int, ...] = ()
    """Of an imported trace: names of the prompt's blocks of ``BLOCK_ID_TOKENS`` tokens, the last one perhaps shorter.
    Prompts whose first blocks have the same names begin alike; ``prefix`` then says nothing."""
    hints: RequestHints = NO_HINTS
    robot: str = ""
    skill_set: str = ""
    task: str = ""
    scene: str = ""
    acceptance: float | None = None
    segment_bound: int | None = None
    """Longest segment of its skill set, tokens; None: the replay's default."""
    max_tokens: int | None = None
    after: tuple[int | str, ...] = ()
    after_s: float = 0.0
    plain: bool = False
    """An ordinary request: its one segment is the whole answer, whose length the engine does not know."""
    by_first_token: bool = False
    """An ordinary request whose time-utility function is about its first token, not about the whole answer."""
    whole_answer: bool = False
    """No ordinary request, but its one segment is the whole answer all the same: no skill set bounds it."""
    admission_s: float | None = None
    """What this one takes to the engine (simulator); None: what ``ReplayOptions`` says."""

    @property
    def prefix_path(self) -> tuple[tuple[str | int, int], ...]:
        """The beginning of its prompt in parts that other prompts may have too: name, and position of the end."""
        if self.block_ids:
            return tuple(
                (name, BLOCK_ID_TOKENS * number) for number, name in enumerate(self.block_ids, start=1)
            )
        return ((self.prefix, self.shared_prefix_tokens),) if self.shared_prefix_tokens else ()

    @property
    def output_tokens(self) -> int:
        return sum(segment.tokens for segment in self.plan)

    @property
    def limit_tokens(self) -> int:
        """The most output tokens that disciplines read: its limit, doubled until the recorded plan fits.

        The length of the plan is not theirs to know, and a live server does not know it either.
        """
        limit = self.max_tokens or (
            PLAIN_MAX_TOKENS if self.plain else _engine_plan_max_tokens(self.skill_set)
        )
        return engine_replay_limit_tokens(limit, self.output_tokens)


@dataclass(slots=True)
class JobRecord:
    """What happened to one task. Times are absolute seconds from the trace's origin; nan: never happened.

    ``arrived_s`` is the trace's arrival, or later for a task that waits for others (``PlannedTask.after``).
    ``ready_s``, ``start_s`` and ``end_s`` hold one entry a segment that reached the robot.
    """

    task: PlannedTask
    outcome: Outcome = "unfinished"
    arrived_s: float = math.nan
    first_token_s: float = math.nan
    last_token_s: float = math.nan
    admitted_s: float = math.nan
    """Start of the first step it took part in."""
    preemptions: int = 0
    recomputed_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache at its first admission."""
    output_tokens: int = 0
    ready_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    note: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.arrived_s):
            self.arrived_s = self.task.arrival_s

    @property
    def response_time_s(self) -> float:
        """Arrival to the start of the first action, or to the first token at its reader, seconds; nan before that."""
        if self.task.by_first_token:
            return self.first_token_s + self.task.hints.network_s - self.arrived_s
        return self.start_s[0] - self.arrived_s if self.start_s else math.nan

    @property
    def waiting_time_s(self) -> float:
        """How long the robot had nothing to execute, seconds; nan before any segment."""
        return waiting_time_s(self.arrived_s, zip(self.start_s, self.end_s, strict=True))

    def utility(self, now: float) -> float:
        """Utility of its response time; a task without a response counts with its age at ``now``.

        So it may count in full if ``now`` is shortly after its arrival, although it is refused.
        """
        latency = self.response_time_s
        return self.task.hints.utility.value(
            max(0.0, now - self.arrived_s) if math.isnan(latency) else latency
        )


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a trace is to be replayed; every engine understands all of it or refuses.

    Attributes:
        discipline: a registered name.
        profile: name or file of a step-time profile (simulator), or of a model (live engine); None: its default.
        max_batch: most sequences in a step; None: the profile's.
        token_budget: most tokens in a step; None: the profile's.
        kv_blocks: None: the profile's.
        max_resident: most jobs that may hold KV at once, parked ones included; None: as many as blocks allow.
        prefill_chunk: most prompt tokens of one job in a step; None: the token budget.
        segment_bound: longest segment, tokens, where the trace does not say (TimelyLLM section 7.1: 10).
        eviction: what becomes of an evicted job's context: ``recompute`` everything, ``swap`` everything, or ``auto``,
            the one that the profile makes cheaper. With ``discipline`` what the discipline keeps moves to host memory,
            if the profile has a rate for that; the rest is computed again.
        estimate_factor: estimates of execution times are this times the truth ...
        estimate_noise: ... times a log-normal factor of this sigma.
        warm_prefixes: shared prefixes are in the prefix cache from the start, as on a server that has been running.
        keep_prefixes: shared prefixes are the last that the prefix cache gives up, as those of ``timely serve``.
            Simulator only.
        closed_loop: robots report when a segment starts and ends, which replaces estimates.
        learned_speed: the discipline learns step times online, as in the live engine; False: it is given the
            profile's own.
        journal: keep the decisions (needed by ``timely explain``).
        draft_tokens: most draft tokens a round of speculative decoding, for requests that give their acceptance and
            for forced tokens (``timely serve --jump-ahead``). None: the profile's, by default 0 (no speculation).
            Simulator only.
        admission_s: what a task takes from its arrival to the engine's queue, seconds; tasks pass one after the other.
            Of tasks that arrive together an engine that sleeps begins a step with the first. Simulator only.
        step_noise: step times scatter log-normally with this sigma around the profile's, as drawn by ``seed``.
        prompt_noise: the same of steps with prompts; as ``step_noise`` unless given.
            Simulator only: a real machine has noise of its own.
        until_s: stop there; None: when all is done.
    """

    discipline: str = "timely"
    mode: Mode = "segmented"
    profile: str | None = None
    max_batch: int | None = None
    token_budget: int | None = None
    kv_blocks: int | None = None
    max_resident: int | None = None
    prefill_chunk: int | None = None
    seed: int = 0
    segment_bound: int = 10
    eviction: Literal["discipline", "recompute", "swap", "auto"] = "discipline"
    estimate_factor: float = 1.0
    estimate_noise: float = 0.0
    warm_prefixes: bool = False
    keep_prefixes: bool = False
    closed_loop: bool = True
    learned_speed: bool = True
    journal: bool = True
    draft_tokens: int | None = None
    admission_s: float = 0.0
    step_noise: float = 0.0
    prompt_noise: float | None = None
    until_s: float | None = None


@dataclass(slots=True)
class BackendRun:
    """What an engine gives back.

    Attributes:
        records: one per task, in the order of arrival.
        end_s: time of the last event, seconds from the trace's origin.
        counters: steps, tokens and the like, all deterministic on the simulator.
        series: columns over time (``t_s``, ``waiting``, ``running``, ``parked``, ``kv_used`` ...).
        journal: decisions in the compact form of ``timely.engines.replay_journal``; None when none was kept.
    """

    records: list[JobRecord]
    end_s: float
    profile: str
    partial: bool = False
    counters: dict[str, float | int] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    journal: dict[str, Any] | None = None


def utility_share(records: Sequence[JobRecord], end_s: float) -> float:
    """Utility of the tasks over the largest possible one; nan of no tasks."""
    maximum = sum(record.task.hints.utility.beta for record in records)
    return sum(record.utility(end_s) for record in records) / maximum if records else math.nan


Progress = Callable[[float, int, int], None]
"""Called now and then with (time in the trace, tasks arrived, tasks finished)."""


class Backend(Protocol):
    """An engine that can replay. ``KeyboardInterrupt`` ends a run early and gives what is done, ``partial``."""

    name: str

    def replay(
        self, tasks: Iterable[PlannedTask], options: ReplayOptions, progress: Progress | None = None
    ) -> BackendRun:
        """Run all tasks, which come in order of arrival.

        Raises:
            InvalidInput: an option it cannot honour, a profile it cannot read.
            EngineFailed: it died.
        """
