"""Claims of a paper as plain data: the paper's number, ours, and a verdict by a rule that is fixed before the run.

A rule says what value counts as met and what value still has the paper's direction.
A verdict follows from the 95% confidence interval over seeds, not from the mean alone.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

from timely.bench.papers.seed_statistics import Interval, Measured, paper_interval_of_measured

Claim = dict[str, Any]
"""``{"id", "what", "paper", "ours", "interval", "unit", "verdict", "note", "subject"}`` of ``timely bench paper``."""

Verdict = Literal["met", "direction only", "not met", "by construction", "not exercised"]

Subject = Literal["literal", "ours"]
"""``literal``: the paper's algorithm against its paper. ``ours``: a discipline of our own against the literal one."""

WITHIN = 0.15
"""Share of the paper's number within which an interval counts as the paper's number."""

LEAST_EFFECT = 0.25
"""Share of the paper's effect that the mean must have to count as the paper's direction."""


@dataclass(frozen=True, slots=True)
class PaperRule:
    """How a claim is judged.

    Attributes:
        low, high: the claim is met when the whole interval lies within and shows the direction, if there is one.
        neutral: the value that shows no effect; None where the claim has no direction.
        least: the mean with the least effect that counts as a direction, beyond ``neutral``.
        strict: the interval may not touch ``low`` or ``high`` either.
        verdict: the verdict itself, where no number decides.
    """

    low: float = -math.inf
    high: float = math.inf
    neutral: float | None = None
    least: float = 0.0
    strict: bool = False
    verdict: Verdict | None = None

    def judge(self, interval: Interval) -> Verdict:
        """The verdict on a mean with its interval; without a finite interval it was not exercised."""
        middle, low, high = interval
        if self.verdict is not None:
            return self.verdict
        if not all(map(math.isfinite, interval)):
            return "not exercised"
        is_within = self.low <= low and high <= self.high
        if self.strict:
            is_within = self.low < low and high < self.high
        if self.neutral is None:
            return "met" if is_within else "not met"
        rising = self.least >= self.neutral
        clear = low > self.neutral if rising else high < self.neutral
        enough = middle >= self.least if rising else middle <= self.least
        if not (clear and enough):
            return "not met"
        return "met" if is_within else "direction only"

    @classmethod
    def near(cls, paper: float, neutral: float | None = None) -> Self:
        """Met when the interval lies within ``WITHIN`` of the paper's number, and on its side of ``neutral``."""
        reach = WITHIN * abs(paper)
        return cls._with_direction(paper, neutral, paper - reach, paper + reach)

    @classmethod
    def at_least(cls, threshold: float, neutral: float | None = None) -> Self:
        """Met when the whole interval reaches the threshold."""
        return cls._with_direction(threshold, neutral, low=threshold)

    @classmethod
    def at_most(cls, threshold: float, neutral: float | None = None) -> Self:
        """Met when no part of the interval exceeds the threshold."""
        return cls._with_direction(threshold, neutral, high=threshold)

    @classmethod
    def above(cls, threshold: float) -> Self:
        """Met when the whole interval lies above the threshold: a lead, which equality is not."""
        return cls(low=threshold, strict=True)

    @classmethod
    def below(cls, threshold: float) -> Self:
        """Met when the whole interval lies below the threshold."""
        return cls(high=threshold, strict=True)

    @classmethod
    def _with_direction(
        cls, paper: float, neutral: float | None, low: float = -math.inf, high: float = math.inf
    ) -> Self:
        if neutral is None:
            return cls(low, high)
        if neutral == paper:
            raise ValueError(f"a paper's number of {paper:g} has no direction from {neutral:g}")
        return cls(low, high, neutral, neutral + LEAST_EFFECT * (paper - neutral))


BY_CONSTRUCTION = PaperRule(verdict="by construction")
"""The setting was made to give this number, or no other number was possible."""

NOT_EXERCISED = PaperRule(verdict="not exercised")
"""Nothing here measures the claim."""

CONTEXT = None
"""In place of a rule: the row claims nothing and gets no verdict."""


def paper_claim(
    name: str,
    what: str,
    paper: float | None,
    ours: Measured | None,
    unit: str,
    rule: PaperRule | None,
    note: str = "",
    subject: Subject = "literal",
) -> Claim:
    """One claim with its verdict.

    Args:
        ours: an interval, values by seed, one number, or None where nothing was measured.
        rule: how to judge it; None for a row that gives context only.
    """
    interval = (math.nan, math.nan, math.nan) if ours is None else paper_interval_of_measured(ours)
    middle, low, high = interval
    spread = high > low and math.isfinite(high - low)
    return {
        "id": name,
        "what": what,
        "paper": _finite_claim_value(paper),
        "ours": _finite_claim_value(middle),
        "interval": [_finite_claim_value(low), _finite_claim_value(high)] if spread else None,
        "unit": unit,
        "verdict": None if rule is None else rule.judge(interval),
        "note": note,
        "subject": subject,
    }


def _finite_claim_value(value: float | None) -> float | None:
    return round(float(value), 6) if value is not None and math.isfinite(value) else None
