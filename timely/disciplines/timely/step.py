"""A step of ``timely`` in composition: evictions by worth, and applications that have begun."""

from typing import ClassVar

from timely.core.arrays import Ints
from timely.core.utility import NORMAL
from timely.disciplines.step_builder import StepBuilder
from timely.disciplines.tardiness.delay_cost import DelayCost
from timely.disciplines.tardiness.job_numbers import Numbers
from timely.disciplines.tardiness.step import Rules, Step


class UtilityStep(Step):
    """A step whose requests without a deadline take memory from each other by worth.

    Args:
        apps: number of each request's application by place; 0: none.
        context_token_s: what an eviction costs for each token of the victim's context, seconds.
        price: utility that a second of delay costs in other steps, for a job with a deadline.
        ordinary_price: the same for a request without one that decodes.
    """

    __slots__ = ("_apps", "_context_s", "_ordinary_price")

    HEEDED_WEIGHT: ClassVar[float] = 0.0
    PROTECTS_ORDINARY: ClassVar[bool] = False

    def __init__(
        self,
        rules: Rules,
        builder: StepBuilder,
        numbers: Numbers,
        parked_slack_s: float,
        apps: Ints,
        context_token_s: float,
        price: float,
        ordinary_price: float,
    ) -> None:
        super().__init__(rules, builder, numbers, parked_slack_s)
        # Requests without a deadline wait for members that would be late, not for early ones to end earlier.
        self._heeded = DelayCost(0.0)
        self._all.price = price
        self._apps = apps
        self._context_s = context_token_s
        self._ordinary_price = ordinary_price

    def _costs(self, *, ordinary: bool, decoding: bool) -> DelayCost:
        costs = super()._costs(ordinary=ordinary, decoding=decoding)
        if ordinary:
            costs.price = self._price_against(costs) if decoding else 0.0
        return costs

    def _price_against(self, costs: DelayCost) -> float:
        """What leaving out an answer in progress costs elsewhere, at most what it saves of tasks that are late.

        It decodes in hundreds of steps, so it cannot wait for cheap ones. But it can wait for the end of a task that
        loses utility faster than a normal one. And it makes no member late for the price.
        """
        if self._ordinary_price == 0.0:
            return 0.0
        costs.settle(self._delay_s)
        return min(self._ordinary_price, costs.late_weight_up_to(-NORMAL.alpha))

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
