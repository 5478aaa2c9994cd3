"""LAPS-SD: least attained service until a request's draft acceptance is stable, shortest job first from then on.

Section 4 of the paper. Where it is vague or slips, this is decided here:

* The text exchanges the names T_LLM and T_SSM; Eq. 6 has them right, and ``execution_s`` follows Eq. 6.
  On a live engine a decoding step is a whole round, so the measured time of a step stands for both times.
* A perceptible request moves to the queue whose range holds its *perceived* service.
  That is its attained service plus Eq. 6 for the rest. A non-perceptible request only ever moves down.
* Attained service is the time of all steps that a request took part in, those of its prompt included.
  The paper serves one request at a time; in a batch each member of a step is charged the whole step.
* Within a queue the least time left goes first, not the least in all. Eq. 6 leaves the prompt out.
  Here the time of prompt tokens still to compute is added, and of a robot's plan only the segment in generation counts.
* ``n`` of Eq. 6 is the mean number of drafts in the request's rounds.
* A request that becomes perceptible competes in its queue once more (the paper's event "stabilized").
  As soon as it is chosen as a perceptible one, it is not preempted until it ends or parks (section 4.1).
  Non-perceptible requests are preempted whenever the order says so: their caches are small.
* The paper gives neither the first threshold nor M, gamma and delta (``constants``).
* Predicted length plays no part before a request is perceptible, as in the paper.
* Acceptance is watched as in Fig. 3, over all rounds so far; rounds without a draft do not count.
  A request stays perceptible, and its estimate follows later rounds.
* Acceptance counts as observed, never as a trace gives it.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.laps_sd.constants import FACTOR, FIRST_QUEUE_S, QUEUES, STABLE_ROUNDS, STABLE_SPREAD
from timely.disciplines.output_length import LengthEstimates, LengthLearningDiscipline
from timely.disciplines.requirements import SPECULATION, check_discipline_acceptance
from timely.disciplines.round_tokens import RoundTokens
from timely.disciplines.step_builder import KeyedDiscipline

DRAFTS = 4.0
"""Draft tokens a round before any has been seen."""


def laps_discipline_execution_s(
    tokens: float, acceptance: float, drafts: float, draft_s: float, verify_s: float
) -> float:
    """Estimated time to generate ``tokens`` (Eq. 6), seconds.

    Args:
        acceptance: share of draft tokens that are right, 0..1 (``A_i``).
        drafts: draft tokens in a round (``n``).
        draft_s: time to draft one token (``T_SSM``), seconds.
        verify_s: time to verify a round (``T_LLM``), seconds.
    """
    rounds = tokens / (drafts * acceptance + 1.0)
    return drafts * rounds * draft_s + rounds * verify_s


@dataclass(slots=True)
class LapsSdRounds:
    recent: deque[float]
    """Acceptance over all rounds so far, after each of the last gamma rounds."""
    draft_tokens: int = 0
    right_tokens: int = 0
    rounds: int = 0
    rate: float | None = None
    """Predicted acceptance; None while the request is non-perceptible."""
    is_protected: bool = False
    """Has run since it is perceptible: it is not preempted."""

    def note(self, rate: float, delta: float) -> None:
        """Another round, after which the acceptance so far is ``rate``."""
        self.recent.append(rate)
        stable = len(self.recent) == self.recent.maxlen and max(self.recent) - min(self.recent) < delta
        if stable or self.rate is not None:
            self.rate = sum(self.recent) / len(self.recent)

    @property
    def drafts(self) -> float:
        """Mean draft tokens a round."""
        return self.draft_tokens / self.rounds if self.rounds else DRAFTS


class LapsSd(LengthLearningDiscipline, KeyedDiscipline):
    """The paper's scheduler.

    Args:
        queues: number of priority queues (K).
        first_s: most attained service in the first queue, seconds (S_1^up).
        factor: ratio of successive thresholds (M).
        rounds: consecutive rounds over which acceptance must hold still (gamma).
        spread: most it may move over these rounds (delta).
        draft_s, verify_s: Eq. 6's times, seconds; the measured step time stands for both unless given.

    Raises:
        ValueError: a parameter makes no sense.
    """

    pool_first = False
    info = DisciplineInfo(
        name="laps-sd",
        summary="queues by attained service; by estimated execution time once draft acceptance is stable",
        source="Semi-Clairvoyant Scheduling of Speculative Decoding Requests, section 4",
        needs=(SPECULATION, "expected_tokens, or lengths learned while serving"),
        good_at="mean latency with speculative decoding, when acceptance differs between requests",
        starves="requests with much service behind or before them, under a steady stream of short ones",
    )

    def __init__(
        self,
        *,
        queues: int = QUEUES,
        first_s: float = FIRST_QUEUE_S,
        factor: float = FACTOR,
        rounds: int = STABLE_ROUNDS,
        spread: float = STABLE_SPREAD,
        draft_s: float | None = None,
        verify_s: float | None = None,
    ) -> None:
        if queues < 1 or rounds < 2 or first_s <= 0.0 or factor <= 1.0 or spread <= 0.0:
            raise ValueError(
                "need queues >= 1, rounds >= 2, first_s > 0, factor > 1 and spread > 0, got "
                f"{queues}, {rounds}, {first_s}, {factor} and {spread}"
            )
        super().__init__()
        self.thresholds: Floats = np.array([first_s * factor**j for j in range(queues - 1)], dtype=np.float64)
        """Upper ends of all queues but the last, seconds: S_j^up = M^(j-1) S_1^up."""
        self._window, self._spread = rounds, spread
        self._draft_s, self._verify_s = draft_s, verify_s
        self._rounds_by_job: dict[JobId, LapsSdRounds] = {}
        self._perceptible: dict[JobId, LapsSdRounds] = {}

    # ------------------------------------------------------------------ hooks

    def check(self, spec: JobSpec) -> None:
        check_discipline_acceptance(spec)

    def arrived(self, job: Job, now: float) -> None:
        super().arrived(job, now)
        self._rounds_by_job[job.job_id] = LapsSdRounds(deque(maxlen=self._window))

    def accepted(self, job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        if draft_tokens <= 0:
            return
        rounds = self._rounds_by_job[job.job_id]
        rounds.rounds += 1
        rounds.draft_tokens += draft_tokens
        rounds.right_tokens += right_tokens
        rounds.note(rounds.right_tokens / rounds.draft_tokens, self._spread)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        rounds = self._rounds_by_job[job.job_id]
        # A round in which it has only just become perceptible was still run as a blind one.
        rounds.is_protected = job.job_id in self._perceptible
        if rounds.rate is not None:
            self._perceptible[job.job_id] = rounds

    def parked(self, job: Job, now: float) -> None:
        self._rounds_by_job[job.job_id].is_protected = False

    def evicted(self, job: Job, now: float) -> None:
        self._rounds_by_job[job.job_id].is_protected = False

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        del self._rounds_by_job[job.job_id]
        self._perceptible.pop(job.job_id, None)

    # ------------------------------------------------------------------ the order

    def left_s(self, job: Job, limits: StepLimits) -> float | None:
        """Estimated execution time left of a perceptible request (Eq. 6), seconds; None for others."""
        rounds = self._perceptible.get(job.job_id)
        if rounds is None or rounds.rate is None:
            return None
        table, row = job.table, job.row
        tokens = max(1.0, float(table.rank[row]) - int(table.output_tokens[row]))
        if table.segmented[row]:
            tokens = min(tokens, max(1.0, float(table.segment_bound[row] - table.segment_tokens[row])))
        prompt_s = float(table.prefill_left[row]) * limits.speed.prefill_token_s
        if self._draft_s is None and self._verify_s is None:
            return prompt_s + laps_discipline_execution_s(
                tokens, rounds.rate, rounds.drafts, 0.0, limits.speed.token_s
            )
        return prompt_s + laps_discipline_execution_s(
            tokens, rounds.rate, rounds.drafts, self._draft_s or 0.0, self._verify_s or 0.0
        )

    def queue_of(self, service_s: Floats) -> Floats:
        """Number of the queue, from 0, for so much service."""
        return np.searchsorted(self.thresholds, service_s, side="right").astype(np.float64)

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        jobs = len(table)
        service, blind, left_by_row_s = table.attained_s.copy(), np.ones(jobs), np.zeros(jobs)
        protected_rows: list[int] = []
        for job_id, rounds in self._perceptible.items():
            job = table[job_id]
            left_s = self.left_s(job, limits)
            if left_s is not None:
                row = job.row
                blind[row], left_by_row_s[row] = 0.0, left_s
                service[row] += left_s
                if rounds.is_protected and table.active[row]:
                    protected_rows.append(row)
        queue = self.queue_of(service)
        queue[protected_rows] = -1.0  # ahead of all queues
        keys: Floats = np.empty(jobs)
        keys[np.lexsort((table.sequence, left_by_row_s, blind, queue))] = -np.arange(jobs, dtype=np.float64)
        return keys


class LapsSdPrior(LapsSd):
    """Our own: no exploring. A request has an estimate from the start, and its rounds correct it.

    The paper runs a request blindly until its acceptance is stable, which pays where lengths say little.
    Here the tokens of a round, ``n A + 1`` of Eq. 6, begin as those of the other requests.
    They become the request's own as rounds go by. The request with the least estimated time left runs.
    Another one displaces it only if it has less by more than moving the cache out and in costs.
    """

    info = DisciplineInfo(
        name="laps-sd-prior",
        summary="least estimated time left, from the predicted length and the acceptance seen so far",
        source="LAPS-SD's Eq. 6 without its blind phase; our own",
        needs=("expected_tokens, or lengths learned while serving",),
        good_at="mean latency, with speculative decoding too, whether lengths or acceptances differ more",
        starves="requests with much left, under a steady stream of short ones",
    )

    def __init__(self) -> None:
        super().__init__()
        self._round_tokens = RoundTokens()
        self._own: dict[JobId, tuple[float, float]] = {}
        """Tokens and rounds of each request."""

    def arrived(self, job: Job, now: float) -> None:
        super().arrived(job, now)
        self._own[job.job_id] = (0.0, 0.0)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        """A round gave ``tokens``; the first token of all comes with the prompt and is none."""
        super().progressed(job, tokens, now)
        if tokens <= 0 or job.table.output_tokens[job.row] <= 1:
            return
        own, rounds = self._own[job.job_id]
        self._own[job.job_id] = (own + tokens, rounds + 1.0)
        self._round_tokens.learn(tokens)

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        del self._own[job.job_id]

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """The least time left first; a running request is credited with the cost of displacing it."""
        speed = limits.speed
        own = np.array([self._own[job.job_id] for job in table.jobs], dtype=np.float64)
        rounds = LengthEstimates.left(table, np.arange(len(table))) / self._round_tokens.expect(*own.T)
        left = rounds * speed.token_s + table.prefill_left * speed.prefill_token_s
        again_s = min(2.0 * limits.swap_s_per_token, speed.prefill_token_s)
        return np.where(table.active, table.context_tokens * again_s, 0.0) - left
