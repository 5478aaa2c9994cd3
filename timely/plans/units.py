"""Converts between the units that skill sets and robot profiles are written in."""

import math

_SCALES: tuple[dict[str, float], ...] = (
    {"m": 1.0, "cm": 0.01, "mm": 0.001},
    {"rad": 1.0, "deg": math.pi / 180.0},
    {"s": 1.0, "ms": 0.001, "min": 60.0},
    {"m/s": 1.0, "cm/s": 0.01, "mm/s": 0.001},
    {"rad/s": 1.0, "deg/s": math.pi / 180.0},
)
_NONE = ("", "text", "1")


def convert_plan_unit(value: float, unit: str, to: str) -> float | None:
    """Convert ``value`` from ``unit`` into ``to``; None if they measure different quantities.

    A missing unit stands for the other one.
    """
    if unit == to or unit in _NONE or to in _NONE:
        return value
    for scale in _SCALES:
        if unit in scale and to in scale:
            # 0.2 m is 20 cm, not 20.000000000000004.
            return round(value * (scale[unit] / scale[to]), 9)
    return None
