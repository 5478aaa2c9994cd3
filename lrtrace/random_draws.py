"""Random draws that are equal on every machine, since all derive from the generator's plain doubles."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
_NORMAL = NormalDist()


class TraceRandomDraws:
    """Uniform, exponential and other draws from one seeded stream.

    Every numpy version gives the same doubles for a seed, but not the same exponentials or choices.

    Args:
        seed: zero or more.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def uniform(self) -> float:
        """From 0 (inclusive) to 1 (exclusive)."""
        return float(self.rng.random())

    def below(self, count: int) -> int:
        """An integer from 0 to ``count`` - 1."""
        return min(int(self.uniform() * count), count - 1)

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def exponential(self, rate: float) -> float:
        """A waiting time of mean 1 / ``rate``."""
        return -math.log1p(-self.uniform()) / rate

    def log_normal(self, median: float, sigma: float) -> float:
        """Median ``median``, standard deviation ``sigma`` of its logarithm."""
        return median * math.exp(sigma * _NORMAL.inv_cdf(max(self.uniform(), 1e-12)))
