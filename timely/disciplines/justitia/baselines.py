"""What Justitia is compared with: Parrot's order, the shortest application first, the shortest request first."""

from pathlib import Path
from typing import Self

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows
from timely.disciplines.heap_queue import Group, QueueDiscipline
from timely.disciplines.justitia.app_groups import App, AppDiscipline, DisciplineAppAccounts
from timely.disciplines.output_length import HistoryLearningDiscipline
from timely.disciplines.predictors.app_cost import (
    APP_COSTS,
    KV,
    OnlineAppCosts,
    TrainedAppCosts,
    predictor_kv_token_time,
)
from timely.disciplines.predictors.history import LengthPrediction, LengthPredictor


class Parrot(AppDiscipline):
    """Applications first come, first served; the requests of one are not interleaved with those of later ones."""

    info = DisciplineInfo(
        name="parrot",
        summary="applications first come, first served",
        source="Parrot (OSDI 2024), as in Justitia section V-A",
        needs=("requests grouped by app",),
        good_at="applications of similar size",
    )

    def opened(self, app: App, previous: App | None, now: float) -> None:
        app.tag = now


class Srjf(AppDiscipline):
    """The application with the least predicted cost still to come first; requests that run are not interrupted."""

    info = DisciplineInfo(
        name="srjf",
        summary="application with the least remaining predicted cost first",
        source="Justitia section V-A",
        needs=("requests grouped by app", "a cost predictor (learned while serving, or trained)"),
        good_at="short mean completion of applications",
        starves="large applications under a steady stream of small ones (Justitia Fig. 11 shows it)",
    )
    predictor_kind = f"{APP_COSTS}:{KV}"

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        return cls(
            DisciplineAppAccounts(TrainedAppCosts.load(path, KV, OnlineAppCosts(predictor_kv_token_time)))
        )

    def opened(self, app: App, previous: App | None, now: float) -> None:
        app.tag = app.cost

    def served(self, app: App, now: float) -> None:
        app.tag = max(0.0, app.cost - app.served_cost)
        self._fresh.lowered(app)
        self._evicted_queue.lowered(app)

    def ranks(self, table: JobTable, rows: Rows) -> Floats:
        jobs = table.jobs
        tags = (self.accounts.of(jobs[row].job_id).tag for row in rows.tolist())
        return np.fromiter(tags, np.float64, rows.size)


class ShortestRequest(HistoryLearningDiscipline, QueueDiscipline):
    """The request with the least predicted output first; requests that run are not interrupted."""

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__(predictor)
        self._predictions: dict[Group, tuple[float, int, LengthPrediction | None]] = {}

    def group(self, job: Job) -> Group:
        return job.job_id

    def rank(self, group: Group) -> float:
        return self._predictions[group][0]

    def age(self, group: Group) -> int:
        return self._predictions[group][1]

    def arrived(self, job: Job, now: float) -> None:
        tokens, prediction = self.predict_tokens(job.spec)
        self._predictions[job.job_id] = (tokens, int(job.table.sequence[job.row]), prediction)
        super().arrived(job, now)

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self.learn(job, self._predictions.pop(job.job_id)[2])


class VllmSjf(ShortestRequest):
    info = DisciplineInfo(
        name="vllm-sjf",
        summary="request with the least predicted output first, not interrupting",
        source="Justitia section V-A",
        needs=("a length predictor (learned while serving), or expected_tokens",),
        good_at="short mean completion of single requests",
        starves="long requests under a steady stream of short ones",
    )
