"""The baselines of the LAPS-SD paper, section 5.1: least attained service, and shortest predicted length first."""

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.output_length import LengthLearningDiscipline
from timely.disciplines.step_builder import KeyedDiscipline, RankedDiscipline

QUANTUM_S = 0.1
"""Service counts as equal within this, seconds.

Without it two requests that need all memory would take it from each other after every token.
"""


class Las(KeyedDiscipline):
    pool_first = False
    info = DisciplineInfo(
        name="las",
        summary="least attained service first, preemptive",
        source="LAPS-SD section 5.1, baseline (Rai et al., SIGMETRICS 2003)",
        good_at="mean latency when nothing is known of requests and their lengths differ widely",
        starves="long generations under a steady stream of new ones",
    )

    def __init__(self, quantum_s: float = QUANTUM_S) -> None:
        self._quantum_s = quantum_s

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -np.floor(table.attained_s / self._quantum_s)


class LpSjf(LengthLearningDiscipline, RankedDiscipline):
    """Shortest job first by predicted output length alone, non-preemptive."""

    info = DisciplineInfo(
        name="lp-sjf",
        summary="shortest predicted output first, non-preemptive",
        source="LAPS-SD section 5.1, baseline (Qiu et al., 2024)",
        needs=("expected_tokens, or lengths learned while serving",),
        good_at="mean latency without speculation, when lengths are predictable",
        starves="long requests under a steady stream of short ones",
    )
