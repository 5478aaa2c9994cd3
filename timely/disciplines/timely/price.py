"""What a second of the machine costs at other times: the utility that delays cost the late members of recent steps."""

import math

HORIZON_S = 2.0
"""Time over which the cost is averaged, seconds."""

OVERDUE_STEPS = 2.0
"""Predicted times of a step after which the machine counts as idle."""


class DelayPrice:
    """Mean utility that a second of delay costs, the past fading.

    A job that is left out of a step delays another step instead, and that costs the price. So only what exceeds the
    price is saved by leaving it out. A machine that is idle, or whose members are in time, has the price 0.
    """

    def __init__(self) -> None:
        self.mean = 0.0
        """Utility that a second of delay costs in a recent step."""
        self._rate = 0.0
        self._until_s = self._now_s = -math.inf

    def advance(self, now: float) -> None:
        """Let time pass until ``now``, seconds."""
        if self._now_s > -math.inf:
            busy_s = max(0.0, min(now, self._until_s) - self._now_s)
            idle_s = max(0.0, now - self._now_s - busy_s)
            share = math.exp(-busy_s / HORIZON_S)
            self.mean = (share * self.mean + (1.0 - share) * self._rate) * math.exp(-idle_s / HORIZON_S)
        self._now_s = now

    def go_on(self, now: float) -> None:
        """The last step has been repeated until ``now``."""
        self._until_s = max(self._until_s, now)

    def note(self, rate: float, step_s: float) -> None:
        """A step begins that takes about ``step_s`` seconds; a second of delay costs its late members ``rate``."""
        self._rate = rate
        self._until_s = self._now_s + OVERDUE_STEPS * step_s
