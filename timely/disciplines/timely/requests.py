"""What the discipline knows of each request without a deadline, in columns of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.job import Job, JobId, JobSpec, JobTable
from timely.core.utility import NORMAL
from timely.disciplines.output_length import COMPLETE_OUTCOMES
from timely.disciplines.predictors.app_cost import AppCosts
from timely.disciplines.predictors.embedding import Vectors
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.round_tokens import RoundTokens
from timely.disciplines.timely.applications import TimelyApplications
from timely.disciplines.timely.index import (
    TimelyMachine,
    timely_first_context,
    timely_gittins_use,
    timely_mean_left,
)
from timely.disciplines.timely.lengths import PLACES, TimelyAnswerLengths

REFRESH_TOKENS = 16
"""Output tokens after which a request's index is computed anew."""

MORE_ANSWERS = 0.25
"""Growth of the answers that a prediction rests on, after which it is made anew."""

RENEWALS_PER_ANSWER = 4
"""Predictions that are renewed at most for each answer that comes."""

RENEWED_TOGETHER, RENEWED_S = 16, 0.1
"""Most predictions that are renewed at a time, and the least time from one time to the next, seconds."""

LEARNED_SHARE, MOST_UNLEARNED = 8, 256
"""Of the answers to learn from one in so many is, while a step is computed, and how many may wait for that.

So those that end together delay no step by much, and the more there are, the more are learned from.
"""


@dataclass(slots=True)
class TimelyLengthBelief:
    """What the length of a live request was predicted from.

    Attributes:
        vector: where its prompt lies; None: it brings a prediction.
        answers: how many answers had been learned from.
    """

    job: Job
    vector: Vectors | None
    answers: int


def is_discipline_job_undated(job: Job) -> bool:
    """Whether it has no deadline: it closes no segment and brings no utility of its own."""
    utility = job.spec.hints.utility
    return not job.spec.segmented and utility.alpha == NORMAL.alpha and utility.ert_s == NORMAL.ert_s


class TimelyUndatedRequests:
    """Columns of the live requests without a deadline; the table's ``rank`` of a request is its place in them.

    Args:
        history: lengths by similar prompts.
        costs: what applications cost.
    """

    def __init__(self, history: HistoryPredictor | None = None, costs: AppCosts | None = None) -> None:
        self.answers = TimelyAnswerLengths(history)
        self.applications = TimelyApplications(costs)
        self._round_tokens = RoundTokens()
        self.speculative = False
        """The engine has verified drafts."""
        self._places: dict[JobId, int] = {}
        self._beliefs: dict[JobId, TimelyLengthBelief] = {}
        """The oldest prediction first."""
        self._newcomers: dict[JobId, Job] = {}
        """Not predicted yet: many a request ends before its length matters to any decision."""
        self._ended: list[tuple[JobSpec, TimelyLengthBelief | None, int]] = []
        """Answers to learn from and their tokens, before the next prediction."""
        self._renewals = 0
        """Predictions to renew for the answers since the last time, at most."""
        self._renewed_s = -math.inf
        self._free: list[int] = []
        self.lengths: Floats = np.ones((0, PLACES))
        self.own_tokens: Floats = np.zeros(0)
        self.own_rounds: Floats = np.zeros(0)
        self._use: Floats = np.zeros(0)
        self._left: Floats = np.zeros(0)
        self._seen_output: Ints = np.zeros(0, dtype=np.int64)
        self._seen_prompt: Ints = np.zeros(0, dtype=np.int64)
        """Output tokens, and prompt tokens left, at which ``_use`` and ``_left`` were computed."""
        self.tags: Floats = np.zeros(0)
        """When fair sharing would finish its application, virtual time; nan: it belongs to none."""
        self.apps: Ints = np.zeros(0, dtype=np.int64)
        """Number of its application; 0: none."""
        self.turns: Ints = np.zeros(0, dtype=np.int64)
        """In which order those that hold KV cache have begun."""
        self._turn = 0

    def __len__(self) -> int:
        return len(self._places)

    def place(self, job: Job) -> int:
        """The request's place in the columns."""
        return self._places[job.job_id]

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float, *, predicts: bool) -> None:
        """With an application's first request, predict the application's cost.

        Args:
            predicts: predict its length at once, not when a decision needs it first.
        """
        if not self._free:
            self._grow()
        place = self._free.pop()
        self._places[job.job_id] = place
        self._seen_prompt[place] = -1
        self._newcomers[job.job_id] = job
        if predicts:
            self._predict_newcomers()
        self.own_tokens[place] = self.own_rounds[place] = 0.0
        self.tags[place], self.apps[place] = math.nan, 0
        if job.spec.hints.app:
            app = self.applications.join(job, now)
            self.tags[place], self.apps[place] = app.tag, app.number

    def _predict_newcomers(self) -> None:
        if self._newcomers:
            jobs = list(self._newcomers.values())
            self._newcomers.clear()
            self._predict(jobs, [self.answers.embed(job.spec) for job in jobs])

    def _predict(self, jobs: Sequence[Job], vectors: Sequence[Vectors | None]) -> None:
        """Predict their lengths; indices from earlier predictions are void."""
        self.learn()
        places = [self._places[job.job_id] for job in jobs]
        self.lengths[places] = self.answers.predict([job.spec for job in jobs], vectors)
        self._seen_prompt[places] = -1
        for job, vector in zip(jobs, vectors, strict=True):
            self._beliefs[job.job_id] = TimelyLengthBelief(job, vector, self.answers.answer_count)

    def renew(self, now: float) -> None:
        """Renew the oldest predictions, some at a time, if enough answers have come since."""
        if not self._renewals or now < self._renewed_s + RENEWED_S:
            return
        oldest = islice(self._beliefs.values(), min(self._renewals, RENEWED_TOGETHER))
        self._renewals, self._renewed_s = 0, now
        least = (self.answers.answer_count + len(self._ended)) / (1.0 + MORE_ANSWERS)
        stale = [belief for belief in oldest if belief.answers < least]
        for belief in stale:
            del self._beliefs[belief.job.job_id]
        if stale:
            self._predict([belief.job for belief in stale], [belief.vector for belief in stale])

    def progressed(self, job: Job, tokens: int) -> None:
        """A round gave ``tokens``; the first token of all comes with the prompt and is none."""
        if tokens <= 0 or job.table.output_tokens[job.row] <= 1:
            return
        place = self._places[job.job_id]
        self.own_tokens[place] += tokens
        self.own_rounds[place] += 1.0
        self._round_tokens.learn(tokens)

    def finished(self, job: Job, now: float) -> None:
        """Note the answer of a request that is about to leave the table."""
        self._free.append(self._places.pop(job.job_id))
        self._newcomers.pop(job.job_id, None)
        belief = self._beliefs.pop(job.job_id, None)
        output = int(job.table.output_tokens[job.row])
        if job.outcome in COMPLETE_OUTCOMES and output > 0:
            self._ended.append((job.spec, belief, output))
            self._renewals += RENEWALS_PER_ANSWER
            if len(self._ended) >= MOST_UNLEARNED:
                self.learn()
        if job.spec.hints.app:
            self.applications.leave(job, now)

    def maintain(self) -> None:
        """Learn from some of the answers that have ended, the oldest first."""
        self.learn(-(-len(self._ended) // LEARNED_SHARE))

    def learn(self, most: int = MOST_UNLEARNED) -> None:
        """Learn from so many answers that have ended; decisions are the same whenever it is called."""
        for spec, belief, output in self._ended[:most]:
            self.answers.learn(spec, belief.vector if belief else self.answers.embed(spec), output)
        del self._ended[:most]

    # ------------------------------------------------------------------ numbers

    def places(self, table: JobTable, rows: np.ndarray) -> Ints:
        """Places of some rows, all without a deadline."""
        places: Ints = table.rank[rows].astype(np.int64)
        return places

    def begin(self, table: JobTable, rows: Sequence[int]) -> None:
        """Note that these begin, in this order."""
        for row in rows:
            self._turn += 1
            self.turns[int(table.rank[row])] = self._turn

    def tokens_a_round(self, places: Ints) -> Floats:
        """Tokens that each gets of a decoding step."""
        if not self.speculative:
            return np.ones(len(places))
        return self._round_tokens.expect(self.own_tokens[places], self.own_rounds[places])

    def expect(
        self,
        table: JobTable,
        rows: np.ndarray,
        places: Ints,
        block_tokens: int,
        machine: TimelyMachine,
        prompt_token: Floats,
    ) -> tuple[Floats, Floats]:
        """Least expected use per completion, rounds of the machine, and expected tokens left of each row.

        Both are kept until a request has ``REFRESH_TOKENS`` more tokens or another prompt to compute.

        Args:
            places: those of the rows in the columns.
            prompt_token: use of a prompt token, as rounds of each request, shape ``(len(rows),)``.
        """
        self._predict_newcomers()
        output, prompt = table.output_tokens[rows], table.prefill_left[rows]
        use, left, seen_output = self._use[places], self._left[places], self._seen_output[places]
        stale = (prompt != self._seen_prompt[places]) | (output >= seen_output + REFRESH_TOKENS)
        if np.count_nonzero(stale):
            at, tokens, prompts = places[stale], output[stale], prompt[stale]
            lengths, begin = self.lengths[at], tokens.astype(np.float64)
            context = timely_first_context(table, rows[stale], block_tokens)
            use[stale] = timely_gittins_use(lengths, begin, context, prompts * prompt_token[stale], machine)
            left[stale], seen_output[stale] = timely_mean_left(lengths, begin), tokens
            self._use[at], self._left[at] = use[stale], left[stale]
            self._seen_output[at], self._seen_prompt[at] = tokens, prompts
        return use, np.maximum(left - (output - seen_output), 1.0)

    def _grow(self) -> None:
        old = len(self.tags)
        more = max(64, old)
        for name in (
            *("lengths", "own_tokens", "own_rounds", "tags", "apps", "turns"),
            *("_use", "_left", "_seen_output", "_seen_prompt"),
        ):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros((more, *column.shape[1:]), column.dtype))))
        self._free.extend(range(old + more - 1, old - 1, -1))
