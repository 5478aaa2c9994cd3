"""Gauges of the load at ``/metrics`` of stock ``vllm serve``, by which routers of other projects choose an engine.

The scheduler knows the load, in the engine process, and Prometheus asks the front-end. Between them vLLM sends the
statistics of each step, which have no field for others. Their counts by stage (``num_kv_fetch_reqs_by_stage``) carry
the load under keys of our own, which the front-end takes out before Prometheus has them. Loggers of statistics that
users add come first and see them. A front-end without our plug-in logs a line of KV fetches, all zero. ``timely serve``
asks its engines itself and has the same gauges beside those of its tasks.

vLLM's entry point for loggers of statistics (``vllm.stat_logger_plugins``) would turn statistics on for every user of
``--disable-log-stats``, also under vLLM's own scheduler.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # the front-end reads the gauges without the scheduler
    from timely.engines.scheduler_core import EngineController

EVERY_S = 0.1
"""Between two reports of a busy engine."""

KEY = "timely."
MICRO = 1_000_000
"""The counts are whole numbers."""


class VllmLoadReport:
    """Adds the load to vLLM's statistics: ten times a second, and whenever no generation is left to serve.

    An engine without one makes no step, so that its last statistics stay.

    Args:
        kv_blocks: of the KV cache.
    """

    def __init__(self, kv_blocks: int) -> None:
        self._kv_blocks = kv_blocks
        self._next_s = -math.inf

    def add(self, outputs: Iterable[Any], controller: "EngineController", now: float) -> None:
        """Add it to the outputs of a step that have statistics; none without ``log_stats``."""
        stats = next(
            (output.scheduler_stats for output in outputs if output.scheduler_stats is not None), None
        )
        table = controller.table
        if stats is None or (now < self._next_s and bool(np.any(table.resume_s <= now))):
            return
        self._next_s = now + EVERY_S
        load = controller.load(now, self._kv_blocks)
        values = {
            "runnable": load["runnable"],
            "parked": np.count_nonzero(table.resident & (table.resume_s > now)),
            "evictable_kv": load["evictable_kv"],
            **{f"backlog_s.{name}": work_s for name, work_s in load["backlog_s"].items()},
        }
        for name, value in values.items():
            stats.num_kv_fetch_reqs_by_stage[KEY + name] = round(MICRO * value)


def show_vllm_load(stats: Any, labels: Sequence[object]) -> None:
    """Set the gauges, and take our keys out of the statistics.

    Args:
        stats: vLLM's ``SchedulerStats`` of a step; without our keys nothing happens.
        labels: name of the model, and number of the engine.
    """
    counts = stats.num_kv_fetch_reqs_by_stage
    load = {key.removeprefix(KEY): counts.pop(key) / MICRO for key in [*counts] if key.startswith(KEY)}
    if not load:
        return
    gauges = _vllm_load_gauges()
    evictable_share = load["evictable_kv"]
    gauges["runnable"].labels(*labels).set(load["runnable"])
    gauges["generations"].labels(*labels, "parked").set(load["parked"])
    gauges["kv_usage_ratio"].labels(*labels).set(stats.kv_cache_usage)
    gauges["evictable_kv_ratio"].labels(*labels).set(evictable_share)
    gauges["pinned_kv_ratio"].labels(*labels).set(max(0.0, stats.kv_cache_usage - evictable_share))
    for name, value in load.items():
        if name.startswith("backlog_s."):
            gauges["backlog_seconds"].labels(*labels, name.removeprefix("backlog_s.")).set(value)


@cache
def _vllm_load_gauges() -> dict[str, Any]:
    """By name behind ``timely_engine_``; made when an engine reports, so never under vLLM's own scheduler."""
    from prometheus_client import Gauge

    return {
        name: Gauge(
            f"timely_engine_{name}",
            text,
            labelnames=["model_name", "engine", *labels],
            multiprocess_mode="mostrecent",
        )
        for name, text, labels in (
            ("runnable", "Generations that a step could serve", ()),
            ("generations", "Live generations by state", ("state",)),
            ("kv_usage_ratio", "KV cache in use, 0 to 1", ()),
            ("evictable_kv_ratio", "KV cache of parked generations alone, 0 to 1", ()),
            ("pinned_kv_ratio", "KV cache in use without what parked generations hold alone, 0 to 1", ()),
            ("backlog_seconds", "Predicted work of runnable generations", ("class",)),
        )
    }
