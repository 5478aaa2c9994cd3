"""Jobs and their segments, and the table that holds every job's numbers as columns.

Disciplines look at all jobs at every scheduling point, so what they read lies in numpy columns (struct of
arrays), one row a job, dense. Everything else about a job is in ``JobSpec`` and ``Job``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np

from timely.core.arrays import Bools, Floats, Ints
from timely.core.hints import NO_HINTS, RequestHints

JobId = Hashable
"""Any hashable name: vLLM's request id in the live engine, the trace's job number in the simulator."""

PLAIN_SEGMENT_TOKENS = 32
"""Longest segment that disciplines assume of a plain request, tokens."""

NEVER = math.inf
"""A due or resume time that does not come by itself."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What is known of a generation when it arrives.

    Attributes:
        job_id: unique among live jobs.
        arrival_s: on the scheduler's clock, seconds.
        cached_tokens: prompt tokens expected in the prefix cache at arrival.
        segment_tokens: longest segment of its skill set under this tokenizer (TimelyLLM section 4.4), tokens.
        segmented: parks at segment boundaries. Plain requests and the modes ``stream`` and ``whole`` do not.
        plain: an ordinary request that closes no segment; its reader needs each token when it has the one before.
        whole_answer: its one segment is the whole answer, which no skill set bounds.
        acceptance: draft acceptance rate 0..1 of speculative decoding, or None.
        text: what predictors may read: the task, in words; a function where finding it out takes time.
        adapter: number of the LoRA adapter that computes it; 0: none.
    """

    job_id: JobId
    arrival_s: float
    hints: RequestHints = NO_HINTS
    prompt_tokens: int = 1
    cached_tokens: int = 0
    max_tokens: int = 512
    segment_tokens: int = 10
    segmented: bool = True
    plain: bool = False
    whole_answer: bool = False
    acceptance: float | None = None
    text: str | Callable[[], str] = ""
    adapter: int = 0

    @property
    def words(self) -> str:
        """``text``, found out if need be."""
        return self.text if isinstance(self.text, str) else self.text()


@dataclass(slots=True)
class Segment:
    """An executable piece of a plan and its times (all absolute, seconds, on the scheduler's clock).

    The three latencies of TimelyLLM Fig. 3 follow. The response time is the start of segment 0 minus the arrival. The
    waiting time of segment k is ``start_s`` minus the end of segment k-1, or the arrival. Completion is the last end.
    """

    index: int
    text: str
    tokens: int
    ready_s: float
    execution_s: float
    """Execution time by the robot's profile."""
    blocking: bool = False
    """Generation cannot go on before the robot returns a value."""
    pace: float = 1.0
    """What the robot's earlier reports make of the profile's time: a factor."""
    start_s: float = math.nan
    end_s: float = math.nan
    started: bool = False
    done: bool = False

    @property
    def expected_s(self) -> float:
        """Expected execution time until a report of this segment says otherwise, seconds."""
        return self.execution_s * self.pace


@dataclass(slots=True, eq=False)
class Job:
    """A live generation. Its numbers are in row ``row`` of ``table``; rows move, so ask each time."""

    spec: JobSpec
    table: JobTable
    row: int
    segments: list[Segment] = field(default_factory=list)
    preemptions: int = 0
    recomputed_tokens: int = 0
    awaiting: int | None = None
    """Index of the blocking segment whose value is awaited."""
    ready: bool = True
    """The engine can run it. False while its grammar compiles or its KV cache is loaded, for example."""
    parked: bool = False
    """Closed a segment and has not taken part in a step since (it may be runnable again)."""
    outcome: str = ""
    """How it ended; set just before the discipline hears ``finished``, empty while it lives."""

    @property
    def job_id(self) -> JobId:
        """Its unique name."""
        return self.spec.job_id

    def answer(self) -> bool:
        """The awaited value has come; true if that of another segment is awaited, closed by the same token."""
        if self.awaiting is not None:
            later = self.segments[self.awaiting + 1 :]
            self.awaiting = next((segment.index for segment in later if segment.blocking), None)
        return self.awaiting is not None


class JobTable:
    """Columns of all live jobs; ``table.alpha`` is an array of shape ``(len(table),)``.

    Rows are dense: removing a job moves the last row into its place.
    """

    arrival_s: Floats
    ert_s: Floats
    alpha: Floats
    beta: Floats
    network_s: Floats  # delay to the robot
    due_s: Floats
    """When the robot needs segment k: the arrival, then the end of segment k-1.
    Of a plain request, when its reader got the newest token."""
    resume_s: Floats
    """Runnable from then on; NEVER while it awaits a value or is not ready; -inf when not parked."""
    priority: Floats  # vLLM's own priority
    expected_tokens: Floats  # predicted output tokens; nan when unknown
    pace_s: Floats  # longest time from a token to the next that a plain request bears; nan when it says none
    attained_s: Floats  # engine time spent on it so far
    rank: Floats  # the discipline's own number for the job: written by its hooks, it moves with the row
    sequence: Ints  # arrival number: the last tie-breaker
    segment: Ints  # k: index of the segment in generation
    segment_bound: Ints  # longest segment, tokens
    segment_tokens: Ints  # tokens already generated of segment k
    output_tokens: Ints  # tokens generated in all
    prompt_tokens: Ints
    context_tokens: Ints  # tokens in its KV cache
    end_tokens: Ints  # longest context that it may reach
    prefill_left: Ints  # tokens to compute before the next one can be sampled (0 while decoding)
    blocks: Ints  # KV blocks held
    shared_blocks: Ints  # of them, those that other jobs hold anyway: nothing gained by leaving
    urgency: Ints  # 0..4; 5 when unknown
    adapter: Ints  # LoRA adapter; 0: none
    draft_tokens: Ints  # drafts that its next decoding step verifies beside its own token
    resident: Bools  # holds KV blocks
    active: Bools  # in the execution pool: took part in a step since it was last parked
    segmented: Bools
    plain: Bools  # closes no segment
    whole_answer: Bools  # its one segment is the whole answer
    promised: Bools  # admitted on a prediction that its response comes in time

    def __init__(self, capacity: int = 64) -> None:
        types: dict[type[np.generic], list[str]] = {}
        for name, kind in COLUMNS.items():
            types.setdefault(kind, []).append(name)
        self._stores: dict[tuple[str, ...], np.ndarray] = {
            tuple(names): np.zeros((len(names), capacity), dtype=kind) for kind, names in types.items()
        }
        """The columns of each type in one array, a row each, so that moving a job takes few operations."""
        self.jobs: list[Job] = []
        self._by_id: dict[JobId, Job] = {}
        self._rows: dict[JobId, int] = {}
        self._ids = np.empty(capacity, dtype=np.object_)
        self._last_ids: Sequence[JobId] = []
        self._last_rows: Ints = np.empty(0, dtype=np.int64)
        self._capacity = capacity
        self._arrivals = 0
        self._views()

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def has_all(self, job_ids: Set[JobId]) -> bool:
        return job_ids <= self._by_id.keys()

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._by_id

    def __getitem__(self, job_id: JobId) -> Job:
        return self._by_id[job_id]

    def get(self, job_id: JobId) -> Job | None:
        return self._by_id.get(job_id)

    def rows(self, job_ids: Sequence[JobId]) -> Ints:
        """Rows of these jobs, in order; -1 for a job that is not in the table. Not to be written to.

        A step asks several times for the same jobs, so the last answer is kept until a job leaves.
        """
        if job_ids != self._last_ids:
            rows = np.fromiter(map(self._rows.get, job_ids, repeat(-1)), dtype=np.int64, count=len(job_ids))
            if len(rows) and rows.min() < 0:
                return rows
            self.note_rows(job_ids, rows)
        return self._last_rows

    def note_rows(self, job_ids: Sequence[JobId], rows: Ints) -> None:
        """``rows`` are those of these jobs: the next call of ``rows`` for the same jobs need not look for them."""
        self._last_ids, self._last_rows = job_ids, rows

    def ids(self, rows: Ints) -> list[JobId]:
        job_ids: list[JobId] = self._ids[rows].tolist()
        return job_ids

    def add(self, spec: JobSpec) -> Job:
        """Append a row for a new job; its prompt is wholly to be computed but for ``cached_tokens``.

        Raises:
            KeyError: a live job has that id.
        """
        if spec.job_id in self._by_id:
            raise KeyError(f"job {spec.job_id!r} is already here")
        row = len(self.jobs)
        if row == self._capacity:
            self._grow()
        job = Job(spec, self, row)
        self.jobs.append(job)
        self._by_id[spec.job_id] = job
        self._rows[spec.job_id] = row
        self._ids[row] = spec.job_id
        self._views()
        self.arrival_s[row] = self.due_s[row] = spec.arrival_s
        hints = spec.hints
        self.ert_s[row] = hints.utility.ert_s
        self.alpha[row] = hints.utility.alpha
        self.beta[row] = hints.utility.beta
        self.network_s[row] = hints.network_s
        self.resume_s[row] = -math.inf
        self.priority[row] = hints.priority
        self.expected_tokens[row] = math.nan if hints.expected_tokens is None else hints.expected_tokens
        self.pace_s[row] = math.nan if hints.pace_s is None else hints.pace_s
        self.attained_s[row] = self.rank[row] = 0.0
        self.sequence[row] = self._arrivals
        self._arrivals += 1
        self.segment[row] = self.segment_tokens[row] = self.output_tokens[row] = self.draft_tokens[row] = 0
        self.segment_bound[row] = spec.segment_tokens
        self.prompt_tokens[row] = spec.prompt_tokens
        self.end_tokens[row] = spec.prompt_tokens + spec.max_tokens
        self.context_tokens[row] = self.blocks[row] = self.shared_blocks[row] = 0
        self.prefill_left[row] = max(1, spec.prompt_tokens - spec.cached_tokens)
        self.urgency[row] = 5 if hints.urgency is None else hints.urgency
        self.adapter[row] = spec.adapter
        self.resident[row] = self.active[row] = False
        self.segmented[row] = spec.segmented
        self.plain[row] = spec.plain
        self.whole_answer[row] = spec.whole_answer
        self.promised[row] = hints.promised
        return job

    def remove(self, job_id: JobId) -> Job:
        """Take a job out; the last row moves into its place."""
        return self.remove_together((job_id,))[0]

    def remove_together(self, job_ids: Sequence[JobId]) -> list[Job]:
        self.note_rows([], np.empty(0, dtype=np.int64))
        jobs = [self._by_id.pop(job_id) for job_id in job_ids]
        origins: dict[int, int] = {}
        """Where the content of rows comes from that is not in its place."""
        for job in jobs:
            last = self.jobs.pop()
            del self._rows[job.job_id]
            origin = origins.pop(last.row, last.row)
            self._ids[last.row] = None
            if last is not job:
                origins[job.row] = origin
                self.jobs[job.row] = last
                self._ids[job.row] = last.job_id
                self._rows[last.job_id] = last.row = job.row
            job.row = -1
        if origins:
            targets, sources = np.array(list(origins)), np.array(list(origins.values()))
            for store in self._stores.values():
                store[:, targets] = store.take(sources, axis=1)
        self._views()
        return jobs

    def _grow(self) -> None:
        self._capacity *= 2
        for names, store in self._stores.items():
            wider = np.zeros((len(names), self._capacity), dtype=store.dtype)
            wider[:, : store.shape[1]] = store
            self._stores[names] = wider
        self._ids = np.concatenate((self._ids, np.empty(self._capacity - len(self._ids), dtype=np.object_)))

    def _views(self) -> None:
        rows, columns = len(self.jobs), self.__dict__
        for names, store in self._stores.items():
            for name, column in zip(names, store[:, :rows], strict=True):
                columns[name] = column


COLUMNS: dict[str, type[np.generic]] = {
    name: {"Floats": np.float64, "Ints": np.int64, "Bools": np.bool_}[kind]
    for name, kind in JobTable.__annotations__.items()
}
"""Columns of a table and their types."""
