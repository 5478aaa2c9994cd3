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

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, StepLimits, StepPlan
from timely.disciplines.justitia.app_groups import App, AppDiscipline, DisciplineAppAccounts
from timely.disciplines.justitia.fair_clock import FairClock, WeightedClock
from timely.disciplines.justitia.virtual_time import FairVirtualTime
from timely.disciplines.predictors.app_cost import (
    APP_COSTS,
    COSTS,
    KV,
    WEIGHTED,
    OnlineAppCosts,
    TrainedAppCosts,
)


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
    clock_type: ClassVar[type[FairClock]] = FairClock

    def __init__(
        self, accounts: DisciplineAppAccounts | None = None, *, capacity_tokens: float | None = None
    ) -> None:
        """``accounts``: with the cost of ``unit``. ``capacity_tokens``: KV tokens a step; observed when left out."""
        super().__init__(DisciplineAppAccounts(cost=COSTS[self.unit]) if accounts is None else accounts)
        self._clock = self.clock_type(capacity_tokens)

    @property
    def time(self) -> FairVirtualTime:
        """The virtual time of fair sharing."""
        return self._clock.time

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        cost = COSTS[cls.unit]
        return cls(
            DisciplineAppAccounts(TrainedAppCosts.load(path, cls.unit, OnlineAppCosts(cost)), cost=cost)
        )

    def opened(self, app: App, previous: App | None, now: float) -> None:
        """Eq. 3: the tag is virtual time now plus cost; a continued application begins where it ended."""
        app.tag = self.time.arrive(app.cost, now, after=previous.tag if previous is not None else 0.0)

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        self._clock.advance(table, limits)
        return super().compose(table, limits)


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
    clock_type = WeightedClock
