"""Journals of a scheduler, and what a step left out by which keys: plain data, also for ``timely explain``."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.step_builder import KeyedDiscipline

log = logging.getLogger(__name__)

Event = Mapping[str, Any]

MAX_LEFT_OUT = 8
"""Jobs left out that are named, the most important first."""


class GuardedEngineJournal:
    """A journal that ends with its first error, and ends nothing else: scheduling goes on without it.

    Args:
        details: whether it receives members, choices, segments and reports, too.
            Without them it has arrivals and ends of jobs, switches, and the times and counts of steps.
            What steps leave out costs milliseconds a step with hundreds of jobs.
    """

    def __init__(self, journal: Callable[[Event], None], *, details: bool = True) -> None:
        self._journal: Callable[[Event], None] | None = journal
        self.details = details

    def __call__(self, event: Event | Callable[[], Event]) -> None:
        """Write an event, or what a function makes of the present state."""
        if self._journal is None:
            return
        try:
            self._journal(event() if callable(event) else event)
        except Exception:
            self._journal = None
            log.exception("the journal failed and is kept no further")


def engine_scheduling_choice(
    plan: StepPlan, table: JobTable, discipline: Discipline, limits: StepLimits
) -> dict[str, Any]:
    """``{"held", "left", "served", "out"}``: why jobs were left out, how many, and ``[job, key]`` pairs.

    ``served`` has the jobs that run, ``out`` the first that do not. The key is None where the discipline has
    none, and where it is no finite number.
    """
    runnable = np.flatnonzero(table.resume_s <= limits.now)
    keys = discipline.keys(table, limits) if isinstance(discipline, KeyedDiscipline) else None
    out = np.array([row for row in runnable.tolist() if table.jobs[row].job_id not in plan.tokens], dtype=int)
    ranks = [table.sequence[out]] if keys is None else [table.sequence[out], -keys[out]]
    out = out[np.lexsort(ranks)]

    def pair(row: int) -> list[Any]:
        key = None if keys is None or not np.isfinite(keys[row]) else float(f"{keys[row]:.6g}")
        return [table.jobs[row].job_id, key]

    return {
        "held": plan.limited_by,
        "left": len(out),
        "served": [pair(table[job_id].row) for job_id in plan.tokens],
        "out": [pair(row) for row in out[:MAX_LEFT_OUT].tolist()],
    }
