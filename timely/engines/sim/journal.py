"""A run's record of its decisions: which jobs took part in which steps, which were left out, state over time.

It is compact. A job's participation is kept as runs of steps, not step by step. Jobs left out are noted only when they
change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from timely.disciplines.base import StepLimits, StepPlan
from timely.engines.decision_log import engine_scheduling_choice

if TYPE_CHECKING:
    from timely.core.job import JobId, JobTable
    from timely.engines.scheduler_core import Controller
    from timely.engines.sim.kv import BlockPool
    from timely.engines.sim.memory import LiveTask

DECODE, PREFILL = 0, 1

MAX_CHOICES = 20_000
"""Choices kept; a longer run notes that the rest is missing."""

MAX_SAMPLES = 4_000
"""Samples over time; when there are more, every other one goes and the interval doubles."""


class Journal:
    """Runs, evictions and choices of one replay.

    ``to_dict`` gives ``{"t_s", "step_s", "runs", "evictions", "choices"}``. ``t_s`` and ``step_s`` are begin and
    duration of every step. ``runs[job]`` is ``[kind, first step, last step, tokens a step]`` with kind 0 decode and 1
    prompt. An eviction is ``[step, job]``, a choice ``{"step", "held", "left", "served", "out"}`` with ``[job, key]``
    pairs.
    """

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._step_s: list[float] = []
        self._runs: dict[JobId, list[list[int]]] = {}
        self._evictions: list[tuple[int, JobId]] = []
        self._choices: list[dict[str, Any]] = []
        self._members: tuple[JobId, ...] = ()
        self._limited_by = ""
        self._dropped_choices = 0

    def choice(self, plan: StepPlan, controller: Controller, limits: StepLimits) -> None:
        """Note a composed plan if it leaves a job out and differs from the one before."""
        step = len(self._t_s)
        for job_id in plan.evict:
            self._evictions.append((step, job_id))
        members = tuple(plan.tokens)
        if not plan.limited_by or (plan.limited_by == self._limited_by and members == self._members):
            self._members, self._limited_by = members, plan.limited_by
            return
        self._members, self._limited_by = members, plan.limited_by
        if len(self._choices) >= MAX_CHOICES:
            self._dropped_choices += 1
            return
        self._choices.append(
            {"step": step, **engine_scheduling_choice(plan, controller.table, controller.discipline, limits)}
        )

    def steps(self, now: float, times: list[float], members: list[tuple[LiveTask, int, bool]]) -> None:
        first = len(self._t_s)
        for time_s in times:
            self._t_s.append(now)
            self._step_s.append(time_s)
            now += time_s
        last = first + len(times) - 1
        for live, tokens, prefill in members:
            run = live.run
            if run is not None and run[2] == first - 1 and run[0] == prefill and run[3] == tokens:
                run[2] = last
            else:
                live.run = run = [int(prefill), first, last, tokens]
                self._runs.setdefault(live.task.job, []).append(run)

    def to_dict(self) -> dict[str, Any]:
        return {
            "t_s": [round(t, 9) for t in self._t_s],
            "step_s": [round(t, 9) for t in self._step_s],
            "runs": {str(job): runs for job, runs in self._runs.items()},
            "evictions": [list(eviction) for eviction in self._evictions],
            "choices": self._choices,
            "choices_missing": self._dropped_choices,
        }


class Series:
    """State over time: ``waiting`` (hold no KV cache), ``running`` (in the step), ``parked``, ``kv_used`` (0..1)."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, int, int, float]] = []
        self._interval_s = 0.05
        self._next_s = 0.0

    def sample(self, now: float, table: JobTable, pool: BlockPool, running: int) -> None:
        """A step begins; sampled when the last sample is old enough."""
        if now < self._next_s:
            return
        resident = int(np.count_nonzero(table.resident))
        parked_jobs = int(np.count_nonzero(table.resident & (table.resume_s > now)))
        self._rows.append(
            (now, len(table) - resident, running, parked_jobs, pool.used_blocks / pool.capacity)
        )
        if len(self._rows) > MAX_SAMPLES:
            self._rows = self._rows[::2]
            self._interval_s *= 2.0
        self._next_s = now + self._interval_s

    def columns(self) -> dict[str, list[float]]:
        """Columns by name, ``t_s`` first."""
        names = ("t_s", "waiting", "running", "parked", "kv_used")
        return {name: [row[index] for row in self._rows] for index, name in enumerate(names)}
