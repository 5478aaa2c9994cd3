"""The cost of composing a step does not grow with the queue."""

from __future__ import annotations

from timely.bench.queue_cost import bench_compose_us


def test_ten_thousand_waiting_cost_little_more_than_two_thousand() -> None:
    few, many = bench_compose_us("timely", 2_000, points=20), bench_compose_us("timely", 10_000, points=20)
    assert many < 2.0 * few
