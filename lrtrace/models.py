"""Execution-time models of one robot skill: constant, linear in an argument, or sampled from recorded runs.

All times are seconds. A model gives its minimum, mean, quantiles and random draws. A scheduler plans with
``estimate_s``: the mean of a simple skill, or the minimum of a skill whose time depends on the scene. So the next
segment arrives in time even after the shortest run (TimelyLLM, section 4.3).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeFloat

from lrtrace.errors import BadInput

Args = Mapping[str, object]
"""Argument values of one skill call by name."""


def _check_rising_quantiles(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(later < earlier for earlier, later in itertools.pairwise(values)):
        raise ValueError("must not decrease")
    return values


How = Literal["estimate", "mean", "minimum", "sample"]
"""The time of a model: for schedules, the mean, the shortest or a random one."""

Quantiles = Annotated[tuple[FiniteFloat, ...], AfterValidator(_check_rising_quantiles)]
"""Quantiles of an empirical distribution at evenly spaced levels from 0 (minimum) to 1 (maximum)."""

MAX_EXECUTION_S = 86_400.0
"""Longest execution time: a day. A longer one means a broken argument."""


def trace_quantile_value(quantiles: Sequence[float], level: float) -> float:
    """Inverse distribution function of evenly spaced quantiles, linear in between; 0 without quantiles."""
    if not quantiles:
        return 0.0
    position = level * (len(quantiles) - 1)
    index = min(int(position), len(quantiles) - 1)
    low = float(quantiles[index])
    if index == len(quantiles) - 1:
        return low
    high = float(quantiles[index + 1])
    return min(high, low + (high - low) * (position - index))


def trace_quantiles_mean(quantiles: Sequence[float]) -> float:
    """Mean of the piecewise linear inverse distribution function (trapezoids); 0 without quantiles."""
    if not quantiles:
        return 0.0
    if len(quantiles) == 1:
        return float(quantiles[0])
    return float((sum(quantiles) - 0.5 * (quantiles[0] + quantiles[-1])) / (len(quantiles) - 1))


Measure = Literal["value", "magnitude", "words", "chars"]
"""What a line is over: the argument, its magnitude (a turn by -90 takes as long as by 90), or the length of a text."""


def _linear_model_argument(value: object, how: Measure, name: str) -> float:
    """The number that a linear model multiplies.

    Raises:
        BadInput: not a finite number (``value``, ``magnitude``).
    """
    if how == "words":
        return float(len(str(value).split()))
    if how == "chars":
        return float(len(str(value)))
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise BadInput(f"argument {name!r} must be a finite number, got {value!r}")
    return abs(number) if how == "magnitude" else number


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    variable: bool = False
    """The time depends on the scene, not on the arguments. Schedulers plan with the minimum."""
    samples: int | None = Field(default=None, ge=1)
    """Number of recorded runs behind it; None if published or assumed."""
    note: str = ""

    def quantile_s(self, level: float, args: Args) -> float:
        """Execution time that a share ``level`` (0..1) of runs does not exceed."""
        raise NotImplementedError

    def mean_s(self, args: Args) -> float:
        """Expected execution time."""
        raise NotImplementedError

    def minimum_s(self, args: Args) -> float:
        """Shortest execution time."""
        return self.quantile_s(0.0, args)

    def estimate_s(self, args: Args) -> float:
        """The time for schedules: the mean, or the minimum of a variable skill."""
        return self.minimum_s(args) if self.variable else self.mean_s(args)

    def sample_s(self, args: Args, rng: np.random.Generator) -> float:
        """One random run by inverse transform. It takes exactly one number from ``rng``."""
        return self.quantile_s(float(rng.random()), args)


class ConstantModel(_Model):
    """A constant of ``seconds``. ``residual_s`` are quantiles of measured minus modelled time."""

    model: Literal["constant"] = "constant"
    seconds: NonNegativeFloat
    residual_s: Quantiles = ()

    def quantile_s(self, level: float, args: Args) -> float:
        return max(0.0, self.seconds + trace_quantile_value(self.residual_s, level))

    def mean_s(self, args: Args) -> float:
        return max(0.0, self.seconds + trace_quantiles_mean(self.residual_s))


class LinearModel(_Model):
    """``intercept_s + per_unit_s * measure(argument)``, never below ``floor_s``.

    ``unit`` is the unit of ``per_unit_s`` (cm, deg, s, word ...). ``residual_s`` are quantiles of measured minus
    modelled time.
    """

    model: Literal["linear"] = "linear"
    argument: str
    unit: str
    intercept_s: FiniteFloat
    per_unit_s: FiniteFloat
    measure: Measure = "value"
    floor_s: NonNegativeFloat = 0.0
    residual_s: Quantiles = ()

    @property
    def of_number(self) -> bool:
        """It is over a number, and not over the length of a text."""
        return self.measure in ("value", "magnitude")

    def line_s(self, args: Args) -> float:
        """The fitted line at these arguments, before floor and residuals.

        Raises:
            BadInput: the argument is missing or not a number.
        """
        if self.argument not in args:
            raise BadInput(f"argument {self.argument!r} is missing")
        return self.intercept_s + self.per_unit_s * _linear_model_argument(
            args[self.argument], self.measure, self.argument
        )

    def _clamp(self, seconds: float) -> float:
        if not seconds <= MAX_EXECUTION_S:
            raise BadInput(f"argument {self.argument!r} gives {seconds:g} s, over {MAX_EXECUTION_S:g} s")
        return max(self.floor_s, seconds)

    def quantile_s(self, level: float, args: Args) -> float:
        return self._clamp(self.line_s(args) + trace_quantile_value(self.residual_s, level))

    def mean_s(self, args: Args) -> float:
        return self._clamp(self.line_s(args) + trace_quantiles_mean(self.residual_s))


class SampledModel(_Model):
    """A distribution of recorded runs, independent of the arguments: ``quantiles_s`` at evenly spaced levels 0..1."""

    model: Literal["sampled"] = "sampled"
    quantiles_s: Annotated[
        tuple[NonNegativeFloat, ...], Field(min_length=2), AfterValidator(_check_rising_quantiles)
    ]
    variable: bool = True

    def quantile_s(self, level: float, args: Args) -> float:
        return trace_quantile_value(self.quantiles_s, level)

    def mean_s(self, args: Args) -> float:
        return trace_quantiles_mean(self.quantiles_s)


ExecutionModel = Annotated[ConstantModel | LinearModel | SampledModel, Field(discriminator="model")]
"""One of the three models, by the field ``model``."""
