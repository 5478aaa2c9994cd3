"""Every discipline on every paper's workload, by that paper's measure: also on loads it was not made for.

Each workload is that of its paper's reproduction.
On its own paper's workload a discipline has what the paper gives it: a trained cost model, a filled history.
On the others it starts without. ``timely`` is for all of them, so it has the history and the cost model.
Requests bring the predicted lengths, levels and applications of the workload; disciplines ignore what they do not use.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lrtrace.compose.composition import compose_workload
from lrtrace.job import TraceJob
from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.papers.justitia import setting as justitia_setting
from timely.bench.papers.justitia import workloads as justitia_workloads
from timely.bench.papers.laps_sd import setting as laps_sd
from timely.bench.papers.sagesched import setting as sagesched_setting
from timely.bench.papers.seed_statistics import paper_interval, paper_mean
from timely.bench.papers.semantic import spikes as semantic
from timely.core.progress import Say
from timely.disciplines import registry
from timely.disciplines.base import Discipline
from timely.disciplines.requirements import EXPECTED_TOKENS, discipline_reads
from timely.disciplines.sagesched.discipline import SageSched
from timely.disciplines.semantic.constants import URGENCY_LEVELS
from timely.disciplines.timely.discipline import Timely
from timely.engines.replay_types import PlannedTask, ReplayOptions, utility_share
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile
from timely.replay.trace import replay_task_from_job

Run = Callable[[str, int], list[float]]
"""From a discipline's name and a seed to the values of a workload's measures."""
Runs = dict[str, dict[str, list[float]]]
"""Values by seed, by discipline and measure."""

ROBOTS = (("wid1", 100), ("wid2", 100), ("wid2", 400), ("wid3", 100))
"""Workloads of TimelyLLM's Table 3, and tokens of each prompt that are in no prefix cache: the scene and the task."""

ROBOTS_S = 300.0
"""Duration of each robot workload, seconds."""

PREFIX_TOKENS = 1200

LIMIT_TOKENS = 512
"""Longest plan that every robot's task names, so that no discipline reads the length of its own plan there."""

SPIKE = (100, 0.1)
"""Most requests at once, and time between spikes, seconds."""

LOAD = "2x"

DRAFTS = ("CP", 30)
"""Dataset of LAPS-SD's evaluation, and how many requests at almost the same time."""


@dataclass(frozen=True, slots=True)
class CrossMeasure:
    """One column.

    Attributes:
        name: what is measured, in full.
        short: heading of a column, without the unit.
        more: larger is better.
    """

    name: str
    short: str
    unit: str
    more: bool = False


@dataclass(frozen=True, slots=True)
class CrossWorkload:
    """A paper's workload and its measures."""

    measures: tuple[CrossMeasure, ...]
    run: Run


def cross_robot_tasks(jobs: Iterable[TraceJob], network_s: float) -> list[PlannedTask]:
    """A trace's jobs as tasks in order of arrival, which do not give the lengths of their plans away."""
    tasks = (replace(replay_task_from_job(job, network_s), max_tokens=LIMIT_TOKENS) for job in jobs)
    return sorted(tasks, key=lambda task: task.arrival_s)


def _replay_cross_robots(workload: str, new_tokens: int) -> Run:
    def run(name: str, seed: int) -> list[float]:
        trace = compose_workload(
            workload, seed, duration_s=ROBOTS_S,
            prompt_tokens=PREFIX_TOKENS + new_tokens, shared_prefix_tokens=PREFIX_TOKENS,
        )  # fmt: skip
        tasks = cross_robot_tasks(trace.jobs, trace.header.network_s)
        options = ReplayOptions(seed=seed, journal=False)
        outcome = Simulator(
            options, load_step_profile("rtx4090-llama3-8b"), discipline=registry.create_discipline(name)
        ).run(tasks)
        urgent = [record for record in outcome.records if record.task.hints.utility.urgent]
        groups = (records for records in (outcome.records, urgent) if records)
        return [100.0 * utility_share(records, outcome.end_s) for records in groups]

    return run


def _measure_cross_spikes(name: str, seed: int) -> list[float]:
    levels = semantic.paper_waiting(semantic.paper_spikes(seed, *SPIKE), registry.create_discipline(name))
    return [levels[0], levels[URGENCY_LEVELS]]


def _measure_cross_applications(name: str, seed: int) -> list[float]:
    tasks = justitia_workloads.paper_workload(seed, window_s=justitia_workloads.WINDOWS_S[LOAD])
    discipline = justitia_setting.make_paper_discipline(name)
    completion_s = list(justitia_setting.paper_completion_s(tasks, discipline).values())
    return [paper_mean(completion_s), float(np.percentile(completion_s, 90))]


def _measure_cross_lengths(name: str, seed: int) -> list[float]:
    setting = sagesched_setting.paper_setting(seed, sagesched_setting.MAIN_RATE)
    kind = registry.load_discipline(name)
    predicted_for = name
    if name not in ("ssjf", "ltr", "trail") and EXPECTED_TOKENS in discipline_reads(kind.info):
        predicted_for = "ssjf"
    discipline: Discipline
    if name in sagesched_setting.ORDER:
        discipline = setting.make_discipline(name)
    elif issubclass(kind, SageSched):
        discipline = kind(setting.history())
    elif issubclass(kind, Timely):
        discipline = kind(setting.history(kind="smooth"))
    else:
        discipline = registry.create_discipline(name)
    latency = sagesched_setting.measure_sagesched_paper(
        setting.tasks_for(predicted_for), discipline, sagesched_setting.PROFILES["Qwen3-32B"]
    )
    return [latency.ttlt_s, latency.ttft_s]


def _measure_cross_drafts(name: str, seed: int) -> list[float]:
    tasks = laps_sd.paper_workload(laps_sd.DATASETS[DRAFTS[0]], DRAFTS[1], seed)
    discipline = (
        laps_sd.make_paper_discipline(name, tasks)
        if name in laps_sd.SYSTEMS
        else registry.create_discipline(name)
    )
    return [laps_sd.laps_paper_latency_s(tasks, discipline, seed)]


def _cross_robot_measures(workload: str, new_tokens: int) -> Iterator[CrossMeasure]:
    title = f"{workload.upper()}, {new_tokens}"
    yield CrossMeasure(f"{title} new prompt tokens, % of the most utility", title, "%", more=True)
    if workload != "wid3":  # it has no urgent tasks
        yield CrossMeasure(f"{title}, urgent", "urgent", "%", more=True)


WORKLOADS = {
    **{
        f"{name}-{new}": CrossWorkload(
            tuple(_cross_robot_measures(name, new)), _replay_cross_robots(name, new)
        )
        for name, new in ROBOTS
    },
    "spikes": CrossWorkload(
        (
            CrossMeasure("spikes up to 100, level 0, s a token", "spikes, level 0", "s/token"),
            CrossMeasure("the same, all levels", "all", "s/token"),
        ),
        _measure_cross_spikes,
    ),
    "applications": CrossWorkload(
        (
            CrossMeasure("applications at 2x, average completion, s", "applications", "s"),
            CrossMeasure("the same, 90th percentile", "p90", "s"),
        ),
        _measure_cross_applications,
    ),
    "lengths": CrossWorkload(
        (
            CrossMeasure("uncertain lengths at 8/s, TTLT, s", "lengths, TTLT", "s"),
            CrossMeasure("the same, TTFT", "TTFT", "s"),
        ),
        _measure_cross_lengths,
    ),
    "drafts": CrossWorkload(
        (CrossMeasure("drafts accepted unevenly, 30 CP, latency, s", "drafts", "s"),), _measure_cross_drafts
    ),
}
"""By name, in the order of the columns."""


def _measure_cross_workload(workload: str, name: str, seed: int) -> list[float]:
    return WORKLOADS[workload].run(name, seed)


def benchmark_cross_table(
    disciplines: Sequence[str],
    workloads: Sequence[str],
    seeds: Sequence[int],
    checkpoints: BenchCheckpoints,
    say: Say = lambda line: None,
) -> Runs:
    """Run every discipline on every workload, with every seed.

    Raises:
        BenchOutOfTime: the budget of ``checkpoints`` is used up.
    """
    values: Runs = {name: {} for name in disciplines}
    if checkpoints.jobs > 1 and "applications" in workloads:
        # Trained before the processes start, because each of them would train it again.
        justitia_setting.trained_paper_models()
    # Seed by seed, so that a stopped run has a whole table of fewer seeds.
    for seed in seeds:
        for workload in workloads:
            checkpoints.map(
                "cross", _measure_cross_workload, [(workload, name, seed) for name in disciplines]
            )
    for workload in workloads:
        for name in disciplines:
            runs = checkpoints.map(
                "cross", _measure_cross_workload, [(workload, name, seed) for seed in seeds]
            )
            for place, measure in enumerate(WORKLOADS[workload].measures):
                values[name][measure.name] = [run[place] for run in runs]
        say(f"{workload}: {len(disciplines)} disciplines")
    return values


def benchmark_cross_measures(workloads: Sequence[str]) -> list[CrossMeasure]:
    return [measure for workload in workloads for measure in WORKLOADS[workload].measures]


def cross_table_json(runs: Runs, workloads: Sequence[str]) -> dict[str, Any]:
    """The table as plain data; the headline of a workload is the first of its columns.

    ``{"rows": {discipline: {column: mean}}, "intervals": {discipline: {column: [low, high]}}, "better": {column:
    "higher" or "lower"}, "units": {column: unit}, "headline": [columns]}``. An interval is that of the mean over the
    seeds (95%), and null of one seed.
    """
    measures = benchmark_cross_measures(workloads)
    return {
        "rows": {
            name: {column: paper_mean(values) for column, values in row.items()} for name, row in runs.items()
        },
        "intervals": {
            name: {
                column: list(paper_interval(values)[1:]) if len(values) > 1 else None
                for column, values in row.items()
            }
            for name, row in runs.items()
        },
        "better": {measure.name: "higher" if measure.more else "lower" for measure in measures},
        "units": {measure.name: measure.unit for measure in measures},
        "headline": [WORKLOADS[workload].measures[0].name for workload in workloads],
    }


def best_benchmark_value(values: dict[str, dict[str, float]], measure: CrossMeasure) -> float:
    column = [row[measure.name] for row in values.values()]
    return max(column) if measure.more else min(column)
