"""What Justitia is compared with: Parrot's order, the shortest application first, the shortest request first."""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows
from timely.disciplines.heap_queue import Group, QueueDiscipline
from timely.disciplines.justitia.app_groups import App, AppDiscipline
from timely.disciplines.output_length import COMPLETED
from timely.disciplines.predictors.app_cost import (
    APP_COSTS,
    KV,
    OnlineAppCosts,
    TrainedAppCosts,
    kv_token_time,
)
from timely.disciplines.predictors.history import (
    LENGTH_HISTORY,
    HistoryPredictor,
    LengthPredictor,
    Prediction,
)


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
        """Its place is its arrival."""
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
        return cls(TrainedAppCosts.load(path, KV, OnlineAppCosts(kv_token_time)))

    def opened(self, app: App, previous: App | None, now: float) -> None:
        """All of it is still to come."""
        app.tag = app.cost

    def served(self, app: App, now: float) -> None:
        """What has been served is no longer to come; one that costs more than predicted is about to end."""
        app.tag = max(0.0, app.cost - app.served)
        self._fresh.lowered(app)
        self._evicted.lowered(app)

    def ranks(self, table: JobTable, rows: Rows) -> Floats:
        """The tags as they are now."""
        jobs = table.jobs
        tags = (self.book.of(jobs[row].job_id).tag for row in rows.tolist())
        return np.fromiter(tags, np.float64, rows.size)


class ShortestRequest(QueueDiscipline):
    """The request with the least predicted output first; requests that run are not interrupted.

    Args:
        predictor: for requests that bring no ``expected_tokens``; similar past prompts when left out.
    """

    predictor_kind = LENGTH_HISTORY

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__()
        self.predictor: LengthPredictor = predictor if predictor is not None else HistoryPredictor()
        self._predicted: dict[Group, tuple[float, int, Prediction | None]] = {}

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        return cls(HistoryPredictor.from_file(path))

    def knowledge(self) -> LengthPredictor:
        return self.predictor

    def recall(self, knowledge: object) -> None:
        self.predictor = cast(LengthPredictor, knowledge)

    def group(self, job: Job) -> Group:
        """Every request queues for itself."""
        return job.job_id

    def rank(self, group: Group) -> float:
        """Predicted output tokens."""
        return self._predicted[group][0]

    def age(self, group: Group) -> int:
        """Order of arrival."""
        return self._predicted[group][1]

    def arrived(self, job: Job, now: float) -> None:
        """Predict, then queue."""
        spec, order = job.spec, int(job.table.sequence[job.row])
        if spec.hints.expected_tokens is not None:
            self._predicted[job.job_id] = (float(spec.hints.expected_tokens), order, None)
        else:
            prediction = self.predictor.predict(spec)
            self._predicted[job.job_id] = (prediction.mean, order, prediction)
        super().arrived(job, now)

    def finished(self, job: Job, now: float) -> None:
        """Remember how long it got."""
        super().finished(job, now)
        prediction = self._predicted.pop(job.job_id)[2]
        if prediction is not None and job.outcome in COMPLETED:
            self.predictor.learn(job.spec, prediction, int(job.table.output_tokens[job.row]))


class VllmSjf(ShortestRequest):
    """Shortest predicted request first, blind to applications."""

    info = DisciplineInfo(
        name="vllm-sjf",
        summary="request with the least predicted output first, not interrupting",
        source="Justitia section V-A",
        needs=("a length predictor (learned while serving), or expected_tokens",),
        good_at="short mean completion of single requests",
        starves="long requests under a steady stream of short ones",
    )
