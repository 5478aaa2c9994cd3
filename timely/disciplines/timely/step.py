"""A step of ``timely`` in composition: answers beside robots, evictions by worth, and applications that have begun."""

import math
from typing import ClassVar

import numpy as np

from timely.core.arrays import Ints
from timely.disciplines.base import Rows
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.delay_cost import TardinessDelayCost
from timely.disciplines.tardiness.job_numbers import TardinessJobNumbers
from timely.disciplines.tardiness.step import TardinessRules, TardinessStep
from timely.disciplines.timely.delayed import TimelyDelayedMembers


class TimelyDelayCost(TardinessDelayCost):
    """What a delay costs, where a candidate that is left out waits for a time that is not known.

    As in the index, it is exponential, with the mean that the members need. So a candidate may be late whatever slack
    it has, and being late at all counts, too.

    Args:
        in_time_s: being late at all counts as so many seconds of lateness.
    """

    def __init__(self, early_share: float, in_time_s: float) -> None:
        super().__init__(early_share)
        self._in_time_s = in_time_s

    def _lateness_s(self, until_s: float, slack_s: float) -> float:
        if slack_s <= 0.0 or until_s == 0.0:
            return until_s
        return (until_s + self._in_time_s) * math.exp(-slack_s / until_s)


class TimelyStep(TardinessStep):
    """A step whose requests without a deadline take memory from each other by worth.

    Args:
        apps: number of each request's application by place; 0: none.
        context_token_s: what an eviction costs for each token of the victim's context, seconds.
        price: utility that a second of delay costs in other steps, for a job with a deadline.
        decode_price: the same for a parked generation, or for a request without a deadline that decodes.
    """

    HEEDED_WEIGHT: ClassVar[float] = 0.0
    PROTECTS_ORDINARY: ClassVar[bool] = False
    MIN_ORDINARY_GROUP: ClassVar[int] = 1

    def __init__(
        self,
        rules: TardinessRules,
        builder: StepBuilder,
        numbers: TardinessJobNumbers,
        parked_slack_s: float,
        apps: Ints,
        context_token_s: float,
        price: float,
        decode_price: float,
    ) -> None:
        super().__init__(rules, builder, numbers, parked_slack_s)
        # Requests without a deadline wait for members that would be late, not for early ones to end earlier.
        self._heeded_cost = TardinessDelayCost(0.0)
        if not self._promises.hold:
            # With promises a wait is known: tasks that come meanwhile are admitted only if the promises hold.
            self._all = TimelyDelayCost(rules.EARLY_SHARE, rules.IN_TIME_S)
        self._all.price = price
        self._delayed_members = TimelyDelayedMembers(numbers.sequence_s)
        self._apps = apps
        self._context_s = context_token_s
        self._decode_price = decode_price

    @property
    def is_cheap(self) -> bool:
        return self.late_weight < self._decode_price

    def _heed_members(self) -> None:
        for slack_s, delay_s, _, weight, work_s, left_tokens, plain in self._members_to_heed:
            self._delayed_members.join(slack_s + delay_s, weight, work_s, math.inf if plain else left_tokens)
        super()._heed_members()

    def _add_group(self, places: Rows, *, ordinary: bool) -> int:
        if ordinary:
            self._add_answers(places)
            return len(places)
        count = super()._add_group(places, ordinary=False)
        if not self._has_ordinary:
            return count
        numbers, members = self._numbers, places[:count]
        columns = (numbers.slack_s, numbers.weight, numbers.work_s, numbers.left_tokens, numbers.plain)
        for slack_s, weight, work_s, left, plain in zip(
            *(column[members].tolist() for column in columns), strict=True
        ):
            if slack_s < math.inf:
                delay_s = numbers.sequence_s * (min(left, self._longest_tokens) if plain else left)
                self._delayed_members.join(slack_s + delay_s, weight, work_s, math.inf if plain else left)
        return count

    def _add_answers(self, places: Rows) -> None:
        """Let answers in progress join that gain at least what the members lose.

        They decode in hundreds of steps, so they cannot wait for cheap ones: left out they delay others, at the price.
        But they can wait for the end of a task that loses utility faster than a normal one. And they make no member
        late for the price.
        """
        self._heed_members()
        builder, numbers = self._builder, self._numbers
        rows, weights, lefts = numbers.rows[places], numbers.weight[places], numbers.left_tokens[places]
        mixing_s = self._mean_mixing_s(places)
        joins = self._delayed_members.worth(
            lefts,
            weights,
            -numbers.slack_s[places] - numbers.work_s[places],
            mixing_s=mixing_s,
            already_s=self._delay_s,
            longest_tokens=self._longest_tokens,
            wait_share=min(1.0, builder.limits.speed.step_s(len(builder.rows), 0) / numbers.step_s),
            price=self._decode_price,
        )
        own_delays_s = numbers.sequence_s * np.minimum(lefts, self._longest_tokens)
        delays_s = own_delays_s + mixing_s
        joins &= self._delay_s + np.cumsum(delays_s * joins) <= self._promises.room_s(float(weights.min()))
        if not joins.all():
            self.limited_by = self.limited_by or "suspended"
        join_places = joins.nonzero()[0]
        join_places = join_places[: builder.decoding_room(rows[join_places])]
        if join_places.size and not builder.add_decoding(rows[join_places]):
            join_places = np.array(
                [at for at in join_places.tolist() if self._add_answer(int(rows[at]))], dtype=np.int64
            )
        self._delayed_members.join_answers(lefts[join_places], float(own_delays_s[join_places].sum()))
        self._delay_s += float(delays_s[join_places].sum())

    def _add_answer(self, row: int) -> bool:
        fits = self._builder.add(row)
        if not fits and self._builder.is_evicted(row):
            self._closed_from = 0
            self.limited_by = self.limited_by or "memory"
        return fits

    @property
    def _context_token_s(self) -> float:
        return self._context_s

    def _eviction_work_s(self, at: int) -> float:
        numbers = self._numbers
        if not numbers.ordinary[at]:
            return super()._eviction_work_s(at)
        # Least expected use per completion, as the index has it.
        return float(numbers.weight[at] / numbers.index[at])

    def _is_protected(self, at: int, victim: int) -> bool:
        """Applications that have begun are not interrupted by others: alternating would end both late."""
        own, other = self._apps[at], self._apps[victim]
        return bool(own and other and own != other)
