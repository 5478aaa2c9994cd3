"""What a run leaves behind about its decisions: who took part in which steps, compactly, and state over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timely.core.job import JobId, JobTable
    from timely.engines.sim.kv import BlockPool
    from timely.engines.sim.simulator import Member


class Journal:
    """Placeholder."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, now: float, step_s: float, members: list[Member], evicted: list[JobId]) -> None:
        """One step."""
        self.steps += 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"steps": self.steps}


class Series:
    """Placeholder."""

    def step(self, now: float, table: JobTable, pool: BlockPool, batch: int) -> None:
        """Sample."""

    def columns(self) -> dict[str, list[float]]:
        """Columns by name."""
        return {}
