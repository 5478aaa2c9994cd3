"""Potential utility density: TimelyLLM's priority (Eq. 4) and its latency-guided admission (section 4.4).

Where the paper is silent, this is decided here:

* ``G``, the generation time left: prompt tokens left times their learned cost, plus the running mean length of
  a segment (the paper's offline average) less what is generated, times the recent time per token.
* ``L``, the slack, is bounded below by one decode step: late jobs keep a finite priority that is continuous at
  the deadline.
* Late beyond the cutoff utility turns negative, and dividing by a small slack would order the least late last.
  Such jobs rank below all that still have something to gain, and among themselves by ``|alpha| / G``: the
  steepest loss per second of work first (Smith's rule), since each second of delay costs ``|alpha|`` for ever.
* A flat utility (``alpha`` zero) loses nothing by waiting: its slack stays at its ERT instead of running out,
  which would put it above every deadline for ever, and admission holds nobody back for it.
* The admission rule protects the most urgent member of the pool while it can still gain, not afterwards.
* The longest segment of admission is profiled, as in the paper (section 7.1: 10 tokens), and learned on: the longest
  seen yet. The grammar's worst case is several times that and holds everybody back for what nobody writes.
* A parked generation is runnable from ``lead_s`` before its robot runs dry; the paper leaves open when.
"""

from __future__ import annotations

import numpy as np

from timely.core.job import Job, JobTable
from timely.core.utility import utilities
from timely.disciplines.base import DisciplineInfo, Floats, Speed, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder

MEAN_WEIGHT = 0.05
"""Weight of the newest segment in the running mean of segment lengths."""

PROFILED_TOKENS = 10
"""Longest segment until a longer one has been seen (TimelyLLM section 7.1)."""


class Pud(KeyedDiscipline):
    """TimelyLLM's scheduler."""

    info = DisciplineInfo(
        name="pud",
        summary="potential utility density U / (G L), latency-guided admission",
        source="TimelyLLM Eq. 4, sections 4.3 and 4.4",
        good_at="mixed urgent and normal robot tasks with time-utility functions",
        starves="jobs past their cutoff wait while others still have utility to gain",
    )

    def __init__(self) -> None:
        self._fraction = 0.5
        """Running mean of segment length over the skill set's longest."""
        self._longest = PROFILED_TOKENS

    def parked(self, job: Job, now: float) -> None:
        """Learn the mean segment length, and the longest, from each closed segment."""
        bound = job.spec.segment_tokens
        if job.segments and bound > 0:
            self._longest = max(self._longest, job.segments[-1].tokens)
            fraction = min(1.0, job.segments[-1].tokens / bound)
            self._fraction += MEAN_WEIGHT * (fraction - self._fraction)

    def generation_s(self, table: JobTable, limits: StepLimits) -> Floats:
        """``G``: expected time to close each row's segment, seconds, shape ``(jobs,)``."""
        speed = limits.speed
        left = np.maximum(1.0, self._fraction * table.segment_bound - table.segment_tokens)
        result: Floats = left * speed.token_s + table.prefill_left * speed.prefill_token_s
        return result

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Eq. 4 for every row at once."""
        generation = self.generation_s(table, limits)
        ready = limits.now + generation + table.network_s
        grace = np.where(table.segment == 0, table.ert_s, 0.0)
        wait = np.maximum(0.0, ready - table.due_s)
        utility = utilities(grace, table.alpha, table.beta, wait)
        left = np.where(table.alpha < 0.0, table.due_s + grace - ready, table.ert_s)
        slack = np.maximum(limits.speed.token_s, left)
        hopeless = -1.0 / (1e-9 + np.abs(table.alpha) / generation)
        result: Floats = np.where(utility > 0.0, utility / (generation * slack), hopeless)
        return result

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        """Section 4.4: only while the most urgent in the pool makes its deadline even at its longest."""
        urgent = builder.rows[0]
        grace = float(table.ert_s[urgent]) if table.segment[urgent] == 0 else 0.0
        remaining = float(table.due_s[urgent]) + grace - limits.now - float(table.network_s[urgent])
        alpha, beta = float(table.alpha[urgent]), float(table.beta[urgent])
        if alpha == 0.0 or remaining < beta / alpha:
            return True  # flat, or past its cutoff: holding others back gains it nothing the paper counts
        speed = limits.speed
        longest = min(int(table.segment_bound[urgent]), self._longest)
        worst = (
            max(1, longest - int(table.segment_tokens[urgent])) * speed.token_s
            + int(table.prefill_left[urgent]) * speed.prefill_token_s
        )
        return remaining >= worst

    def lead_s(self, job: Job, speed: Speed) -> float:
        """As any discipline's, for the longest segment seen."""
        unseen = float(job.table.segment_bound[job.row]) - self._longest
        return super().lead_s(job, speed) - 2.0 * max(0.0, unseen) * speed.token_s
