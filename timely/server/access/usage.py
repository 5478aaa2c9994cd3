"""What each principal uses of the server, against its limits."""

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from timely.core.clock import Clock
from timely.core.errors import RateLimited, TooLarge
from timely.principals import Principal

ACTIVE_S = 60.0
"""A principal counts as active for so long after a request, seconds."""


class BucketLevel(NamedTuple):
    """Permits of a bucket at a time."""

    permits: float
    at_s: float


class TokenBucket:
    """Permits so many requests a second, and ``burst`` at once.

    Args:
        level: permits at a time; by default as many as there can be.
    """

    def __init__(self, rate_per_s: float, burst: int, now: float, level: BucketLevel | None = None) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._permits, self._filled_s = level or BucketLevel(burst, now)

    @property
    def level(self) -> BucketLevel:
        """What it had after the latest request."""
        return BucketLevel(self._permits, self._filled_s)

    def fits(self, rate_per_s: float, burst: int) -> bool:
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


class PrincipalUsage:
    """Requests, KV cache and connections of all principals. Limits are those of the file as it is at the moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._connections: Counter[str] = Counter()
        self._levels: dict[str, BucketLevel] = {}
        """What an earlier life of the server left in each bucket."""
        self._requested_s: dict[str, float] = {}
        """Time of each principal's latest request for a generation."""

    def level(self, name: str) -> BucketLevel | None:
        """What the latest request of a principal left in its bucket; None: it has none."""
        bucket = self._buckets.get(name)
        return bucket.level if bucket is not None else None

    def restore(self, name: str, requested_s: float, level: BucketLevel | None) -> None:
        """Take up a principal's latest request in an earlier life of the server, and its bucket after it."""
        self._requested_s[name] = requested_s
        if level is not None:
            self._levels[name] = level

    def count_request(
        self,
        principal: Principal,
        live_plans: Callable[[], int],
        generations: int,
        end_s: Callable[[int], float | None],
    ) -> None:
        """Count a request for generations.

        Args:
            generations: that the request adds.
            end_s: the expected time until so many of the principal's generations end, seconds; None: not known.

        Raises:
            TooLarge: the request alone is over the limit. RateLimited: the principal is over its limits.
        """
        now = self._requested_s[principal.name] = self._clock.now()
        limits = principal.limits
        if limits.live_plans is not None:
            if generations > limits.live_plans:
                raise TooLarge(
                    f"{generations} generations; {principal.name} may have {limits.live_plans}",
                    where="live_plans",
                )
            if (live := live_plans()) + generations > limits.live_plans:
                raise RateLimited(
                    f"{principal.name} has {live} plans in generation; its limit is {limits.live_plans}",
                    where="live_plans",
                    eta_s=end_s(live + generations - limits.live_plans),
                )
        if limits.requests_per_s is None:
            return
        bucket = self._buckets.get(principal.name)
        if bucket is None or not bucket.fits(limits.requests_per_s, limits.burst):
            level = self._levels.pop(principal.name, None) if bucket is None else bucket.level
            bucket = TokenBucket(limits.requests_per_s, limits.burst, now, level)
            self._buckets[principal.name] = bucket
        if wait_s := bucket.take(now):
            raise RateLimited(
                f"{principal.name} may send {limits.requests_per_s:g} requests a second",
                where="requests_per_s",
                eta_s=wait_s,
            )

    @staticmethod
    def check_kv(
        principal: Principal, held_tokens: Callable[[], int], tokens: int, end_s: Callable[[], float | None]
    ) -> None:
        """Check that a principal may hold so much more KV cache.

        Args:
            tokens: what a request adds.
            end_s: the expected time until one of the principal's generations ends, seconds; None: not known.

        Raises:
            TooLarge: the request alone is over the limit. RateLimited: it is with the other generations.
        """
        most = principal.limits.kv_tokens
        if most is None or (kv_tokens := held_tokens()) + tokens <= most:
            return
        if tokens > most:
            raise TooLarge(
                f"it may take {tokens} tokens of KV cache; {principal.name} may hold {most}",
                where="kv_tokens",
            )
        raise RateLimited(
            f"{principal.name} may hold {most} tokens of KV cache; {kv_tokens} are in use, and {tokens} more"
            " are requested",
            where="kv_tokens",
            eta_s=end_s(),
        )

    def fair_share(self, places: int) -> int:
        """An equal share of so many places for each active principal, rounded up; all of them for a single one."""
        since_s = self._clock.now() - ACTIVE_S
        active = sum(requested_s > since_s for requested_s in self._requested_s.values())
        return math.ceil(places / max(1, active))

    def begin_connection(self, principal: Principal) -> None:
        """Count an HTTP request, until ``end_connection``.

        Raises:
            RateLimited: the principal has too many.
        """
        name, most = principal.name, principal.limits.connections
        if most is not None and self._connections[name] >= most:
            raise RateLimited(f"{name} has {most} connections, its limit", where="connections")
        self._connections[name] += 1

    def end_connection(self, principal: Principal) -> None:
        self._connections[principal.name] -= 1
        if not self._connections[principal.name]:
            del self._connections[principal.name]
