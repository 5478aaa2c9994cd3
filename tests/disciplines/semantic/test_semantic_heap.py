"""The scheduling heap with its buffer and the eviction heap, against plain sorting."""

from __future__ import annotations

import heapq
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from examples import examples
from timely.disciplines.semantic.heap import Key, SemanticScheduleHeap, semantic_evictable_by_priority

BUFFERED = None


class HeapAgainstSorting(RuleBasedStateMachine):
    """Newcomers, merges, departures and changes of key in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = SemanticScheduleHeap()
        self.keys: dict[int, Key] = {}
        self.buffer: list[int] = []
        self.coming = 0

    @rule(level=st.integers(0, 4), left=st.floats(0.0, 10.0))
    def newcomer(self, level: int, left: float) -> None:
        self.keys[self.coming] = (level, left, self.coming)
        self.buffer.append(self.coming)
        self.heap.append(self.coming)
        self.coming += 1

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), level=st.integers(0, 4), left=st.floats(0.0, 10.0))
    def changed(self, data: st.DataObject, level: int, left: float) -> None:
        job = data.draw(st.sampled_from(sorted(self.keys)))
        self.keys[job] = (level, left, job)
        if job not in self.buffer:
            self.buffer.append(job)
        self.heap.append(job)

    @precondition(lambda self: self.buffer)
    @rule(count=st.integers(1, 6))
    def merge(self, count: int) -> None:
        moved, self.buffer = self.buffer[:count], self.buffer[count:]
        self.heap.merge(moved, [self.keys[job] for job in moved])

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def departs(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.keys)))
        del self.keys[job]
        if job in self.buffer:
            self.buffer.remove(job)
        self.heap.discard(job)
        self.heap.discard(job)

    @precondition(lambda self: self.keys)
    @rule(data=st.data(), count=st.integers(1, 5))
    def no_longer_wanted(self, data: st.DataObject, count: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.keys)))
        before = self.expected(count)
        entries = [name for _, name in self.heap.first(count, lambda other: other != job)]
        if job in before:
            del self.keys[job]
            before = self.expected(count)
        assert entries == before

    def expected(self, count: int) -> list[int]:
        merged = [job for job in self.keys if job not in self.buffer]
        return sorted(merged, key=lambda job: self.keys[job])[:count]

    @invariant()
    def order_is_that_of_sorting(self) -> None:
        assert self.heap.buffer == self.buffer
        assert len(self.heap._live) + len(self.heap.buffer) == len(self.keys)
        for count in (1, 3, 100):
            entries = self.heap.first(count, lambda job: True)
            assert [job for _, job in entries] == self.expected(count)
            assert [key for key, _ in entries] == [self.keys[job] for job in self.expected(count)]


TestHeapAgainstSorting = HeapAgainstSorting.TestCase
TestHeapAgainstSorting.settings = settings(max_examples=examples(40), stateful_step_count=40)


def test_departed_jobs_do_not_fill_the_heap() -> None:
    heap = SemanticScheduleHeap()
    for job in range(10_000):
        heap.append(job)
        heap.merge([job], [(0, float(job), job)])
        if job >= 10:
            heap.discard(job - 10)
    assert len(heap._live) + len(heap.buffer) == 10
    assert len(heap._heap) < 200


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.floats(0.0, 9.0)), max_size=60), st.randoms()
)
def test_the_eviction_heap_yields_the_largest_first(
    ranks: list[tuple[int, int, float]], rng: random.Random
) -> None:
    ranked = [((*rank, row), row) for row, rank in enumerate(ranks)]
    shuffled = list(ranked)
    rng.shuffle(shuffled)
    assert list(semantic_evictable_by_priority(shuffled)) == [row for _, row in sorted(ranked, reverse=True)]


class CountedKey(tuple[int, float, int]):
    """A key that counts how often keys are ordered."""

    comparisons = 0

    def __lt__(self, other: object) -> bool:
        CountedKey.comparisons += 1
        assert isinstance(other, tuple)
        return tuple.__lt__(self, other)


@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_a_job_is_inserted_with_logarithmically_many_comparisons(size: int) -> None:
    """Section 3.3: each insertion is O(log n), counted in the worst case of ever smaller keys."""
    heap = SemanticScheduleHeap()
    for number in range(size + 1):
        heap.append(number)
    heap.merge(range(size), [CountedKey((4, float(size - number), number)) for number in range(size)])
    CountedKey.comparisons = 0
    heap.merge([size], [CountedKey((0, 0.0, size))])
    assert 1 <= CountedKey.comparisons <= math.log2(size + 1) + 1
    CountedKey.comparisons = 0
    assert heap.first(1, lambda job: True)[0][1] == size
    # One removal and one insertion: the job stays in the heap.
    assert CountedKey.comparisons <= 3 * (math.log2(size + 1) + 1)


@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_a_victim_is_evicted_with_logarithmically_many_comparisons(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 3.3: identifying and evicting the least critical cache is O(log n) once the heap is built."""
    counts = {"pops": 0}
    real = heapq.heappop

    def counting(entries: list[Any]) -> Any:
        counts["pops"] += 1
        return real(entries)

    monkeypatch.setattr(heapq, "heappop", counting)
    victims = semantic_evictable_by_priority(((4, 0, float(row), row), row) for row in range(size))
    assert [next(victims) for _ in range(3)] == [size - 1, size - 2, size - 3]
    assert counts["pops"] == 3, "a victim costs one removal from the heap, not another sort"
