"""Disciplines whose waiting requests stand in a heap: groups by rank, first come first served within a group.

Non-preemptive, as vLLM is and as Justitia section IV-C keeps it: a request that has begun is served until it ends.
Waiting requests enter in order of their group's rank as space allows. Choosing the next one is O(log n); nothing is
recomputed for requests that wait.
"""

import heapq
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import Discipline, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.step_builder import StepBuilder, discipline_next_wake_s

Group = Hashable

MAX_BARRED = 64
"""Most waiting jobs that are passed over in a step because their LoRA adapter has no place in it."""


@dataclass(slots=True)
class _Line:
    """The waiting jobs of one group: a heap by order, of which ``alive`` have not been removed."""

    age: int
    jobs: list[tuple[int, JobId]] = field(default_factory=list)
    alive: int = 0


class DisciplineGroupQueue:
    """Waiting jobs in groups: the group of least rank first, ties by the group's age, then by the job's order.

    A rank that rises is noticed when its group comes up; one that falls must be told with ``lowered``. Removed
    jobs and outdated entries are dropped when they come up, and all at once when they outnumber the rest. So
    every operation is O(log n), amortised.

    Args:
        rank: a group's rank now; smaller first.
    """

    def __init__(self, rank: Callable[[Group], float]) -> None:
        self._rank = rank
        self._heap: list[tuple[float, int, int, Group]] = []
        """Rank when entered, age, number of the entry (so that groups are never compared), group."""
        self._lines: dict[Group, _Line] = {}
        self._members: dict[JobId, Group] = {}
        self._entries = 0
        self._entry_number = 0

    def __len__(self) -> int:
        return len(self._members)

    def has(self, group: Group) -> bool:
        line = self._lines.get(group)
        return line is not None and line.alive > 0

    def push(self, job_id: JobId, order: int, group: Group, age: int) -> None:
        """Let a job wait; one that waits already stays where it is.

        Args:
            order: place within its group; smaller first.
            age: tie-breaker between groups of equal rank, smaller first; the group's first waiting job says it.
        """
        if job_id in self._members:
            return
        if self._entries + len(self._heap) > 4 * len(self._members) + 64:
            self._compact()
        self._members[job_id] = group
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = _Line(age)
            self._enter(group, age)
        heapq.heappush(line.jobs, (order, job_id))
        line.alive += 1
        self._entries += 1

    def lowered(self, group: Group) -> None:
        """The group's rank has fallen; ignored for a group without waiting jobs."""
        line = self._lines.get(group)
        if line is not None:
            self._enter(group, line.age)

    def remove(self, job_id: JobId) -> None:
        """The job waits no more, wherever it stood."""
        group = self._members.pop(job_id, None)
        if group is not None:
            self._lines[group].alive -= 1

    def peek(self) -> JobId | None:
        """The job whose turn it is, or None."""
        while self._heap:
            rank, age, _, group = self._heap[0]
            line = self._lines.get(group)
            if line is None or line.alive == 0:
                heapq.heappop(self._heap)
                if line is not None:
                    self._entries -= len(line.jobs)
                    del self._lines[group]
                continue
            current = self._rank(group)
            if current > rank:
                self._entry_number += 1
                heapq.heapreplace(self._heap, (current, age, self._entry_number, group))
                continue
            while line.jobs[0][1] not in self._members:
                heapq.heappop(line.jobs)
                self._entries -= 1
            return line.jobs[0][1]
        return None

    def pop(self) -> JobId | None:
        job_id = self.peek()
        if job_id is not None:
            line = self._lines[self._members.pop(job_id)]
            heapq.heappop(line.jobs)
            line.alive -= 1
            self._entries -= 1
        return job_id

    def _enter(self, group: Group, age: int) -> None:
        self._entry_number += 1
        heapq.heappush(self._heap, (self._rank(group), age, self._entry_number, group))

    def _compact(self) -> None:
        self._lines = {group: line for group, line in self._lines.items() if line.alive > 0}
        self._heap.clear()
        for group, line in self._lines.items():
            line.jobs = [entry for entry in line.jobs if entry[1] in self._members]
            heapq.heapify(line.jobs)
            self._enter(group, line.age)
        self._entries = sum(len(line.jobs) for line in self._lines.values())


class QueueDiscipline(Discipline):
    """Jobs that have begun run on; then evicted requests, then fresh ones, each by the rank of its group.

    A parked generation has begun. When its robot needs it, it goes ahead of all that have not, as vLLM's swapped
    requests do (Justitia, footnote 3). While parked it is the first to give up its KV cache. Subclasses say which
    group a job belongs to and how groups rank.
    """

    def __init__(self) -> None:
        self._fresh = DisciplineGroupQueue(self.rank)
        self._evicted_queue = DisciplineGroupQueue(self.rank)
        self._newcomers: list[JobId] = []
        """Composed as newcomers last time; whether the engine really started them shows in the table."""
        self._asleep: set[JobId] = set()
        """Evicted while parked: they queue when they are runnable."""

    # ------------------------------------------------------------------ what a subclass decides

    @abstractmethod
    def group(self, job: Job) -> Group:
        """The group a live job waits in; never another one while it lives."""

    @abstractmethod
    def rank(self, group: Group) -> float:
        """The group's rank now; smaller goes first."""

    @abstractmethod
    def age(self, group: Group) -> int:
        """Tie-breaker between groups of equal rank, never the same for two and never changing; smaller goes first."""

    def picked(self, job: Job) -> None:
        """The job has just joined the plan as a newcomer; may raise its group's rank until ``planned``."""

    def begun(self, job: Job) -> None:
        """The engine has started a newcomer of the last plan; called at the next scheduling point."""

    def planned(self) -> None:
        """The plan is made; what ``picked`` changed must be as before, and said by ``lowered``."""

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float) -> None:
        """Queue it; a job taken over from another discipline may have begun already."""
        table, row = job.table, job.row
        table.rank[row] = self.rank(self.group(job))
        if not bool(table.resident[row]):
            self._enqueue(job, now)

    def evicted(self, job: Job, now: float) -> None:
        self._enqueue(job, now)

    def finished(self, job: Job, now: float) -> None:
        self._fresh.remove(job.job_id)
        self._evicted_queue.remove(job.job_id)
        self._asleep.discard(job.job_id)

    def _enqueue(self, job: Job, now: float) -> None:
        table, row = job.table, job.row
        if float(table.resume_s[row]) > now:
            self._asleep.add(job.job_id)
        elif int(table.output_tokens[row]) == 0 and job.preemptions == 0:
            self._push(self._fresh, job)
        else:
            self._push(self._evicted_queue, job)

    def _push(self, queue: DisciplineGroupQueue, job: Job) -> None:
        group = self.group(job)
        queue.push(job.job_id, int(job.table.sequence[job.row]), group, self.age(group))

    # ------------------------------------------------------------------ composing

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        if len(table) == 0:
            return StepPlan()
        self._settle(table, limits.now)
        parked_rows = np.flatnonzero(table.resident & (table.resume_s > limits.now))
        pool = self._in_order(table, np.flatnonzero(table.resident & (table.resume_s <= limits.now)))
        admitting = False

        def victims() -> Iterator[int]:
            yield from parked_rows[
                np.lexsort((table.sequence[parked_rows], -table.resume_s[parked_rows]))
            ].tolist()
            if not admitting:
                yield from reversed(pool)

        builder = StepBuilder(table, limits, victims)
        for row in pool:
            if builder.full:
                break
            builder.add(row)
        # Had a running one to give up its blocks, there is no room for newcomers.
        if len(builder.plan.evict) <= parked_rows.size and all(
            float(table.resume_s[table[job_id].row]) > limits.now for job_id in builder.plan.evict
        ):
            admitting = True
            self._admit(table, limits, builder, parked_rows)
        plan = builder.plan
        if not plan.tokens:
            plan.wake_s = discipline_next_wake_s(table, limits.now)
        if len(plan.tokens) < len(pool) or len(self._fresh) or len(self._evicted_queue):
            plan.limited_by = "batch" if builder.slots <= 0 else "tokens" if builder.budget <= 0 else "memory"
        # A waiting job cannot enter before one leaves, and a running one is not interrupted.
        plan.steady = builder.prefill_tokens == 0 and not plan.evict and len(plan.tokens) == len(pool)
        plan.steady = plan.steady and not self._newcomers
        return plan

    def _admit(self, table: JobTable, limits: StepLimits, builder: StepBuilder, parked_rows: Rows) -> None:
        deferrals: list[tuple[DisciplineGroupQueue, Job]] = []
        self._admit_in_turn(table, limits, builder, parked_rows, deferrals)
        self.planned()
        for queue, job in deferrals:
            self._push(queue, job)

    def _admit_in_turn(
        self,
        table: JobTable,
        limits: StepLimits,
        builder: StepBuilder,
        parked_rows: Rows,
        deferrals: list[tuple[DisciplineGroupQueue, Job]],
    ) -> None:
        """Admit waiting jobs until one does not fit; ``deferrals`` receives those taken out of their queue."""
        for queue in (self._evicted_queue, self._fresh):
            while not builder.full:
                job = self._next(queue, table, limits.now)
                if job is None:
                    break
                if builder.is_barred(job.row) and len(deferrals) < MAX_BARRED:
                    # It waits for an adapter and takes nothing from those behind it.
                    queue.pop()
                    deferrals.append((queue, job))
                    continue
                if not self._fits(limits, builder, job.row, parked_rows) or not builder.add(job.row):
                    # Nothing less important may take the blocks this one is waiting for.
                    return
                queue.pop()
                self._newcomers.append(job.job_id)
                self.picked(job)

    def _next(self, queue: DisciplineGroupQueue, table: JobTable, now: float) -> Job | None:
        """Whose turn it is; entries the table has overtaken are put right on the way."""
        while (job_id := queue.peek()) is not None:
            job = table.get(job_id)
            if job is not None and not bool(table.resident[job.row]):
                if float(table.resume_s[job.row]) <= now:
                    return job
                self._asleep.add(job_id)
            queue.remove(job_id)
        return None

    def _settle(self, table: JobTable, now: float) -> None:
        """Take back what was offered and not started; wake the sleepers whose time has come."""
        for job_id in self._newcomers:
            job = table.get(job_id)
            if job is None:
                continue
            if bool(table.resident[job.row]):
                self.begun(job)
            elif job_id not in self._asleep:
                self._enqueue(job, now)
        self._newcomers.clear()
        if self._asleep:
            # Those that have not begun were never parked; leaving them out keeps this short.
            parked_once = (table.segment > 0) | (table.resume_s > -np.inf)
            for row in np.flatnonzero(~table.resident & parked_once & (table.resume_s <= now)).tolist():
                job = table.jobs[row]
                if job.job_id in self._asleep:
                    self._asleep.discard(job.job_id)
                    self._enqueue(job, now)

    def _fits(self, limits: StepLimits, builder: StepBuilder, row: int, parked_rows: Rows) -> bool:
        """Whether evicting every parked job would make enough room; if not, none is evicted for it."""
        table = builder.table
        new_blocks = -(
            -(int(table.prompt_tokens[row]) + int(table.output_tokens[row]) + 1) // limits.block_tokens
        )
        if new_blocks <= builder.free or parked_rows.size == 0:
            return new_blocks <= builder.free
        evictions = set(builder.plan.evict)
        spare = sum(
            int(table.blocks[r]) for r in parked_rows.tolist() if table.jobs[r].job_id not in evictions
        )
        return new_blocks <= builder.free + spare

    def _in_order(self, table: JobTable, rows: Rows) -> list[int]:
        if rows.size > 1:
            rows = rows[np.lexsort((table.sequence[rows], self.ranks(table, rows), ~table.active[rows]))]
        return list(rows.tolist())

    def ranks(self, table: JobTable, rows: Rows) -> Floats:
        """Ranks of some rows, shape ``(len(rows),)``; for ranks that never change, the table's column."""
        return table.rank[rows]
