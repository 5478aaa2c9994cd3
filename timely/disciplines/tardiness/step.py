"""A step of ``weighted-tardiness`` in composition: its members, what a delay costs them, which jobs may join.

``discipline`` gives the rules; here is their arithmetic. A candidate takes constant time, but for the members whose
slack its delay uses up.
"""

import math
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from timely.core.job import Job
from timely.core.utility import NORMAL
from timely.disciplines.base import Floats, Rows
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.delay_cost import TardinessDelayCost
from timely.disciplines.tardiness.job_numbers import TardinessJobNumbers
from timely.disciplines.tardiness.promises import TardinessPromises

MIN_CHUNK_TOKENS = 32
"""Prompt tokens below which a part of a prompt is not worth a place in a step."""

MAX_PROMPT_REFUSALS = 8
"""After so many refused prompts in a row no further prompt is considered: the others rank lower still."""

MIN_GROUP = 8
"""Decoding candidates in a row that are first judged as one."""

PIECE = 64
"""Candidates that are read from the arrays at a time: mostly the step is full before the last one."""

REPORT_GRACE_S = 0.25
"""A robot that has not reported its first segment so long after a report was possible reports nothing."""

NO_SEGMENT = 2**62
"""Above the index of every segment."""

MAX_PARKED_WAIT_S = 10.0
"""Longest wait for a parked job's memory that counts, seconds."""


class TardinessRules(Protocol):
    """What a step reads of the discipline."""

    @property
    def PROTECT(self) -> bool:
        """Refuse a job that costs the members more than it gains."""

    @property
    def CHUNK(self) -> bool:
        """Cut prompts to the slack of the members."""

    @property
    def EARLY_SHARE(self) -> float:
        """Share of the slope that counts before the deadline."""

    @property
    def IN_TIME_S(self) -> float:
        """Being late at all counts as so many seconds of lateness."""

    @property
    def MAX_RIDERS(self) -> int:
        """Sequences in a step beyond which only one opportunistic decode of a reporting robot joins at a decision."""


class TardinessStep:
    """A step in composition: its members, and what a delay would cost them.

    Delays so far are kept in one number, ``_delay_s``, instead of being taken off each member's slack.

    Ordinary requests are served first come, first served among themselves, as in vLLM, and wait for no equal. So a
    candidate among them has to gain only what those members lose that lose utility faster.
    """

    HEEDED_WEIGHT: ClassVar[float] = -NORMAL.alpha
    """Ordinary requests wait for members that lose more utility per second than this, which is what they lose."""

    PROTECTS_ORDINARY: ClassVar[bool] = True
    """Ordinary members count when others join."""

    MIN_ORDINARY_GROUP: ClassVar[int] = MIN_GROUP
    """Decoding ordinary candidates in a row that are judged as one."""

    def __init__(
        self,
        rules: TardinessRules,
        builder: StepBuilder,
        numbers: TardinessJobNumbers,
        parked_slack_s: float = math.inf,
    ) -> None:
        self._rules = rules
        self._builder = builder
        self._numbers = numbers
        self._parked_slack_s = parked_slack_s
        """Least slack of a parked job."""
        self._delay_s = 0.0
        self._longest_tokens = 1.0
        """Most tokens that a member's segment still has."""
        self._all = TardinessDelayCost(rules.EARLY_SHARE)
        self._heeded_cost = TardinessDelayCost(rules.EARLY_SHARE)
        """Members that an ordinary request has to heed."""
        self._members_to_heed: list[tuple[float, float, float, float, float, float, bool]] = []
        """Further ones as of ``_join``, not noted yet: mostly no ordinary candidate follows."""
        self._has_ordinary = bool(np.count_nonzero(numbers.ordinary))
        """There are ordinary requests; without any nothing reads what they would have to heed."""
        self._promises = TardinessPromises(builder, numbers)
        self._refusals = 0
        """Prompts refused in a row."""
        self._decoding: Floats = np.zeros(0)
        """Weights of the candidates that decode, in order."""
        self._decoding_place = 0
        """So many of them have been considered."""
        self._cuts = False
        """A prompt that has joined goes on in the next step."""
        self._closed_from = NO_SEGMENT
        """A job waits for memory, so none without a cache may take it that is at this segment or a later one.

        An ordinary request counts as one at a later segment.
        """
        self._is_shared = True
        """The step has other members, beside which parked plans decode ahead."""
        self.limited_by = ""

    @property
    def in_time(self) -> bool:
        """No member is late."""
        self._all.settle(self._delay_s)
        return self._all.late_weight == 0.0

    @property
    def late_weight(self) -> float:
        """Utility that a second of delay costs the members that are late."""
        return self._all.late_weight

    @property
    def is_mild(self) -> bool:
        """No member that ``in_time`` has found late loses utility faster than a normal task; read ``in_time`` first."""
        return self._all.steepest_late <= -NORMAL.alpha

    @property
    def is_cheap(self) -> bool:
        """A delay costs the late members less than it costs those of other steps."""
        return False

    def fill(self, order: Rows) -> None:
        """Consider candidates in this order, given as places in the arrays."""
        numbers, table = self._numbers, self._builder.table
        self._refusals, self._closed_from = 0, NO_SEGMENT
        rows = numbers.rows[order]
        # Candidates in a row that decode, ordinary ones or not, are judged together.
        decoding = (table.prefill_left[rows] == 0) & table.resident[rows]
        kinds = np.where(decoding, 1 + numbers.ordinary[order], 0)
        self._decoding, self._decoding_place = numbers.weight[order][decoding], 0
        kind_list = kinds.tolist()
        changes = (kinds[1:] != kinds[:-1]).nonzero()[0] + 1
        considered = 0
        for begin, end in pairwise([0, *changes.tolist(), len(kinds)]):
            ordinary = kind_list[begin] == 2
            least = self.MIN_ORDINARY_GROUP if ordinary else MIN_GROUP
            if not ordinary and self.late_weight:
                continue  # beside late members each is judged alone
            if end - begin >= least and kind_list[begin] and self._rules.PROTECT:
                self._fill_one_by_one(order[considered:begin])
                if self._builder.full:
                    return
                judged_count = self._add_group(order[begin:end], ordinary=ordinary)
                self._decoding_place += judged_count
                considered = begin + judged_count
        self._fill_one_by_one(order[considered:])
        if not self._builder.rows and self._promises.hold:
            # Those with a promise cannot run now, as memory is short: the others may.
            self._promises.drop()
            self.fill(order)
        if not self._builder.rows and self._is_shared and self.limited_by == "memory":
            self._is_shared = False
            self.fill(order)

    def _fill_one_by_one(self, places: Rows) -> None:
        for at in range(0, len(places), PIECE):
            if self._builder.full:
                return
            self._fill_piece(places[at : at + PIECE])

    def _fill_piece(self, places: Rows) -> None:
        builder, numbers, rules = self._builder, self._numbers, self._rules
        table, rows, may_bar = builder.table, numbers.rows[places], builder.may_bar
        promises = self._promises if self._promises.hold else None
        prompts = table.prefill_left[rows]
        if self._refusals >= MAX_PROMPT_REFUSALS:
            # No prompt is considered before one of those joins that decode.
            decoding = (prompts == 0).nonzero()[0]
            if not decoding.size:
                return
            begin = int(decoding[0])
            places, rows, prompts = places[begin:], rows[begin:], prompts[begin:]
        columns = (
            rows, prompts, table.resident[rows], numbers.left_tokens[places],
            numbers.work_s[places], numbers.weight[places], numbers.slack_s[places], numbers.plain[places],
            numbers.ordinary[places], table.context_tokens[rows], table.segment[rows],
        )  # fmt: skip
        for row, prompt, resident, left, work, weight, own_slack_s, plain, ordinary, context, segment in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            self._decoding_place += not prompt
            if not resident and max(segment, ordinary) >= self._closed_from:
                continue
            if prompt and self._refusals >= MAX_PROMPT_REFUSALS:
                continue
            if may_bar and builder.is_barred(row):
                continue
            tokens, mixing_s = 1, 0.0
            if prompt:
                tokens = self._share(row, prompt, weight, own_slack_s)
                if not tokens:
                    continue
                own_s = numbers.prompt_token_s * tokens
                if not builder.prefill_tokens:
                    mixing_s = self._mixing_s(prompt, 0)
            else:
                # A plain answer goes on for long; it delays a member no longer than that has work.
                own_s = numbers.sequence_s * (min(left, self._longest_tokens) if plain else left)
                if builder.prefill_tokens:
                    mixing_s = self._mixing_s(0, context)
            delay_s, slack = own_s + mixing_s, own_slack_s - mixing_s
            costs = self._costs() if ordinary else self._all
            room_s = promises.room_s(weight, row, slack) - self._delay_s if promises else math.inf
            breaks = delay_s > room_s
            if breaks or (
                rules.PROTECT
                and builder.rows
                and not (promises and promises.presses(row, slack))
                and not costs.is_worth(delay_s, weight, slack - self._delay_s, -slack - work, self._delay_s)
            ):
                tokens = self._fitting(costs, tokens, room_s, mixing_s) if prompt and rules.CHUNK else 0
                own_s = numbers.prompt_token_s * tokens
                delay_s = own_s + mixing_s
                if not tokens or not costs.is_worth(
                    delay_s, weight * tokens / prompt, slack - self._delay_s, -slack - work, self._delay_s
                ):
                    self.limited_by = self.limited_by or "suspended"
                    self._refusals += bool(prompt) and not breaks
                    continue
            if builder.add(row, tokens):
                self._refusals = 0
                self._cuts |= tokens < prompt
                self._join(delay_s, weight, slack, work, left, plain=plain, ordinary=ordinary)
                if promises:
                    promises.join(row, own_s, tokens)
                if builder.full:
                    return
            elif not resident or builder.is_evicted(row):
                # Nothing less important may take the room that this job waits for, but plans that have begun keep no
                # new task out. An answer would keep the room for long, so they do keep it out. Resident jobs go on.
                self._closed_from = min(self._closed_from, segment, 1)
                self.limited_by = self.limited_by or "memory"

    def _costs(self) -> TardinessDelayCost:
        """What delays cost those members that an ordinary candidate has to heed."""
        self._heed_members()
        builder = self._builder
        step_s = builder.limits.speed.step_s(len(builder.rows), 0)
        self._heeded_cost.wait_share = min(1.0, step_s / self._numbers.step_s)
        return self._heeded_cost

    def _share(self, row: int, prompt: int, weight: float, slack_s: float) -> int:
        """Prompt tokens for a candidate in this step."""
        tokens = self._builder.tokens_for(row)
        if tokens < prompt:
            # It goes on in the next step anyway, so it leaves a token to each equal that decodes.
            equals = int(np.count_nonzero(self._decoding[self._decoding_place :] >= weight))
            # A later prompt takes these tokens, unless others wait for cache that answers give back when they end.
            least = 0 if self._cuts and self._answers_keep_jobs_out else min(tokens, MIN_CHUNK_TOKENS)
            tokens = max(least, tokens - equals)
        if self._rules.CHUNK and self._parked_slack_s < slack_s:
            # A job that is about to resume cannot interrupt a step.
            most = int(max(self._parked_slack_s, 0.0) / self._numbers.prompt_token_s)
            tokens = min(tokens, max(MIN_CHUNK_TOKENS, most))
        return tokens

    @property
    def _answers_keep_jobs_out(self) -> bool:
        """Answers hold most of the KV cache, and jobs wait for it; unlike plans that park, answers give it back."""
        table, free_blocks = self._builder.table, self._builder.limits.free_blocks
        answers = table.plain | table.whole_answer
        blocks = (table.blocks - table.shared_blocks) * table.resident
        is_full = 2 * int(blocks[answers].sum()) > free_blocks + int(blocks.sum())
        return is_full and self._builder.queued_blocks > free_blocks

    def _add_group(self, places: Rows, *, ordinary: bool) -> int:
        """Judge decoding candidates together, as each would be judged alone.

        Returns:
            How many were judged, from the first; the others have to be judged one by one.
        """
        numbers, already_s = self._numbers, self._delay_s
        weights, slacks = numbers.weight[places], numbers.slack_s[places]
        if not ordinary and not (self.in_time and float(slacks.min()) > already_s):
            return 0
        works, lefts, plain = numbers.work_s[places], numbers.left_tokens[places], numbers.plain[places]
        longest = self._longest_tokens
        if not ordinary:
            is_dated = ~plain & (slacks < math.inf)
            longest = max(longest, float(lefts[is_dated].max(initial=1.0)))
        own_delays = numbers.sequence_s * np.where(plain, np.minimum(lefts, longest), lefts)
        delays = own_delays + self._mean_mixing_s(places)
        count: int | None = len(places)
        if already_s + float(delays.sum()) > self._promises.room_s(float(weights.min())):
            return 0
        if ordinary:
            count = self._costs().worth_together(
                delays, weights, slacks - already_s, -slacks - works, already_s
            )
            if count == 0:
                self.limited_by = self.limited_by or "suspended"
                return len(places)
        elif not self._all.bear_together(delays, weights, slacks, works, plain, already_s):
            return 0
        if count is not None and ordinary:
            count = min(count, self._builder.decoding_room(numbers.rows[places]))
        if not count or not self._builder.add_decoding(numbers.rows[places[:count]]):
            return 0
        if not ordinary or self.PROTECTS_ORDINARY:
            self._all.join_together(
                slacks[:count], own_delays[:count], weights[:count], works[:count], plain[:count]
            )
        if self._has_ordinary and not ordinary:
            self._heed_members()
            steep = weights > self.HEEDED_WEIGHT
            self._heeded_cost.join_together(
                slacks[steep], own_delays[steep], weights[steep], works[steep], plain[steep]
            )
        if self._promises.hold:
            for row, delay_s in zip(
                numbers.rows[places[:count]].tolist(), own_delays[:count].tolist(), strict=True
            ):
                self._promises.join(row, delay_s, 1)
        self._delay_s += float(delays[:count].sum())
        self._longest_tokens = longest
        self._refusals = 0
        return count

    def _mixing_s(self, prompt_tokens: int, context_tokens: int) -> float:
        """What mixing adds to the step if further rows join: only the first prompt pays for the members that decode.

        Args:
            prompt_tokens: of those that compute their prompts.
            context_tokens: sum over those that decode of the tokens they attend to.
        """
        builder = self._builder
        if not builder.prefill_tokens + prompt_tokens:
            return 0.0
        mixing_s = builder.limits.speed.mixing_s
        already_s = mixing_s(builder.context_tokens) if builder.prefill_tokens else 0.0
        return mixing_s(builder.context_tokens + context_tokens) - already_s

    def _mean_mixing_s(self, places: Rows) -> float:
        """The share of each of these decoding rows in what mixing adds if all join."""
        context_tokens = self._builder.table.context_tokens[self._numbers.rows[places]]
        return self._mixing_s(0, int(context_tokens.sum())) / len(places)

    def _fitting(self, costs: TardinessDelayCost, tokens: int, room_s: float, mixing_s: float) -> int:
        """Prompt tokens that make no member late; 0 when they are hardly any, or when a member is late already.

        Args:
            room_s: delay that breaks no promise, seconds.
            mixing_s: delay that the first of these tokens causes, seconds.
        """
        costs.settle(self._delay_s)
        if costs.late_weight > 0.0:
            return 0
        room = (min(room_s, costs.room_s(self._delay_s)) - mixing_s) / self._numbers.prompt_token_s
        return int(min(float(tokens), room)) if room >= MIN_CHUNK_TOKENS else 0

    def _join(
        self,
        delay_s: float,
        weight: float,
        slack_s: float,
        work_s: float,
        left_tokens: float,
        *,
        plain: bool,
        ordinary: bool,
    ) -> None:
        already_s = self._delay_s
        self._delay_s += delay_s
        if slack_s == math.inf or (ordinary and not self.PROTECTS_ORDINARY):
            return  # no delay costs it anything
        self._all.join(slack_s, delay_s, already_s, weight, work_s, plain=plain)
        if self._has_ordinary and not ordinary:
            self._members_to_heed.append((slack_s, delay_s, already_s, weight, work_s, left_tokens, plain))
        if not (ordinary or plain) and left_tokens > self._longest_tokens:
            self._longest_tokens = left_tokens

    def _heed_members(self) -> None:
        """Note the members that have joined one by one and are no ordinary requests, so these have to heed them."""
        for slack_s, delay_s, already_s, weight, work_s, _, plain in self._members_to_heed:
            if weight > self.HEEDED_WEIGHT:
                self._heeded_cost.join(slack_s, delay_s, already_s, weight, work_s, plain=plain)
        self._members_to_heed.clear()

    def worth_evicting(self, row: int, victims: list[int]) -> bool:
        """Whether a job gains at least as much by the victims' memory as they lose.

        Without it the job waits until the victims are done. A victim waits for the job and computes its context again.
        Where memory is short parked plans decode ahead. So to a plan that has begun, too, they are equals that run.
        """
        numbers, table = self._numbers, self._builder.table
        early, now = self._rules.EARLY_SHARE, self._builder.limits.now
        at = numbers.place(row)
        work_s, wait_s, loss = self._eviction_work_s(at), 0.0, 0.0
        all_run = self._is_shared and bool(table.segment[row])
        for victim in victims:
            place = numbers.place(victim)
            if self._is_protected(at, place):
                return False
            if table.priority[victim] != table.priority[row]:
                if table.priority[victim] < table.priority[row]:
                    return False
                continue
            resume_s = float(table.resume_s[victim])
            runs = all_run and resume_s < math.inf
            parked_s = 0.0 if runs else min(max(0.0, resume_s - now), MAX_PARKED_WAIT_S)
            wait_s = max(wait_s, parked_s + self._eviction_work_s(place))
            again_s = self._context_token_s * float(table.context_tokens[victim])
            delay_s = again_s + work_s
            if parked_s > 0.0:
                late_s = max(0.0, delay_s - max(0.0, float(numbers.slack_s[place])))
                delay_s = (1.0 - early) * late_s + early * again_s
            # Otherwise it is interrupted now, whatever slack it has: equals do not take turns in the cache.
            loss += float(numbers.weight[place]) * delay_s
        gain_s = (1.0 - early) * max(0.0, wait_s - max(0.0, float(numbers.slack_s[at]))) + early * wait_s
        return float(numbers.weight[at]) * gain_s >= loss

    def _eviction_work_s(self, at: int) -> float:
        """Work left of a job, as evictions weigh it, seconds."""
        return float(self._numbers.work_s[at])

    def _is_protected(self, at: int, victim: int) -> bool:
        """Whether a new job may take nothing from a victim, whatever it gains; both given as places."""
        # As in vLLM, a new ordinary request takes nothing from another one.
        return bool(self._numbers.ordinary[at] and self._numbers.ordinary[victim])

    @property
    def _context_token_s(self) -> float:
        """What an eviction costs for each token of the victim's context, seconds."""
        return self._numbers.prompt_token_s

    def decode_early(self, rows: Rows, *, all_join: bool) -> None:
        """Opportunistic decode: let parked jobs join while no member is made late and no room has to be made.

        Args:
            all_join: as many as fit, even if their segments then close together.
        """
        builder, numbers = self._builder, self._numbers
        table, block = builder.table, builder.limits.block_tokens
        jobs, places = table.jobs, max(1, self._rules.MAX_RIDERS - len(builder.rows))
        if all_join:
            rows = rows[self._decode_early_together(rows) :]
        for row in rows.tolist():
            if builder.full:
                break
            reports = not all_join and _does_tardiness_robot_report(jobs[row], builder.limits.now)
            if reports and not places:
                continue
            at = numbers.place(row)
            left_tokens = float(numbers.left_tokens[at])
            delay_s = numbers.sequence_s * left_tokens + self._mixing_s(0, int(table.context_tokens[row]))
            promised_s = self._promises.room_s(float(numbers.weight[at])) - self._delay_s
            if delay_s > min(promised_s, self._all.room_s(self._delay_s)):
                break
            if (int(table.context_tokens[row]) + block) // block - int(table.blocks[row]) > builder.free:
                continue
            if builder.add(row):
                places -= reports
                work_s = float(numbers.work_s[at])
                self._join(
                    delay_s,
                    float(numbers.weight[at]),
                    math.inf,
                    work_s,
                    left_tokens,
                    plain=False,
                    ordinary=False,
                )

    def _decode_early_together(self, rows: Rows) -> int:
        """Let the first of these parked jobs join that make no member late; returns how many.

        None joins where memory is short: each has to be looked at then.
        """
        builder, numbers = self._builder, self._numbers
        places = np.searchsorted(numbers.rows, rows[: builder.decoding_room(rows)])
        if not places.size:
            return 0
        delays_s = numbers.sequence_s * numbers.left_tokens[places] + self._mean_mixing_s(places)
        promised_s = self._promises.room_s(float(numbers.weight[places].min())) - self._delay_s
        room_s = min(promised_s, self._all.room_s(self._delay_s))
        count = int(np.searchsorted(np.cumsum(delays_s), room_s, side="right"))
        if not count or not builder.add_decoding(numbers.rows[places[:count]]):
            return 0
        self._delay_s += float(delays_s[:count].sum())
        return count


def _does_tardiness_robot_report(job: Job, now: float) -> bool:
    """Whether its robot reports the start of a segment, or may still be about to do so for the first time."""
    if not job.segments:
        return True
    first = job.segments[0]
    return first.started or now < first.start_s + job.spec.hints.network_s + REPORT_GRACE_S
