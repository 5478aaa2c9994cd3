"""Statistics of values by seed: means, 95% intervals, comparisons seed by seed; and errors of a given size."""

import math
from collections.abc import Callable, Sequence

import numpy as np

Interval = tuple[float, float, float]
"""Mean, and the bounds of its 95% confidence interval."""

Measured = Interval | Sequence[float] | float
"""An interval, values by seed, or one number."""

STUDENT_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""The 97.5% quantile of Student's t for 1, 2, ... degrees of freedom."""

NORMAL_975 = 1.95996
"""That of the normal distribution, which Student's t approaches."""


def paper_mean(values: Sequence[float]) -> float:
    """Arithmetic mean; ``nan`` of nothing."""
    return float(np.mean(values)) if len(values) else math.nan


def paper_half_width(values: Sequence[float]) -> float:
    """Half of the 95% confidence interval of the mean over seeds (Student's t); ``nan`` of fewer than two."""
    if len(values) < 2:
        return math.nan
    return _paper_student_t(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _paper_student_t(degrees: int) -> float:
    """The 97.5% quantile of Student's t; beyond the table by its expansion in 1 / ``degrees``, right to 0.001."""
    if degrees <= len(STUDENT_T):
        return STUDENT_T[degrees - 1]
    z = NORMAL_975
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def paper_interval(values: Sequence[float]) -> Interval:
    """Mean and 95% confidence interval over seeds; one seed has no bounds (``nan``)."""
    middle, width = paper_mean(values), paper_half_width(values)
    return (middle, middle - width, middle + width)


def paper_range(values: Sequence[float]) -> Interval:
    """The same to be shown: without bounds the mean stands for them."""
    middle, low, high = paper_interval(values)
    return (middle, middle, middle) if math.isnan(low) else (middle, low, high)


def paper_interval_of_measured(value: Measured) -> Interval:
    """The value as an interval; one number has no width."""
    if isinstance(value, tuple):
        middle, low, high = value
        return (middle, low, high)
    return paper_interval(value) if isinstance(value, Sequence) else (value, value, value)


def paper_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Seed by seed; ``nan`` where the denominator is not positive, since a factor over a loss means nothing."""
    return [a / b if b > 0.0 else math.nan for a, b in zip(numerators, denominators, strict=True)]


def paper_ratio_of_means(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Ratio of the means with its 95% interval; nan where the mean denominator may not be positive.

    The interval is that of the mean of ``(a - ratio b) / mean of b``, seed by seed: the ratio is taken as linear.
    """
    below, least, _ = paper_interval(denominators)
    if not below > 0.0 or least <= 0.0:
        return (math.nan, math.nan, math.nan)
    ratio = paper_mean(numerators) / below
    residuals = [(a - ratio * b) / below for a, b in zip(numerators, denominators, strict=True)]
    _, low, high = paper_interval(residuals)
    return (ratio, ratio + low, ratio + high)


def paper_percent_lower(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """By how many per cent ours is lower, seed by seed."""
    return [100.0 * (1.0 - a / b) for a, b in zip(ours, theirs, strict=True)]


def paper_percent_higher(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """By how many per cent ours is higher, seed by seed."""
    return [100.0 * (a / b - 1.0) for a, b in zip(ours, theirs, strict=True)]


def paper_falls_to(
    score: Callable[[float], float], target: float, *, most: float = 4.0, halvings: int = 30
) -> float:
    """The sigma, up to ``most``, at which a score that falls with it reaches ``target``; 0 if it never was higher."""
    if score(0.0) <= target:
        return 0.0
    low, high = 0.0, most
    for _ in range(halvings):
        middle = (low + high) / 2.0
        low, high = (middle, high) if score(middle) > target else (low, middle)
    return low
