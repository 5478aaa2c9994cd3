"""The robots of a replay: when they start and end each segment, and what they report about it."""

import math
from collections.abc import Iterator

import numpy as np

from timely.core.reports import ExecutionReport
from timely.engines.replay_types import JobRecord, PlannedTask, ReplayOptions

Reports = Iterator[tuple[float, ExecutionReport]]


class Robots:
    """Execution on the robots' side. A robot runs its segments in order, each as soon as it has it.

    Reports are sent only where they can tell the server something. While its estimates are exact that is the first
    start alone, by which it knows that this robot reports at all: others would change nothing.
    """

    def __init__(self, options: ReplayOptions) -> None:
        self._factor = options.estimate_factor
        self._noise = options.estimate_noise
        self._seed = options.seed
        self._reports = options.closed_loop and options.mode == "segmented"
        self._noise_factors: dict[int | str, tuple[float, ...]] = {}

    def estimate_s(self, task: PlannedTask, index: int) -> float:
        """What the server expects segment ``index`` to take, seconds; the same in every run of one seed."""
        segment = task.plan[index]
        expected_s = segment.execution_s if segment.estimate_s is None else segment.estimate_s
        if self._noise == 0.0:
            return expected_s * self._factor
        return expected_s * self._factor * self._noise_of(task)[index]

    def _noise_of(self, task: PlannedTask) -> tuple[float, ...]:
        factors = self._noise_factors.get(task.job)
        if factors is None:
            # Keyed by the job, not by the order of events: a discipline that runs jobs in another order meets
            # the very same robots.
            name = task.job if isinstance(task.job, int) else int.from_bytes(task.job.encode(), "little")
            rng = np.random.default_rng((self._seed, name))
            factors = tuple(math.exp(self._noise * z) for z in rng.standard_normal(len(task.plan)))
            self._noise_factors[task.job] = factors
        return factors

    def receive(self, record: JobRecord, index: int, ready_s: float, estimate_s: float) -> Reports:
        """Segment ``index`` left the engine at ``ready_s``: note when it runs; yields (time, report) at the server."""
        task = record.task
        segment = task.plan[index]
        free = record.end_s[-1] if record.end_s else task.arrival_s
        start = max(free, ready_s + task.hints.network_s)
        end = start + segment.execution_s
        record.ready_s.append(ready_s)
        record.start_s.append(start)
        record.end_s.append(end)
        return self._tell(task, index, start, end, estimate_s)

    def _tell(self, task: PlannedTask, index: int, start: float, end: float, estimate_s: float) -> Reports:
        segment, network = task.plan[index], task.hints.network_s
        if segment.blocking:
            yield (
                end + network,
                ExecutionReport(index, "value", elapsed_s=segment.execution_s, age_s=network, value=""),
            )
        elif self._reports:
            exact = estimate_s == segment.execution_s
            if not exact or index == 0 < len(task.plan) - 1:
                yield start + network, ExecutionReport(index, "started", age_s=network)
            if not exact:
                yield (
                    end + network,
                    ExecutionReport(index, "done", elapsed_s=segment.execution_s, age_s=network),
                )
