"""The time that predictions take before a request reaches the queue (semantic scheduling, section 4.1, Tables 1, 2).

A predictor is one server in front of the scheduler. ``immediate``: whenever it is free it takes what is there.
``full``: it waits until a batch is full and takes that. The paper does not say what becomes of a batch that never
fills; here it is taken once its oldest request has waited ``max_wait_s``.

Pure: time is an argument, so the simulator and a server drive the same object.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from timely.core.errors import InvalidInput

Item = TypeVar("Item")

Batching = Literal["immediate", "full"]


@dataclass(slots=True)
class _Batch(Generic[Item]):
    items: list[Item]
    ready_s: float


@dataclass(slots=True)
class PredictorStage(Generic[Item]):
    """Requests on their way through a predictor.

    Call ``offer`` when one arrives and ``take`` whenever time has passed (``next_s`` says when it is worth it).

    Attributes:
        latency_s: time of one call of the predictor, whatever the size of its batch, seconds.
        batch: most requests in a call. With ``immediate``, 1 is the paper's "each incoming request individually".
        max_wait_s: longest that ``full`` waits for a batch to fill, seconds.

    Raises:
        InvalidInput: a parameter makes no sense.
    """

    latency_s: float
    batch: int = 64
    batching: Batching = "immediate"
    max_wait_s: float = 0.1
    _queue: deque[tuple[float, Item]] = field(default_factory=deque)
    _running: _Batch[Item] | None = None
    _free_s: float = -math.inf

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0.0 and math.isfinite(self.latency_s)):
            raise InvalidInput(f"must be finite and not negative, got {self.latency_s}", where="latency_s")
        if self.batch < 1:
            raise InvalidInput(f"must be at least 1, got {self.batch}", where="batch")
        if self.batching not in ("immediate", "full"):
            raise InvalidInput(f"must be immediate or full, got {self.batching!r}", where="batching")
        if not self.max_wait_s >= 0.0:
            raise InvalidInput(f"must not be negative, got {self.max_wait_s}", where="max_wait_s")

    def __len__(self) -> int:
        return len(self._queue) + (len(self._running.items) if self._running else 0)

    def offer(self, item: Item, now: float) -> None:
        """A request arrives; ``now`` never goes back. Ask ``take`` next: what is over must leave first."""
        self._queue.append((now, item))

    def take(self, now: float) -> list[tuple[Item, float]]:
        """Requests whose prediction is there by ``now``, with the time it was there, in order."""
        done: list[tuple[Item, float]] = []
        while True:
            if self._running is None:
                start = self._start_s()
                if start > now:
                    return done
                # Requests that are queued when the call begins are in it, up to a batch.
                items: list[Item] = []
                while self._queue and len(items) < self.batch and self._queue[0][0] <= start:
                    items.append(self._queue.popleft()[1])
                self._running = _Batch(items, start + self.latency_s)
            if self._running.ready_s > now:
                return done
            done += [(item, self._running.ready_s) for item in self._running.items]
            self._free_s = self._running.ready_s
            self._running = None

    def begin(self, now: float) -> list[Item]:
        """For a server, where a call takes the time it takes: who goes along in the call that begins now.

        Empty: none begins. Until ``end`` has said that the call is over no other begins; ``take`` is not for use
        beside this.
        """
        if self._running is not None or self._start_s() > now:
            return []
        items = [self._queue.popleft()[1] for _ in range(min(self.batch, len(self._queue)))]
        self._running = _Batch(items, math.inf)
        return items

    def end(self, now: float) -> None:
        """The call that ``begin`` began is over."""
        self._running = None
        self._free_s = now

    def next_s(self) -> float:
        """When ``take`` or ``begin`` will next have something to do; ``inf`` while the stage is empty, and for a
        server also while a call runs."""
        return self._start_s() if self._running is None else self._running.ready_s

    def _start_s(self) -> float:
        """When the next call begins."""
        if not self._queue:
            return math.inf
        oldest = self._queue[0][0]
        if self.batching == "immediate":
            begin = oldest
        elif len(self._queue) >= self.batch:
            begin = min(self._queue[self.batch - 1][0], oldest + self.max_wait_s)
        else:
            begin = oldest + self.max_wait_s
        return max(begin, self._free_s)


def predictor_ready_times_s(arrivals_s: Iterable[float], stage: PredictorStage[int]) -> list[float]:
    """When each of a trace's requests would reach the queue, given its arrivals in order, seconds."""
    ready: list[float] = []
    for index, arrival in enumerate(arrivals_s):
        ready += [when for _, when in stage.take(math.nextafter(arrival, -math.inf))]
        stage.offer(index, arrival)
    while len(stage):
        ready += [when for _, when in stage.take(stage.next_s())]
    return ready
