"""One owner a robot: a lease with an epoch, renewed by heartbeat. Times are seconds on the caller's monotonic clock."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DriverLeaseState:
    owner: str = ""
    epoch: int = 0
    lapsed: bool = False
    """The owner neither renewed nor released it in time."""


class DriverLease:
    """Grants the right to send segments. Safe to use from several threads.

    Each grant has a higher epoch than all before it, also over restarts of the driver. So a segment of an earlier
    owner is recognised, however late it comes. A lapsed lease may be renewed by its owner until another client has
    acquired one.

    Args:
        next_epoch: a number higher than every earlier one.
        lapse_s: without a renewal for so long the lease lapses.
    """

    def __init__(self, next_epoch: Callable[[], int], lapse_s: float) -> None:
        self._next_epoch = next_epoch
        self.lapse_s = lapse_s
        self._lock = threading.Lock()
        self._owner = ""
        self._epoch = 0
        self._renewed_s = 0.0

    def acquire(
        self,
        owner: str,
        now_s: float,
        *,
        heard_s: float = math.inf,
        take_over: bool = False,
        ends_epoch: int = 0,
    ) -> int | None:
        """Grant the lease and return its epoch; None while another owner holds it. Raises what ``next_epoch`` raises.

        Args:
            heard_s: until then this process could receive renewals.
            take_over: an operator's decision to end another owner's lease now.
            ends_epoch: of the lease that a take-over ends; 0: any.
        """
        if not owner:
            return None
        with self._lock:
            take_over = take_over and ends_epoch in (0, self._epoch)
            is_held = self._owner and min(now_s, heard_s) - self._renewed_s <= self.lapse_s
            if is_held and self._owner != owner and not take_over:
                return None
            if is_held and not take_over:
                # A request that was sent again. Another epoch would end the owner's own segments.
                self._renewed_s = now_s
                return self._epoch
            self._epoch = self._next_epoch()
            self._owner, self._renewed_s = owner, now_s
            return self._epoch

    def renew(self, owner: str, epoch: int, now_s: float, *, release: bool = False) -> bool:
        """Renew or release the lease; False if it is not this owner's."""
        with self._lock:
            if not self._owner or (owner, epoch) != (self._owner, self._epoch):
                return False
            self._renewed_s = now_s
            if release:
                self._owner = ""
            return True

    def forgive(self, seconds: float, now_s: float) -> None:
        """Extend the lease by a time in which this process could receive nothing."""
        with self._lock:
            self._renewed_s = max(self._renewed_s, min(now_s, self._renewed_s + seconds))

    def permits(self, owner: str, epoch: int, now_s: float) -> bool:
        """A segment of this owner and epoch may run now. Without any owner, segments without a lease may."""
        with self._lock:
            if not self._owner:
                return not owner and epoch == 0
            current = (owner, epoch) == (self._owner, self._epoch)
            return current and now_s - self._renewed_s <= self.lapse_s

    def state(self, now_s: float) -> DriverLeaseState:
        with self._lock:
            is_lapsed = bool(self._owner) and now_s - self._renewed_s > self.lapse_s
            return DriverLeaseState(self._owner, self._epoch, is_lapsed)
