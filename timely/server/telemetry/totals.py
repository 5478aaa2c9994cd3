"""Running totals of a class of tasks since the start."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Totals:
    """Sums over the settled tasks of one class; refused ones count as ended, not in the means."""

    outcomes: Counter[str] = field(default_factory=Counter)
    utility: float = 0.0
    utility_max: float = 0.0
    valued: int = 0
    response_s: float = 0.0
    responses: int = 0
    waiting_s: float = 0.0
    waits: int = 0

    def add(
        self,
        outcome: str,
        *,
        response_s: float = math.nan,
        waiting_s: float = math.nan,
        utility: float = 0.0,
        utility_max: float = 0.0,
    ) -> None:
        """Count one task; nan latencies are left out."""
        self.outcomes[outcome] += 1
        if outcome == "refused":
            return
        self.utility += utility
        self.utility_max += utility_max
        self.valued += 1
        if not math.isnan(response_s):
            self.response_s += response_s
            self.responses += 1
        if outcome == "complete" and not math.isnan(waiting_s):
            self.waiting_s += waiting_s
            self.waits += 1

    def data(self) -> dict[str, Any]:
        """Counts by outcome, the share served, and means (None without any)."""
        ended = sum(self.outcomes.values())
        return {
            "ended": ended,
            "outcomes": dict(self.outcomes),
            "share_served": _mean(self.outcomes["complete"], ended),
            "utility_mean": _mean(self.utility, self.valued),
            "utility_max_mean": _mean(self.utility_max, self.valued),
            "response_time_s": _mean(self.response_s, self.responses),
            "waiting_time_s": _mean(self.waiting_s, self.waits),
        }


def _mean(total: float, count: int) -> float | None:
    return round(total / count, 6) if count else None
