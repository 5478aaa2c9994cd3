"""The cost of composing a step does not grow with the queue."""

from __future__ import annotations

import pytest

from timely.bench.queue_cost import bench_compose_us


@pytest.mark.process
def test_ten_thousand_waiting_cost_little_more_than_two_thousand() -> None:
    few, many = (
        bench_compose_us("timely", waiting, points=20, repetitions=20) for waiting in (2_000, 10_000)
    )
    assert many < 3.0 * few, "five times the queue"
