"""A bad network: loses, repeats and delays datagrams, the same ones for the same seed."""

import random
from dataclasses import dataclass

from timely.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class EmulatedNetworkFaults:
    """What happens to each datagram, either way.

    Attributes:
        loss, duplicate: probabilities, 0..1. delay_s: one way. jitter_s: at most so much more, uniform; datagrams may
            overtake each other.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidInput(f"a probability lies in 0..1, got {getattr(self, name)!r}", where=name)
        for name in ("delay_s", "jitter_s"):
            if not 0.0 <= getattr(self, name) < 60.0:
                raise InvalidInput(f"must be 0 to 60 s, got {getattr(self, name)!r}", where=name)

    def copies(self, rng: random.Random) -> list[float]:
        """The delays, seconds, of the copies of one datagram that arrive; empty if it is lost."""
        is_lost = rng.random() < self.loss
        twice = rng.random() < self.duplicate
        delays = [self.delay_s + self.jitter_s * rng.random() for _ in range(2)]
        return [] if is_lost else delays[: 2 if twice else 1]
