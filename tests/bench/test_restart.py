"""A server is killed with SIGKILL and started again, with robots that go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.bench import restart
from timely.bench.restart import History, Plan, Server, bench_restarts
from timely.core.child_process import ChildProcess


@pytest.mark.process
async def test_a_killed_server_loses_and_repeats_nothing(tmp_path: Path) -> None:
    result = await bench_restarts(tmp_path, points=1, seed=1, arguments=("--predictor", "none"))
    assert (result["points"], result["lost"], result["repeated"]) == (1, 0, 0), result
    assert result["segments"] > 0
    assert result["next_segment_s"]["p50"] > 0.0
    assert result["durability_ms"] > 0.0


def test_the_server_ends_with_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed benchmark closes the pipe that ``timely.core.child_process`` reads."""
    commands: list[list[str]] = []

    class Recorded(ChildProcess):
        def start(self) -> ChildProcess:
            commands.append(self._command)
            return self

    monkeypatch.setattr(restart, "ChildProcess", Recorded)
    server = Server(tmp_path)
    server.start()
    server.kill()
    assert commands[0][1:3] == ["-m", "timely.core.child_process"]


def test_what_is_lost_or_comes_twice_is_counted() -> None:
    whole = [(0, "a"), (1, "b")]
    history = History(
        [
            Plan(0, whole, "complete"),
            Plan(0, whole, ""),
            Plan(0, whole[:1], "complete"),
            Plan(0, [(0, "a"), (1, "b"), (1, "b")], "complete"),
        ]
    )
    result = history.check({0: ["a", "b"]})
    assert (result["plans"], result["lost"], result["repeated"]) == (4, 3, 1)
