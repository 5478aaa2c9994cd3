"""Weighted tardiness: each step composed from its predicted time and from what each candidate gains or costs.

A step's time depends on its members, and a job that joins delays all others in it. So candidates are considered in the
order of an index. Each joins only if it gains at least what the members lose:

* **Index.** Apparent tardiness cost, the classic rule for weighted tardiness (Vepsalainen and Morton 1987). It is the
  slope of the utility over the work left, discounted while there is slack. Late jobs stand in the order of Smith's
  rule, so a task that cannot be saved does not hold up those that can.
* **Queue.** The slack of a waiting prompt is what other prompts leave that are computed before it or in its step. The
  steeper utilities come first, then the earlier deadlines. So several tasks of one moment do not all wait for the last
  moment of each.
* **Promised responses.** The server may admit only tasks whose response it predicts in time. Of a promised prompt that
  joins a step, only those others count that join it, too. No job of lower slope makes a promised response late, nor
  does an equal with a later deadline. One that can wait no longer joins whatever others lose.
* **What joining costs.** A prompt chunk lengthens this step. A decoding sequence lengthens the steps until its segment
  closes, or those of the members do. Prompts and decoding sequences in one step take longer than either for each token
  attended to: the first prompt is charged with that, or the sequences that join it. A member with less slack than the
  delay loses its slope times the difference.
* **What it gains.** Left out, the candidate waits until the members that it would delay have closed their segments.
  Of that wait it loses its slope times what exceeds its own slack. If that is less, it waits. So a normal task's
  prompt waits while an urgent first segment is generated. A plain request expects that wait in steps without it, since
  they are shorter. Jobs for which ordinary requests wait have their slack counted in such steps, too.
* **Overload.** That wait is a promise that a lasting overload breaks: other jobs come, and the batch stays small. A
  job later than ``MAX_LATENESS_RATIO`` times its predicted wait is not delayed for jobs that lose utility no faster.
* **Chunks.** A prompt that would cost too much at once takes as much of the step as all slack allows, that of parked
  jobs included. A prompt that is cut leaves a token to each equal that decodes. Later prompts take these tokens, unless
  answers hold most of the cache and jobs wait for it: answers give it back when they end, unlike a plan that parks.
* **Early is better.** Before its deadline a job still counts ``EARLY_SHARE`` of its slope. With slack on all sides the
  composition then tends to short responses instead of leaving them to chance.
* **Plain requests.** The utility of a request without segments is that of its first token. From then on each token is
  due one expected response time after the one before. The reader of a request that names a pace
  begins at the deadline of the first token, and what has come earlier is in store. The tokens still to come are learned
  from finished answers. Those without a utility of their own are served first come, first served among themselves, as
  in vLLM. They wait only for jobs that lose utility faster: a normal task's segment interrupts no answer.
* **Opportunistic decode.** A parked generation joins a step that runs anyway if that delays no member too much.
  Decoding it with others is nearly free; decoding it alone later costs a whole step a token. It never starts a step
  before its robot is about to run dry. While less KV cache is free than in use, or fewer slots, all parked generations
  join. They do so beside late normal tasks, too, and beside late urgent ones while queued tasks find no room. A
  complete plan gives its memory back; a waiting one is evicted and computed again, which delays all. Otherwise
  reporting robots fill the step up to ``MAX_RIDERS`` sequences, and at least one more joins at each decision. More
  would close their segments together, and these would leave one after the other. Of robots that do not report all
  join: far ahead they bear that their execution times are wrong.
* **Eviction.** A new job takes the memory of others only if it gains at least what they lose by it, their
  recomputation included. Plans that have begun do not take turns in the cache. While one waits for it, new tasks may
  take it, ordinary requests not. Where one that is not parked must lose its cache, it is one that has the time, with
  the least to be computed again.
* While all runnable jobs decode together and nothing happens, nothing is reconsidered. Of very many waiting jobs only
  the first of a recent order and those that came since are considered.

vLLM's own ``priority`` stands above the index. Step times and lengths are learned online.
"""

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from timely.core.arrays import Bools
from timely.core.job import Job, JobId, JobTable
from timely.core.utility import NORMAL, URGENT_ERT_S
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.output_length import COMPLETE_OUTCOMES
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder, discipline_next_wake_s
from timely.disciplines.tardiness.job_numbers import TardinessJobNumbers
from timely.disciplines.tardiness.promises import tardiness_queue_prompts
from timely.disciplines.tardiness.segment_lengths import TardinessAnswerLengths, TardinessSegmentLengths
from timely.disciplines.tardiness.step import TardinessStep
from timely.disciplines.tardiness.waiting_list import TardinessArrivalOrder, TardinessRankedJobs

FLAT_WEIGHT = 0.02
"""Weight of a job whose utility does not fall: it must not starve behind those that have lost everything."""

BASE_SHARE = 0.2
"""Share of a step with one sequence that the index charges to each decoding one, beside what it adds to the step."""


class WeightedTardiness(KeyedDiscipline):
    """Marginal utility of every candidate, step by step."""

    pool_first = False
    heed_priority = True
    info = DisciplineInfo(
        name="weighted-tardiness",
        summary="composes each step by marginal utility: a job that joins must gain what the others lose",
        source="our own; TUF and due times of TimelyLLM, apparent tardiness cost of Vepsalainen and Morton",
        good_at="robots with deadlines; ordinary requests start in the order of arrival",
        starves="under lasting overload, flat utilities behind those that keep losing",
    )

    # The ablations turn these parts off one by one.
    PROTECT: ClassVar[bool] = True
    """Refuse a job that costs the members more than it gains."""
    CHUNK: ClassVar[bool] = True
    """Cut prompts to the slack of the members."""
    EARLY_SHARE: ClassVar[float] = 0.1
    """Share of the slope that counts before the deadline."""
    RIDE_HORIZON_S: ClassVar[float] = 10.0
    """Opportunistic decode of a parked generation whose robot runs dry within this time, seconds; 0: never."""
    MAX_RIDERS: ClassVar[int] = 4
    """Sequences in a step beyond which only one opportunistic decode of a reporting robot joins at a decision."""
    LOOK_AHEAD: ClassVar[float] = 1.0
    """Slack that discounts the index by 1/e, in mean works."""
    STEP: ClassVar[type[TardinessStep]] = TardinessStep
    """Composes a step, and says for whom ordinary requests wait."""
    IN_TIME_S: ClassVar[float] = 0.0
    """Being late at all counts as much as so many seconds of lateness, in the order of candidates."""

    def __init__(self) -> None:
        self._segments = TardinessSegmentLengths()
        self._answers = TardinessAnswerLengths()
        self._waiting = TardinessRankedJobs()
        self._arrivals = TardinessArrivalOrder()
        self._utilities = 0
        """Live jobs that are no ordinary requests."""
        self._steady_jobs: tuple[JobId, ...] = ()
        self._steady_rows: Rows = np.empty(0, dtype=np.int64)
        """Members of the last step, if all runnable jobs decoded together and nothing has happened since."""

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float) -> None:
        self._unsettle(now)
        self._utilities += not _is_ordinary_discipline_job(job)
        self._arrivals.add(job)
        self._waiting.add(job)
        self._expect(job)

    def parked(self, job: Job, now: float) -> None:
        self._unsettle(now)
        if job.segments:
            self._segments.learn(job)
        self._expect(job)

    def due_changed(self, job: Job, now: float) -> None:
        self._unsettle(now)
        self._waiting.add(job)

    def evicted(self, job: Job, now: float) -> None:
        self._unsettle(now)
        self._arrivals.add(job)
        self._waiting.add(job)

    def finished(self, job: Job, now: float) -> None:
        self._unsettle(now)
        self._utilities -= not _is_ordinary_discipline_job(job)
        table, row = job.table, job.row
        if job.spec.plain:
            if job.outcome in COMPLETE_OUTCOMES:
                self._answers.learn(int(table.output_tokens[row]))
        elif job.segments and job.segments[-1].index == int(table.segment[row]) - 1:
            self._segments.learn(job)

    def _unsettle(self, now: float) -> None:
        """Something happened that the next step has to be composed for."""
        self._steady_jobs = ()

    def _expect(self, job: Job) -> None:
        job.table.rank[job.row] = self._segments.expect(job.spec, int(job.table.segment[job.row]))

    # ------------------------------------------------------------------ numbers

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """The index of every row, shape ``(len(table),)``."""
        return self._numbers(table, limits).index

    def _numbers(self, table: JobTable, limits: StepLimits, rows: Rows | None = None) -> TardinessJobNumbers:
        """What composition reads of these rows, in order; of all unless given."""
        if rows is None:
            rows = np.arange(len(table))
            every: Rows | slice = slice(None)
        else:
            every = rows
        alone_s, sequence_s, step_s = self._step_times_s(table, limits)
        prompt_token_s = limits.speed.prefill_token_s
        prefill = table.prefill_left[every]
        due_s, ert_s, expected_tokens = table.due_s[every], table.ert_s[every], table.rank[every]
        # A plan's segment beyond what was expected is about to end, as its skill set bounds it; an answer is not.
        tokens_left = expected_tokens - table.segment_tokens[every]
        beyond = table.whole_answer[every] & (tokens_left < 1.0)
        tokens_left = np.maximum(tokens_left, 1.0)
        if np.count_nonzero(beyond):
            tokens_left[beyond] = self._segments.beyond_tokens
        alpha, plain = table.alpha[every], table.plain[every]
        first = table.segment[every] == 0
        is_first, is_urgent = first & ~plain, ert_s < URGENT_ERT_S
        prefill_s = prompt_token_s * prefill
        weight = np.maximum(-alpha, FLAT_WEIGHT)
        allowed_s = ert_s * first
        # Ordinary requests join the steps of these as far as their slack allows.
        others = self._count_active(table, limits)
        heeded_step_s = alone_s + sequence_s * max(0, others - 1)
        if heeded_step_s == step_s or self.STEP.HEEDED_WEIGHT < FLAT_WEIGHT:
            ahead_s = prefill_s + heeded_step_s * tokens_left
        else:
            is_heeded = weight > self.STEP.HEEDED_WEIGHT
            ahead_s = prefill_s + np.where(is_heeded, heeded_step_s, step_s) * tokens_left
        if recent_s := self._first_segment_step_s():
            # Prompts of others join the steps after this one.
            further_s = max(step_s, recent_s) * (tokens_left - 1.0)
            ahead_s = np.where(is_first & ~is_urgent, prefill_s + step_s + further_s, ahead_s)
        has_plain = bool(np.count_nonzero(plain))
        if has_plain:
            tokens_left[plain] = self._left_of_answers(table, rows[plain])
            ahead_s[plain] = prefill_s[plain] + step_s
            has_begun = plain & (table.output_tokens[every] > 0)
            is_paced = has_begun & (table.pace_s[every] > 0.0)
            if np.count_nonzero(is_paced):
                allowed_s[is_paced] = self._reading_s(table, rows[is_paced])
        else:
            has_begun = plain
        decode_s = step_s * tokens_left
        # One step of caution: a job that comes up finds a step in flight.
        slack_s = due_s + allowed_s - table.network_s[every] - limits.now - ahead_s - step_s
        slack_s[alpha == 0.0] = math.inf
        waiting = (prefill > 0) & (table.resume_s[every] <= limits.now) & ~plain
        # Those are lost that would be late even without the step of caution.
        places = (waiting & (slack_s >= -step_s) & (slack_s < math.inf)).nonzero()[0]
        queues: list[slice] = []
        if places.size > 1:
            deadline_s = due_s[places] + allowed_s[places]
            places = places[np.lexsort((table.sequence[rows[places]], deadline_s, -weight[places]))]
            queues = tardiness_queue_prompts(
                slack_s, weight, prefill, places, limits.token_budget, prompt_token_s, alone_s
            )
        # A decoding sequence shares its steps with others: it is charged what it adds, and a part of the rest.
        share_s = prefill_s + (sequence_s + BASE_SHARE * alone_s) * tokens_left
        horizon_s = self.LOOK_AHEAD * max(float(share_s.sum()) / len(rows), step_s)
        index = weight / share_s * np.exp(np.maximum(slack_s, 0.0) / -horizon_s)
        if self.IN_TIME_S:
            # The slack is cautious by a step and by a long segment, so a job that is late by less may be in time.
            caution_tokens = self._segments.first_caution_tokens(expected_tokens, is_urgent)
            caution_s = step_s + step_s * np.where(is_first, caution_tokens, 0.0)
            index *= 1.0 + self.IN_TIME_S / horizon_s * np.exp(np.minimum(slack_s, 0.0) / caution_s)
        if queues:
            queued_index = index[places]
            for queue in queues:
                queued_index[queue][::-1].sort()
            index[places] = queued_index
        ordinary = np.zeros(len(rows), dtype=np.bool_)
        # Where requests have priorities, those decide between them.
        if has_plain and not np.count_nonzero(table.priority[every]):
            ordinary = plain & (alpha == NORMAL.alpha) & (ert_s == NORMAL.ert_s)
            self._rank_by_arrival(index, ordinary, table.resident[every])
        return TardinessJobNumbers(
            rows,
            step_s,
            sequence_s,
            prompt_token_s,
            tokens_left,
            prefill_s + decode_s,
            weight,
            slack_s,
            has_begun,
            ordinary,
            index,
        )

    def _first_segment_step_s(self) -> float:
        """Time of recent steps in which first segments of normal tasks decoded, seconds; 0: not known."""
        return 0.0

    @staticmethod
    def _is_normal_first(table: JobTable, rows: Rows | slice) -> Bools:
        """Which of these rows are at the first segment of a task that is not urgent."""
        is_first: Bools = (
            ~table.plain[rows] & (table.segment[rows] == 0) & (table.ert_s[rows] >= URGENT_ERT_S)
        )
        return is_first

    @staticmethod
    def _reading_s(table: JobTable, rows: Rows) -> Floats:
        """From the newest token until the next is due, seconds, of plain requests that name a pace.

        A reader at that pace begins when the first token is due. What has come before it was needed is in store.
        """
        pace_s = table.pace_s[rows]
        stored_s = table.arrival_s[rows] + table.ert_s[rows] + pace_s * table.output_tokens[rows]
        return np.maximum(pace_s, stored_s - table.due_s[rows])

    @classmethod
    def _step_times_s(cls, table: JobTable, limits: StepLimits) -> tuple[float, float, float]:
        """A step with one sequence, what one more adds to it, and a step of the present pool, seconds."""
        alone_s = limits.speed.step_s(1, 0)
        sequence_s = max(0.0, limits.speed.step_s(2, 0) - alone_s)
        pool = min(int(np.count_nonzero(table.active)), limits.max_batch)
        return alone_s, sequence_s, alone_s + sequence_s * max(0, pool - 1)

    @staticmethod
    def _count_active(table: JobTable, limits: StepLimits) -> int:
        """Sequences of a step with the present pool, without ordinary requests unless there are priorities."""
        rows = table.active.nonzero()[0]
        count = rows.size
        plain_rows = rows[table.plain[rows]]
        if plain_rows.size and not np.count_nonzero(table.priority):
            is_ordinary = (table.alpha[plain_rows] == NORMAL.alpha) & (
                table.ert_s[plain_rows] == NORMAL.ert_s
            )
            count -= int(np.count_nonzero(is_ordinary))
        return min(count, limits.max_batch)

    @staticmethod
    def _rank_by_arrival(index: Floats, ordinary: np.ndarray, resident: np.ndarray) -> None:
        """Put waiting ordinary requests on one level, in place, and those that hold KV cache at least above it.

        So ordinary requests start in the order of their arrival, and a new one takes no place from another.
        """
        waiting = ordinary & ~resident
        if np.count_nonzero(waiting):
            level = float(index[waiting].max())
            index[waiting] = level
            running = ordinary & resident
            index[running] = np.maximum(index[running], np.nextafter(level, math.inf))

    def _left_of_answers(self, table: JobTable, rows: Rows) -> Floats:
        """Tokens that plain answers still have: as predicted with the request, else as learned."""
        tokens = table.output_tokens[rows]
        predicted_tokens = table.expected_tokens[rows] - tokens
        return np.where(predicted_tokens >= 1.0, predicted_tokens, self._answers.left(tokens))

    # ------------------------------------------------------------------ a step

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        if len(table) == 0:
            return StepPlan()
        now = limits.now
        runnable = table.resume_s <= now
        count = int(np.count_nonzero(runnable))
        if count == 0:
            return StepPlan(wake_s=discipline_next_wake_s(table, now))
        if len(self._steady_jobs) == count and self._still_fit(table, limits):
            return StepPlan(
                tokens=dict.fromkeys(self._steady_jobs, 1), steady=True, rows=self._steady_rows.tolist()
            )
        if not self._utilities and (plan := self._compose_ordinary(table, limits, runnable, count)):
            return plan
        rows = self._considered_rows(table, limits, runnable)
        numbers = self._numbers(table, limits, rows)
        ready = runnable if rows is None else runnable[rows]
        order = self._order(table, numbers, ready.nonzero()[0])
        builder = StepBuilder(table, limits, lambda: self._victims_of(table, numbers, now, order))
        step = self._begin_step(builder, numbers, self._parked_slack_s(table, numbers, now))
        builder.worth = step.worth_evicting
        step.fill(order)
        plan = builder.plan
        plan.keys = numbers.rows, numbers.index
        if not plan.tokens:
            plan.wake_s = discipline_next_wake_s(table, now)
            if plan.wake_s == math.inf and step.limited_by == "memory":
                # No parked job will give its memory back by itself.
                builder.worth = None
                step.fill(order)
        all_join = len(plan.tokens) == count
        if not all_join:
            plan.limited_by = step.limited_by or ("batch" if builder.slots <= 0 else "tokens")
        if self.RIDE_HORIZON_S > 0.0 and plan.tokens:
            in_time = step.in_time  # looks for members that have become late
            riders, short = self._riders(table, limits)
            if (
                riders.size
                and (in_time or short or (step.is_cheap and step.is_mild))
                and (step.is_mild or builder.queue_exceeds_room)
            ):
                step.decode_early(riders, all_join=short or step.is_cheap)
        self._settle(builder, step, all_join=all_join)
        builder.worth = None  # builder and step would stay until a garbage collection
        return plan

    def _considered_rows(self, table: JobTable, limits: StepLimits, runnable: np.ndarray) -> Rows | None:
        """Rows that the step considers, in order; None: all."""
        return self._waiting.rows(table, runnable, limits.now, lambda: self._numbers(table, limits).index)

    def _begin_step(
        self, builder: StepBuilder, numbers: TardinessJobNumbers, parked_slack_s: float
    ) -> TardinessStep:
        return self.STEP(self, builder, numbers, parked_slack_s)

    def _settle(self, builder: StepBuilder, step: TardinessStep | None, *, all_join: bool) -> None:
        """Note the step that is composed; without ``step`` it has ordinary members alone."""
        plan = builder.plan
        plan.steady = all_join and builder.prefill_tokens == 0 and not plan.evict
        if plan.steady:
            self._steady_jobs, self._steady_rows = tuple(plan.tokens), np.array(builder.rows)
        else:
            self._steady_jobs = ()

    def _compose_ordinary(
        self, table: JobTable, limits: StepLimits, runnable: np.ndarray, count: int
    ) -> StepPlan | None:
        """The step of ordinary requests alone: those with KV cache, and of the others as many as fit.

        None: those with KV cache do not all fit, or there are priorities, so the step has to be composed in full.
        """
        if limits.max_adapters is not None or np.count_nonzero(table.priority):
            return None
        order = self._ordinary_order(table, limits, runnable)
        if order is None:
            return None
        decoding, others, keys = order
        builder = StepBuilder(table, limits)
        builder.plan.keys = keys
        if decoding.size and not builder.add_decoding(decoding):
            return None
        limited_by = ""
        first_waiting = next((at for at, row in enumerate(others) if not table.resident[row]), len(others))
        first_cut = 0
        for at, row in enumerate(others):
            if at == first_waiting:
                waiting = np.array(others[first_waiting : first_waiting + builder.slots], dtype=np.int64)
                first_cut = first_waiting + builder.add_prompts(waiting)
            if builder.full:
                break
            resident = at < first_waiting
            if at < first_cut or builder.is_barred(row) or (limited_by and not resident):
                continue
            if not builder.add(row):
                if resident:
                    return None
                limited_by = "memory"
        plan = builder.plan
        if not plan.tokens:
            return None
        if len(plan.tokens) < count:
            plan.limited_by = limited_by or ("batch" if builder.slots <= 0 else "tokens")
        self._settle(builder, None, all_join=len(plan.tokens) == count)
        return plan

    def _ordinary_order(
        self, table: JobTable, limits: StepLimits, runnable: np.ndarray
    ) -> tuple[Rows, list[int], tuple[Rows, Floats] | None] | None:
        """Rows that decode, the others in order (those with KV cache, then by arrival), and keys as of the plan.

        None: one that waits may take the place of one that runs.
        """
        resident = (runnable & table.resident).nonzero()[0]
        resident = resident[np.argsort(table.sequence[resident])]
        prompts = table.prefill_left[resident] > 0
        room = limits.max_batch - resident.size
        waiting = self._arrivals.first(table, runnable & ~table.resident, room) if room > 0 else []
        return resident[~prompts], resident[prompts].tolist() + waiting, None

    @staticmethod
    def _order(table: JobTable, numbers: TardinessJobNumbers, places: Rows) -> Rows:
        """Places in the arrays, the first candidate first."""
        if places.size == 1:
            return places
        rows = numbers.rows[places]
        ranks = [table.sequence[rows], -numbers.index[places]]
        if np.count_nonzero(table.priority):
            ranks.append(table.priority[rows])
        result: Rows = places[np.lexsort(ranks)]
        return result

    @staticmethod
    def _parked_slack_s(table: JobTable, numbers: TardinessJobNumbers, now: float) -> float:
        """Least slack of the jobs that resume by themselves, seconds; infinite without any."""
        resume_s = table.resume_s[numbers.rows]
        places = ((resume_s > now) & (resume_s < math.inf)).nonzero()[0]
        return float(numbers.slack_s[places].min()) if places.size else math.inf

    @staticmethod
    def _victims_of(table: JobTable, numbers: TardinessJobNumbers, now: float, order: Rows) -> Iterator[int]:
        """Parked generations, needed last and worth least first; then candidates from the end of the order.

        Those that have the time to be computed again come before other candidates, the shortest context first.
        """
        resume_s = table.resume_s[numbers.rows]
        parked_places = (table.resident[numbers.rows] & (resume_s > now)).nonzero()[0]
        yield from numbers.rows[
            parked_places[np.lexsort((numbers.index[parked_places], -resume_s[parked_places]))]
        ].tolist()
        again_s = numbers.prompt_token_s * table.context_tokens[numbers.rows]
        early = order[(numbers.slack_s > again_s)[order] & table.resident[numbers.rows[order]]]
        yield from numbers.rows[early[np.argsort(again_s[early], kind="stable")]].tolist()
        yield from numbers.rows[order[::-1]].tolist()

    def _still_fit(self, table: JobTable, limits: StepLimits) -> bool:
        """Whether the settled jobs can go on: as many slots, tokens and blocks as that takes."""
        rows = self._steady_rows
        computing = len(rows) - len(limits.ending_rows)
        tokens = computing * (1 + limits.drafter_tokens) + int(table.draft_tokens[rows].sum())
        if len(rows) > limits.max_batch or tokens > limits.token_budget:
            return False
        reach = table.context_tokens[rows] + limits.block_tokens
        new_blocks = np.maximum(reach // limits.block_tokens - table.blocks[rows], 0)
        return bool(
            new_blocks.sum() <= limits.free_blocks
            and (table.resume_s[rows] <= limits.now).all()
            and not table.prefill_left[rows].any()
            and table.resident[rows].all()
        )

    def _riders(self, table: JobTable, limits: StepLimits) -> tuple[Rows, bool]:
        """Parked generations that could decode at once, the earliest due first; and whether room is short."""
        now = limits.now
        rows = (table.resident & (table.resume_s > now)).nonzero()[0]
        rows = rows[(table.resume_s[rows] < math.inf) & (table.prefill_left[rows] == 0)]
        if not rows.size:
            return rows, False
        used_blocks = limits.cache_blocks - limits.free_blocks if limits.cache_blocks else table.blocks.sum()
        short = limits.free_blocks < used_blocks or limits.max_resident < 2 * int(
            np.count_nonzero(table.resident)
        )
        if not short:
            rows = rows[table.due_s[rows] < now + self.RIDE_HORIZON_S]
        return rows[np.lexsort((table.sequence[rows], table.due_s[rows]))], short


def _is_ordinary_discipline_job(job: Job) -> bool:
    """Whether it is a plain request that brings no utility of its own."""
    utility = job.spec.hints.utility
    return job.spec.plain and utility.alpha == NORMAL.alpha and utility.ert_s == NORMAL.ert_s
