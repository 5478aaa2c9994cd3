"""Overload with admission by predicted response times, in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from timely.bench import surge
from timely.core.hints import RequestHints
from timely.core.utility import URGENT
from timely.engines.replay_types import JobRecord, PlannedSegment, PlannedTask, ReplayOptions

pytestmark = pytest.mark.process  # each simulates an overload: half a second and more

PROFILE = "rtx4090-llama3-8b"
HOURS = 6.0 / 3600.0

LINEAR = """
name: linear
source: made up
step_s:
  {base: 0.015, per_sequence: 0.0002, per_prefill_token: 0.00006, per_prefill_token_sq: 0.0, per_context_token: 0.0}
kv: {blocks: 100000, block_tokens: 16, swap_s_per_token: 0.0}
limits: {max_batch: 64, token_budget: 512}
"""


@pytest.fixture(autouse=True)
def short_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phases of a few seconds."""
    monkeypatch.setattr(surge, "PHASE_S", 2.0)


def test_every_refusal_names_a_time_and_admitted_tasks_are_late_less_often() -> None:
    result = surge.measure_surge(HOURS, 1, PROFILE)
    assert result["refused_with_eta"] == 1.0
    assert 0.0 < result["refused"] < 0.5
    assert result["violations"] < 0.5
    assert result["recovery_s"] <= surge.PHASE_S
    assert surge.measure_surge(HOURS / 2.0, 1, PROFILE)["recovery_s"] is None
    assert result == surge.measure_surge(HOURS, 1, PROFILE)


def test_the_error_of_predictions_is_that_of_the_tasks_that_were_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surge, "PROBE_EVERY", 3)
    result = surge.measure_eta(HOURS, 1, PROFILE)
    assert result["tasks"] == result["urgent"]["tasks"] + result["normal"]["tasks"]
    assert result["refusing"]["tasks"] < result["tasks"]
    assert result["refused"]["tasks"] == 0 < result["refusing"]["refused"]["tasks"]
    assert 0.0 < result["error_p50"] < result["error_p90"]
    assert result["urgent"]["error_p50"] < 0.5


def test_a_steady_load_has_no_phases_and_its_memory_is_noted_each_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrivals = [task.arrival_s for task in surge.surge_tasks(200.0, 2, 3.0)]
    high = sum(time_s // surge.PHASE_S % 2 for time_s in arrivals)
    assert high / (len(arrivals) - high) == pytest.approx(1.0, rel=0.5)
    assert len(arrivals) == pytest.approx(2 * len(list(surge.surge_tasks(200.0, 2, 1.5))), rel=0.3)
    result = surge.measure_surge(HOURS, 1, PROFILE, 2.0)
    assert result["recovery_s"] is None
    assert result["memory_mb"] == []
    tasks = (
        PlannedTask(n, 1800.0 * n, (PlannedSegment("a;", 2, 0.1),), hints=RequestHints(utility=URGENT))
        for n in range(6)
    )
    monkeypatch.setattr(surge, "surge_tasks", lambda *_: tasks)
    assert len(surge.measure_surge(3.0, 1, PROFILE, 2.0)["memory_mb"]) == 2


def test_the_load_is_high_in_every_second_phase() -> None:
    arrivals = [task.arrival_s for task in surge.surge_tasks(60.0, 2)]
    high = sum(time_s // surge.PHASE_S % 2 for time_s in arrivals)
    assert high / (len(arrivals) - high) == pytest.approx(surge.HIGH_LOAD / surge.LOW_LOAD, rel=0.5)


def bursts(seed: int, segments: int = 1, pause_s: float = 0.08, most: int = 8) -> Iterator[PlannedTask]:
    """Some urgent tasks at a moment, at most ``most``; by default about twice as many as the engine bears."""
    draw = np.random.default_rng(seed)
    time_s, job = 0.0, 0
    while (time_s := time_s + draw.exponential(pause_s)) < 10.0:
        for _ in range(int(draw.integers(1, most + 1))):
            job += 1
            hints = RequestHints(utility=URGENT, network_s=0.008, agent=f"robot-{job}")
            plan = (PlannedSegment("go", 5, 0.3),) * segments
            yield PlannedTask(job, time_s, plan, prompt_tokens=100, hints=hints, segment_bound=10)


def responses_s(tasks: Iterator[PlannedTask], folder: Path, max_batch: int = 64) -> list[float]:
    """Of the tasks that were admitted where step times and lengths are as predicted."""
    profile = folder / "linear.yaml"
    profile.write_text(LINEAR)
    result: list[float] = []

    def note_end(record: JobRecord, eta_s: float, is_probe: bool) -> None:
        if record.outcome != "refused":
            result.append(record.response_time_s)

    options = ReplayOptions(discipline="timely", journal=False, learned_speed=False, max_batch=max_batch)
    surge.SurgeBenchSimulator(options, str(profile), note_end, refuse_below=1.0).run(tasks)
    return result


@pytest.mark.parametrize("seed", [1, 5])
def test_where_the_engine_is_as_predicted_every_promise_is_kept(seed: int, tmp_path: Path) -> None:
    admitted_s = responses_s(bursts(seed), tmp_path)
    assert len(admitted_s) > 200
    assert max(admitted_s) <= URGENT.ert_s


@pytest.mark.parametrize("seed", [2, 6])
def test_later_segments_of_running_plans_take_places_too(seed: int, tmp_path: Path) -> None:
    # A plan takes 0.32 s of one of four places, and ten plans come in a second.
    admitted_s = responses_s(bursts(seed, 4, 0.25, 4), tmp_path, 4)
    assert len(admitted_s) > 70
    assert max(admitted_s) <= URGENT.ert_s
