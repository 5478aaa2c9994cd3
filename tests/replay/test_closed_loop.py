"""What reports are worth: the comparison adds up, reports help, and the command writes what automation reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely.cli.main import run
from timely.replay.closed_loop import CASES, measure


def test_reports_make_up_for_a_wrong_profile() -> None:
    found = measure([1], duration_s=60.0)
    assert found["tasks"] > 50
    faster = found["cases"]["faster"]
    assert faster["open_over_perfect"] > 1.05, (
        "a profile that is 30% too long must cost something in open loop"
    )
    assert faster["closed_over_perfect"] < 0.5 * (1.0 + faster["open_over_perfect"])
    assert found["within_10_percent"]
    for case in CASES:
        for kind in ("perfect", "closed", "open"):
            waiting, between = (
                found["cases"][case][name][kind] for name in ("waiting_s", "between_segments_s")
            )
            assert 0.0 <= between <= waiting
    worst = max(found["cases"].values(), key=lambda case: case["closed_over_perfect"])
    assert found["waiting_s"] == worst["waiting_s"]


def test_a_discipline_that_does_not_park_does_not_care() -> None:
    found = measure([1], duration_s=30.0, discipline="fcfs")
    assert all(
        case["closed_over_perfect"] == case["open_over_perfect"] == 1.0 for case in found["cases"].values()
    )


def test_the_command_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert run(["bench", "closed-loop", "--seeds", "1", "--seconds", "20", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert set(found["waiting_s"]) == {"perfect", "closed", "open"}
    assert "faster" in capsys.readouterr().out
