"""Speculative decoding in the simulator: how many of a round's draft tokens are right, and what the round costs."""

import random
from functools import lru_cache

from timely.core.errors import InvalidInput
from timely.core.job import JobId
from timely.engines.step_time.profile import DraftTerms

MOST_DRAFTS = 64
"""More draft tokens a round than any drafter makes."""


@lru_cache(maxsize=4096)
def sim_draft_token_rate(acceptance: float, drafts: int) -> float:
    """Chance of one draft token, given that those before it in the round are right.

    A trace's ``acceptance`` is the share of all draft tokens that is accepted (LAPS-SD's ``A``). Verification keeps
    the tokens before the first wrong one. So with a chance ``p`` each a round keeps ``p + p^2 + ... + p^n``. The result
    is the ``p`` for which that is ``acceptance * n``.
    """
    if acceptance <= 0.0 or acceptance >= 1.0:
        return min(max(acceptance, 0.0), 1.0)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        right_tokens, power = 0.0, 1.0
        for _ in range(drafts):
            power *= middle
            right_tokens += power
        if right_tokens < acceptance * drafts:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


class SimSpeculation:
    """Draws the rounds of all requests.

    Each request has a stream of its own, from the seed and its name. So its n-th round keeps the same tokens under any
    discipline, and a comparison compares orders and not luck.

    Args:
        drafts: draft tokens a round; 0 speculates not at all.

    Raises:
        InvalidInput: a number of drafts that makes no sense.
    """

    def __init__(self, drafts: int, terms: DraftTerms | None, seed: int) -> None:
        if not 0 <= drafts <= MOST_DRAFTS:
            raise InvalidInput(f"must lie within 0..{MOST_DRAFTS}, got {drafts}", where="draft_tokens")
        self.drafts = drafts
        self.draft_tokens = 0
        """Draft tokens verified so far."""
        self.right_tokens = 0
        """And how many of them were right."""
        self._terms = terms or DraftTerms()
        self._seed = seed
        self._streams: dict[JobId, random.Random] = {}

    def round(self, job_id: JobId, acceptance: float, drafts: int) -> int:
        """Another round of a request: how many of its ``drafts`` draft tokens are right."""
        stream = self._streams.get(job_id)
        if stream is None:
            stream = self._streams[job_id] = random.Random(f"{self._seed}/{job_id!r}")
        rate = sim_draft_token_rate(acceptance, self.drafts)
        right = 0
        while right < drafts and stream.random() < rate:
            right += 1
        return right

    def note(self, draft_tokens: int, right_tokens: int) -> None:
        self.draft_tokens += draft_tokens
        self.right_tokens += right_tokens

    def forget(self, job_id: JobId) -> None:
        self._streams.pop(job_id, None)

    def step_s(self, drafts: int) -> float:
        """What a step costs beyond its decoding, seconds; ``drafts`` are all draft tokens verified in it.

        The sequences of a step draft side by side, one token after the other.
        """
        if not drafts:
            return 0.0
        return self._terms.draft_s * self.drafts + self._terms.verify_s_per_token * drafts
