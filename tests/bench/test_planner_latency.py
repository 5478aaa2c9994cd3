"""``timely planner latency``: ways are compared on the tasks for which they wrote the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely.bench import planner_latency
from timely.bench.planner_latency import (
    PLANNER,
    WITH_EXAMPLES,
    FirstSegment,
    WayResult,
    compare_planner_bench,
)
from timely.cli.main import run_timely_command


def result(way: str, *, cold: bool, first: dict[int, tuple[str, float]]) -> WayResult:
    return WayResult(
        way, "arm", cold, {task: FirstSegment(ms, 4, text) for task, (text, ms) in first.items()}
    )


RESULTS = [
    result(PLANNER, cold=False, first={3: ("a;", 90.0), 4: ("b;", 50.0), 5: ("c;", 30.0), 7: ("d;", 77.0)}),
    result(PLANNER, cold=True, first={3: ("a;", 10.0)}),
    result(WITH_EXAMPLES, cold=False, first={3: ("a;", 100.0), 4: ("b;", 100.0), 5: ("other;", 1.0)}),
    result(WITH_EXAMPLES, cold=True, first={3: ("x;", 20.0)}),
]


def test_only_the_same_first_segments_are_compared() -> None:
    cached, cold = compare_planner_bench(RESULTS)
    assert (cached.skill_set, cached.cold, cached.tasks) == ("arm", False, 2)
    assert cached.ratio == pytest.approx(0.7)
    assert (cold.cold, cold.tasks) == (True, 0)
    assert cold.ratio is None


def test_the_command_prints_both_and_writes_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measure(*arguments: object) -> list[WayResult]:
        return RESULTS

    monkeypatch.setattr(planner_latency, "bench_planner_latency", measure)
    file = tmp_path / "latency.json"
    assert run_timely_command(["planner", "latency", "--cases", "4", "--json", str(file)]) == 0
    page = capsys.readouterr().out
    assert "0.70 of the time (2 tasks)" in page
    written = json.loads(file.read_text())
    assert [pair["tasks"] for pair in written["same_first_segment"]] == [2, 0]
    assert len(written["ways"]) == 4
