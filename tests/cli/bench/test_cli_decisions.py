"""``timely bench decisions`` and ``timely replay --draft-tokens``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely.cli import main as shell


def test_the_cost_of_decisions_of_chosen_disciplines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "costs.json"
    command = ["bench", "decisions", "--disciplines", "fcfs, laps-sd", "--jobs", "8", "--jobs", "50"]
    page = tmp_path / "costs.md"
    assert (
        shell.run_timely_command([*command, "--points", "3", "--json", str(target), "--markdown", str(page)])
        == 0
    )
    costs = json.loads(target.read_text())["scheduling_point_us"]
    assert list(costs) == ["fcfs", "laps-sd"]
    assert all(set(row) == {"8", "50"} and min(row.values()) > 0.0 for row in costs.values())
    assert "laps-sd" in capsys.readouterr().out
    lines = page.read_text().splitlines()
    assert lines[0] == "| discipline | 8 queued, µs | 50 queued, µs |"
    assert [line.split(" ")[1] for line in lines[2:]] == ["`fcfs`", "`laps-sd`"]


def test_an_unknown_discipline_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command(["bench", "decisions", "--disciplines", "nope"]) == 2
    assert "nope" in capsys.readouterr().err


TRACE = (
    '{"lrtrace": 1, "name": "drafts", "seed": 0, "network_s": 0.0}\n'
    '{"job": 0, "arrival_s": 0.0, "agent": "", "prompt_tokens": 8, "acceptance": 0.9,'
    ' "plan": [{"text": "a", "tokens": 60, "execution_s": 0.0}]}\n'
)


def test_laps_sd_replays_with_draft_tokens_and_is_refused_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, target = tmp_path / "a.lrtrace.jsonl", tmp_path / "out.json"
    trace.write_text(TRACE)
    command = ["replay", str(trace), "--discipline", "laps-sd", "--mode", "whole", "--profile", "unit"]
    assert shell.run_timely_command(command) == 2
    assert "--draft-tokens" in capsys.readouterr().err
    assert shell.run_timely_command([*command, "--draft-tokens", "4", "--json", str(target)]) == 0
    counters = json.loads(target.read_text())["counters"]
    assert counters["accepted_tokens"] > 30
    assert counters["steps"] < 30
