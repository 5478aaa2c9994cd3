"""The live comparison goes on discipline by discipline, and starts a speculating engine only where one is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from timely.bench import disciplines_live
from timely.bench.checkpoints import BenchCheckpoints, BenchOutOfTime


class FakeServer:
    """Keeps which disciplines it has served."""

    log: list[str] = []  # noqa: RUF012

    def __init__(self, speculative: bool, folder: Path) -> None:
        self.name = "speculative" if speculative else "plain"

    def run(self, disciplines: Sequence[str], seconds: float, seed: int) -> dict[str, Any]:
        self.log.append(f"{self.name} {'+'.join(disciplines)}")
        return {"good": True, "verdict": {"steps": 1}}

    def stop(self) -> None:
        self.log.append(f"{self.name} stops")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    FakeServer.log = []
    monkeypatch.setattr(disciplines_live, "LiveBenchServer", FakeServer)
    return FakeServer.log


NAMES = ["timely", "laps-sd", "fcfs", "edf+laps-sd"]


def compare(checkpoints: BenchCheckpoints) -> dict[str, Any]:
    return disciplines_live.benchmark_disciplines_live(NAMES, 60.0, 1, checkpoints, None, lambda line: None)


def test_disciplines_that_need_drafts_come_last_on_an_engine_of_their_own(log: list[str]) -> None:
    assert set(compare(BenchCheckpoints())) == set(NAMES)
    assert log == [
        "plain fcfs", "plain timely", "plain stops", "speculative edf+laps-sd", "speculative laps-sd",
        "speculative stops",
    ]  # fmt: skip


def test_a_second_run_goes_on_with_the_next_discipline(log: list[str], tmp_path: Path) -> None:
    ticks = iter(range(100))
    with pytest.raises(BenchOutOfTime):
        compare(BenchCheckpoints(tmp_path / "live.jsonl", budget_s=2.0, seconds=lambda: float(next(ticks))))
    assert log == ["plain fcfs", "plain stops"]
    log.clear()
    assert set(compare(BenchCheckpoints(tmp_path / "live.jsonl"))) == set(NAMES)
    assert log[0] == "plain timely"
    log.clear()
    compare(BenchCheckpoints(tmp_path / "live.jsonl"))
    assert log == [], "all is kept: no engine is started"
