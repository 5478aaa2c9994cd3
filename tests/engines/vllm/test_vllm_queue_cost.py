"""The cost of our scheduler beside vLLM's own: both serve the same queue; the command prints the ratio."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from optional_packages import require_package

from timely.cli.main import run_timely_command
from timely.engines.vllm import queue_cost

require_package("vllm")

pytestmark = pytest.mark.engine


@pytest.mark.filterwarnings("ignore")
def test_both_schedulers_keep_the_batch_full_and_replace_finished_requests() -> None:
    for stock in (True, False):
        queue = queue_cost._VllmQueue(stock, 8, 20, itertools.count().__next__)
        costs = queue.run(60)
        assert costs == [(1, 1)] * 60
        assert 4 <= len(queue._scheduler.running) <= 8  # some may just have finished
        assert len(queue._scheduler.requests) == 28
        assert queue._arrivals > 28
        assert queue.arrivals_s == [1] * queue._arrivals


def test_the_command_writes_a_ratio_for_each_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(waiting: int) -> dict[str, float]:
        arrivals = {"stock_arrival_us": 31.0, "timely_arrival_us": 72.0}
        return {"stock_us": 2.0, "timely_us": waiting / 100, "ratio": waiting / 200, **arrivals}

    monkeypatch.setattr(queue_cost, "measure_vllm_steps", measure)
    target = tmp_path / "overhead.json"
    arguments = ["--no-engine", "--waiting", "200", "400", "--json", str(target)]
    assert run_timely_command(["bench", "overhead", *arguments]) == 0
    assert json.loads(target.read_text())["waiting"] == {"200": 1.0, "400": 2.0}
    output = capsys.readouterr().out
    assert "400" in output
    assert "72" in output
