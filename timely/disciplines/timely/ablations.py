"""`timely` without one of its parts, for ablations in the simulator; none is offered for serving."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from timely.core.arrays import Floats
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Rows, StepLimits
from timely.disciplines.predictors.app_cost import AppCosts
from timely.disciplines.predictors.embedding import Vectors
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.timely.discipline import Timely
from timely.disciplines.timely.index import TimelyMachine
from timely.disciplines.timely.lengths import TimelyAnswerLengths


class MeanLengths(TimelyAnswerLengths):
    """Each answer has its expected length for certain."""

    def predict(self, specs: Sequence[JobSpec], vectors: Sequence[Vectors | None]) -> Floats:
        lengths = super().predict(specs, vectors)
        return np.broadcast_to(lengths.mean(axis=1, keepdims=True), lengths.shape)


class WithoutDistributions(Timely):
    """The expected length instead of its distribution."""

    def __init__(self, history: HistoryPredictor | None = None, costs: AppCosts | None = None) -> None:
        super().__init__(history, costs)
        self._requests.answers = MeanLengths(history)


class WithoutDrafts(Timely):
    def accepted(self, job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        """Nothing is learned of drafts."""


class WithoutApplications(Timely):
    """Each request counts for itself."""

    def _share_fairly(self, table: JobTable, rows: Rows, places: Rows, use_s: Floats, step_s: float) -> None:
        """Each request keeps its own use."""


class WithoutLevels(Timely):
    """All levels weigh alike."""

    LEVEL_FACTOR: ClassVar[float] = 1.0


class WithoutResidence(Timely):
    """Evictions cost nothing."""

    @staticmethod
    def _context_token_s(limits: StepLimits) -> float:
        return 0.0


class WithoutPrice(Timely):
    """A job that is left out of a step delays no other step."""

    PRICE_SHARE: ClassVar[float] = 0.0
    DECODE_PRICE_SHARE: ClassVar[float] = 0.0


class SlotsOnly(Timely):
    """A request uses a slot, however much of the cache it holds."""

    def _machine(self, table: JobTable, limits: StepLimits) -> TimelyMachine:
        return replace(super()._machine(table, limits), cache_tokens=1e12)


class CacheOnly(Timely):
    """A request uses its share of the cache, however many slots there are."""

    def _machine(self, table: JobTable, limits: StepLimits) -> TimelyMachine:
        return replace(super()._machine(table, limits), slots=1e12)
