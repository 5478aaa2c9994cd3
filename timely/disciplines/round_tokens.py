"""Tokens that a round of speculative decoding gives: a request's own rounds, shrunk to those of all requests."""

from timely.core.arrays import Floats

PRIOR_ROUNDS = 4.0
"""Rounds of a request that weigh as much as those of the others."""

PRIOR_TOKENS_A_ROUND = 2.5
"""Before any round has been seen: half of four drafts and the token that verification adds, rounded down."""

OTHERS = 200.0
"""Rounds of all requests that count: acceptance drifts with the requests."""


class RoundTokens:
    """Mean tokens a round of all requests, the past fading."""

    def __init__(self) -> None:
        self._tokens = PRIOR_TOKENS_A_ROUND * PRIOR_ROUNDS
        self._rounds = PRIOR_ROUNDS

    def learn(self, tokens: int) -> None:
        """A round gave so many tokens."""
        fade = 1.0 - 1.0 / OTHERS
        self._tokens = fade * self._tokens + tokens
        self._rounds = fade * self._rounds + 1.0

    def expect(self, own_tokens: Floats, own_rounds: Floats) -> Floats:
        """Tokens a round of requests that have had so many tokens in so many rounds."""
        others = PRIOR_ROUNDS * self._tokens / self._rounds
        return (others + own_tokens) / (PRIOR_ROUNDS + own_rounds)
