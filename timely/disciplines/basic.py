"""First come first served, earliest deadline first (the baselines of TimelyLLM section 7.3), and vLLM's priorities.

As the paper has its baselines, a suspended generation keeps its initial priority and is runnable at once.
"""

import math

from timely.core.job import Job, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Speed, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline


class Fcfs(KeyedDiscipline):
    info = DisciplineInfo(
        name="fcfs",
        summary="first come, first served",
        source="vLLM's default; TimelyLLM section 7.3",
        good_at="throughput with equal deadlines",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -table.arrival_s

    def lead_s(self, job: Job, speed: Speed) -> float:
        return math.inf


class Edf(KeyedDiscipline):
    """Earliest deadline first, by the deadline of the task's first segment."""

    info = DisciplineInfo(
        name="edf",
        summary="earliest deadline (arrival + ERT) first",
        source="TimelyLLM section 7.3",
        good_at="meeting deadlines below saturation",
        starves="jobs with long expected response times under a steady stream of urgent ones",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Earlier deadlines first."""
        return -(table.arrival_s + table.ert_s)

    def lead_s(self, job: Job, speed: Speed) -> float:
        return math.inf


class Priority(KeyedDiscipline):
    """vLLM's own ``priority`` (smaller first), and unlike vLLM a waiting request displaces a running one."""

    pool_first = False
    info = DisciplineInfo(
        name="priority",
        summary="vLLM's priority field, with displacement of less important running requests",
        source="vLLM --scheduling-policy priority; its issue 40004",
        good_at="ordinary requests with fixed priorities and no time-utility",
        starves="low priorities under a steady stream of higher ones",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -table.priority


class VllmPriority(Priority):
    """vLLM's own scheduling by ``priority``: waiting requests by priority (smaller first) and arrival.

    Running requests stay: only a shortage of KV blocks preempts one, the least important first.
    """

    pool_first = True
    info = DisciplineInfo(
        name="vllm-priority",
        summary="vLLM's priority field for waiting requests; running ones stay",
        source="vLLM --scheduling-policy priority",
        good_at="ordinary requests with fixed priorities",
        starves="low priorities under a steady stream of higher ones",
    )
