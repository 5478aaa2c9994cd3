"""What rounds of faults showed: counts, cases, and what so few failures prove."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from timely_ros_bench.faults.judge import LATE_HOLD, VIOLATIONS

CONFIDENCE = 0.95


@dataclass(slots=True)
class FaultTally:
    """Counts over all rounds, kept in a checkpoint.

    Attributes:
        rounds: that were played. faults: in them; a pair has two.
        held: how often a robot waited for its next segment in the state HOLDING.
    """

    rounds: int = 0
    faults: int = 0
    failed_rounds: int = 0
    tasks: int = 0
    lost_tasks: int = 0
    held: int = 0
    restarts: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    violations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VIOLATIONS, 0))
    cases: list[str] = field(default_factory=list)

    def add(self, other: FaultTally) -> None:
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                mine.update({key: mine.get(key, 0) + count for key, count in theirs.items()})
            else:
                setattr(self, item.name, mine + theirs)

    def result(self) -> dict[str, Any]:
        """The figures of ``timely bench faults --json``.

        ``history_violations`` are those of ``violations`` that the history of a fleet shows.
        ``bound`` is that of the probability of a failed round.
        """
        return {
            **asdict(self),
            "outcomes": dict(sorted(self.outcomes.items())),
            "history_violations": {kind: n for kind, n in self.violations.items() if kind != LATE_HOLD},
            "bound": fault_bench_upper_bound(self.failed_rounds, self.rounds),
        }


def fault_bench_upper_bound(failed: int, rounds: int) -> float:
    """The largest probability of a failure that leaves so few of them 5% of the time (Clopper-Pearson, one-sided)."""
    if failed >= rounds:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        chance = sum(_fault_bench_binomial(rounds, k, middle) for k in range(failed + 1))
        low, high = (middle, high) if chance > 1.0 - CONFIDENCE else (low, middle)
    return round(high, 6)


def _fault_bench_binomial(count: int, k: int, share: float) -> float:
    """The probability of ``k`` events in ``count`` trials; by logarithms, because the factors exceed all floats."""
    ways = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
    return math.exp(ways + k * math.log(share) + (count - k) * math.log1p(-share))
