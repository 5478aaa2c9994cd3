"""What a delay costs the members of a step, and whether a candidate gains as much by joining."""

import math
from bisect import insort

import numpy as np

from timely.disciplines.base import Floats

MAX_LATENESS_RATIO = 10.0
"""Lateness after which a candidate is not delayed for its equals, as a multiple of their remaining work."""


class TardinessDelayCost:
    """Members of a step in composition, those in time by slack and the late ones by weight.

    Delays are counted from the start of the composition: ``already_s`` is the sum of those that joined so far. Members
    that lose nothing by a delay are not counted. A plain answer in progress loses only what exceeds its slack.

    Args:
        early_share: share of the slope that counts before the deadline.

    Attributes:
        wait_share: how long a candidate that is left out waits, as a share of the members' work. That is predicted in
            the steps of a full pool, and without the candidate steps may be shorter.
        price: utility that a second of delay costs at other times. A candidate that is left out causes it later.
    """

    def __init__(self, early_share: float) -> None:
        self._early_share = early_share
        self._timely: list[tuple[float, float, float, bool]] = []
        """Members in time, the first to be late first: the delay that makes it late, weight, work, plain."""
        self._in_bulk: list[tuple[np.ndarray, ...]] = []
        """Columns of further ones, not sorted in yet: mostly no candidate needs them."""
        self._early_weight = self._early_work = 0.0
        """Of those that gain by being early: sums of weight, and of weight times work."""
        self._late: dict[float, tuple[float, float]] = {}
        """Late members, the same two sums by weight."""
        self.late_weight = self._late_work = 0.0
        self.wait_share = 1.0
        self.price = 0.0

    @property
    def empty(self) -> bool:
        """No member loses anything by a delay."""
        return not self._timely and not self._in_bulk and self.late_weight == 0.0

    @property
    def steepest_late(self) -> float:
        """Utility that a second of delay costs that late member which loses most; 0 without any."""
        return max(self._late, default=0.0)

    def room_s(self, already_s: float) -> float:
        """Further delay that makes no member late, seconds."""
        self.settle(already_s)
        return self._timely[0][0] - already_s if self._timely else math.inf

    def join(
        self, slack_s: float, delay_s: float, already_s: float, weight: float, work_s: float, *, plain: bool
    ) -> None:
        """A member joins that delays others by ``delay_s``. Its own slack counts that work already."""
        if slack_s - already_s > 0.0:
            insort(self._timely, (slack_s - already_s + (already_s + delay_s), weight, work_s, plain))
            if not plain:
                self._early_weight += weight
                self._early_work += weight * work_s
        else:
            self._now_late(weight, work_s)
        if self._timely and self._timely[0][0] <= already_s + delay_s:
            self._drop_late(already_s + delay_s)

    def join_together(
        self, slacks_s: Floats, delays_s: Floats, weights: Floats, works_s: Floats, plain: np.ndarray
    ) -> None:
        """Members join that have slack for all that joins with them, or are plain; one entry of each array a member."""
        dues_s = slacks_s + delays_s
        is_dated = (dues_s < math.inf) & ~plain
        if is_dated.any():
            self._early_weight += float(weights[is_dated].sum())
            self._early_work += float((weights[is_dated] * works_s[is_dated]).sum())
        places = np.flatnonzero(dues_s < math.inf)
        if places.size:
            self._in_bulk.append(tuple(column[places] for column in (dues_s, weights, works_s, plain)))

    def settle(self, already_s: float) -> None:
        """Bring the members in order at that delay."""
        if self._in_bulk:
            for columns in self._in_bulk:
                self._timely += zip(*(column.tolist() for column in columns), strict=True)
            self._timely.sort()
            self._in_bulk = []
            self._drop_late(already_s)

    def _drop_late(self, already_s: float) -> None:
        timely, late = self._timely, 0
        while late < len(timely) and timely[late][0] <= already_s:
            _, weight, work_s, plain = timely[late]
            late += 1
            if not plain:
                self._early_weight -= weight
                self._early_work -= weight * work_s
            self._now_late(weight, work_s)
        if late:
            del timely[:late]

    def _now_late(self, weight: float, work_s: float) -> None:
        total, works = self._late.get(weight, (0.0, 0.0))
        self._late[weight] = (total + weight, works + weight * work_s)
        self.late_weight += weight
        self._late_work += weight * work_s

    # ------------------------------------------------------------------ candidates

    def is_worth(
        self, delay_s: float, weight: float, slack_s: float, late_s: float, already_s: float
    ) -> bool:
        """Whether a candidate gains by joining at least what the members lose.

        Args:
            delay_s: the delay that it causes.
            slack_s: its slack after the delays so far.
            late_s: its lateness already.
        """
        if self._in_bulk:
            self.settle(already_s)
        if self._gains(delay_s, weight, slack_s, self.late_weight, self._late_work, already_s):
            return True
        if self._may_be_delayed(late_s):
            return False
        late_weight = wait = 0.0
        for member, (total, work) in self._late.items():
            if member > weight:
                late_weight += total
                wait += work
        return self._gains(delay_s, weight, slack_s, late_weight, wait, already_s)

    def _may_be_delayed(self, late_s: float) -> bool:
        return late_s * self.late_weight < MAX_LATENESS_RATIO * self._late_work

    def _gains(
        self, delay_s: float, weight: float, slack_s: float, late_weight: float, wait: float, already_s: float
    ) -> bool:
        """The same with those late members only that have the weight ``late_weight`` and the weighted work ``wait``."""
        if not self._timely and late_weight == 0.0:
            return True
        loss = late_weight * delay_s
        all_weight, all_work = self._early_weight + late_weight, self._early_work + wait
        for due, member, work, _ in self._timely:
            over_s = delay_s - (due - already_s)
            if over_s <= 0.0:
                break
            loss += member * over_s
            late_weight += member
            wait += member * work
        early, share = self._early_share, self.wait_share
        cost = (1.0 - early) * loss + (early * all_weight - self.price) * delay_s
        # Left out it would wait until the members that it delays are done; before its deadline that costs little.
        until_s = share * wait / late_weight if late_weight > 0.0 else 0.0
        gain_s = (1.0 - early) * self._lateness_s(until_s, slack_s)
        if all_weight > 0.0:
            gain_s += early * share * all_work / all_weight
        return weight * gain_s >= cost

    def _lateness_s(self, until_s: float, slack_s: float) -> float:
        """What a wait of ``until_s`` costs a candidate with that slack, as seconds of lateness."""
        return max(0.0, until_s - max(0.0, slack_s))

    def worth_together(
        self, delays_s: Floats, weights: Floats, slacks_s: Floats, lates_s: Floats, already_s: float
    ) -> int | None:
        """How many of some candidates, from the first, gain by joining; they do not become members here.

        Each is judged as ``is_worth`` does. None: they have to be judged one by one.

        Args:
            delays_s, weights, slacks_s, lates_s: one entry a candidate.
        """
        self.settle(already_s)
        count = len(delays_s)
        if not self._timely and self.late_weight == 0.0:
            return count
        early, share = self._early_share, self.wait_share
        dues_s, members, works, _ = np.array(self._timely).T if self._timely else np.zeros((4, 0))
        if dues_s.size:
            count = int(np.searchsorted(np.cumsum(delays_s), dues_s[0] - already_s))
        all_weight, all_work = self._early_weight + self.late_weight, self._early_work + self._late_work
        mean_s = share * all_work / all_weight if all_weight > 0.0 else 0.0
        if count:
            # None of these makes a member late.
            until_s = share * self._late_work / self.late_weight if self.late_weight > 0.0 else 0.0
            gains_s = (1.0 - early) * np.maximum(0.0, until_s - np.maximum(0.0, slacks_s)) + early * mean_s
            costs = delays_s * ((1.0 - early) * self.late_weight + early * all_weight - self.price)
            if (weights * gains_s >= costs)[:count].all():
                return count
        if not self._may_be_delayed(float(lates_s.max())):
            return None
        # A candidate that is refused changes nothing, so all can be judged by the present members.
        places = np.searchsorted(dues_s, already_s + delays_s)
        hurts = self.late_weight + np.concatenate(([0.0], np.cumsum(members)))[places]
        waits = self._late_work + np.concatenate(([0.0], np.cumsum(members * works)))[places]
        dues = np.concatenate(([0.0], np.cumsum(members * (dues_s - already_s))))[places]
        losses = hurts * delays_s - dues
        until = share * np.divide(waits, hurts, out=np.zeros_like(waits), where=hurts > 0.0)
        gains_s = (1.0 - early) * np.maximum(0.0, until - np.maximum(0.0, slacks_s)) + early * mean_s
        costs = (1.0 - early) * losses + (early * all_weight - self.price) * delays_s
        return None if (weights * gains_s >= costs).any() else 0

    def bear_together(
        self,
        delays_s: Floats,
        weights: Floats,
        slacks_s: Floats,
        works_s: Floats,
        plain: np.ndarray,
        already_s: float,
    ) -> bool:
        """Whether candidates that become members gain by joining, each of them in any order; False: maybe not."""
        total_s = float(delays_s.sum())
        room_s = self.room_s(already_s)
        if self.late_weight > 0.0 or total_s >= min(room_s, float(slacks_s.min()) - already_s):
            return False
        is_dated = ~plain & (slacks_s < math.inf)
        weight = self._early_weight + float(weights[is_dated].sum())
        if weight > 0.0:
            mean_s = (self._early_work + float((weights[is_dated] * works_s[is_dated]).sum())) / weight
            if self._early_weight > 0.0:
                mean_s = min(mean_s, self._early_work / self._early_weight)
            if (weights * mean_s < weight * delays_s).any():
                return False
        return True
