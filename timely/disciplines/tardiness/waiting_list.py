"""The waiting jobs that a step considers when there are very many: the first of a recent order, and all newcomers."""

from bisect import insort
from collections.abc import Callable
from itertools import islice
from operator import itemgetter

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import Floats, Rows

ALL = 256
"""So many waiting jobs are all considered at every step."""

FIRST = 64
"""Of more, so many of the recent order."""

RANKED_S = 0.1
"""Age at which the order is made anew, seconds."""

MAX_NEW = 64
"""Jobs that came since the order was made, beyond which it is made anew."""


class TardinessRankedJobs:
    """Keeps the order of waiting jobs between steps, so that a step costs the same with a thousand or ten thousand.

    The index of a waiting job changes slowly. A job that arrives, is evicted or gets another due time is considered at
    every step until the order is made anew.
    """

    def __init__(self) -> None:
        self._order: list[Job] = []
        self._ranked_s = -np.inf
        self._new: dict[Job, None] = {}

    def add(self, job: Job) -> None:
        """Consider the job at every step until the order is made anew."""
        if len(self._new) <= MAX_NEW:
            self._new[job] = None

    def rows(
        self, table: JobTable, runnable: np.ndarray, now: float, index: Callable[[], Floats]
    ) -> Rows | None:
        """Rows that a step considers, in order: all resident ones and the first waiting ones; None: all rows.

        Args:
            runnable: by row.
            index: gives the index of every row; called when the order is made anew.
        """
        waiting = runnable & ~table.resident
        count = int(np.count_nonzero(waiting))
        if count <= ALL:
            self._ranked_s = -np.inf
            self._new.clear()
            return None
        first = self._first(table, now)
        if first is None:
            self._rank(table, waiting.nonzero()[0], index())
            self._ranked_s = now
            first = self._first(table, now)
        is_considered = table.resident.copy()
        is_considered[first] = True
        return is_considered.nonzero()[0]

    def _rank(self, table: JobTable, rows: Rows, index: Floats) -> None:
        # More than are considered: some of them start before the order is made anew.
        most = 4 * FIRST
        has_priorities = bool(np.count_nonzero(table.priority))
        if not has_priorities and len(rows) > most:
            # The others come after these in any case, so they need no order.
            ranks = -index[rows]
            rows = rows[ranks <= np.partition(ranks, most - 1)[most - 1]]
        keys = [table.sequence[rows], -index[rows]]
        if has_priorities:
            keys.append(table.priority[rows])
        order = rows[np.lexsort(keys)[:most]]
        self._order = [table.jobs[row] for row in order.tolist()]
        self._new.clear()

    def _first(self, table: JobTable, now: float) -> Rows | None:
        """Rows of the first waiting jobs and the newcomers; None when the order is too old or used up."""
        if not self._ranked_s <= now < self._ranked_s + RANKED_S or len(self._new) > MAX_NEW:
            return None
        # The others have started or ended; an evicted one is among the newcomers.
        is_resident = table.resident.item
        still_wait = (job for job in self._order if job.row >= 0 and not is_resident(job.row))
        first = list(islice(still_wait, FIRST))
        if len(first) < FIRST:
            return None
        self._order[: self._order.index(first[-1]) + 1] = first
        return np.array([job.row for job in (*first, *self._new) if job.row >= 0], dtype=np.int64)


class TardinessArrivalOrder:
    """Waiting jobs by arrival; a step takes from the front, so that its cost does not depend on their number."""

    def __init__(self) -> None:
        self._jobs: list[tuple[int, Job]] = []
        """With the numbers of their arrival, the first one first."""

    def add(self, job: Job) -> None:
        """The job waits: the newest of all, or one that has lost its KV cache."""
        if len(self._jobs) > 2 * len(job.table) + ALL:
            self._jobs = [(number, other) for number, other in self._jobs if other.row >= 0]
        number = int(job.table.sequence[job.row])
        if not self._jobs or number >= self._jobs[-1][0]:
            self._jobs.append((number, job))
        else:
            insort(self._jobs, (number, job), key=itemgetter(0))

    def first(self, table: JobTable, waiting: np.ndarray, most: int) -> list[int]:
        """Rows of the first waiting jobs, at most so many.

        Args:
            waiting: runnable and without KV cache, by row.
        """
        most = min(most, int(np.count_nonzero(waiting)))
        rows = self._take(waiting, most)
        if len(rows) < most:
            # A job has lost its KV cache outside a step.
            places = np.flatnonzero(~table.resident)
            numbers = table.sequence[places]
            order = np.argsort(numbers)
            jobs = [table.jobs[row] for row in places[order].tolist()]
            self._jobs = list(zip(numbers[order].tolist(), jobs, strict=True))
            rows = self._take(waiting, most)
        return rows

    def _take(self, waiting: np.ndarray, most: int) -> list[int]:
        jobs = self._jobs
        first = (at for at, (_, job) in enumerate(jobs) if job.row >= 0 and not job.table.resident[job.row])
        del jobs[: next(first, len(jobs))]
        rows: dict[int, None] = {}
        for _, job in jobs:
            if len(rows) >= most:
                break
            if job.row >= 0 and waiting[job.row]:
                rows[job.row] = None
        return list(rows)
