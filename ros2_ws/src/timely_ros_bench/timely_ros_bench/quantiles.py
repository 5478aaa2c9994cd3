"""Median, 99th percentile and maximum of measured times."""

import math
import statistics
from collections.abc import Sequence


def ros_bench_quantiles(values_s: Sequence[float], scale: float = 1.0, digits: int = 6) -> dict[str, float]:
    """``p50``, ``p99`` (nearest rank) and ``max`` of seconds times ``scale``, rounded; nan without values."""
    if not values_s:
        return dict.fromkeys(("p50", "p99", "max"), math.nan)
    sorted_s = sorted(values_s)
    p99_s = sorted_s[max(0, math.ceil(0.99 * len(sorted_s)) - 1)]
    shown_s = {"p50": statistics.median(sorted_s), "p99": p99_s, "max": sorted_s[-1]}
    return {name: round(scale * value_s, digits) for name, value_s in shown_s.items()}
