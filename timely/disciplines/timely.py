"""The default discipline."""

from __future__ import annotations

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.pud import Pud


class Timely(Pud):
    """Potential utility density with vLLM's own ``priority`` above it."""

    info = DisciplineInfo(
        name="timely",
        summary="potential utility density; plain requests by vLLM's priority",
        source="TimelyLLM Eq. 4, our own composition",
        good_at="robots with deadlines beside ordinary requests",
        starves="jobs past their cutoff wait while others still have utility to gain",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """A more important priority class always first; within a class Eq. 4."""
        keys = super().keys(table, limits)
        if not np.any(table.priority):
            return keys
        # Squashed into (-1, 1) the density cannot cross a priority class.
        squashed: Floats = keys / (1.0 + np.abs(keys))
        return squashed - 2.0 * table.priority
