"""An engine's load as plain data, for a front-end in another process that chooses the engine of a task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timely.core.job import COLUMNS, JobTable
from timely.disciplines.base import Speed, StepLimits
from timely.routing.forecast import ROUTED_COLUMNS, UNBOUNDED, ReportedRoutingQueue, RoutingEngineLoad


@dataclass(frozen=True, slots=True)
class ReportedRoutingSpeed:
    """Step times as an engine reported them: of one sequence, of a further one, and of a prompt token, seconds."""

    token_s: float
    sequence_s: float
    prefill_token_s: float

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        """Time of a step, seconds."""
        return (
            self.token_s + self.sequence_s * max(0.0, sequences - 1) + self.prefill_token_s * prefill_tokens
        )

    def mixing_s(self, context_tokens: float) -> float:
        """Not reported, since a router composes no step: none."""
        return 0.0


def report_routing_load(table: JobTable, speed: Speed, limits: StepLimits | None) -> dict[str, Any]:
    """What ``read_routing_load`` makes a ``RoutingEngineLoad`` of.

    Args:
        limits: of the latest step; None before the first one.
    """
    alone_s = speed.step_s(1, 0)
    return {
        "columns": {name: getattr(table, name).tolist() for name in ROUTED_COLUMNS},
        "speed": [alone_s, max(0.0, speed.step_s(2, 0) - alone_s), speed.prefill_token_s],
        "memory": None if limits is None else [limits.free_blocks, limits.block_tokens, limits.max_batch],
    }


def read_routing_load(report: Mapping[str, Any]) -> RoutingEngineLoad:
    """The load of an engine, without what it has cached of a prompt."""
    columns = {name: np.array(report["columns"][name], dtype=COLUMNS[name]) for name in ROUTED_COLUMNS}
    free_blocks, block_tokens, max_batch = report["memory"] or (UNBOUNDED, 1, UNBOUNDED)
    queue, speed = ReportedRoutingQueue(**columns), ReportedRoutingSpeed(*report["speed"])
    return RoutingEngineLoad(queue, speed, 0, free_blocks, UNBOUNDED, block_tokens, max_batch)
