"""WID 2 at several loads as a live comparison: the runs, the folder and the prediction of ``timely bench live``."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from timely.bench.live.prediction import LiveBenchPredictor
from timely.bench.live.report import live_bench_summary_values
from timely.bench.live.runs import LiveBenchRuns
from timely.bench.live.settings import LiveBenchSettings
from timely.replay.results import Result

GPU_SYSTEMS = ("timely", "vllm-stream", "vllm")


def gpu_bench_point_name(load: float) -> str:
    """Name of WID 2 at a load, as a workload of the live comparison."""
    return f"wid2@{load:g}"


def point_settings(
    loads: Sequence[float], seconds: float, model: str, arguments: Sequence[str], prompt: tuple[int, int]
) -> LiveBenchSettings:
    """All systems at all loads; ``prompt`` is its length and the part that is shared, tokens."""
    workloads = {gpu_bench_point_name(load): seconds for load in loads}
    return LiveBenchSettings(
        workloads, GPU_SYSTEMS, prompt_tokens=prompt[0], shared_prefix_tokens=prompt[1], model=model,
        arguments=tuple(arguments),
    )  # fmt: skip


def gpu_bench_predicted_points(runs: LiveBenchRuns, profile: str) -> dict[str, dict[str, dict[str, float]]]:
    """The simulator's prediction of each point, by workload and system, from a profile alone: no run is read.

    Points are simulated side by side, each in a process.
    """
    points = [(system, workload) for workload in runs.settings.workloads for system in runs.settings.systems]
    workers = min(len(points), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        values = list(pool.map(partial(_gpu_bench_predicted_point, runs, profile), points))
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (system, workload), value in zip(points, values, strict=True):
        table.setdefault(workload, {})[system] = value
    return table


def _gpu_bench_predicted_point(runs: LiveBenchRuns, profile: str, point: tuple[str, str]) -> dict[str, float]:
    return _gpu_bench_mean_values(LiveBenchPredictor(runs, profile).predict(*point, 0, {}))


def _gpu_bench_mean_values(summaries: Sequence[Result]) -> dict[str, float]:
    values = [live_bench_summary_values(summary) for summary in summaries]
    return {name: sum(value[name] for value in values) / len(values) for name in values[0]}


def gpu_bench_measured_points(runs: LiveBenchRuns) -> dict[str, dict[str, dict[str, float]]]:
    """The measured values of each point, and the shares in time, by workload and system."""
    points: dict[str, dict[str, dict[str, float]]] = {}
    for workload in runs.settings.workloads:
        for system, by_repetition in runs.comparable(workload).items():
            run = by_repetition[min(by_repetition)]
            values = live_bench_summary_values(run["summary"])
            for kind in ("urgent", "all"):
                jobs = [job for job in run["jobs"] if kind in ("all", job["class"])]
                late = [job for job in jobs if not (job["response_time_s"] or 1e9) <= job["ert_s"]]
                if jobs:
                    values[f"in time, {kind}"] = 1.0 - len(late) / len(jobs)
            values["served"] = float(run["summary"]["share_served"])
            points.setdefault(workload, {})[system] = values
    return points
