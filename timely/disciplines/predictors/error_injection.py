"""Predictions that are wrong by a given rate, for sensitivity studies (semantic scheduling, section 4.1).

The paper's notion of error: at rate 0.2, a fifth of the requests are predicted wrong. Then the mean distance between
prediction and truth is 0.2 of the range.
"""

from collections.abc import Sequence

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.errors import InvalidInput


def inject_predictor_level_errors(
    levels: Sequence[int], rate: float, rng: np.random.Generator, *, classes: int = 5
) -> list[int]:
    """Levels of which a share ``rate`` is wrong.

    Wrong levels are off by ``classes * rate`` on average where the range allows that: at least 1, at most the farther
    end. That is the paper's distance, ``rate`` of the range.
    """
    _check_predictor_error_rate(rate)
    choices: dict[int, tuple[Ints, Floats]] = {}
    result = []
    for level in levels:
        if rng.random() >= rate:
            result.append(level)
            continue
        if level not in choices:
            others = np.array([other for other in range(classes) if other != level], dtype=np.int64)
            choices[level] = (
                others,
                _predictor_error_weights(np.abs(others - level).astype(np.float64), classes * rate),
            )
        others, weights = choices[level]
        result.append(int(rng.choice(others, p=weights)))
    return result


def inject_predictor_token_errors(
    tokens: Sequence[float], rate: float, rng: np.random.Generator, *, most: float = 500.0
) -> list[float]:
    """Lengths of which a share ``rate`` is off, by ``rate * most`` on average, within 1..``most``.

    Up or down alike; what would leave the range is turned round, and cut off where it leaves on both sides.
    """
    _check_predictor_error_rate(rate)
    result = []
    for length in tokens:
        if rng.random() >= rate:
            result.append(float(length))
            continue
        off = rng.uniform(0.0, 2.0 * rate * most)
        sign = 1.0 if rng.random() < 0.5 else -1.0
        guess = length + sign * off
        if not 1.0 <= guess <= most:
            guess = length - sign * off
        result.append(float(np.clip(guess, 1.0, most)))
    return result


def _predictor_error_weights(away: Floats, mean: float) -> Floats:
    """Weights over distances whose mean is as near to ``mean`` as an exponential tilt gets."""
    low, high = -20.0, 20.0
    weights: Floats = np.ones_like(away)
    for _ in range(60):
        tilt = 0.5 * (low + high)
        weights = np.exp(tilt * (away - away.max()))
        weights /= weights.sum()
        if float(weights @ away) < mean:
            low = tilt
        else:
            high = tilt
    return weights


def _check_predictor_error_rate(rate: float) -> None:
    if not 0.0 <= rate <= 1.0:
        raise InvalidInput(f"must lie within 0..1, got {rate}", where="error rate")
