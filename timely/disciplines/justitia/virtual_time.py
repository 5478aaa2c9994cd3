"""Virtual time of generalised processor sharing, and with it when each application would end under fair sharing.

Justitia section IV-C, Eq. 2 and 3: virtual time grows at ``M / N``.
``M`` is the capacity and ``N`` the number of applications that fair sharing would still be serving.
An application that arrives at virtual time ``V`` with cost ``C`` ends at virtual time ``V + C``.
Later arrivals do not change that, so the finish tag is computed once.

Eq. 2 has no value where ``N`` is zero. Virtual time stands still then, and it never goes back to zero.
Fair queuing in networks resets it when the fluid server is idle, since only differences of tags count.
Here the real server may still have applications that the fluid one has ended.
After a reset their tags would stand behind those of all later applications, which could starve them.
As it is, an application that comes to an idle fluid server is behind all that were there before.
On the paper's machine a double holds a year of virtual time to within 0.001 tokens.
"""

import heapq


class FairVirtualTime:
    """The clock of a fluid server that shares its capacity equally among its applications.

    O(log N) for each arrival and, amortised, for each departure; nothing in between.

    Args:
        rate: capacity, units of cost per second.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate
        self._now = 0.0
        self.value = 0.0
        """Virtual time at the last ``advance``: service that an application present all along has received."""
        self._finish: list[float] = []

    @property
    def active(self) -> int:
        """Applications that fair sharing would still be serving at the last ``advance``."""
        return len(self._finish)

    def advance(self, now: float) -> float:
        """Let real time pass until ``now``, seconds (a time in the past changes nothing); returns the virtual time.

        An application leaves when virtual time reaches its tag; from then on the others share more.
        """
        left_s = now - self._now
        if left_s <= 0.0:
            return self.value
        self._now = now
        finish = self._finish
        while finish and left_s > 0.0 and self.rate > 0.0:
            share = self.rate / len(finish)
            until = (finish[0] - self.value) / share
            if until > left_s:
                self.value += left_s * share
                break
            self.value = heapq.heappop(finish)
            left_s -= until
        return self.value

    def arrive(self, cost: float, now: float, *, after: float = 0.0) -> float:
        """An application of ``cost`` arrives at ``now``; returns its finish tag.

        Args:
            after: least virtual time at which its service may begin.
                It is the predecessor's tag, for an application that continues before fair sharing would have ended it.
        """
        tag = max(self.advance(now), after) + cost
        heapq.heappush(self._finish, tag)
        return tag

    def move(self, tag: float, new_tag: float) -> float:
        """An application turns out to end at ``new_tag`` instead; returns that. O(N)."""
        if tag in self._finish:
            self._finish.remove(tag)
            heapq.heapify(self._finish)
        if new_tag > self.value:
            heapq.heappush(self._finish, new_tag)
        return new_tag
