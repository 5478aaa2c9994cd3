"""Timed steps out of a scheduler's journal: what counts as a step's time, and what is no journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timely.core.errors import InvalidInput
from timely.engines.timed_steps import from_events, read_journal


def event(begin_s: float, end_s: float, **counts: int) -> dict[str, Any]:
    known = {"decodes": 1, "prefills": 0, "prefill_tokens": 0, "prefill_squares": 0, "context_tokens": 50}
    return {"event": "timed", "t_s": begin_s, "end_s": end_s, **known, **counts}


def test_the_engines_own_gap_counts_and_idleness_does_not() -> None:
    events = [event(0.0, 0.020), {"event": "arrive"}, event(0.021, 0.040, decodes=2), event(5.0, 5.020)]
    steps = from_events(events)
    assert [step.step_s for step in steps] == pytest.approx([0.021, 0.019, 0.020])
    assert [step.decodes for step in steps] == [1, 2, 1]


def test_a_journal_is_read_from_a_time_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(
        "".join(json.dumps(e) + "\n" for e in (event(0.0, 0.5), {"event": "park"}, event(2.0, 2.1)))
    )
    assert [step.step_s for step in read_journal(path, since_s=1.0)] == pytest.approx([0.1])
    assert len(read_journal(path)) == 2
    assert len(read_journal(path, until_s=0.9)) == 1


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"event": "timed", "t_s": 1.0}', '{"event": "timed", "t_s": "x", "end_s": 2}', "\\u00ff"],
)
def test_what_is_no_journal_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(event(0.0, 0.5)) + "\n" + line + "\n")
    with pytest.raises(InvalidInput, match=r"journal\.jsonl:2"):
        read_journal(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.jsonl: cannot read it"):
        read_journal(tmp_path / "none.jsonl")
