"""Straight lines through points: by least squares, or through a quantile."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_STEP = 1e-9
"""Smallest difference of two arguments, also as a share of their range, that tells a slope."""


def fit_execution_least_squares(x: Floats, y: Floats) -> tuple[float, float]:
    """(intercept, slope) with the least sum of squared errors; slope 0 when ``x`` is constant. Shapes ``(n,)``."""
    spread = x - x.mean()
    below = float(spread @ spread)
    slope = float(spread @ (y - y.mean())) / below if below > 0 else 0.0
    return float(y.mean()) - slope * float(x.mean()), slope


def pinball_fit_loss(errors: Floats, level: float) -> float:
    """The loss that a quantile at ``level`` minimises: ``level * e`` above the line, ``(level - 1) * e`` below."""
    return float(np.where(errors >= 0, level * errors, (level - 1) * errors).sum())


def fit_execution_quantile(x: Floats, y: Floats, level: float) -> tuple[float, float]:
    """(intercept, slope) with the least pinball loss at ``level`` (0..1, exclusive). Shapes ``(n,)``.

    A share ``level`` of the points lies on or under the line (Koenker and Bassett, 1978). For a slope, the best
    intercept is the quantile of the residuals, and the loss is convex and piecewise linear in the slope. A golden
    section between the steepest slopes of neighbours in ``x`` gives a slope. The minimum is then the best slope
    through two points near it.
    """
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if x[0] == x[-1]:
        return _fit_quantile_intercept(x, y, 0.0, level), 0.0

    def loss(slope: float) -> float:
        rest = y - slope * x
        return pinball_fit_loss(rest - np.quantile(rest, level, method="inverted_cdf"), level)

    # Neighbours that are almost equal would have any slope.
    width = (y.max() - y.min()) / max(np.diff(np.unique(x)).min(), LEAST_STEP * (x[-1] - x[0]), LEAST_STEP)
    low, high = -float(width), float(width)
    golden = (5**0.5 - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
        if high - low <= 1e-12 * (1 + abs(low)):
            break
    slope = (low + high) / 2
    # The optimal line goes through two points: try those that lie closest to the line found.
    rest = y - slope * x
    near = np.argsort(np.abs(rest - np.quantile(rest, level, method="inverted_cdf")), kind="stable")[:6]
    for first in near:
        for second in near:
            if x[first] < x[second]:
                through = float((y[second] - y[first]) / (x[second] - x[first]))
                if loss(through) < loss(slope):
                    slope = through
    return _fit_quantile_intercept(x, y, slope, level), slope


def _fit_quantile_intercept(x: Floats, y: Floats, slope: float, level: float) -> float:
    return float(np.quantile(y - slope * x, level, method="inverted_cdf"))
