"""SageSched: requests by the Gittins index of their cost, predicted as a distribution from similar past prompts.

A request's output length is predicted as a distribution (section 3.1).
Its cost is ``O^2 / 2 + I O``, which stands for memory and for compute alike (section 3.2).
The smallest Gittins index runs first, with preemption.
The index of a running request is renewed at bucket boundaries from what is left of its cost (section 3.3).
The constants are the paper's (``constants``). Where the paper leaves something open, this is decided here:

* Without a similar past request, the paper draws on public datasets.
  There are none here, so a length that the request brings (``expected_tokens``) stands in.
  Else the latest 256 requests do, and before there are any a prior.
* Of similar past requests the latest 256 count. Requests that did not run to their end are not remembered.
* No length is predicted above the request's limit.
* The paper does not name its sentence embeddings; these are WordLlama's.
* Section 3.3 refreshes the index at ten even parts of a request's cost, and section 4.1 has buckets of 200.
  Here it is refreshed every 200 output tokens.
* A request that outlives its whole distribution is expected to last 1.25 to 3 times its length so far.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from timely.core.job import Job, JobId
from timely.disciplines.base import DisciplineInfo, Floats
from timely.disciplines.output_length import HistoryLearningDiscipline
from timely.disciplines.predictors.embedding import prompt_embedder
from timely.disciplines.predictors.history import HistoryPredictor, LengthPrediction, LengthPredictor
from timely.disciplines.sagesched.constants import BUCKET_TOKENS, SIMILARITY, WINDOW
from timely.disciplines.sagesched.gittins import CostDistribution
from timely.disciplines.step_builder import RankedDiscipline

Cost = Callable[[Floats, float], Floats]
"""Cost of a request from its output tokens and its input tokens."""


def discipline_hybrid_cost(output_tokens: Floats, input_tokens: float) -> Floats:
    """``O^2 / 2 + I O`` (section 3.2)."""
    return output_tokens * (output_tokens / 2.0 + input_tokens)


COSTS: dict[str, Cost] = {
    "hybrid": discipline_hybrid_cost,
    "output": lambda output_tokens, input_tokens: output_tokens,
    "overall": lambda output_tokens, input_tokens: input_tokens + 2.0 * output_tokens,
}
"""``output`` is the cost of SSJF, LTR and TRAIL, ``overall`` that of VTC (section 4.3.2)."""

LITERAL: dict[str, Any] = {"threshold": SIMILARITY, "window": WINDOW, "enough": 1, "smooth": 0.0}
"""Settings of the history: lengths of similar requests as they are, without a kernel and without filling up."""


def sagesched_discipline_history(**settings: Any) -> HistoryPredictor:
    """The paper's predictor: sentence embeddings, similar from 0.8.

    Raises:
        Unsupported: the sentence embeddings are not installed (extra ``predict``).
    """
    return HistoryPredictor(prompt_embedder("wordllama"), **{**LITERAL, **settings})


_OUTLIVED_FACTORS = np.array([1.25, 1.5, 2.0, 3.0])


@dataclass(slots=True)
class SageSchedBelief:
    """The predicted cost of a live request."""

    prediction: LengthPrediction
    costs: CostDistribution
    refresh_at: float
    """Output tokens at which the index is taken again."""


class SageSched(HistoryLearningDiscipline, RankedDiscipline):
    """Gittins index over predicted cost distributions, refreshed at bucket boundaries.

    Args:
        predictor: output lengths as a distribution; the paper's history of similar prompts when left out.
        cost: ``hybrid``, or the ablations ``output`` and ``overall``.
        order: ``gittins``, or the ablation ``mean`` (expected total cost, never refreshed).
        bucket_tokens: output tokens between two refreshes; ``inf`` never refreshes.
        noise: weight of a uniform distribution mixed into the belief (the paper's test: 0.2, that is 1:4). The paper
            does not say over what; it is over the output lengths up to the longest one predicted.

    Raises:
        ValueError: a value makes no sense.
    """

    pool_first = False
    history_settings: ClassVar[Mapping[str, Any]] = LITERAL
    info = DisciplineInfo(
        name="sagesched",
        summary="Gittins index of predicted cost distributions, refreshed while running",
        source="SageSched, section 3",
        needs=(
            "a history of finished requests (learned while serving; text of the prompt)",
            "sentence embeddings (extra predict)",
        ),
        good_at="short mean completion of requests whose length is uncertain",
        starves="requests believed long, under a steady stream of ones believed short",
    )

    def __init__(
        self,
        predictor: LengthPredictor | None = None,
        *,
        cost: str = "hybrid",
        order: Literal["gittins", "mean"] = "gittins",
        bucket_tokens: float = BUCKET_TOKENS,
        noise: float = 0.0,
    ) -> None:
        if cost not in COSTS or order not in ("gittins", "mean"):
            raise ValueError(f"unknown cost {cost!r} or order {order!r}")
        if not bucket_tokens >= 1 or not 0.0 <= noise <= 1.0:
            raise ValueError(f"bucket_tokens at least 1, noise within 0..1; got {bucket_tokens} and {noise}")
        super().__init__(predictor)
        self._cost = COSTS[cost]
        self._order = order
        self._bucket = bucket_tokens
        self._noise = noise
        self._beliefs: dict[JobId, SageSchedBelief] = {}

    @staticmethod
    def default_history() -> HistoryPredictor:
        return sagesched_discipline_history()

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float) -> None:
        """Predict and rank; one taken over from another discipline with what it has had already."""
        prediction = self.predictor.predict(job.spec)
        output = float(job.table.output_tokens[job.row])
        refresh = self._bucket * (1.0 + output // self._bucket) if self._bucket < np.inf else np.inf
        self._beliefs[job.job_id] = SageSchedBelief(prediction, self._distribution(job, prediction), refresh)
        self._rank(job, output)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        belief = self._beliefs[job.job_id]
        output = float(job.table.output_tokens[job.row])
        if output >= belief.refresh_at:
            belief.refresh_at += self._bucket * (1.0 + (output - belief.refresh_at) // self._bucket)
            if self._order == "gittins":
                self._rank(job, output)

    def finished(self, job: Job, now: float) -> None:
        self.learn(job, self._beliefs.pop(job.job_id).prediction)

    # ------------------------------------------------------------------ the index

    def _distribution(self, job: Job, prediction: LengthPrediction) -> CostDistribution:
        lengths, weights = prediction.lengths, prediction.weights
        if self._noise > 0.0:
            # Uniform over the lengths the request could have, at the resolution of the belief.
            even_lengths = np.linspace(1.0, max(float(lengths.max()), 2.0), 64)
            weights = np.concatenate(
                (
                    weights * ((1.0 - self._noise) / weights.sum()),
                    np.full(even_lengths.size, self._noise / even_lengths.size),
                )
            )
            lengths = np.concatenate((lengths, even_lengths))
        return CostDistribution(self._cost(lengths, float(job.spec.prompt_tokens)), weights)

    def _rank(self, job: Job, output: float) -> None:
        inputs = float(job.spec.prompt_tokens)
        costs = self._beliefs[job.job_id].costs
        if self._order == "mean":
            rank = costs.mean
        else:
            # Cost so far by the same measure; nothing generated has cost nothing, whatever the measure.
            age = float(self._cost(np.array([output]), inputs)[0]) if output > 0 else 0.0
            rank = costs.index(age)
            if np.isnan(rank):
                rank = CostDistribution(self._cost(output * _OUTLIVED_FACTORS, inputs)).index(age)
        job.table.rank[job.row] = rank


class SageSchedMean(SageSched):
    """SageSched by the mean of the cost, which ignores how the cost is distributed."""

    info = replace(
        SageSched.info,
        name="sagesched-mean",
        summary="expected total cost, smallest first",
        source="SageSched, section 4.3.3 (Mean)",
        good_at="requests whose length is certain",
    )

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__(predictor, order="mean")


class GittinsStatic(SageSched):
    """SageSched without refreshing."""

    info = replace(
        SageSched.info,
        name="gittins-static",
        summary="Gittins index taken once, at arrival",
        source="SageSched, section 4.3.3 (Gittins)",
        good_at="requests that are short against their uncertainty",
    )

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__(predictor, bucket_tokens=np.inf)


class SageSchedSmooth(SageSched):
    """Our own: a kernel around each remembered length, few similar requests filled up, and hashed words.

    A dozen lengths are no distribution: by them a request is about to end whenever it comes near one of them.
    Hashed words need no extra package.
    """

    info = replace(
        SageSched.info,
        name="sagesched-smooth",
        summary="as sagesched, with a smoothed history of hashed prompts",
        source="SageSched with a predictor of our own",
        needs=("a history of finished requests (learned while serving; text of the prompt)",),
    )

    history_settings: ClassVar[Mapping[str, Any]] = {}
    default_history = staticmethod(HistoryLearningDiscipline.default_history)
