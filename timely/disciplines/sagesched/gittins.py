"""The Gittins index of a job whose size is known only as a distribution (SageSched section 3.3).

``G(a) = min over x of E[min(X, x) - a | X > a] / P(X <= x | X > a)``: the least cost per completion that the job can
offer from age ``a`` on. Serving the smallest index first minimises the mean completion time of jobs with
known size distributions on one preemptible server (Gittins 1979). For a discrete distribution the minimum is
attained at one of its values.

Costs of whole tokens are multiples of one half, and equal weights are ones. The sums of both are exact, and only the
last division rounds. So indices that are equal are equal as floats, and such jobs run in order of arrival.
"""

import numpy as np
from numpy.typing import ArrayLike

from timely.core.arrays import Floats


class CostDistribution:
    """A discrete distribution of a job's total cost.

    Args:
        costs: values, shape ``(k,)``, any order, repeats allowed; in any one unit of cost.
        weights: their weights, shape ``(k,)``; need not add up to one. Ones when left out.

    Raises:
        ValueError: no values, a weight is negative or all are zero, or something is not finite.
    """

    def __init__(self, costs: ArrayLike, weights: ArrayLike | None = None) -> None:
        raw: Floats = np.asarray(costs, dtype=np.float64).ravel()
        mass: Floats = np.ones_like(raw) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
        if raw.size == 0 or raw.shape != mass.shape:
            raise ValueError(
                f"a distribution needs as many weights as values, got {raw.size} and {mass.size}"
            )
        total = float(mass.sum())
        if not (np.isfinite(total) and total > 0.0 and np.isfinite(raw).all()) or bool((mass < 0).any()):
            raise ValueError("costs must be finite, weights finite, not negative and not all zero")
        order = np.argsort(raw, kind="stable")
        raw, mass = raw[order], mass[order]
        starts = np.flatnonzero(np.concatenate(([True], raw[1:] != raw[:-1])))
        self.costs: Floats = raw[starts]
        """The distinct values, ascending, shape ``(m,)``."""
        self.weights: Floats = np.add.reduceat(mass, starts)
        """Their weights, shape ``(m,)``."""
        # P(X > x_k) and E[X; X > x_k] with one more entry in front, both times the sum of all weights.
        # Sums from the far end keep their digits.
        tail = np.concatenate((np.cumsum(self.weights[::-1])[::-1], [0.0]))
        first = np.concatenate((np.cumsum((self.weights * self.costs)[::-1])[::-1], [0.0]))
        self._tail: Floats = tail
        self._moments: Floats = first

    @property
    def mean(self) -> float:
        return float(self._moments[0] / self._tail[0])

    def mean_left(self, age: float) -> float:
        """Expected cost still to come of a job that has cost ``age``; ``nan`` beyond the largest value."""
        k = int(np.searchsorted(self.costs, age, side="right"))
        if k == self.costs.size or self._tail[k] <= 0.0:
            return float("nan")
        return float(self._moments[k] / self._tail[k] - age)

    def index(self, age: float = 0.0) -> float:
        """The Gittins index of a job that has cost ``age``; ``nan`` beyond the largest value."""
        k = int(np.searchsorted(self.costs, age, side="right"))
        if k == self.costs.size or self._tail[k] <= 0.0:
            return float("nan")
        values = self.costs[k:]
        beyond = self._tail[k + 1 :]
        mean_cost = (self._moments[k] - self._moments[k + 1 :]) - age * (self._tail[k] - beyond)
        chance = self._tail[k] - beyond
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (mean_cost + (values - age) * beyond) / chance
        # A value of probability zero in front has completed nothing yet: infinite, never the minimum.
        return float(np.nanmin(np.where(chance > 0.0, ratio, np.inf)))
