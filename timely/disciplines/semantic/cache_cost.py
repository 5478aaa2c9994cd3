"""Cache or compute again: how much of an evicted KV cache to save (semantic scheduling, Eq. 3 to 6).

The paper's symbols: a prompt of ``n`` tokens takes ``alpha_1 n^2 + alpha_2 n`` seconds.
Loading ``n`` tokens of KV takes ``beta n``, and the token decoded at context ``i`` ``gamma_1 i + gamma_2`` (Eq. 4).
Where the paper slips:

* Eq. 3 compares the wrong way round: caching pays when loading is *cheaper* than computing.
  It also decides for all of a prompt or none.
  With the first ``k`` tokens computed again, ``alpha_1 k^2 + alpha_2 k + beta (n - k)`` is the cost.
  It is least at ``k = (beta - alpha_2) / (2 alpha_1)``, within 0..n.
  The first tokens are the ones to compute again, because they attend to few.
* Eq. 6 does not follow from Eq. 5. Let ``k`` decoded tokens be computed again and ``m' - k`` loaded.
  Eq. 5 is convex in ``k`` with its minimum at ``k = (beta - gamma_2) / gamma_1 - n - 1/2``.
  The number saved is ``m' - k``, within 0..m'. Eq. 6 gives half of that ``k`` and calls it the number saved.
* Eq. 5 computes lost output token by token. vLLM and the simulator compute lost tokens of both kinds as one prompt.
  Then the first point holds for prompt and output together (``keep_context``).
"""

import math
from dataclasses import dataclass
from typing import Self

from timely.disciplines.base import StepLimits


@dataclass(frozen=True, slots=True)
class SemanticCacheCostModel:
    """Coefficients of a model on a machine, all in seconds.

    Attributes:
        alpha_1: per squared prompt token; alpha_2: per prompt token.
        beta: to load the KV of one token from host memory; ``inf`` where that cannot be done.
        gamma_1: per decoded token and token of its context; gamma_2: per decoded token.
        save: to save the KV of one token to host memory, where that holds the machine up.
    """

    alpha_1: float
    alpha_2: float
    beta: float
    gamma_1: float
    gamma_2: float
    save: float = 0.0

    @classmethod
    def of(cls, limits: StepLimits) -> Self:
        """What the engine has learned of itself: linear in prompts, constant in decoding."""
        speed, swap = limits.speed, limits.swap_s_per_token
        return cls(0.0, speed.prefill_token_s, swap, 0.0, speed.token_s, swap)

    @property
    def moving(self) -> float:
        """To have the KV of one token moved out and in again, seconds."""
        return self.beta + self.save

    def prefill_s(self, prompt: float) -> float:
        """Time to compute a prompt (section 3.3)."""
        return self.alpha_1 * prompt * prompt + self.alpha_2 * prompt

    def decode_s(self, context: float, tokens: float) -> float:
        """Time to decode ``tokens`` after a context of ``context`` (Eq. 4)."""
        attended_tokens = 0.5 * tokens * tokens + context * tokens + 0.5 * tokens
        return self.gamma_1 * attended_tokens + self.gamma_2 * tokens

    def resume_s(self, prompt: float, decoded_tokens: float, saved_tokens: float) -> float:
        """Time to have ``decoded_tokens`` after a prompt back when ``saved_tokens`` of them were saved (Eq. 5)."""
        moving = 0.0 if saved_tokens == 0 else self.moving * saved_tokens
        return moving + self.decode_s(prompt, decoded_tokens - saved_tokens)

    def keep_prompt(self, prompt: int) -> int:
        """Tokens of a computed prompt to save, the last ones: minimises computing the first and moving the others."""
        if prompt <= 0 or math.isinf(self.moving):
            return 0
        gain = self.moving - self.alpha_2
        if self.alpha_1 <= 0.0:
            return 0 if gain >= 0.0 else prompt
        return prompt - round(min(max(gain / (2.0 * self.alpha_1), 0.0), float(prompt)))

    def keep_decoded(self, prompt: int, decoded_tokens: int) -> int:
        """Of ``decoded_tokens`` after a prompt, how many to save: minimises Eq. 5 over 0 to all."""
        if decoded_tokens <= 0 or math.isinf(self.moving):
            return 0
        gain = self.moving - self.gamma_2 - self.gamma_1 * (prompt + 0.5)
        if self.gamma_1 <= 0.0:
            return 0 if gain > 0.0 else decoded_tokens
        return decoded_tokens - round(min(max(gain / self.gamma_1, 0.0), float(decoded_tokens)))

    def keep_context(self, context: int) -> int:
        """Of a context that would be computed again as one prompt, how many tokens to save, the last ones."""
        return self.keep_prompt(context)
