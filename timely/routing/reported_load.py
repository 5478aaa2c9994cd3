"""An engine's load as plain data, for a front-end in another process that chooses the engine of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from timely.core.arrays import Bools, Floats, Ints
from timely.core.job import COLUMNS, JobSpec, JobTable
from timely.disciplines.base import Speed, StepLimits
from timely.routing.forecast import UNBOUNDED, EngineLoad


@dataclass(slots=True)
class ReportedQueue:
    """The columns of ``QueueColumns`` as an engine reported them."""

    alpha: Floats
    ert_s: Floats
    due_s: Floats
    network_s: Floats
    resume_s: Floats
    segment: Ints
    segment_tokens: Ints
    segment_bound: Ints
    prefill_left: Ints
    resident: Bools
    plain: Bools

    def add(self, spec: JobSpec) -> None:
        """A task that was sent to the engine after its report."""
        table = JobTable(1)
        table.add(spec)
        for name in _NAMES:
            setattr(self, name, np.concatenate((getattr(self, name), getattr(table, name))))


_NAMES = tuple(field.name for field in fields(ReportedQueue))


@dataclass(frozen=True, slots=True)
class ReportedSpeed:
    """Step times as an engine reported them: of one sequence, of a further one, and of a prompt token, seconds."""

    token_s: float
    sequence_s: float
    prefill_token_s: float

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        """Time of a step, seconds."""
        return (
            self.token_s + self.sequence_s * max(0.0, sequences - 1) + self.prefill_token_s * prefill_tokens
        )


def report_load(table: JobTable, speed: Speed, limits: StepLimits | None) -> dict[str, Any]:
    """What ``read_load`` makes an ``EngineLoad`` of.

    Args:
        limits: of the latest step; None before the first one.
    """
    alone_s = speed.step_s(1, 0)
    return {
        "columns": {name: getattr(table, name).tolist() for name in _NAMES},
        "speed": [alone_s, max(0.0, speed.step_s(2, 0) - alone_s), speed.prefill_token_s],
        "memory": None if limits is None else [limits.free_blocks, limits.block_tokens, limits.max_batch],
    }


def read_load(report: Mapping[str, Any]) -> EngineLoad:
    """The load of an engine, without what it has cached of a prompt."""
    columns = {name: np.array(report["columns"][name], dtype=COLUMNS[name]) for name in _NAMES}
    free_blocks, block_tokens, max_batch = report["memory"] or (UNBOUNDED, 1, UNBOUNDED)
    queue, speed = ReportedQueue(**columns), ReportedSpeed(*report["speed"])
    return EngineLoad(queue, speed, 0, free_blocks, UNBOUNDED, block_tokens, max_batch)
