"""Metrics for Prometheus: tasks by outcome, latencies, utility by class, and the engine's numbers."""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from timely.engines.base import EngineStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

CLASSES = ("normal", "urgent")

LATENCY_BUCKETS_S = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)


class _EngineMetricsCollector(Collector):
    def __init__(self) -> None:
        self.stats: EngineStats | None = None

    def collect(self) -> Iterable[Metric]:
        stats = self.stats
        if stats is None:
            return
        states = {state: getattr(stats, state) for state in ("waiting", "running", "parked", "blocked")}
        yield _metrics_gauge("timely_engine_generations", "Live generations by state", "state", states)
        pinned_share = max(0.0, stats.kv_usage - stats.evictable_kv)
        for name, text, value in (
            ("timely_engine_runnable", "Generations that a step could serve", stats.runnable),
            ("timely_engine_kv_usage_ratio", "KV cache in use, 0 to 1", stats.kv_usage),
            ("timely_engine_evictable_kv_ratio", "KV cache of parked generations alone, 0 to 1", stats.evictable_kv),
            ("timely_engine_pinned_kv_ratio", "KV cache in use without what parked generations hold alone, 0 to 1",
             pinned_share),
            ("timely_engine_step_seconds", "Time of a recent engine step", stats.step_s),
            ("timely_engine_decision_seconds", "Time of a recent scheduling decision", stats.decide_s),
        ):  # fmt: skip
            yield GaugeMetricFamily(name, text, value=value)
        work = "Predicted work of runnable generations"
        yield _metrics_gauge("timely_engine_backlog_seconds", work, "class", stats.backlog_s)
        pace = "Measured over expected execution time of a robot, as plans are timed with it"
        yield _metrics_gauge("timely_robot_pace_ratio", pace, "agent", stats.paces)
        for name, text, value in (
            ("timely_engine_steps", "Engine steps", stats.steps),
            ("timely_engine_busy_seconds", "Time of all engine steps", stats.busy_s),
            ("timely_engine_tokens", "Output tokens", stats.tokens),
            ("timely_engine_segments", "Closed segments", stats.segments),
            ("timely_engine_evictions", "Generations that lost their KV cache", stats.evictions),
            ("timely_engine_recomputed_tokens", "Tokens computed more than once", stats.recomputed_tokens),
        ):
            yield CounterMetricFamily(name, text, value=value)
        info = GaugeMetricFamily(
            "timely_engine_info", "1 for the engine that runs", labels=["engine", "discipline", "mode"]
        )
        info.add_metric([stats.engine, stats.discipline, stats.mode], 1)
        yield info


def _metrics_gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class ServerMetrics:
    """All metrics of one application, in a registry of its own."""

    def __init__(self, outcomes: Collection[str] = ()) -> None:
        self.registry = CollectorRegistry()
        self._engine = _EngineMetricsCollector()
        self.registry.register(self._engine)
        by_class = ["class"]
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, labelnames=by_class, buckets=LATENCY_BUCKETS_S, registry=self.registry)
        self.arrivals = counter("timely_tasks_arrived", "Tasks that arrived, refused ones included")
        self.tasks = counter("timely_tasks", "Ended tasks", ["outcome", "class"])
        self.rate_limits = counter(
            "timely_requests_limited", "Requests over a limit of their principal", ["limit"]
        )
        self.engine_deaths = counter(
            "timely_engine_deaths", "Times that the engine died and was started again"
        )
        self.live = gauge("timely_tasks_live", "Tasks in generation")
        self.readers = gauge("timely_event_readers", "Open event streams")
        self.unsaved = gauge("timely_state_unsaved", "1 while the disk refuses records of tasks")
        self.stopped = gauge("timely_fleet_stopped", "1 while the stop of all robots is latched")
        self.duplicate_robots = gauge(
            "timely_fleet_duplicate_robots", "robot names that several bridges have"
        )
        self.certificate_expiry = gauge(
            "timely_certificate_expiry_timestamp_seconds",
            "When the server's certificate expires, seconds since 1970; NaN without TLS",
        )
        self.certificate_expiry.set(math.nan)
        self.segments = counter("timely_segments_released", "Segments released to robots")
        self.reports = counter("timely_reports", "Execution reports", ["kind", "news"])
        self.response = histogram("timely_response_time_seconds", "Arrival to the start of the first action")
        self.waiting = histogram(
            "timely_waiting_time_seconds", "Completion minus execution of plans that were completed"
        )
        # Utility may be negative, so its sum is a gauge: a counter must not fall.
        self.utility_sum = gauge("timely_utility_sum", "Sum of the utility of settled tasks", by_class)
        self.utility_max_sum = gauge(
            "timely_utility_max_sum", "Sum of the most they could have had", by_class
        )
        # From zero on: a series that began with its first event would have no rise for an alert to see.
        for kind in CLASSES:
            for outcome in outcomes:
                self.tasks.labels(outcome, kind)
            self.utility_sum.labels(kind)
            self.utility_max_sum.labels(kind)

    def count_end(
        self,
        outcome: str,
        kind: str,
        *,
        response_s: float = math.nan,
        waiting_s: float = math.nan,
        utility: float = 0.0,
        utility_max: float = 0.0,
    ) -> None:
        """Count an ended task; ``kind`` is its class, nan latencies are left out."""
        self.tasks.labels(outcome, kind).inc()
        if outcome == "refused":
            return  # A refused task counts in the share served, not in the mean utility.
        if not math.isnan(response_s):
            self.response.labels(kind).observe(response_s)
        if outcome == "complete" and not math.isnan(waiting_s):
            self.waiting.labels(kind).observe(waiting_s)
        self.utility_sum.labels(kind).inc(utility)
        self.utility_max_sum.labels(kind).inc(utility_max)

    def classes(self) -> dict[str, dict[str, Any]]:
        """By class: ended tasks by outcome, the share served, and means (None without any); refused ones have none."""
        totals = {
            (sample.name, *sample.labels.values()): sample.value
            for metric in (self.tasks, self.response, self.waiting, self.utility_sum, self.utility_max_sum)
            for family in metric.collect()
            for sample in family.samples
        }
        result: dict[str, dict[str, Any]] = {}
        for kind in CLASSES:
            sums = {key[0]: value for key, value in totals.items() if key[1:] == (kind,)}
            outcomes = {
                key[1]: int(value)
                for key, value in totals.items()
                if (key[0], key[-1]) == ("timely_tasks_total", kind) and value
            }
            ended_tasks = sum(outcomes.values())
            tasks_with_utility = ended_tasks - outcomes.get("refused", 0)
            result[kind] = {
                "ended": ended_tasks,
                "outcomes": outcomes,
                "share_served": _metrics_mean(outcomes.get("complete", 0), ended_tasks),
                "utility_mean": _metrics_mean(sums.get("timely_utility_sum", 0.0), tasks_with_utility),
                "utility_max_mean": _metrics_mean(
                    sums.get("timely_utility_max_sum", 0.0), tasks_with_utility
                ),
            }
            for name in ("response_time", "waiting_time"):
                total, count = (sums.get(f"timely_{name}_seconds_{part}", 0.0) for part in ("sum", "count"))
                result[kind][f"{name}_s"] = _metrics_mean(total, count)
        return result

    def page(self, stats: EngineStats | None) -> bytes:
        """The exposition text with the engine's latest snapshot."""
        self._engine.stats = stats
        return generate_latest(self.registry)


def _metrics_mean(total: float, count: float) -> float | None:
    return round(total / count, 6) if count else None
