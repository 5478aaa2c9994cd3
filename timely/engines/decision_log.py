"""Journals of a scheduler, and what a step left out by which keys: plain data, also for ``timely explain``."""

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import Rows, StepPlan

log = logging.getLogger(__name__)

Event = Mapping[str, Any]

MAX_LEFT_OUT = 8
"""Jobs left out that are named, the most important first."""


class GuardedEngineJournal:
    """A journal that ends with its first error, and ends nothing else: scheduling goes on without it.

    Args:
        details: whether it receives members, choices, segments and reports, too.
            Without them it has arrivals and ends of jobs, switches, and the times and counts of steps.
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


def engine_scheduling_choice(plan: StepPlan, table: JobTable, now: float) -> dict[str, Any]:
    """``{"held", "left", "served", "out"}``: why jobs were left out, how many, and ``[job, key]`` pairs.

    ``served`` has the jobs that run, ``out`` the first that do not. The key is None where the decision read none, and
    where it is no finite number.
    """
    keys = np.full(len(table), np.nan)
    if plan.keys is not None:
        rows, keys_of_rows = plan.keys
        keys[rows] = keys_of_rows
    served = table.rows(list(plan.tokens))
    is_out = table.resume_s <= now
    is_out[served] = False
    out = is_out.nonzero()[0]

    def pairs(rows: Rows) -> list[list[Any]]:
        return [
            [job_id, float(f"{key:.6g}") if math.isfinite(key) else None]
            for job_id, key in zip(table.ids(rows), keys[rows].tolist(), strict=True)
        ]

    return {
        "held": plan.limited_by,
        "left": len(out),
        "served": pairs(served),
        "out": pairs(out[np.lexsort((table.sequence[out], -keys[out]))[:MAX_LEFT_OUT]]),
    }
