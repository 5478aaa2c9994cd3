"""Fields of a trace that only a replay reads: an error names file, line, job and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timely.cli.main import run_timely_command

JOB: dict[str, Any] = {
    "arrival_s": 1.0,
    "agent": "a",
    "robot": "tello",
    "skill_set": "drone",
    "task": "turn",
    "prompt_tokens": 100,
    "plan": [{"text": "tc(90);", "tokens": 7, "execution_s": 1.0}],
}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"priority": "x"}, "priority must be a number"),
        ({"hash_ids": [1.5]}, "hash_ids must be a list of whole numbers"),
        ({"after": [99]}, "after: waits for 99, which never ends"),
        ({"after": [99, 98]}, "after: waits for 99, 98, which never end"),
        ({"arrival_s": 0.5, "max_tokens": 0}, "max_tokens must be a whole number"),
        ({"tuf": {"ert_s": 1, "alpha": -2, "beta": 1, "milestone": "x"}}, "tuf.milestone must be one of"),
        ({"tuf": {"ert_ms": 200}}, "tuf.ert_ms is unknown; known: ert_s, alpha, cutoff_s, beta, milestone"),
        ({"plan": [{**JOB["plan"][0], "blocking": 3}]}, "blocking must be true or false"),
    ],
)
def test_an_error_names_the_line(
    tmp_path: Path, fields: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.lrtrace.jsonl"
    lines = [{"lrtrace": 1, "name": "t"}, {"job": 10, **JOB}, {"job": 11, **JOB, **fields}]
    trace.write_text("\n\n".join(json.dumps(line) for line in lines))
    assert run_timely_command(["replay", str(trace), "--engine", "sim", "--discipline", "edf"]) == 2
    assert f"timely: {trace}:5: job 11: {reason}" in capsys.readouterr().err


def test_a_task_waits_only_for_those_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.lrtrace.jsonl"
    lines = [{"lrtrace": 1}, {"job": 10, **JOB, "after": [99]}, {"job": 11, **JOB, "after": [98]}]
    trace.write_text("\n".join(json.dumps(line) for line in lines))
    assert run_timely_command(["replay", str(trace)]) == 2
    assert capsys.readouterr().err.endswith("job 10: after: waits for 99, which never ends\n")
