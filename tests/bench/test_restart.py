"""A server is killed with SIGKILL and started again, with robots that go on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Self

import pytest

from timely.bench import serve_process
from timely.bench.restart import RestartBenchHistory, RestartBenchPlan, RestartBenchTally, bench_restarts
from timely.bench.serve_process import BenchServeProcess
from timely.core.checkpoint import save_core_checkpoint
from timely.core.child_process import ChildProcess


@pytest.mark.process
async def test_a_killed_server_loses_and_repeats_nothing(tmp_path: Path) -> None:
    checkpoint = tmp_path / "restart.json.partial"
    save_core_checkpoint(
        checkpoint, {"seed": 1}, asdict(RestartBenchTally([2.0], [0.1], plans=4, segments=20))
    )
    result = await bench_restarts(
        tmp_path, points=2, seed=1, arguments=("--predictor", "none"), checkpoint=checkpoint
    )
    assert (result["points"], result["lost"], result["repeated"]) == (2, 0, 0), result
    assert result["segments"] > 20
    assert not checkpoint.exists()
    assert result["next_segment_s"]["p50"] > 0.0
    assert result["durability_ms"] > 0.0


def test_the_server_ends_with_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed benchmark closes the pipe that ``timely.core.child_process`` reads."""
    commands: list[list[str]] = []

    class Recorded(ChildProcess):
        def start(self) -> Self:
            commands.append(self._command)
            return self

    monkeypatch.setattr(serve_process, "ChildProcess", Recorded)
    server = BenchServeProcess(tmp_path)
    server.start()
    server.kill()
    assert commands[0][1:3] == ["-m", "timely.core.child_process"]


def test_what_is_lost_or_comes_twice_is_counted() -> None:
    whole = [(0, "a"), (1, "b")]
    history = RestartBenchHistory(
        [
            RestartBenchPlan(0, whole, "complete"),
            RestartBenchPlan(0, whole, ""),
            RestartBenchPlan(0, whole[:1], "complete"),
            RestartBenchPlan(0, [(0, "a"), (1, "b"), (1, "b")], "complete"),
        ]
    )
    tally = RestartBenchTally()
    tally.judge(history.take_ended(), {0: ["a", "b"]})
    assert (tally.plans, tally.lost, tally.repeated) == (3, 2, 1)
    tally.judge(history.plans, {0: ["a", "b"]})
    assert (tally.plans, tally.lost, tally.repeated) == (4, 3, 1)
