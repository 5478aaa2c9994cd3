"""Cached or computed again: what to save of a KV cache that is evicted (semantic scheduling, Eq. 3 to 6).

The paper's symbols: a prompt of ``n`` tokens takes ``alpha_1 n^2 + alpha_2 n`` seconds, loading ``n`` tokens of KV
back ``beta n``, the token decoded at context ``i`` ``gamma_1 i + gamma_2`` (Eq. 4). Where the paper slips:

* Eq. 3 compares the wrong way round: caching pays when loading is *cheaper* than computing. Since computing the
  tail of a prompt after a cached beginning of ``s`` tokens costs ``alpha_1 (n^2 - s^2) + alpha_2 (n - s)``, the
  total is concave in ``s``: all or nothing is optimal, and Eq. 3 decides between these two.
* Eq. 6 does not follow from Eq. 5. With ``k`` tokens computed again and ``m' - k`` loaded, Eq. 5 is convex in
  ``k`` with its minimum at ``k = (beta - gamma_2) / gamma_1 - n - 1/2``; the number saved is ``m' - k``, within
  0..m'. Eq. 6 gives half of that ``k`` and calls it the number saved.
* Eq. 5 charges the tokens computed again as those right after the prompt, so the ones loaded are the last. It also
  computes them one by one. vLLM and the simulator compute lost tokens of both kinds as one prompt; then the first
  point holds for prompt and output together, which is what ``keep_context`` decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely.disciplines.base import StepLimits


@dataclass(frozen=True, slots=True)
class CostModel:
    """Coefficients of a model on a machine, all in seconds.

    Attributes:
        alpha_1: per squared prompt token; alpha_2: per prompt token.
        beta: to load the KV of one token from host memory; ``inf`` where that cannot be done.
        gamma_1: per decoded token and token of its context; gamma_2: per decoded token.
    """

    alpha_1: float
    alpha_2: float
    beta: float
    gamma_1: float
    gamma_2: float

    @classmethod
    def of(cls, limits: StepLimits) -> CostModel:
        """What the engine has learned of itself: linear in prompts, constant in decoding."""
        speed = limits.speed
        return cls(0.0, speed.prefill_token_s, limits.swap_s_per_token, 0.0, speed.token_s)

    def prefill_s(self, prompt: float) -> float:
        """Time to compute a prompt (section 3.3)."""
        return self.alpha_1 * prompt * prompt + self.alpha_2 * prompt

    def decode_s(self, context: float, tokens: float) -> float:
        """Time to decode ``tokens`` after a context of ``context`` (Eq. 4)."""
        attended = 0.5 * tokens * tokens + context * tokens + 0.5 * tokens
        return self.gamma_1 * attended + self.gamma_2 * tokens

    def resume_s(self, prompt: float, decoded: float, kept: float) -> float:
        """Time to have ``decoded`` tokens after a prompt back when ``kept`` of them were saved (Eq. 5)."""
        loading = 0.0 if kept == 0 else self.beta * kept
        return loading + self.decode_s(prompt, decoded - kept)

    def keep_prompt(self, prompt: int) -> int:
        """Tokens of a computed prompt to save: all or none (Eq. 3, the right way round)."""
        return prompt if prompt > 0 and self.beta * prompt < self.prefill_s(prompt) else 0

    def keep_decoded(self, prompt: int, decoded: int) -> int:
        """Of ``decoded`` tokens after a prompt, how many to save: minimises Eq. 5 over 0..decoded."""
        if decoded <= 0 or math.isinf(self.beta):
            return 0
        gain = self.beta - self.gamma_2 - self.gamma_1 * (prompt + 0.5)
        if self.gamma_1 <= 0.0:
            return 0 if gain > 0.0 else decoded
        again = min(max(round(gain / self.gamma_1), 0), decoded)
        return decoded - again

    def keep_context(self, context: int) -> int:
        """Of a context that would be computed again as one prompt, how many tokens to save: all or none."""
        return self.keep_prompt(context)
