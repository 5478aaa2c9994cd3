"""The runs of the TimelyLLM reproduction: the systems it compares, and one run in the simulator as a checkpoint."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from lrtrace.compose.composition import CompositionOptions, compose_workload
from timely.bench.bounds import MAX_TASKS, IdleEngineResponses, bench_clairvoyant_bound
from timely.core.job import JobTable
from timely.disciplines.base import Discipline, Floats, StepLimits
from timely.disciplines.basic import Fcfs
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness import ablations
from timely.disciplines.tardiness.discipline import WeightedTardiness
from timely.disciplines.timely.discipline import Timely
from timely.disciplines.timelyllm.pud import Pud
from timely.engines.base import Mode
from timely.engines.replay_types import BackendRun, JobRecord, PlannedTask, ReplayOptions, utility_share
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile
from timely.replay.trace import replay_task_from_job

PROFILE = "rtx4090-llama3-8b"
PREFIX_TOKENS = 1200
NEW_TOKENS = 100


# ---------------------------------------------------------------- systems


class _PaperFixedBatch(Pud):
    """Section 7.3.1: the paper's priority with a fixed batch instead of the latency-guided admission."""

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        return True


class _PaperSegmentedFcfs(Pud):
    """Section 7.3.2: all of the paper's scheduler but the priority, which is the order of arrival."""

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -table.arrival_s


class _PaperSegmentedEdf(Pud):
    """Section 7.3.2 with the order of the tasks' deadlines; a suspended generation keeps its task's deadline."""

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return -(table.arrival_s + table.ert_s)


@dataclass(frozen=True, slots=True)
class PaperSystem:
    """A discipline with a serving mode, under the name of the comparison."""

    name: str
    make: Callable[[], Discipline]
    mode: Mode = "segmented"


VLLM = PaperSystem("vLLM", Fcfs, "whole")
STREAM = PaperSystem("vLLM-stream", Fcfs, "stream")
FCFS = PaperSystem("segmented FCFS", _PaperSegmentedFcfs)
EDF = PaperSystem("segmented EDF", _PaperSegmentedEdf)
PUD = PaperSystem("TimelyLLM (pud)", Pud)
TIMELY = PaperSystem("timely", Timely)
FIXED_BATCH = PaperSystem("TimelyLLM, fixed batch", _PaperFixedBatch)
SYSTEMS = (VLLM, STREAM, FCFS, EDF, PUD, TIMELY)
ADDED_SYSTEMS = (
    PUD,
    PaperSystem("index alone", ablations.Index),
    PaperSystem("index + protect", ablations.Protecting),
    PaperSystem("+ chunks", ablations.Chunking),
    PaperSystem("+ early is better", ablations.Hurrying),
    PaperSystem("+ opportunistic decode = weighted tardiness", WeightedTardiness),
)
"""Each idea of ``weighted-tardiness``, on which ``timely`` is built, added to the one before."""
ALONE = (
    PaperSystem("index + opportunistic decode", ablations.Riding),
    PaperSystem("weighted tardiness without protect", ablations.WithoutProtection),
    PaperSystem("weighted tardiness without chunks", ablations.WithoutChunks),
    PaperSystem("weighted tardiness without early", ablations.WithoutHurry),
    PaperSystem("weighted tardiness without opportunistic decode", ablations.WithoutRiding),
)
"""Each idea alone: with the index only, or removed from the whole. Chunks and early act through protection."""
BY_NAME = {system.name: system for system in (*SYSTEMS, FIXED_BATCH, *ADDED_SYSTEMS, *ALONE)}


# ---------------------------------------------------------------- one run

Number = Annotated[
    float,
    BeforeValidator(lambda value: math.nan if value is None else value),
    PlainSerializer(lambda value: round(value, 9) if math.isfinite(value) else None),
]
"""A number whose JSON has null for nan."""


@dataclass(frozen=True, slots=True)
class PaperOutcome:
    """The results of a run; nan where there was no task.

    Attributes:
        share: ``urgent`` and ``normal``: utility of the maximum.
        utility: mean over all tasks.
        served: share of the tasks that received their complete plan.
        response_s: mean of ``urgent`` and of ``normal`` tasks, seconds.
        waiting_s: mean over all tasks, seconds.
        types: trace id -> mean utility, response and waiting.
    """

    share: dict[str, Number]
    utility: Number
    served: Number
    response_s: dict[str, Number]
    waiting_s: Number
    types: dict[int, tuple[Number, Number, Number]]

    @classmethod
    def of(cls, records: Sequence[JobRecord], ids: Sequence[int], end_s: float) -> Self:
        kinds = {"urgent": [r for r in records if r.task.hints.utility.urgent]}
        kinds["normal"] = [r for r in records if not r.task.hints.utility.urgent]
        types = {}
        for number in sorted(set(ids)):
            own_records = [record for record, own in zip(records, ids, strict=True) if own == number]
            types[number] = (
                _paper_run_mean(record.utility(end_s) for record in own_records),
                _paper_run_mean(record.response_time_s for record in own_records),
                _paper_run_mean(record.waiting_time_s for record in own_records),
            )
        return cls(
            {name: utility_share(own_records, end_s) for name, own_records in kinds.items()},
            _paper_run_mean(record.utility(end_s) for record in records),
            _paper_run_mean(record.outcome == "complete" for record in records),
            {
                name: _paper_run_mean(record.response_time_s for record in own_records)
                for name, own_records in kinds.items()
            },
            _paper_run_mean(record.waiting_time_s for record in records),
            types,
        )


OUTCOMES = TypeAdapter(PaperOutcome)
"""Outcomes as JSON for checkpoints, and back."""


def _paper_run_mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


@lru_cache(maxsize=64)
def paper_workload(
    name: str, seed: int, new_tokens: int, unit: str = "", longer: float = 1.0
) -> tuple[tuple[PlannedTask, ...], tuple[int, ...]]:
    """A workload of Table 3 (or ``chat``) as tasks, and their trace ids; plans ``longer`` times as long."""
    if name == "chat":
        trace = compose_workload("chat", seed, options=CompositionOptions(unit=unit))  # type: ignore[arg-type]
    else:
        trace = compose_workload(
            name, seed, prompt_tokens=PREFIX_TOKENS + new_tokens, shared_prefix_tokens=PREFIX_TOKENS
        )
    jobs = list(trace.jobs)
    tasks = tuple(
        lengthened_paper_trace(replay_task_from_job(job, trace.header.network_s), longer) for job in jobs
    )
    return tasks, tuple(int(job.extra.get("trace_id", 0)) for job in jobs)


def lengthened_paper_trace(task: PlannedTask, factor: float) -> PlannedTask:
    """The task with its segments repeated until the plan has ``factor`` times its segments (rounded)."""
    count = max(1, round(factor * len(task.plan)))
    if count == len(task.plan):
        return task
    return replace(task, plan=tuple(task.plan[index % len(task.plan)] for index in range(count)))


def paper_run_records(
    system: PaperSystem,
    name: str,
    seed: int,
    *,
    new_tokens: int = NEW_TOKENS,
    profile: str = PROFILE,
    max_batch: int | None = None,
    unit: str = "",
    longer: float = 1.0,
) -> tuple[list[JobRecord], tuple[int, ...], float]:
    """One system on one workload: records, the trace id of each, and the end of the run, seconds."""
    tasks, ids = paper_workload(name, seed, new_tokens, unit, longer)
    run = simulate_paper_run(system, tasks, profile, max_batch)
    return run.records, ids, run.end_s


def simulate_paper_run(
    system: PaperSystem, tasks: Sequence[PlannedTask], profile: str = PROFILE, max_batch: int | None = None
) -> BackendRun:
    options = ReplayOptions(mode=system.mode, max_batch=max_batch, journal=False, warm_prefixes=True)
    return Simulator(options, load_step_profile(profile), discipline=system.make()).run(tasks)


def measure_paper_run(
    system: str, name: str, new_tokens: int, profile: str, max_batch: int, unit: str, longer: float, seed: int
) -> dict[str, Any]:
    """An outcome as JSON; ``max_batch`` 0 is no limit."""
    records, ids, end_s = paper_run_records(
        BY_NAME[system], name, seed, new_tokens=new_tokens, profile=profile, max_batch=max_batch or None,
        unit=unit, longer=longer,
    )  # fmt: skip
    entry: dict[str, Any] = OUTCOMES.dump_python(PaperOutcome.of(records, ids, end_s), mode="json")
    return entry


def measure_paper_alone(new_tokens: int, seed: int) -> float:
    """Mean utility of WID 2 where each task is alone on an idle engine."""
    alone = IdleEngineResponses(load_step_profile(PROFILE))
    return _paper_run_mean(alone.utility(task) for task in paper_workload("wid2", seed, new_tokens)[0])


def measure_paper_bursts(new_tokens: int, seed: int) -> list[float]:
    """Utility of single events of WID 2: the clairvoyant bound, ``timely``, the paper's algorithm."""
    profile = load_step_profile(PROFILE)
    total = [0.0, 0.0, 0.0]
    for burst in _paper_bursts(paper_workload("wid2", seed, new_tokens)[0]):
        total[0] += bench_clairvoyant_bound(burst, profile)
        total[1] += _paper_burst_utility(TIMELY, burst)
        total[2] += _paper_burst_utility(PUD, burst)
    return [round(value, 9) for value in total]


def _paper_bursts(tasks: Sequence[PlannedTask]) -> list[list[PlannedTask]]:
    """Tasks that arrive together, by event, small enough to be ordered exactly."""
    events: dict[float, list[PlannedTask]] = {}
    for task in tasks:
        events.setdefault(task.arrival_s, []).append(task)
    return [burst for burst in events.values() if 4 <= len(burst) <= min(12, MAX_TASKS)][:8]


def _paper_burst_utility(system: PaperSystem, burst: Sequence[PlannedTask]) -> float:
    run = simulate_paper_run(system, burst)
    return sum(record.utility(run.end_s) for record in run.records)


def paper_crossing(x: Sequence[float], y: Sequence[float], level: float) -> float:
    """Where a curve first passes a level, falling or rising; nan where it does not."""
    for i in range(len(x) - 1):
        a, b = y[i], y[i + 1]
        if math.isfinite(a) and math.isfinite(b) and a != b and min(a, b) <= level <= max(a, b):
            return x[i] + (x[i + 1] - x[i]) * (level - a) / (b - a)
    return math.nan
