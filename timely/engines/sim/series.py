"""The state of a simulated run over time, sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from timely.core.job import JobTable
    from timely.engines.sim.kv import SimBlockPool

MAX_SAMPLES = 4_000
"""Samples over time; when there are more, every other one goes and the interval doubles."""


class SimSeries:
    """State over time: ``waiting`` (hold no KV cache), ``running`` (in the step), ``parked``, ``kv_used`` (0..1)."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, int, int, float]] = []
        self._interval_s = 0.05
        self._next_s = 0.0

    def sample(self, now: float, table: JobTable, pool: SimBlockPool, running: int) -> None:
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
