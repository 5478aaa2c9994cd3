"""Requests made up like those of two public traces, used where their files are absent.

The project ships no part of a trace: each likeness is a summary of it, and every request is drawn. Prompt and answer
are drawn apart, since their ranks correlate by less than 0.1 in both traces. Prefixes that requests share are left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from timely.bench.capacity.lengths import clip_lengths, poisson_arrivals

RATE_PERIOD_S = 120.0
"""The rate stays the same for so long; the traces' counts vary alike over windows of 10 to 120 s."""

QUANTILES = np.linspace(0.0, 1.0, 21)
"""Where lengths are given; between two of them they are interpolated."""


@dataclass(frozen=True, slots=True)
class CapacityTraceLikeness:
    """What is kept of a trace that is scaled to 2,000 prompt tokens a second.

    Attributes:
        prompt: tokens at ``QUANTILES``; the ends are those of 0.5 and 99.5%. Prompts of more than 8,192 are left out.
        answer: the same of answers, cut at 1,000 tokens.
        rate_variance: of the rate over its mean, from one ``RATE_PERIOD_S`` to another.
        clock_s: seconds between two times at which requests come; 0 where they come at any time.
    """

    prompt: Sequence[int]
    answer: Sequence[int]
    rate_variance: float
    clock_s: float

    def requests(self, seed: int, prompt_tokens_per_s: float, seconds: float) -> list[tuple[float, int, int]]:
        """Arrival in seconds, prompt tokens and answer tokens of each request, in order."""
        draw = np.random.default_rng([seed, 2])
        mean_prompt = float(np.mean([*self.prompt[:-1], *self.prompt[1:]]))
        mean_rate = prompt_tokens_per_s / mean_prompt
        phase_s = draw.random() * self.clock_s if self.clock_s else 0.0
        requests = []
        for period in range(math.ceil((seconds + self.clock_s) / RATE_PERIOD_S)):
            rate = mean_rate * draw.gamma(1.0 / self.rate_variance, self.rate_variance)
            for time_s in poisson_arrivals(draw, rate, RATE_PERIOD_S):
                arrival_s = period * RATE_PERIOD_S + time_s
                if self.clock_s:
                    arrival_s -= arrival_s % self.clock_s + phase_s
                lengths = [
                    int(np.interp(draw.random(), QUANTILES, tokens)) for tokens in (self.prompt, self.answer)
                ]
                if 0.0 <= arrival_s < seconds:
                    requests.append((round(arrival_s, 6), *clip_lengths(*lengths)))
        return requests


TRACE_LIKENESSES: Mapping[str, CapacityTraceLikeness] = {
    "azure": CapacityTraceLikeness(
        (
            17, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130, 1189, 1315, 1875,
            2733, 4083, 4830,
        ),
        (14, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 451, 643),
        rate_variance=0.05,
        clock_s=0.0,
    ),
    "mooncake": CapacityTraceLikeness(
        (
            892, 897, 902, 923, 1012, 1174, 1363, 1583, 1879, 2268, 2748, 3328, 3901, 4359, 4753, 5170, 5690,
            6214, 6812, 7456, 8092,
        ),
        (2, 11, 24, 45, 90, 138, 190, 232, 273, 307, 336, 364, 391, 414, 442, 467, 503, 542, 594, 688, 1000),
        rate_variance=0.03,
        clock_s=9.39,
    ),
}  # fmt: skip
"""By format: Azure's conversations of 2023, and Mooncake's, whose clock of 3 s becomes longer by the scaling."""
