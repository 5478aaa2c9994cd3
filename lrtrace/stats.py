"""Summarises a trace: arrivals, plan lengths, execution times and busy robots."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.job import RESPONSE_S, TraceHeader, TraceJob
from lrtrace.plots import new_lrtrace_figure, save_lrtrace_figure
from lrtrace.trace import Trace

COLUMNS = {
    "prompt_tokens": "tokens of a prompt",
    "plan_tokens": "tokens of a plan",
    "segments": "segments of a plan",
    "segment_tokens": "tokens of a segment",
    "execution_s": "execution of a plan [s]",
    "segment_execution_s": "execution of a segment [s]",
    "tasks_per_event": "tasks arriving together",
    "interarrival_s": "time between events [s]",
}
"""Columns and their labels."""


@dataclass(slots=True)
class TraceStats:
    header: TraceHeader
    jobs: int = 0
    arrivals_s: array[float] = field(default_factory=lambda: array("d"))
    busy: list[tuple[float, int]] = field(default_factory=list)
    """(time in seconds, number of tasks in progress from then), at most ``BUSY_POINTS``."""
    columns: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in COLUMNS})
    """Numbers by column, 8 bytes each."""
    classes: Counter[str] = field(default_factory=Counter)
    skill_sets: Counter[str] = field(default_factory=Counter)
    agents: set[str] = field(default_factory=set)
    busy_peak: int = 0
    busy_mean: float = 0.0

    @property
    def duration_s(self) -> float:
        """Last arrival minus first, seconds."""
        times = self.arrivals_s
        return times[-1] - times[0] if times else 0.0

    def summary(self) -> dict[str, Any]:
        """As JSON. ``busy`` counts tasks in progress if each takes ``RESPONSE_S`` and its execution."""
        duration = self.duration_s
        return {
            "name": self.header.name,
            "seed": self.header.seed,
            "network_s": self.header.network_s,
            "jobs": self.jobs,
            "duration_s": round(duration, 6),
            "jobs_per_s": round(self.jobs / duration, 6) if duration > 0 else None,
            "agents": len(self.agents),
            "by_class": dict(sorted(self.classes.items())),
            "by_skill_set": dict(sorted(self.skill_sets.items())),
            "busy": {"peak": self.busy_peak, "mean": round(self.busy_mean, 6)},
            **{name: _trace_stats_summary(numbers) for name, numbers in self.columns.items()},
        }


def _trace_stats_summary(numbers: array[float]) -> dict[str, float] | None:
    """Mean and quantiles; None without numbers."""
    if not numbers:
        return None
    levels = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    quantiles = np.quantile(numbers, list(levels.values())).tolist()
    values = {"mean": float(np.mean(numbers)), **dict(zip(levels, quantiles, strict=True))}
    return {name: round(value, 6) for name, value in values.items()}


BUSY_POINTS = 20_000


def measure_trace_stats(header: TraceHeader, jobs: Iterable[TraceJob]) -> TraceStats:
    """Measure jobs in the order of arrival. Memory grows by some hundred bytes per job."""
    stats = TraceStats(header)
    ends: list[float] = []
    together, previous, busy_time, last_change = 0, None, 0.0, 0.0

    def end_tasks(until_s: float) -> None:
        nonlocal busy_time, last_change
        while ends and ends[0] <= until_s:
            busy_time += len(ends) * (ends[0] - last_change)
            last_change = heapq.heappop(ends)
            _mark_trace_stats(stats, last_change, len(ends))

    for job in jobs:
        _add_trace_stats_job(stats, job)
        now = job.arrival_s
        end_tasks(now)
        busy_time += len(ends) * (now - last_change)
        last_change = now
        # To the microsecond, as in a trace: a robot's next task begins at the very end of the one before.
        heapq.heappush(ends, round(now + RESPONSE_S + job.execution_s, 6))
        _mark_trace_stats(stats, now, len(ends))
        stats.busy_peak = max(stats.busy_peak, len(ends))
        if previous is not None and now > previous:
            stats.columns["tasks_per_event"].append(together)
            stats.columns["interarrival_s"].append(now - previous)
            together = 0
        together += 1
        previous = now
    if together:
        stats.columns["tasks_per_event"].append(together)
    end_tasks(math.inf)
    start = stats.arrivals_s[0] if stats.jobs else 0.0
    stats.busy_mean = busy_time / (last_change - start) if last_change > start else 0.0
    return stats


def _add_trace_stats_job(stats: TraceStats, job: TraceJob) -> None:
    columns = stats.columns
    stats.jobs += 1
    stats.arrivals_s.append(job.arrival_s)
    columns["prompt_tokens"].append(job.prompt_tokens)
    columns["plan_tokens"].append(job.tokens)
    columns["segments"].append(len(job.plan))
    columns["execution_s"].append(job.execution_s)
    for segment in job.plan:
        columns["segment_tokens"].append(segment.tokens)
        columns["segment_execution_s"].append(segment.execution_s)
    stats.classes["urgent" if job.tuf.urgent else "normal"] += 1
    stats.skill_sets[job.skill_set or "none"] += 1
    if job.agent:
        stats.agents.add(job.agent)


def _mark_trace_stats(stats: TraceStats, at_s: float, count: int) -> None:
    if len(stats.busy) < BUSY_POINTS:
        stats.busy.append((at_s, count))


def trace_stats(path: str | Path) -> TraceStats:
    """Measure a trace file.

    Raises:
        BadInput: the trace is broken; the message names file, line and field.
    """
    trace = Trace(path)
    return measure_trace_stats(trace.header, trace)


def plot_trace_stats(stats: TraceStats, path: str | Path) -> None:
    """Draw arrivals, tokens, execution times and parallelism as one picture.

    Raises:
        BadInput: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_lrtrace_figure(11.0, 7.0)
    figure.suptitle(f"{stats.header.name}: {stats.jobs} jobs in {stats.duration_s:.0f} s", fontsize=11)
    arrivals, tokens, execution, busy = (figure.add_subplot(2, 2, index) for index in range(1, 5))
    arrivals.hist(np.array(stats.arrivals_s), bins=60)
    arrivals.set(title="arrivals", xlabel="time [s]", ylabel="jobs")
    tokens.hist(np.array(stats.columns["plan_tokens"]), bins=40, alpha=0.7, label="plan")
    tokens.hist(np.array(stats.columns["segment_tokens"]), bins=40, alpha=0.7, label="segment")
    tokens.set(title="tokens", xlabel="tokens", ylabel="count")
    tokens.legend(fontsize=8)
    execution.hist(np.array(stats.columns["execution_s"]), bins=40, alpha=0.7, label="plan")
    execution.hist(np.array(stats.columns["segment_execution_s"]), bins=40, alpha=0.7, label="segment")
    execution.set(title="execution", xlabel="seconds", ylabel="count")
    execution.legend(fontsize=8)
    times, counts = zip(*stats.busy, strict=True) if stats.busy else ((), ())
    busy.step(times, counts, where="post")
    busy.set(title="tasks in progress", xlabel="time [s]", ylabel="tasks")
    save_lrtrace_figure(figure, Path(path))
