"""The simulator's clock and agenda: events in the total order (time, priority, sequence)."""

import heapq
from collections.abc import Callable
from typing import Any

Handler = Callable[[float, Any], None]
"""Called with the time and the payload given to ``at``."""

STEP_END, REPORT, ARRIVAL, WAKE = range(4)
"""Priorities at one and the same time: tokens appear first, then what robots say, then new tasks."""


class SimAgenda:
    """A heap of events; the sequence number makes the order total, so that a run has no hidden choices."""

    def __init__(self) -> None:
        self.event_count = 0
        """Events so far."""
        self._heap: list[tuple[float, int, int, Handler, Any]] = []
        self._sequence = 0

    def at(self, when_s: float, priority: int, handler: Handler, payload: Any = None) -> None:
        """Call ``handler(when_s, payload)`` when the clock gets there."""
        self._sequence += 1
        heapq.heappush(self._heap, (when_s, priority, self._sequence, handler, payload))

    def next_s(self) -> float:
        """Time of the next event; ``inf`` when there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def run_next(self) -> float:
        """Take the next event, handle it and return its time."""
        when_s, _, _, handler, payload = heapq.heappop(self._heap)
        self.event_count += 1
        handler(when_s, payload)
        return when_s
