"""Means over recent steps: what a second of delay costs at other times, and how long the steps of a segment take."""

import math

HORIZON_S = 2.0
"""Time over which is averaged, seconds."""

OVERDUE_STEPS = 2.0
"""Predicted times of a step after which the machine counts as idle."""


class TimelyRecentMean:
    """Mean of a number that each step has, by time, the past fading. An idle machine has the number 0."""

    def __init__(self) -> None:
        self.mean = 0.0
        self._number = 0.0
        self._until_s = self._now_s = -math.inf

    def advance(self, now: float) -> None:
        """Let time pass until ``now``, seconds."""
        if self._now_s > -math.inf:
            busy_s = max(0.0, min(now, self._until_s) - self._now_s)
            idle_s = max(0.0, now - self._now_s - busy_s)
            share = math.exp(-busy_s / HORIZON_S)
            self.mean = (share * self.mean + (1.0 - share) * self._number) * math.exp(-idle_s / HORIZON_S)
        self._now_s = now

    def go_on(self, now: float) -> None:
        """The last step has been repeated until ``now``."""
        self._until_s = max(self._until_s, now)

    def note(self, number: float, step_s: float) -> None:
        """A step with this number begins; it takes about ``step_s`` seconds."""
        self._number = number
        self._until_s = self._now_s + OVERDUE_STEPS * step_s
