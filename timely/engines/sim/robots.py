"""The robots of a replay: when they start and end each segment, and what they report about it."""

from collections.abc import Iterator

from timely.core.reports import ExecutionReport
from timely.engines.replay_types import JobRecord, PlannedTask, ReplayOptions

Reports = Iterator[tuple[float, ExecutionReport]]


class SimRobots:
    """Execution on the robots' side. A robot runs its segments in order, each as soon as it has it.

    Reports are sent only where they can tell the server something. While its estimates are exact that is the first
    start alone, by which it knows that this robot reports at all: others would change nothing.
    """

    def __init__(self, options: ReplayOptions) -> None:
        self._reports = options.closed_loop and options.mode == "segmented"

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
