"""Justitia: applications in the order in which fair sharing would finish them, each with all resources.

An application costs memory over time: ``p d + d^2 / 2`` for each request (Eq. 1), predicted once when it arrives.
Its place is its finish time in a fluid server that shares the KV cache equally (Eq. 2, 3), also computed once.
Where the paper leaves something open, this is decided here:

* Capacity is the KV cache in tokens for each step.
  Where ``max_batch`` sequences of the usual length fill less of it, that is the capacity.
  A fluid server faster than the real one would turn the order into first come, first served.
* A step takes as long as recent ones did.
* An application that overruns its predicted cost keeps its place: tags are never refreshed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, StepLimits, StepPlan
from timely.disciplines.justitia.app_groups import ALLOWANCE, IDLE_S, App, AppDiscipline
from timely.disciplines.justitia.virtual_time import VirtualTime
from timely.disciplines.predictors.app_cost import (
    APP_COSTS,
    COSTS,
    KV,
    WEIGHTED,
    AppCosts,
    CostModel,
    OnlineAppCosts,
    TrainedAppCosts,
)

CONTEXT_SMOOTHING = 0.05
"""Weight of the newest batch in the mean context of a running request."""


class Justitia(AppDiscipline):
    """Virtual-time fair queuing of applications over the KV cache."""

    info = DisciplineInfo(
        name="justitia",
        summary="applications in the order fair sharing would finish them, each with all resources",
        source="Justitia, section IV (Eq. 1 to 3)",
        needs=(
            "requests grouped by app",
            "a cost predictor (learned while serving, or trained from 100 samples)",
        ),
        good_at="short mean completion of multi-request applications, none much later than under fair sharing",
    )

    predictor_kind = f"{APP_COSTS}:{KV}"
    unit: ClassVar[str] = KV
    """What its predictor files predict."""

    def __init__(
        self,
        costs: AppCosts | None = None,
        *,
        cost: CostModel | None = None,
        capacity_tokens: float | None = None,
        idle_s: float = IDLE_S,
        allowance: int = ALLOWANCE,
    ) -> None:
        """``cost``: that of ``unit`` when left out. ``capacity_tokens``: KV tokens a step; observed when left out."""
        super().__init__(costs, cost=cost or COSTS[self.unit], idle_s=idle_s, allowance=allowance)
        self.time = VirtualTime()
        self._fixed = capacity_tokens
        self._cache_blocks = 0
        self._context = 0.0
        self._batch = (-1, -1, -1)

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        return cls(TrainedAppCosts.load(path, cls.unit, OnlineAppCosts(COSTS[cls.unit])))

    def opened(self, app: App, previous: App | None, now: float) -> None:
        """Eq. 3: the tag is virtual time now plus cost; a continued application begins where it ended."""
        app.tag = self.time.arrive(app.cost, now, after=previous.tag if previous is not None else 0.0)

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        active = table.active & table.resident
        running = int(np.count_nonzero(active))
        batch = (len(table), running, int(table.sequence[active].sum()))
        if batch != self._batch:
            # Only the running requests change the pace, so extra calls in between change nothing.
            self._batch = batch
            self.time.advance(limits.now)
            if running:
                mean = float((table.context_tokens[active] + table.prefill_left[active]).sum()) / running
                self._context += (mean - self._context) * (CONTEXT_SMOOTHING if self._context else 1.0)
            self.time.rate = self.capacity(table, limits) / max(1e-6, limits.speed.token_s)
        return super().compose(table, limits)

    def capacity(self, table: JobTable, limits: StepLimits) -> float:
        """Cost the machine works off in a step: tokens its KV cache can hold in use."""
        if self._fixed is not None:
            return self._fixed
        blocks = limits.free_blocks + int(table.blocks.sum())
        # Blocks shared by several jobs are counted for each: the least sum ever seen is the nearest to the truth.
        self._cache_blocks = min(blocks, self._cache_blocks) if self._cache_blocks else blocks
        cache = float(self._cache_blocks * limits.block_tokens)
        return max(1.0, min(cache, limits.max_batch * self._context) if self._context else cache)

    def state(self) -> dict[str, float | int | str]:
        return {**super().state(), "virtual_time": self.time.value, "fair_sharing": self.time.active}


class JustitiaC(Justitia):
    """Justitia with VTC's cost: the paper's ablation of memory-centric cost."""

    info = replace(
        Justitia.info,
        name="justitia-c",
        summary="Justitia with compute-centric cost p + 2 d",
        source="Justitia, section V-D",
        good_at="showing what the memory-centric cost is worth",
    )

    predictor_kind = f"{APP_COSTS}:{WEIGHTED}"
    unit = WEIGHTED

    def capacity(self, table: JobTable, limits: StepLimits) -> float:
        tokens = super().capacity(table, limits)
        return max(1.0, 2.0 * tokens / self._context) if self._fixed is None and self._context else tokens
