"""SageSched's baselines that predict one number: SSJF, LTR and TRAIL.

The originals fine-tune a language model each.
Here the prediction is the request's ``expected_tokens``, which is where a fine-tuned predictor plugs in.
Without it, the prediction is the mean length of what similar past prompts received.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.disciplines.base import DisciplineInfo
from timely.disciplines.justitia.baselines import ShortestRequest
from timely.disciplines.output_length import HistoryLearningDiscipline
from timely.disciplines.predictors.history import LengthPrediction, LengthPredictor
from timely.disciplines.sagesched.gittins import CostDistribution
from timely.disciplines.step_builder import RankedDiscipline

CHECK_S = 0.5
"""Time between two checks for starving requests, seconds."""
PROTECTED_SHARE = 0.8
"""TRAIL's C."""


class Ssjf(ShortestRequest):
    """Speculative shortest job first (Qiu et al. 2024): by predicted output length, not interrupting."""

    info = DisciplineInfo(
        name="ssjf",
        summary="shortest predicted output first, not interrupting",
        source="SSJF, as in SageSched section 4.1",
        needs=("a length predictor (learned while serving), or expected_tokens",),
        good_at="requests whose length is certain",
        starves="long requests under a steady stream of short ones",
    )


@dataclass(slots=True)
class Guess:
    tokens: float
    prediction: LengthPrediction | None
    served_s: float
    credit: float = 0.0
    """Tokens left of a promotion (LTR)."""


class _RankGuessingDiscipline(HistoryLearningDiscipline, RankedDiscipline):
    pool_first = False

    def __init__(self, predictor: LengthPredictor | None = None) -> None:
        super().__init__(predictor)
        self._guesses: dict[JobId, Guess] = {}

    def arrived(self, job: Job, now: float) -> None:
        tokens, prediction = self.predict_tokens(job.spec)
        self._guesses[job.job_id] = Guess(tokens, prediction, now)
        job.table.rank[job.row] = tokens

    def finished(self, job: Job, now: float) -> None:
        self.learn(job, self._guesses.pop(job.job_id).prediction)


class Ltr(_RankGuessingDiscipline):
    """Learning to rank (Fu et al. 2024): waiting and running requests by predicted rank, at every step.

    Only the order of the predictions counts. A request not served for ``starve_s`` seconds goes ahead of all
    others for ``quantum_tokens`` tokens. The paper counts both in steps, and its scripts have 200 and 10.
    Some seconds without service cost the mean more, so the defaults here are kinder to it.
    """

    info = DisciplineInfo(
        name="ltr",
        summary="shortest predicted rank first, interrupting, starving requests promoted",
        source="LTR (NeurIPS 2024), as in SageSched section 4.1",
        needs=("a length predictor (learned while serving), or expected_tokens",),
        good_at="requests whose relative length can be told",
        starves="no request for ever: a long request may wait starve_s (100 s) before each quantum",
    )

    def __init__(
        self,
        predictor: LengthPredictor | None = None,
        *,
        starve_s: float = 100.0,
        quantum_tokens: float = 64.0,
    ) -> None:
        super().__init__(predictor)
        self._starve_s = starve_s
        self._quantum = quantum_tokens
        self._looked_s = -math.inf

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        guess = self._guesses[job.job_id]
        guess.served_s = now
        if guess.credit > 0.0:
            guess.credit -= tokens
            if guess.credit <= 0.0:
                job.table.rank[job.row] = guess.tokens
        if now - self._looked_s >= CHECK_S:
            self._looked_s = now
            self._promote(job.table, now)

    def parked(self, job: Job, now: float) -> None:
        """Execution by the robot is no waiting."""
        self._guesses[job.job_id].served_s = now

    def _promote(self, table: JobTable, now: float) -> None:
        for job in table:
            guess = self._guesses[job.job_id]
            since = max(guess.served_s, float(table.resume_s[job.row]))
            if guess.credit <= 0.0 and now - since >= self._starve_s:
                guess.credit = self._quantum
                table.rank[job.row] = -1.0


Refiner = Callable[[JobSpec, int], float]
"""Predicted output tokens still to come of a request that has generated so many, better the longer it runs."""


class Trail(_RankGuessingDiscipline):
    """TRAIL (Shahout et al. 2025): shortest predicted remaining length first, with limited preemption.

    The prediction is renewed with every token. A request that has generated ``PROTECTED_SHARE`` of its first
    prediction is not interrupted any more.

    Args:
        refiner: predicts the remaining length.
            The original reads it from the model's inner layers, which a scheduler cannot see.
            Without it, the distribution over similar past prompts gives what is left beyond the tokens generated.
            Without a distribution it is the first prediction less these tokens.
    """

    info = DisciplineInfo(
        name="trail",
        summary="shortest predicted remaining output first, interrupting only early",
        source="TRAIL (ICLR 2025), as in SageSched section 4.1",
        needs=("a length predictor (learned while serving), or expected_tokens",),
        good_at="requests whose remaining length gets clear while they run",
        starves="requests believed long, under a steady stream of ones believed short",
    )

    def __init__(self, predictor: LengthPredictor | None = None, *, refiner: Refiner | None = None) -> None:
        super().__init__(predictor)
        self._refiner = refiner
        self._lengths: dict[JobId, CostDistribution] = {}

    def arrived(self, job: Job, now: float) -> None:
        super().arrived(job, now)
        guess = self._guesses[job.job_id]
        if guess.prediction is not None:
            prediction = guess.prediction
            self._lengths[job.job_id] = CostDistribution(prediction.lengths, prediction.weights)
        if job.table.output_tokens[job.row]:
            self._rank(job, guess)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        self._rank(job, self._guesses[job.job_id])

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self._lengths.pop(job.job_id, None)

    def _rank(self, job: Job, guess: Guess) -> None:
        output = int(job.table.output_tokens[job.row])
        if output >= PROTECTED_SHARE * guess.tokens:
            job.table.rank[job.row] = -1.0
            return
        if self._refiner is not None:
            tokens_left = self._refiner(job.spec, output)
        elif job.job_id in self._lengths:
            tokens_left = self._lengths[job.job_id].mean_left(output)
        else:
            tokens_left = guess.tokens - output
        job.table.rank[job.row] = 0.0 if math.isnan(tokens_left) else max(0.0, tokens_left)
