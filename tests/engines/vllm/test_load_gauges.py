"""The load travels in vLLM's own statistics from the engine to the front-end, and becomes gauges there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import Scene

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LONG_S = 300.0
"""An execution time beyond every test."""

ROUTING = Path(__file__).parents[3] / "docs" / "routing.md"


def load_of(stats: Any) -> dict[str, float]:
    counts = stats.num_kv_fetch_reqs_by_stage
    return {name.removeprefix("timely."): n / 1e6 for name, n in counts.items() if name.startswith("timely.")}


@pytest.mark.parametrize("depth", [1, 2])
def test_the_last_statistics_before_a_sleep_tell_of_the_parked_plans(depth: int) -> None:
    """A sleeping engine makes no step, so they stay at ``/metrics`` until a plan resumes."""
    scene = Scene(log_stats=True, depth=depth)
    for name in ("first", "second"):
        scene.add(name, 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.add("chat", 20, 12)
    scene.run(until=lambda: not scene.scheduler.has_requests())
    loads = [load_of(stats) for stats in scene.stats]
    backlog = {"backlog_s.urgent", "backlog_s.normal", "backlog_s.chat"}
    first, last = next(load for load in loads if load), loads[-1]
    assert first.keys() == last.keys() == {"runnable", "parked", "evictable_kv", *backlog}
    assert (first["runnable"], first["parked"]) == (3.0, 0.0)
    assert min(first["backlog_s.normal"], first["backlog_s.chat"]) > 0.0
    assert (last["runnable"], last["parked"]) == (0.0, 2.0)
    assert not any(last[name] for name in backlog)
    assert scene.stats[-1].kv_cache_usage == pytest.approx(last["evictable_kv"], rel=0.01)
    assert last["evictable_kv"] > 0.0


def test_a_busy_engine_reports_ten_times_a_second() -> None:
    scene = Scene(log_stats=True)
    scene.add("chat", 20, 200)
    started_s = scene.clock.now()
    scene.run()
    seconds = scene.clock.now() - started_s
    reports = sum(bool(load_of(stats)) for stats in scene.stats)
    assert 9.0 * seconds < reports < 10.0 * seconds + 2.0
    assert len(scene.stats) > 2 * reports


def test_nothing_is_reported_without_statistics_or_gauges() -> None:
    for scene in (Scene(), Scene(log_stats=True, timely={"gauges": False})):
        scene.add("chat", 20, 8)
        scene.run()
        assert not any(load_of(stats) for stats in scene.stats)


def test_the_gauges_are_those_of_the_documents() -> None:
    """On the wire between the processes, and out of vLLM's counts before its own gauges are set."""
    from prometheus_client import REGISTRY, generate_latest
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    from timely.engines.vllm.load_gauges import show_vllm_load

    scene = Scene(log_stats=True)
    scene.add("plan", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: not scene.scheduler.has_requests())
    sent = MsgpackEncoder().encode(EngineCoreOutputs(scheduler_stats=scene.stats[-1]))
    stats = MsgpackDecoder(EngineCoreOutputs).decode(sent).scheduler_stats
    assert load_of(stats) == load_of(scene.stats[-1])
    show_vllm_load(stats, ["tiny", "0"])
    assert not load_of(stats)
    documented = re.findall(r"^\| `(timely_engine_\w+)", ROUTING.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(documented) == 6
    registry = REGISTRY.restricted_registry(documented)
    page = generate_latest(registry).decode()
    engine = 'engine="0",model_name="tiny"'
    for name in documented:
        assert re.search(rf"^{name}\{{.*{engine}", page, re.MULTILINE)
    assert f'timely_engine_generations{{{engine},state="parked"}} 1.0' in page
    show_vllm_load(SchedulerStats(), ["tiny", "0"])  # another step, without a report
    assert generate_latest(registry).decode() == page
