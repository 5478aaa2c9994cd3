"""The baselines of the semantic scheduling paper, section 4.1, beside ``fcfs``: shortest and most urgent job first.

The paper only names them.
Both are taken as non-preemptive, as the queues of serving engines are: running jobs go on until they end or park.
"""

import numpy as np

from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.output_length import LengthLearningDiscipline
from timely.disciplines.requirements import check_discipline_urgency
from timely.disciplines.semantic.discipline import discipline_urgency_levels
from timely.disciplines.step_builder import KeyedDiscipline


class Sjf(LengthLearningDiscipline, KeyedDiscipline):
    """Shortest job first: prompt and predicted output, in seconds."""

    info = DisciplineInfo(
        name="sjf",
        summary="least estimated time (prompt and predicted output) first, non-preemptive",
        source="Semantic Scheduling for LLM Inference, section 4.1, baseline",
        needs=("expected_tokens, or lengths learned while serving",),
        good_at="mean latency of ordinary requests whose lengths are predictable",
        starves="long jobs under a steady stream of short ones",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        left = np.maximum(1.0, table.rank - table.output_tokens)
        return -(table.prefill_left * limits.speed.prefill_token_s + left * limits.speed.token_s)


class Hpjf(KeyedDiscipline):
    """Highest priority job first: by urgency level, first come first served within a level."""

    info = DisciplineInfo(
        name="hpjf",
        summary="urgency level first, first come first served within a level, non-preemptive",
        source="Semantic Scheduling for LLM Inference, section 4.1, baseline",
        needs=("an urgency level, given or predicted at arrival",),
        good_at="few urgent requests among many of the same length",
        starves="less urgent jobs under a steady stream of more urgent ones",
    )

    def check(self, spec: JobSpec) -> None:
        check_discipline_urgency(spec.hints.urgency)

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -discipline_urgency_levels(table, np.arange(len(table))).astype(np.float64)
