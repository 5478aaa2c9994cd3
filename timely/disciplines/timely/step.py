"""One step of the discipline ``timely`` in composition: its members, what a delay costs them, which jobs may join.

``discipline`` gives the rules; here is their arithmetic. A candidate takes constant time, but for the members whose
slack its delay uses up.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from timely.core.job import Job
from timely.disciplines.base import Floats, Rows
from timely.disciplines.step_builder import StepBuilder

MIN_CHUNK_TOKENS = 32
"""Prompt tokens below which a part of a prompt is not worth a place in a step."""

MAX_PROMPT_REFUSALS = 8
"""After so many refused prompts in a row no further prompt is considered: the others rank lower still."""

MIN_GROUP = 8
"""Decoding candidates in a row that are first judged as one."""

REPORT_GRACE_S = 0.25
"""A robot that has not reported its first segment so long after a report was possible reports nothing."""

PATIENCE = 10.0
"""Lateness after which a candidate is not delayed for its equals, as a multiple of their remaining work."""

MAX_PARKED_WAIT_S = 10.0
"""Longest wait for a parked job's memory that counts, seconds."""


class Rules(Protocol):
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
    def MAX_RIDERS(self) -> int:
        """Sequences in a step beyond which only one opportunistic decode of a reporting robot joins at a decision."""


@dataclass(slots=True)
class Numbers:
    """What a step's composition reads of the jobs; arrays of shape ``(len(rows),)``.

    Attributes:
        rows: the table's rows that are described, in order.
        sequence_s: what one more decoding sequence adds to a step, seconds.
        prompt_token_s: what one more prompt token adds, seconds.
        left_tokens: until the segment closes, or the plain answer ends.
        work_s: time until then, seconds.
        weight: utility lost per second of lateness.
        slack_s: how much later the work may begin; infinite where nothing is lost.
        plain: plain requests whose answer has begun.
        index: the order of candidates, highest first.
    """

    rows: Rows
    sequence_s: float
    prompt_token_s: float
    left_tokens: Floats
    work_s: Floats
    weight: Floats
    slack_s: Floats
    plain: np.ndarray
    index: Floats

    def place(self, row: int) -> int:
        """Where a row of the table is in the arrays."""
        return bisect_left(self.rows, row) if len(self.rows) <= row or self.rows[row] != row else row


class Step:
    """A step in composition: its members, and what a delay would cost them.

    Delays so far are kept in one number, ``_delay_s``, instead of being taken off each member's slack. Members that
    lose nothing by a delay are not counted. A plain answer in progress loses only what exceeds its slack.
    """

    __slots__ = (
        "_builder", "_delay_s", "_early_weight", "_early_work", "_late", "_late_weight", "_late_work",
        "_longest_tokens", "_numbers", "_parked_slack_s", "_rules", "_timely", "held",
    )  # fmt: skip

    def __init__(
        self, rules: Rules, builder: StepBuilder, numbers: Numbers, parked_slack_s: float = math.inf
    ) -> None:
        self._rules = rules
        self._builder = builder
        self._numbers = numbers
        self._parked_slack_s = parked_slack_s
        """Least slack of a parked job."""
        self._delay_s = 0.0
        self._longest_tokens = 1.0
        """Most tokens that a member's segment still has."""
        self._timely: list[tuple[float, float, float, bool]] = []
        """Members in time, least slack first: slack plus the delay when they joined, weight, work, plain."""
        self._early_weight = self._early_work = 0.0
        """Of those that gain by being early: sums of weight, and of weight times work."""
        self._late: dict[float, tuple[float, float]] = {}
        """Late members, the same two sums by weight."""
        self._late_weight = self._late_work = 0.0
        self.held = ""

    @property
    def in_time(self) -> bool:
        """No member is late."""
        return self._late_weight == 0.0

    @property
    def room_s(self) -> float:
        """Delay that makes no member late, seconds."""
        return self._timely[0][0] - self._delay_s if self._timely else math.inf

    def fill(self, order: Rows) -> None:
        """Consider candidates in this order, given as places in the arrays."""
        builder, numbers = self._builder, self._numbers
        table = builder.table
        rows = numbers.rows[order]
        prompts = table.prefill_left[rows]
        resident = table.resident[rows]
        decoding = (prompts == 0) & resident
        names, prompt_list = rows.tolist(), prompts.tolist()
        lefts, works = numbers.left_tokens[order].tolist(), numbers.work_s[order].tolist()
        weights, slacks = numbers.weight[order].tolist(), numbers.slack_s[order].tolist()
        plains, residents = numbers.plain[order].tolist(), resident.tolist()
        decodes = decoding.tolist()
        refusals = 0
        residents_only = False
        at, count = 0, len(names)
        while at < count and not builder.full:
            here, at = at, at + 1
            if (
                decodes[here]
                and self._rules.PROTECT
                and (end := self._group_end(decodes, here)) - here >= MIN_GROUP
            ):
                if self._add_group(order[here:end], names[here:end]):
                    at, refusals = end, 0
                    continue
                for later in range(here, end):
                    decodes[later] = False  # judged one by one from here on
            row, prompt, slack, work = names[here], prompt_list[here], slacks[here], works[here]
            if (residents_only and not residents[here]) or (prompt and refusals >= MAX_PROMPT_REFUSALS):
                continue
            if builder.barred(row):
                continue
            tokens, delay_s = self._share(row, prompt, lefts[here], slack, plain=plains[here])
            weight = weights[here]
            if (
                self._rules.PROTECT
                and builder.rows
                and not self._worth(delay_s, weight, slack - self._delay_s, -slack - work)
            ):
                tokens = self._fitting(tokens) if prompt and self._rules.CHUNK else 0
                delay_s = numbers.prompt_token_s * tokens
                if not tokens or not self._worth(
                    delay_s, weight * tokens / prompt, slack - self._delay_s, -slack - work
                ):
                    self.held = self.held or "suspended"
                    refusals += bool(prompt)
                    continue
            if builder.add(row, tokens):
                refusals = 0
                self._join(delay_s, weight, slack, work, lefts[here], plain=plains[here])
            elif not residents[here] or builder.lost(row):
                # Nothing less important may take the room that this job waits for; resident jobs go on.
                residents_only = True
                self.held = self.held or "memory"

    @staticmethod
    def _group_end(decodes: list[bool], begin: int) -> int:
        """Where the row of decoding candidates that begins here ends."""
        try:
            return decodes.index(False, begin)
        except ValueError:
            return len(decodes)

    def _share(
        self, row: int, prompt: int, left_tokens: float, slack_s: float, *, plain: bool
    ) -> tuple[int, float]:
        """Tokens for a candidate in this step, and the delay it causes, seconds."""
        numbers = self._numbers
        if not prompt:
            # A plain answer goes on for long; it delays a member no longer than that has work.
            delayed_tokens = min(left_tokens, self._longest_tokens) if plain else left_tokens
            return 1, numbers.sequence_s * delayed_tokens
        tokens = min(prompt, self._builder.tokens_for(row))
        if self._rules.CHUNK and self._parked_slack_s < slack_s:
            # A job that is about to resume cannot interrupt a step.
            most = int(max(self._parked_slack_s, 0.0) / numbers.prompt_token_s)
            tokens = min(tokens, max(MIN_CHUNK_TOKENS, most))
        return tokens, numbers.prompt_token_s * tokens

    def _add_group(self, places: Rows, rows: list[int]) -> bool:
        """Let decoding candidates join together if each of them would join alone; False: nothing has changed."""
        numbers = self._numbers
        weights, slacks = numbers.weight[places], numbers.slack_s[places]
        works, lefts, plain = numbers.work_s[places], numbers.left_tokens[places], numbers.plain[places]
        counted = ~plain & (slacks < math.inf)
        longest = max(self._longest_tokens, float(lefts[counted].max(initial=1.0)))
        delays = numbers.sequence_s * np.where(plain, np.minimum(lefts, longest), lefts)
        total_s = float(delays.sum())
        if self._late_weight > 0.0 or total_s >= min(self.room_s, float(slacks.min()) - self._delay_s):
            return False
        weight = self._early_weight + float(weights[counted].sum())
        if weight > 0.0:
            mean_s = (self._early_work + float((weights[counted] * works[counted]).sum())) / weight
            if self._early_weight > 0.0:
                mean_s = min(mean_s, self._early_work / self._early_weight)
            if (weights * mean_s < weight * delays).any():
                return False
        if not self._builder.add_decoding(rows):
            return False
        self._delay_s += total_s
        self._longest_tokens = longest
        for due, weight, work, is_plain in zip(
            (slacks + delays).tolist(), weights.tolist(), works.tolist(), plain.tolist(), strict=True
        ):
            if due == math.inf:
                continue
            self._timely.append((due, weight, work, is_plain))
            if not is_plain:
                self._early_weight += weight
                self._early_work += weight * work
        self._timely.sort()
        self._drop_late()
        return True

    def _worth(self, delay_s: float, weight: float, slack_s: float, late_s: float) -> bool:
        """Whether a candidate, late by ``late_s`` already, gains by joining at least what the members lose."""
        if self._gains(delay_s, weight, slack_s, self._late_weight, self._late_work):
            return True
        if late_s * self._late_weight < PATIENCE * self._late_work:
            return False
        hurt = wait = 0.0
        for member, (total, work) in self._late.items():
            if member > weight:
                hurt += total
                wait += work
        return self._gains(delay_s, weight, slack_s, hurt, wait)

    def _gains(self, delay_s: float, weight: float, slack_s: float, hurt: float, wait: float) -> bool:
        """The same with those late members only that have the weight ``hurt`` and the weighted work ``wait``."""
        if not self._timely and hurt == 0.0:
            return True
        loss = hurt * delay_s
        all_weight, all_work = self._early_weight + hurt, self._early_work + wait
        already_s = self._delay_s
        for due, member, work, _ in self._timely:
            over_s = delay_s - (due - already_s)
            if over_s <= 0.0:
                break
            loss += member * over_s
            hurt += member
            wait += member * work
        early = self._rules.EARLY_SHARE
        cost = (1.0 - early) * loss + early * all_weight * delay_s
        # Left out it would wait until the members that it delays are done; before its deadline that costs little.
        until_s = wait / hurt if hurt > 0.0 else 0.0
        gain_s = (1.0 - early) * max(0.0, until_s - max(0.0, slack_s))
        if all_weight > 0.0:
            gain_s += early * all_work / all_weight
        return weight * gain_s >= cost

    def _fitting(self, tokens: int) -> int:
        """Prompt tokens that make no member late; 0 when they are hardly any, or when a member is late already."""
        if self._late_weight > 0.0:
            return 0
        room = self.room_s / self._numbers.prompt_token_s
        return int(min(float(tokens), room)) if room >= MIN_CHUNK_TOKENS else 0

    def _join(
        self, delay_s: float, weight: float, slack_s: float, work_s: float, left_tokens: float, *, plain: bool
    ) -> None:
        # The newcomer's own slack counts its own work already.
        before_s = self._delay_s
        self._delay_s += delay_s
        if slack_s < math.inf:  # otherwise no delay costs it anything
            if not plain:
                self._longest_tokens = max(self._longest_tokens, left_tokens)
            if slack_s - before_s > 0.0:
                insort(self._timely, (slack_s - before_s + self._delay_s, weight, work_s, plain))
                if not plain:
                    self._early_weight += weight
                    self._early_work += weight * work_s
            else:
                self._now_late(weight, work_s)
        self._drop_late()

    def _drop_late(self) -> None:
        while self._timely and self._timely[0][0] <= self._delay_s:
            _, weight, work_s, plain = self._timely.pop(0)
            if not plain:
                self._early_weight -= weight
                self._early_work -= weight * work_s
            self._now_late(weight, work_s)

    def _now_late(self, weight: float, work_s: float) -> None:
        total, works = self._late.get(weight, (0.0, 0.0))
        self._late[weight] = (total + weight, works + weight * work_s)
        self._late_weight += weight
        self._late_work += weight * work_s

    def worth_evicting(self, row: int, victims: list[int]) -> bool:
        """Whether a job gains at least as much by the victims' memory as they lose.

        Without it the job waits until the victims are done. A victim waits for the job and computes its context again.
        """
        numbers, table = self._numbers, self._builder.table
        early, now = self._rules.EARLY_SHARE, self._builder.limits.now
        at = numbers.place(row)
        work_s, wait_s, loss = float(numbers.work_s[at]), 0.0, 0.0
        for victim in victims:
            if table.priority[victim] != table.priority[row]:
                if table.priority[victim] < table.priority[row]:
                    return False
                continue
            place = numbers.place(victim)
            parked_s = min(max(0.0, float(table.resume_s[victim]) - now), MAX_PARKED_WAIT_S)
            wait_s = max(wait_s, parked_s + float(numbers.work_s[place]))
            again_s = numbers.prompt_token_s * float(table.context_tokens[victim])
            delay_s = again_s + work_s
            if parked_s > 0.0:
                late_s = max(0.0, delay_s - max(0.0, float(numbers.slack_s[place])))
                delay_s = (1.0 - early) * late_s + early * again_s
            # Otherwise it is interrupted now, whatever slack it has: equals do not take turns in the cache.
            loss += float(numbers.weight[place]) * delay_s
        gain_s = (1.0 - early) * max(0.0, wait_s - max(0.0, float(numbers.slack_s[at]))) + early * wait_s
        return float(numbers.weight[at]) * gain_s >= loss

    def decode_early(self, rows: list[int], *, all_join: bool) -> None:
        """Opportunistic decode: let parked jobs join while no member is made late and no room has to be made.

        Args:
            all_join: as many as fit, even if their segments then close together.
        """
        builder, numbers = self._builder, self._numbers
        table, block = builder.table, builder.limits.block_tokens
        jobs, places = table.jobs, max(1, self._rules.MAX_RIDERS - len(builder.rows))
        for row in rows:
            if builder.full:
                break
            reports = not all_join and _reports(jobs[row], builder.limits.now)
            if reports and not places:
                continue
            at = numbers.place(row)
            left_tokens = float(numbers.left_tokens[at])
            delay_s = numbers.sequence_s * left_tokens
            if delay_s > self.room_s:
                break
            if (int(table.context_tokens[row]) + block) // block - int(table.blocks[row]) > builder.free:
                continue
            if builder.add(row):
                places -= reports
                work_s = float(numbers.work_s[at])
                self._join(delay_s, float(numbers.weight[at]), math.inf, work_s, left_tokens, plain=False)


def _reports(job: Job, now: float) -> bool:
    """Whether its robot reports the start of a segment, or may still be about to do so for the first time."""
    if not job.segments:
        return True
    first = job.segments[0]
    return first.started or now < first.start_s + job.spec.hints.network_s + REPORT_GRACE_S
