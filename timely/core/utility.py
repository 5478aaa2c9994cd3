"""Time-utility functions: how the worth of an answer falls with the time it takes (TimelyLLM Eq. 1)."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from timely.core.arrays import Floats
from timely.core.errors import InvalidInput

MAX_TUF = 1e6
"""Largest absolute number of a time-utility function that a client may give."""

STEEPEST = 1e15
"""Largest slope that a cutoff stands for, so that sums over many jobs stay finite."""

URGENT_ERT_S = 0.5
"""Tasks with a shorter expected response time are urgent, seconds."""


@dataclass(frozen=True, slots=True)
class TimeUtility:
    """``U(t) = min(beta, alpha (t - ert_s) + beta)`` (TimelyLLM, Eq. 1).

    Attributes:
        ert_s: expected response time, seconds; until then the answer keeps its full worth. Zero or more.
        alpha: slope after ``ert_s``, utility per second. Zero or negative.
        beta: initial utility. Positive.

    Raises:
        InvalidInput: a value is not finite or lies outside its range; the message names it.
    """

    ert_s: float = 1.0
    alpha: float = -2.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("ert_s", "alpha", "beta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise InvalidInput(f"{name} must be a finite number, got {value!r}", where=f"tuf.{name}")
        if self.ert_s < 0:
            raise InvalidInput(f"ert_s must be zero or more, got {self.ert_s}", where="tuf.ert_s")
        if self.alpha > 0:
            raise InvalidInput(f"alpha must be zero or negative, got {self.alpha}", where="tuf.alpha")
        if self.beta <= 0:
            raise InvalidInput(f"beta must be positive, got {self.beta}", where="tuf.beta")

    @classmethod
    def from_cutoff(cls, ert_s: float, cutoff_s: float, beta: float) -> Self:
        """The utility that reaches zero at ``cutoff_s``, with a slope of ``STEEPEST`` at most."""
        if not (math.isfinite(cutoff_s) and cutoff_s > ert_s):
            raise InvalidInput(
                f"cutoff_s must be later than ert_s={ert_s}, got {cutoff_s}", where="tuf.cutoff_s"
            )
        return cls(ert_s, max(-beta / (cutoff_s - ert_s), -STEEPEST), beta)

    @property
    def cutoff_s(self) -> float:
        """The latency at which the utility is zero, seconds; infinite when the slope is flat."""
        return self.latency_s(0.0)

    def latency_s(self, share: float) -> float:
        """The latency at which the utility falls to a share of ``beta``, seconds; infinite when the slope is flat."""
        return math.inf if self.alpha == 0 else self.ert_s - (1.0 - share) * self.beta / self.alpha

    @property
    def urgent(self) -> bool:
        """Class ``urgent`` of the reports."""
        return self.ert_s < URGENT_ERT_S

    def value(self, latency_s: float) -> float:
        """Utility of an answer after ``latency_s`` seconds."""
        return min(self.beta, self.alpha * (latency_s - self.ert_s) + self.beta)


NORMAL = TimeUtility(1.0, -2.0, 1.0)
"""Defaults of a normal robot task (TimelyLLM section 7.1)."""

URGENT = TimeUtility(0.2, -6.67, 2.0)
"""Defaults of an urgent robot task (TimelyLLM section 7.1)."""


def time_utilities_at(ert_s: Floats, alpha: Floats, beta: Floats, latency_s: Floats) -> Floats:
    """Eq. 1 for many jobs at once; arrays of one shape ``(jobs,)``."""
    return np.minimum(beta, alpha * (latency_s - ert_s) + beta)
