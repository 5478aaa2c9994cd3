"""Lengths and arrivals of made-up requests, drawn like those of public traces that are not shipped."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timely.engines.replay_types import PlannedSegment, PlannedTask

MAX_PROMPT_TOKENS, MAX_ANSWER_TOKENS = 8192, 1000
"""Longer prompts are left out or cut, as a server with this context length does; longer answers are cut."""


@dataclass(frozen=True, slots=True)
class CapacityLengthDistribution:
    """Log-normal lengths: median in tokens, and sigma, of prompts and of answers."""

    prompt: tuple[float, float]
    answer: tuple[float, float]

    def draw(self, draw: np.random.Generator) -> tuple[int, int]:
        """Prompt and answer of a request, tokens."""
        prompt, answer = (
            int(median * math.exp(sigma * draw.standard_normal()))
            for median, sigma in (self.prompt, self.answer)
        )
        return clip_lengths(prompt, answer)

    @property
    def mean_prompt(self) -> float:
        """Mean prompt without limits, tokens."""
        median, sigma = self.prompt
        return median * math.exp(sigma**2 / 2.0)


CONVERSATION = CapacityLengthDistribution((760.0, 0.985), (151.0, 0.859))
"""Fitted to the logarithms of Azure's conversation trace of 2023."""

CODE = CapacityLengthDistribution((1095.0, 1.36), (16.3, 0.847))
"""Fitted to the logarithms of Azure's code trace of 2023."""


def clip_lengths(prompt: int, answer: int) -> tuple[int, int]:
    """Both lengths, at least one token and at most what a server accepts."""
    return min(MAX_PROMPT_TOKENS, max(1, prompt)), min(MAX_ANSWER_TOKENS, max(1, answer))


def capacity_request(name: str, arrival_s: float, lengths: Sequence[int], **fields: Any) -> PlannedTask:
    """A request of so many tokens of prompt and answer, in one piece; ``fields`` are others of ``PlannedTask``."""
    prompt, answer = lengths
    plan = (PlannedSegment("", answer, 0.0),)
    return PlannedTask(name, arrival_s, plan, prompt, max_tokens=MAX_ANSWER_TOKENS, **fields)


def poisson_arrivals(draw: np.random.Generator, rate: float, seconds: float) -> Iterator[float]:
    """Times of a Poisson process, seconds; what is drawn between two of them may come from ``draw`` too."""
    time_s = 0.0
    while (time_s := time_s + draw.exponential(1.0 / rate)) < seconds:
        yield round(time_s, 6)
