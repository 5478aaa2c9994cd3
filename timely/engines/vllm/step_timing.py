"""Steps between ``schedule`` and ``update_from_output``: what each holds, and how long it took."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from timely.engines.scheduler_core import Controller


@dataclass(slots=True)
class StepInFlight:
    """What a step holds; see ``TimedStep`` for the counts."""

    started_s: float
    sequences: int = 0
    prefill_tokens: int = 0
    prefills: int = 0
    prefill_squares: int = 0
    context_tokens: int = 0

    def add(self, tokens: int, computed_tokens: int, *, prefill: bool) -> None:
        """A request of the step.

        Args:
            tokens: computed in this step.
            computed_tokens: its context after the step.
        """
        self.sequences += 1
        if prefill:
            self.prefill_tokens += tokens
            self.prefills += 1
            self.prefill_squares += computed_tokens**2 - (computed_tokens - tokens) ** 2
        else:
            self.context_tokens += computed_tokens


class StepTiming:
    """The steps in flight, oldest first, and the time of the last one that ended."""

    def __init__(self) -> None:
        self.in_flight: deque[StepInFlight] = deque()
        self.step_s = 0.0
        self._last_end_s = -math.inf

    def end(self, controller: Controller, now: float) -> None:
        """The oldest step in flight ended: learn from its time and note it in the journal."""
        step = self.in_flight.popleft()
        self.step_s = now - max(step.started_s, self._last_end_s)
        self._last_end_s = now
        prompts_follow = bool(self.in_flight) and self.in_flight[0].prefills > 0
        controller.ran(step.sequences, step.prefill_tokens, self.step_s, prompts_follow=prompts_follow)
        if controller.journal:
            controller.journal(
                {
                    "event": "timed", "t_s": step.started_s, "end_s": now,
                    "decodes": step.sequences - step.prefills, "prefills": step.prefills,
                    "prefill_tokens": step.prefill_tokens, "prefill_squares": step.prefill_squares,
                    "context_tokens": step.context_tokens,
                }
            )  # fmt: skip
