"""One step of the discipline ``timely`` in composition: who is in it, what a delay would cost them, who may join.

The rules are told in ``discipline``; here is their arithmetic, each candidate in constant time but for
the members whose slack its delay uses up.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from typing import Protocol

from timely.core.job import Job
from timely.disciplines.base import Floats, Rows
from timely.disciplines.step_builder import StepBuilder

LEAST_CHUNK = 32
"""Prompt tokens below which a part of a prompt is not worth a place in a step."""

MOST_REFUSALS = 8
"""After so many refusals in a row no further candidate is looked at: they rank lower still."""

SILENCE_S = 0.25
"""A robot that has not reported its first segment so long after a report could have come reports nothing."""

PATIENCE = 10.0
"""Lateness after which a candidate is not held back for its equals, in times of what they still have to do."""


class Rules(Protocol):
    """What a step asks of the discipline."""

    @property
    def PROTECT(self) -> bool:
        """Refuse who costs the others more than it gains."""

    @property
    def CHUNK(self) -> bool:
        """Cut prompts to the slack of those in the step."""

    @property
    def EARLY(self) -> float:
        """Share of the slope that counts before the deadline."""

    @property
    def COMPANY(self) -> int:
        """Sequences in a step beyond which only one rider of those that report joins at a decision."""


@dataclass(slots=True)
class Numbers:
    """What a step's composition reads of every row; arrays of shape ``(jobs,)``, times in seconds.

    Attributes:
        each: what one more decoding sequence adds to a step.
        prompt: what one more prompt token adds.
        left: tokens until the segment closes.
        work: time until then.
        weight: utility lost per second of lateness.
        slack: how much later the segment may begin to be worked on; infinite where nothing is lost.
        index: who comes first, highest first.
    """

    each: float
    prompt: float
    left: Floats
    work: Floats
    weight: Floats
    slack: Floats
    index: Floats


class Step:
    """A step in composition: who is in it, and what a delay would cost them.

    Delays so far are kept in one number, ``_delay``, instead of being taken off everybody's slack.
    """

    __slots__ = (
        "_builder",
        "_delay",
        "_late",
        "_late_weight",
        "_late_work",
        "_numbers",
        "_rules",
        "_timely",
        "_timely_weight",
        "_timely_work",
        "held",
    )  # fmt: skip

    def __init__(self, rules: Rules, builder: StepBuilder, numbers: Numbers) -> None:
        self._rules = rules
        self._builder = builder
        self._numbers = numbers
        self._delay = 0.0
        self._timely: list[tuple[float, float, float]] = []
        """Members in time: (slack plus the delay when they joined, weight, work), least slack first."""
        self._timely_weight = self._timely_work = 0.0
        """Sums of their weights and of weight times work; members that lose nothing by a delay are not counted."""
        self._late: dict[float, tuple[float, float]] = {}
        """Members that are late, the same two sums by weight."""
        self._late_weight = self._late_work = 0.0
        self.held = ""

    @property
    def friendly(self) -> bool:
        """Nobody in the step is late."""
        return self._late_weight == 0.0

    @property
    def room_s(self) -> float:
        """Delay that makes nobody late."""
        return self._timely[0][0] - self._delay if self._timely else math.inf

    def fill(self, order: Rows) -> None:
        """Candidates in this order."""
        builder, numbers, rules = self._builder, self._numbers, self._rules
        table = builder.table
        prompts = table.prefill_left[order].tolist()
        lefts, works = numbers.left[order].tolist(), numbers.work[order].tolist()
        weights, slacks = numbers.weight[order].tolist(), numbers.slack[order].tolist()
        protect = rules.PROTECT
        refusals = 0
        residents_only = False
        for row, prompt, left, work, weight, slack in zip(
            order.tolist(), prompts, lefts, works, weights, slacks, strict=True
        ):
            if builder.full or refusals >= MOST_REFUSALS:
                break
            if (residents_only and not table.resident[row]) or builder.barred(row):
                continue
            tokens = min(prompt, builder.tokens_for(row)) if prompt else 1
            delay = numbers.prompt * tokens if prompt else numbers.each * left
            if (
                protect
                and builder.rows
                and not self._worth(delay, weight, slack - self._delay, -slack - work)
            ):
                tokens = self._fitting(tokens) if prompt and rules.CHUNK else 0
                delay = numbers.prompt * tokens
                if not tokens or not self._worth(
                    delay, weight * tokens / prompt, slack - self._delay, -slack - work
                ):
                    self.held = self.held or "suspended"
                    refusals += 1
                    continue
            if builder.add(row, tokens):
                refusals = 0
                self._join(delay, weight, slack, work)
            elif not table.resident[row] or builder.lost(row):
                # Nothing less important may take the room it waits for; those who have theirs go on.
                residents_only = True
                self.held = self.held or "memory"

    def _worth(self, delay: float, weight: float, slack: float, late_s: float) -> bool:
        """Whether a candidate, late by ``late_s`` already, gains by joining at least what the members lose."""
        if self._gains(delay, weight, slack, self._late_weight, self._late_work):
            return True
        if late_s * self._late_weight < PATIENCE * self._late_work:
            return False
        hurt = wait = 0.0
        for member, (total, work) in self._late.items():
            if member > weight:
                hurt += total
                wait += work
        return self._gains(delay, weight, slack, hurt, wait)

    def _gains(self, delay: float, weight: float, slack: float, hurt: float, wait: float) -> bool:
        """The same with those late members only that have the weight ``hurt`` and the weighted work ``wait``."""
        if not self._timely and hurt == 0.0:
            return True
        loss = hurt * delay
        all_weight, all_work = self._timely_weight + hurt, self._timely_work + wait
        already = self._delay
        for due, member, work in self._timely:
            over = delay - (due - already)
            if over <= 0.0:
                break
            loss += member * over
            hurt += member
            wait += member * work
        early = self._rules.EARLY
        cost = (1.0 - early) * loss + early * all_weight * delay
        # Left out it would wait until those it hurts are done; before its deadline that costs little.
        until = wait / hurt if hurt > 0.0 else 0.0
        gain = (1.0 - early) * max(0.0, until - max(0.0, slack)) + early * all_work / all_weight
        return weight * gain >= cost

    def _fitting(self, tokens: int) -> int:
        """Prompt tokens that make nobody late; 0 when it is hardly any, or when somebody is late already."""
        if self._late_weight > 0.0:
            return 0
        room = self.room_s / self._numbers.prompt
        return int(min(float(tokens), room)) if room >= LEAST_CHUNK else 0

    def _join(self, delay: float, weight: float, slack: float, work: float) -> None:
        # The newcomer's own slack counts its own work already.
        before = self._delay
        self._delay += delay
        if slack == math.inf:
            pass  # no delay costs it anything, so it is not counted
        elif slack - before > 0.0:
            insort(self._timely, (slack - before + self._delay, weight, work))
            self._timely_weight += weight
            self._timely_work += weight * work
        else:
            self._now_late(weight, work)
        while self._timely and self._timely[0][0] <= self._delay:
            _, weight, work = self._timely.pop(0)
            self._timely_weight -= weight
            self._timely_work -= weight * work
            self._now_late(weight, work)

    def _now_late(self, weight: float, work: float) -> None:
        total, works = self._late.get(weight, (0.0, 0.0))
        self._late[weight] = (total + weight, works + weight * work)
        self._late_weight += weight
        self._late_work += weight * work

    def take_along(self, riders: list[int], *, crowd: bool) -> None:
        """Let parked generations ride along while nobody is made late and no room has to be made for them.

        Args:
            crowd: as many as can, however their segments close.
        """
        builder, numbers = self._builder, self._numbers
        table, block = builder.table, builder.limits.block_tokens
        jobs, places = table.jobs, max(1, self._rules.COMPANY - len(builder.rows))
        for row in riders:
            if builder.full:
                break
            reports = not crowd and _reports(jobs[row], builder.limits.now)
            if reports and not places:
                continue
            delay = numbers.each * float(numbers.left[row])
            if delay > self.room_s:
                break
            if (int(table.context_tokens[row]) + block) // block - int(table.blocks[row]) > builder.free:
                continue
            if builder.add(row):
                places -= reports
                self._join(delay, float(numbers.weight[row]), math.inf, float(numbers.work[row]))


def _reports(job: Job, now: float) -> bool:
    """Whether its robot says when it starts a segment, or may still be about to say so for the first time."""
    if not job.segments:
        return True
    first = job.segments[0]
    return first.started or now < first.start_s + job.spec.hints.network_s + SILENCE_S
