"""What each principal uses of the server, against its limits."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from timely.core.clock import Clock
from timely.core.errors import RateLimited, TooLarge
from timely.server.access.principals import Principal

ACTIVE_S = 60.0
"""A principal counts as active for so long after a request, seconds."""


class TokenBucket:
    """Permits so many requests a second, and ``burst`` at once.

    Args:
        rate_per_s: requests a second in the long run.
        now: the time, seconds.
    """

    def __init__(self, rate_per_s: float, burst: int, now: float) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._permits = float(burst)
        self._filled_s = now

    def fits(self, rate_per_s: float, burst: int) -> bool:
        """Whether the bucket is of these limits."""
        return (self._rate_per_s, self._burst) == (rate_per_s, burst)

    def take(self, now: float) -> float:
        """Take a permit and return 0; or take none and return the seconds until there is one."""
        elapsed_s = now - self._filled_s
        self._permits = min(self._burst, self._permits + self._rate_per_s * elapsed_s)
        self._filled_s = now
        if self._permits < 1.0:
            return (1.0 - self._permits) / self._rate_per_s
        self._permits -= 1.0
        return 0.0


class Usage:
    """Requests, KV cache and connections of all principals. Limits are those of the file as it is at the moment.

    Args:
        clock: fills the buckets.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._connections: Counter[str] = Counter()
        self._requested_s: dict[str, float] = {}
        """Time of each principal's latest request for a generation."""

    def count_request(
        self, principal: Principal, live_plans: int, generations: int, end_s: float | None
    ) -> None:
        """Count a request for generations.

        Args:
            live_plans: generations of the principal.
            generations: that the request adds.
            end_s: expected time until one of the principal's generations ends, seconds; None: not known.

        Raises:
            RateLimited: the principal is over its limits.
        """
        now = self._requested_s[principal.name] = self._clock.now()
        limits = principal.limits
        if limits.live_plans is not None and live_plans + generations > limits.live_plans:
            raise RateLimited(
                f"{principal.name} has {live_plans} plans in generation; its limit is {limits.live_plans}",
                where="live_plans",
                eta_s=end_s,
            )
        if limits.requests_per_s is None:
            return
        bucket = self._buckets.get(principal.name)
        if bucket is None or not bucket.fits(limits.requests_per_s, limits.burst):
            bucket = self._buckets[principal.name] = TokenBucket(limits.requests_per_s, limits.burst, now)
        if wait_s := bucket.take(now):
            raise RateLimited(
                f"{principal.name} may send {limits.requests_per_s:g} requests a second",
                where="requests_per_s",
                eta_s=wait_s,
            )

    @staticmethod
    def check_kv(principal: Principal, held_tokens: int, tokens: int, end_s: float | None) -> None:
        """Check that a principal may hold so much more KV cache.

        Args:
            held_tokens: what its generations may hold already.
            tokens: what a request adds.
            end_s: expected time until one of the principal's generations ends, seconds; None: not known.

        Raises:
            TooLarge: the request alone is over the limit. RateLimited: it is with the other generations.
        """
        most = principal.limits.kv_tokens
        if most is None or held_tokens + tokens <= most:
            return
        if tokens > most:
            raise TooLarge(
                f"it may take {tokens} tokens of KV cache; {principal.name} may hold {most}",
                where="kv_tokens",
            )
        raise RateLimited(
            f"{principal.name} may hold {most} tokens of KV cache; {held_tokens} are in use, and {tokens} more"
            " are requested",
            where="kv_tokens",
            eta_s=end_s,
        )

    def fair_share(self, places: int) -> int:
        """An equal share of so many places for each active principal, rounded up; all of them for a single one."""
        since_s = self._clock.now() - ACTIVE_S
        active = sum(requested_s > since_s for requested_s in self._requested_s.values())
        return math.ceil(places / max(1, active))

    @contextmanager
    def connection(self, principal: Principal) -> Iterator[None]:
        """Count an HTTP request while it is in progress.

        Raises:
            RateLimited: the principal has too many.
        """
        name, most = principal.name, principal.limits.connections
        if most is not None and self._connections[name] >= most:
            raise RateLimited(f"{name} has {most} connections, its limit", where="connections")
        self._connections[name] += 1
        try:
            yield
        finally:
            self._connections[name] -= 1
            if not self._connections[name]:
                del self._connections[name]
