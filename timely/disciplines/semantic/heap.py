"""The scheduling heap of semantic scheduling with its unsorted buffer (Alg. 1), and the eviction heap (Alg. 3)."""

import heapq
from collections.abc import Callable, Iterable, Iterator

from timely.core.job import JobId

Key = tuple[int, float, int]
"""Urgency level, estimated remaining seconds, arrival number: smaller runs first, no two are equal."""

Entry = tuple[Key, JobId]


class SemanticScheduleHeap:
    """Waiting jobs: a min-heap, and a buffer of newcomers that are not in it yet.

    Appending to the buffer costs nothing at arrival; ``merge`` moves jobs into the heap, O(log n) each, whenever
    there is time. ``first`` looks at both, so no job in the buffer is overlooked. Jobs that leave
    are dropped from the heap when they come up, or all at once when they are the larger part of it.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._live: dict[JobId, Entry] = {}
        self._buffer: dict[JobId, None] = {}

    @property
    def buffer(self) -> list[JobId]:
        return list(self._buffer)

    def append(self, job_id: JobId) -> None:
        """A newcomer, or one whose key has changed: into the buffer."""
        self._live.pop(job_id, None)
        self._buffer[job_id] = None

    def discard(self, job_id: JobId) -> None:
        """The job waits no longer; unknown ones are ignored."""
        self._live.pop(job_id, None)
        self._buffer.pop(job_id, None)
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)

    def merge(self, job_ids: Iterable[JobId], keys: Iterable[Key]) -> None:
        """Move jobs of the buffer into the heap under their keys (Alg. 1, lines 4 to 8)."""
        for job_id, key in zip(job_ids, keys, strict=True):
            del self._buffer[job_id]
            entry = self._live[job_id] = (key, job_id)
            heapq.heappush(self._heap, entry)

    def first(self, count: int, is_waiting: Callable[[JobId], bool]) -> list[Entry]:
        """The ``count`` smallest of the heap, in order; they stay in it.

        Those that are not waiting any more leave the heap instead.
        """
        entries: list[Entry] = []
        while self._heap and len(entries) < count:
            entry = heapq.heappop(self._heap)
            if self._live.get(entry[1]) is not entry:
                continue
            if is_waiting(entry[1]):
                entries.append(entry)
            else:
                del self._live[entry[1]]
        for entry in entries:
            heapq.heappush(self._heap, entry)
        return entries


def semantic_evictable_by_priority(priorities: Iterable[tuple[tuple[float, ...], int]]) -> Iterator[int]:
    """Rows by a max-heap of eviction priority (Alg. 3): the largest first, each taken out in O(log n)."""
    heap = [(tuple(-part for part in priority), row) for priority, row in priorities]
    heapq.heapify(heap)
    while heap:
        yield heapq.heappop(heap)[1]
