"""vLLM's own scheduling by priority.

The waiting queue is ordered by ``priority`` and arrival. Running requests stay: only a shortage of KV blocks preempts
one, the least important first. The discipline ``priority`` also displaces running requests.
"""

from __future__ import annotations

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline


class VllmPriority(KeyedDiscipline):
    """vLLM's ``priority`` (smaller first) for waiting requests; running ones are not displaced."""

    info = DisciplineInfo(
        name="vllm-priority",
        summary="vLLM's priority field for waiting requests; running ones stay",
        source="vLLM --scheduling-policy priority",
        good_at="ordinary requests with fixed priorities",
        starves="low priorities under a steady stream of higher ones",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -table.priority
