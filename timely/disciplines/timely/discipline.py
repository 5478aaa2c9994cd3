"""One index for every load: the expected utility that a request saves per unit of the scarcest resource.

A request's index is the largest ratio, over the next rounds ``x``, of two expectations:

* the utility saved if it is served for these rounds now instead of later;
* the use of the machine, the integral of ``max(1 / slots, kv(t) / cache)`` over these rounds.

Where the request has no deadline, its utility falls by a constant slope, and the ratio is its Gittins index.
Where it has one, the slope counts only with the chance that it is late if it is deferred: the index of
``weighted-tardiness``. Being late at all counts as ``IN_TIME_S`` of lateness, so a job that can still be in time goes
before its late equals.

* **Lengths.** A distribution for each request. It follows the request's own prediction, corrected by the errors of
  earlier ones, or else the answers to similar prompts.
* **Drafts.** Rounds, not tokens, count. A request's tokens a round are those seen, shrunk to those of all requests.
* **Applications.** Their requests end jointly, so all have the index of the application. Its use left is what fair
  sharing would still give it, so that no application ends much later than under fair sharing. An application that has
  begun is not interrupted by another.
* **Levels.** An urgency level is a weight among requests without a deadline: each level counts ``LEVEL_FACTOR`` times
  the next.
* **Residence.** A request without KV cache computes its prompt first, which is part of its use.
* **Eviction.** A request takes the memory of another only if it gains more than the other loses, the recomputation
  included.
* **Short queues.** While no ordinary request has waited for ``SHORT_WAIT_S``, those without hints start in the order of
  their arrival, as in vLLM: an order gains little there.
* **Composition.** As in ``weighted-tardiness``: a request joins a step unless the members with deadlines lose more by
  it. Left out it delays another step instead, and what that costs is taken off.
  Where robots are late all the time, answers in progress join them, but not for the price of an urgent task.
* **Steps to come.** Others' prompts join the steps of a normal task's first segment. So its slack counts those as long
  as recent steps of such segments.
* **Plans ahead.** Where a delay costs the late members less than those of recent steps, and none of them is urgent,
  parked plans decode ahead.

vLLM's own ``priority`` stands above the index. Nothing is set by workload.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, cast

import numpy as np

from timely.core.arrays import Bools, Floats
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL
from timely.disciplines.base import DisciplineInfo, Rows, StepLimits, StepPlan
from timely.disciplines.justitia.app_groups import check_discipline_application
from timely.disciplines.predictors.app_cost import (
    APP_COSTS,
    KV,
    AppCosts,
    OnlineAppCosts,
    TrainedAppCosts,
    predictor_kv_token_time,
)
from timely.disciplines.predictors.history import LENGTH_HISTORY, HistoryPredictor
from timely.disciplines.predictors.predictor_file import predictor_kind
from timely.disciplines.requirements import LEVELS, check_discipline_acceptance, check_discipline_urgency
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.discipline import WeightedTardiness
from timely.disciplines.tardiness.job_numbers import TardinessJobNumbers
from timely.disciplines.tardiness.step import TardinessStep
from timely.disciplines.timely.index import TimelyMachine, timely_step_slots
from timely.disciplines.timely.recent_mean import TimelyRecentMean
from timely.disciplines.timely.requests import TimelyUndatedRequests, is_discipline_job_undated
from timely.disciplines.timely.step import TimelyStep

SLOPE = -0.1 * NORMAL.alpha
"""Utility that a request without a deadline loses per second: a tenth of what a late robot task loses.

It matters beside robots only. As much as a robot task loses would make urgent tasks late; a hundredth would make chats
end twice as late.
"""


TIE_SHARE = 1e-9
"""Share of an index that orders equals and changes nothing else."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the index of requests without a deadline follows from; arrays, an entry for each.

    Attributes:
        weight: utility lost per second.
        use_s: least expected use of the machine per completion, seconds.
        left_tokens: expected output tokens still to come.
        tokens_a_round: of a decoding step.
    """

    weight: Floats
    use_s: Floats
    left_tokens: Floats
    tokens_a_round: Floats


class Timely(WeightedTardiness):
    """Expected utility saved per unit of the scarcest resource.

    Args:
        history: lengths by similar prompts; learned while serving when left out.
        costs: what applications cost; learned while serving when left out.
    """

    info = DisciplineInfo(
        name="timely",
        summary="expected utility saved per unit of the scarcest resource: deadlines, lengths, applications, levels",
        source="our own; Gittins 1979, apparent tardiness cost, TUF of TimelyLLM, fair finish times of Justitia",
        needs=("a history of finished requests (learned while serving; text of the prompt)",),
        good_at="robots with deadlines, ordinary requests of all kinds, and both together, with the same settings",
        starves="requests believed long or of low level, under a steady stream of ones believed short or urgent",
    )
    predictor_kind = LENGTH_HISTORY
    LEVEL_FACTOR: ClassVar[float] = 32.0
    """Weight of an urgency level over that of the next; the last level weighs as much as none."""
    STEP = TimelyStep
    IN_TIME_S: ClassVar[float] = 0.2
    PRICE_SHARE: ClassVar[float] = 0.25
    """What a delay costs in the step that a job waits for, as a share of the mean: it may choose a cheap step."""

    DECODE_PRICE_SHARE: ClassVar[float] = 1.0
    """The same for a parked generation and for a request without a deadline: their tokens are decoded in any case."""

    SHORT_WAIT_S: ClassVar[float] = NORMAL.ert_s
    """While no ordinary request has waited longer, those without hints start in the order of their arrival."""

    def __init__(self, history: HistoryPredictor | None = None, costs: AppCosts | None = None) -> None:
        super().__init__()
        self._requests = TimelyUndatedRequests(history, costs)
        self._price = TimelyRecentMean()
        """Utility that a second of delay costs the late members of recent steps."""
        self._segments_count, self._segment_tokens_s = TimelyRecentMean(), TimelyRecentMean()
        """First segments of normal tasks that decode in recent steps, and their tokens a second."""
        self._means = (self._price, self._segments_count, self._segment_tokens_s)
        self._level_weight: Floats = np.power(self.LEVEL_FACTOR, np.arange(LEVELS - 1.0, -1.0, -1.0))
        self._by_arrival = False
        """In the step that is composed, requests without a deadline start in the order of their arrival."""
        self._oldest: Job | None = None
        """The request without a deadline that waited for longest when last looked for."""
        self._decision_needs: tuple[Rows | None, Rows, Needs] | None = None
        """What this decision has computed already: the rows considered, the runnable ones, and their needs."""

    @classmethod
    def with_predictor(cls, path: Path) -> Self:
        if predictor_kind(path).startswith(APP_COSTS):
            return cls(costs=TrainedAppCosts.load(path, KV, OnlineAppCosts(predictor_kv_token_time)))
        return cls(HistoryPredictor.from_file(path))

    def knowledge(self) -> HistoryPredictor:
        self._requests.learn()
        return self._requests.answers.history

    def recall(self, knowledge: object) -> None:
        self._requests.learn()
        self._requests.answers.history = cast(HistoryPredictor, knowledge)

    # ------------------------------------------------------------------ hooks

    def check(self, spec: JobSpec) -> None:
        check_discipline_urgency(spec.hints.urgency)
        check_discipline_acceptance(spec)
        check_discipline_application(spec)

    def arrived(self, job: Job, now: float) -> None:
        if is_discipline_job_undated(job):
            # In the order of arrival lengths do not matter, and a burst must not delay the next step.
            self._requests.arrived(job, now, predicts=not self._by_arrival)
        super().arrived(job, now)

    @property
    def follows_tokens(self) -> bool:
        return self._requests.speculative

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        if self._requests.speculative and is_discipline_job_undated(job):
            self._requests.progressed(job, tokens)

    def accepted(self, job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        self._requests.speculative |= draft_tokens > 0

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        if is_discipline_job_undated(job):
            self._requests.finished(job, now)

    def maintain(self, table: JobTable, limits: StepLimits) -> None:
        super().maintain(table, limits)
        self._requests.maintain()

    def _unsettle(self, now: float) -> None:
        self._repeat_until(now)
        super()._unsettle(now)

    def _repeat_until(self, now: float) -> None:
        """The last step has been repeated until now, if it is steady."""
        if self._steady_jobs:
            for mean in self._means:
                mean.go_on(now)

    def _expect(self, job: Job) -> None:
        if is_discipline_job_undated(job):
            job.table.rank[job.row] = self._requests.place(job)
        else:
            super()._expect(job)

    # ------------------------------------------------------------------ numbers

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        self._requests.applications.advance(table, limits)
        self._requests.renew(limits.now)
        self._repeat_until(limits.now)
        for mean in self._means:
            mean.advance(limits.now)
        self._by_arrival = self._may_go_by_arrival(table, limits.now)
        try:
            return super().compose(table, limits)
        finally:
            self._decision_needs = None

    def _may_go_by_arrival(self, table: JobTable, now: float) -> bool:
        """Whether requests without a deadline start as in vLLM: nothing is said of them, and the queue is short."""
        if len(self._requests.applications):
            return False
        if self._waits_long(table, now):
            return False
        if not self._requests:
            return True
        is_undated = _are_discipline_rows_undated(table, slice(None))
        waiting = (is_undated & ~table.resident & (table.resume_s <= now)).nonzero()[0]
        self._oldest = table.jobs[waiting[table.arrival_s[waiting].argmin()]] if waiting.size else None
        if self._waits_long(table, now):
            return False
        return not (is_undated & ((table.urgency < LEVELS) | ~np.isnan(table.expected_tokens))).any()

    def _waits_long(self, table: JobTable, now: float) -> bool:
        """Whether the request that had waited for longest still waits, and for long."""
        row = -1 if self._oldest is None else self._oldest.row
        return (
            row >= 0
            and bool(table.arrival_s[row] < now - self.SHORT_WAIT_S)
            and not table.resident[row]
            and bool(table.resume_s[row] <= now)
        )

    def _ordinary_order(
        self, table: JobTable, limits: StepLimits, runnable: np.ndarray
    ) -> tuple[Rows, list[int], tuple[Rows, Floats] | None] | None:
        if self._by_arrival:
            return super()._ordinary_order(table, limits, runnable)
        if np.count_nonzero(table.resident & ~runnable):
            return None
        considered = self._considered_rows(table, limits, runnable)
        rows = runnable.nonzero()[0] if considered is None else considered[runnable[considered]]
        needs = self._needs(table, limits, rows, self._step_times_s(table, limits)[2])
        self._decision_needs = considered, rows, needs
        index = needs.weight / needs.use_s
        decodes = table.resident[rows] & (table.prefill_left[rows] == 0)
        decoding, others = rows[decodes], rows[~decodes]
        rank = -index[~decodes]
        if others.size and decoding.size and index[decodes].min() <= -rank.min():
            return None
        others = others[np.lexsort((table.sequence[others], rank))]
        resident = table.resident[others]
        if not resident[: int(np.count_nonzero(resident))].all():
            return None
        # In the same order at each step, so that the engine has nothing to sort.
        turns = self._requests.turns[self._requests.places(table, decoding)]
        return decoding[np.argsort(turns, kind="stable")], others.tolist(), (rows, index)

    def _considered_rows(self, table: JobTable, limits: StepLimits, runnable: np.ndarray) -> Rows | None:
        if self._decision_needs is not None:
            return self._decision_needs[0]
        return super()._considered_rows(table, limits, runnable)

    def _numbers(self, table: JobTable, limits: StepLimits, rows: Rows | None = None) -> TardinessJobNumbers:
        if not self._requests:
            return super()._numbers(table, limits, rows)
        if rows is None:
            rows = np.arange(len(table))
        is_undated = _are_discipline_rows_undated(table, rows)
        undated = is_undated.nonzero()[0]
        if not undated.size:
            return super()._numbers(table, limits, rows)
        own = self._undated_numbers(table, limits, rows[undated])
        if undated.size == len(rows):
            return own
        dated = (~is_undated).nonzero()[0]
        others = super()._numbers(table, limits, rows[dated])
        places = np.empty_like(rows)
        places[np.concatenate((undated, dated))] = np.arange(len(rows))
        columns = {
            name: np.concatenate((getattr(own, name), getattr(others, name)))[places]
            for name in ("left_tokens", "work_s", "weight", "slack_s", "plain", "ordinary", "index")
        }
        return TardinessJobNumbers(rows, others.step_s, others.sequence_s, others.prompt_token_s, **columns)

    def _undated_numbers(self, table: JobTable, limits: StepLimits, rows: Rows) -> TardinessJobNumbers:
        """What composition reads of rows without a deadline."""
        _, sequence_s, step_s = self._step_times_s(table, limits)
        prompt_token_s = limits.speed.prefill_token_s
        needs = self._needs(table, limits, rows, step_s)
        index = needs.weight / needs.use_s
        if self._by_arrival and not np.count_nonzero(table.priority):
            self._rank_by_arrival(index, np.ones(len(rows), dtype=np.bool_), table.resident[rows])
        return TardinessJobNumbers(
            rows,
            step_s,
            sequence_s,
            prompt_token_s,
            needs.left_tokens,
            prompt_token_s * table.prefill_left[rows] + step_s * needs.left_tokens / needs.tokens_a_round,
            needs.weight,
            # Every second of it counts, so it is late from the start.
            np.minimum(table.arrival_s[rows] - limits.now, 0.0),
            table.plain[rows] & (table.output_tokens[rows] > 0),
            np.ones(len(rows), dtype=np.bool_),
            index,
        )

    def _needs(self, table: JobTable, limits: StepLimits, rows: Rows, step_s: float) -> Needs:
        """What the index of rows without a deadline follows from; ``step_s`` is a step of the present pool."""
        if self._decision_needs is not None and np.array_equal(self._decision_needs[1], rows):
            return self._decision_needs[2]
        requests = self._requests
        places = requests.places(table, rows)
        a_round = requests.tokens_a_round(places)
        use, tokens_left = requests.expect(
            table,
            rows,
            places,
            limits.block_tokens,
            self._machine(table, limits),
            limits.speed.prefill_token_s / step_s * a_round,
        )
        use_s = use * step_s / a_round
        # Levels rank these requests among themselves; none is worth more beside a robot's task.
        levels = self._level_weights(table, rows)
        if len(requests.applications) and np.count_nonzero(requests.apps[places]):
            self._share_fairly(table, rows, places, use_s, step_s)
        return Needs(SLOPE * levels / levels.max(), use_s, tokens_left, a_round)

    def _machine(self, table: JobTable, limits: StepLimits) -> TimelyMachine:
        return TimelyMachine(
            timely_step_slots(table, limits), self._requests.applications.clock.cache_tokens(table, limits)
        )

    def _level_weights(self, table: JobTable, rows: Rows) -> Floats:
        result: Floats = self._level_weight[np.minimum(table.urgency[rows], LEVELS - 1)]
        return result

    def _share_fairly(self, table: JobTable, rows: Rows, places: Rows, use_s: Floats, step_s: float) -> None:
        """Give the requests of applications the use left under fair sharing, in place, seconds of the machine.

        A resident request has less use than the first waiting one: what has begun is not interrupted. Among themselves
        they keep their order, which decides whose cache is taken.
        """
        clock = self._requests.applications.clock
        tags = self._requests.tags[places]
        member = ~np.isnan(tags)
        whole = max(1.0, clock.rate_tokens)
        left = tags[member] - clock.time.value
        # Fair sharing would have ended it already: first, but never by more than a step of the machine's use.
        use = np.where(left >= 0.0, whole + left, whole * whole / (whole - np.minimum(left, 0.0)))
        use_s[member] = use / whole * step_s
        resident = member & table.resident[rows]
        waiting = member & ~table.resident[rows]
        if np.count_nonzero(waiting):
            first = np.nextafter(use_s[waiting].min(), 0.0)
            later = resident & (use_s > first)
            use_s[later] = first * (1.0 - TIE_SHARE * first / use_s[later])

    # ------------------------------------------------------------------ a step

    def _begin_step(
        self, builder: StepBuilder, numbers: TardinessJobNumbers, parked_slack_s: float
    ) -> TimelyStep:
        table, limits = builder.table, builder.limits
        apps = np.zeros(len(numbers.rows), dtype=np.int64)
        is_undated = numbers.ordinary
        if self._requests.applications:
            apps[is_undated] = self._requests.apps[self._requests.places(table, numbers.rows[is_undated])]
        return TimelyStep(
            self,
            builder,
            numbers,
            parked_slack_s,
            apps,
            self._context_token_s(limits),
            self.PRICE_SHARE * self._price.mean,
            self.DECODE_PRICE_SHARE * self._price.mean,
        )

    def _settle(self, builder: StepBuilder, step: TardinessStep | None, *, all_join: bool) -> None:
        super()._settle(builder, step, all_join=all_join)
        table, speed, prompt_tokens = builder.table, builder.limits.speed, builder.prefill_tokens
        rows = np.array(builder.rows, dtype=np.int64)
        if prompt_tokens and not self._utilities:
            self._requests.begin(table, rows[~table.resident[rows]].tolist())
        step_s = speed.step_s(len(rows), prompt_tokens, 0)
        self._price.note(step.late_weight if step is not None else 0.0, step_s)
        count = 0.0
        if self._utilities:
            is_first = self._is_normal_first(table, rows) & (table.prefill_left[rows] == 0)
            count = float(np.count_nonzero(is_first))
        self._segments_count.note(count, step_s)
        whole_step_s = speed.step_s(len(rows), prompt_tokens, builder.context_tokens)
        self._segment_tokens_s.note(count / whole_step_s, step_s)

    def _first_segment_step_s(self) -> float:
        tokens_s = self._segment_tokens_s.mean
        return self._segments_count.mean / tokens_s if tokens_s else 0.0

    @staticmethod
    def _context_token_s(limits: StepLimits) -> float:
        """What an eviction costs for each token of the victim's context, seconds: moved out and in, or recomputed."""
        return min(2.0 * limits.swap_s_per_token, limits.speed.prefill_token_s)


def _are_discipline_rows_undated(table: JobTable, rows: Rows | slice) -> Bools:
    """Which of these rows have no deadline: they close no segment and bring no utility of their own."""
    flat: Bools = (table.alpha[rows] == NORMAL.alpha) & (table.ert_s[rows] == NORMAL.ert_s)
    return flat & ~table.segmented[rows]
