"""Disciplines on the real engine under mixed load, switched while it is served: decided is what happened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from optional_packages import require_package

from timely.bench.journal_audit import audit_benchmark_journal
from timely.cli.main import run_timely_command
from timely.engines.step_time.journal import read_step_journal

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(300)]

QUIET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
for name, value in QUIET.items():
    os.environ.setdefault(name, value)

DISCIPLINES = "justitia+semantic+sagesched+timely"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("error:::timely")
def test_four_disciplines_share_an_engine_and_nothing_is_lost_between_them(tmp_path: Path) -> None:
    result_file = tmp_path / "result_file.json"
    arguments = [
        "--disciplines",
        DISCIPLINES,
        "--seconds",
        "8",
        "--keep",
        str(tmp_path),
        "--json",
        str(result_file),
    ]
    assert run_timely_command(["bench", "disciplines-live", *arguments]) == 0
    row = json.loads(result_file.read_text())["disciplines"][DISCIPLINES]
    assert row["good"], row
    assert row["requests"] >= 10
    assert row["segments"] >= 5
    journal = read_step_journal(tmp_path / "plain.journal.jsonl")
    switched = [event["discipline"] for event in journal if event["event"] == "switch"]
    # The engine's own is made anew after the warm-up, which is to teach it nothing.
    assert switched == ["fcfs", *DISCIPLINES.split("+")]
    assert audit_benchmark_journal(journal).good, "the warm-up and the first switch included"
    events = [json.loads(line) for line in (tmp_path / "plain.events.jsonl").read_text().splitlines()]
    assert any(event["event"] == "urgency" for event in events)
