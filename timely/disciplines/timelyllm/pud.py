"""TimelyLLM's scheduler: the potential utility density (Eq. 4) as priority, and latency-guided admission (4.4).

The constants are the paper's (``constants``).
``W`` is the waiting time at the robot: generation and network, less the time until the robot needs the segment.
Where the paper leaves something open, this is decided here:

* ``L``, the slack, is what is left of the ERT at the end of a generation that starts now.
  "The remaining time until the expected completion" may also mean without ``G``, which changes little.
* ``L`` is bounded below by the time of one token.
  So the priority of a late job stays finite and is continuous at the deadline.
* The most urgent generation of section 4.4 is the one with the highest priority.
* Beyond the cutoff utility is negative, and Eq. 4 would rank the least late job last.
  Such jobs rank below all that have utility to gain.
  All are expected to take the same time, so among them the steepest loss goes first.
* Admission is taken at its word: while the most urgent row of the pool is late, no other row joins.
  A segment is short. An ordinary request is long, and once late it runs alone until it ends.
* The paper's utility functions all decline. A flat one (``alpha`` zero) keeps its ERT as slack and closes no admission.
"""

import math

import numpy as np

from timely.core.job import Job, JobTable
from timely.core.utility import time_utilities_at
from timely.disciplines.base import DisciplineInfo, Floats, Speed, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder
from timely.disciplines.timelyllm.constants import (
    LONGEST_SEGMENT_TOKENS,
    SEGMENT_GENERATION_S,
    SUSPENDED_ERT_S,
)


class Pud(KeyedDiscipline):
    """TimelyLLM's scheduler, literally."""

    info = DisciplineInfo(
        name="pud",
        summary="potential utility density U / (G L), latency-guided admission",
        source="TimelyLLM Eq. 4, sections 4.3 and 4.4, constants of section 7.1",
        good_at="mixed urgent and normal robot tasks with time-utility functions",
        starves="jobs past their cutoff; and while the most urgent running job is late, no other job joins",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Eq. 4 for every row at once."""
        ready_s = limits.now + SEGMENT_GENERATION_S + table.network_s
        ert_s = np.where(table.segment == 0, table.ert_s, SUSPENDED_ERT_S)
        wait_s = np.maximum(0.0, ready_s - table.due_s)
        utility = time_utilities_at(ert_s, table.alpha, table.beta, wait_s)
        left_s = np.where(table.alpha < 0.0, table.due_s + ert_s - ready_s, table.ert_s)
        slack_s = np.maximum(limits.speed.token_s, left_s)
        hopeless = -1.0 / (1e-9 + np.abs(table.alpha) / SEGMENT_GENERATION_S)
        return np.where(utility > 0.0, utility / (SEGMENT_GENERATION_S * slack_s), hopeless)

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        """Section 4.4: only while the most urgent row of the pool meets its deadline at its longest."""
        urgent = builder.rows[0]
        if table.alpha[urgent] == 0.0:
            return True
        ert_s = float(table.ert_s[urgent]) if table.segment[urgent] == 0 else SUSPENDED_ERT_S
        budget_s = float(table.due_s[urgent]) + ert_s - limits.now - float(table.network_s[urgent])
        left = max(1, LONGEST_SEGMENT_TOKENS - int(table.segment_tokens[urgent]))
        return budget_s >= left * limits.speed.token_s

    def lead_s(self, job: Job, speed: Speed) -> float:
        """A suspended generation is in the queue at once (sections 3 and 4.1)."""
        return math.inf
