"""The default discipline."""

from __future__ import annotations

from timely.disciplines.base import DisciplineInfo
from timely.disciplines.pud import Pud


class Timely(Pud):
    """Potential utility density with vLLM's own ``priority`` above it."""

    heed_priority = True
    info = DisciplineInfo(
        name="timely",
        summary="potential utility density; plain requests by vLLM's priority",
        source="TimelyLLM Eq. 4, our own composition",
        good_at="robots with deadlines beside ordinary requests",
        starves="jobs past their cutoff wait while others still have utility to gain",
    )
