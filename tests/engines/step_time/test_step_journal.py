"""Timed steps out of a scheduler's journal: what counts as a step's time, and what is no journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timely.core.errors import InvalidInput
from timely.engines.step_time.journal import (
    read_step_journal,
    step_journal_admission_s,
    steps_from_events,
)


def event(begin_s: float, end_s: float, **counts: int) -> dict[str, Any]:
    fields = {"decodes": 1, "prefills": 0, "prefill_tokens": 0, "prefill_squares": 0, "context_tokens": 50}
    return {"event": "timed", "t_s": begin_s, "end_s": end_s, **fields, **counts}


def test_the_engines_own_gap_counts_and_idleness_does_not() -> None:
    events = [event(0.0, 0.020), {"event": "arrive"}, event(0.021, 0.040, decodes=2), event(5.0, 5.020)]
    steps = steps_from_events(events)
    assert [step.step_s for step in steps] == pytest.approx([0.021, 0.019, 0.020])
    assert [step.decodes for step in steps] == [1, 2, 1]
    # With many requests the engine's loop takes longer.
    assert steps_from_events([event(0.0, 0.1), event(0.112, 0.2)])[0].step_s == pytest.approx(0.112)
    assert [step.begin_s for step in steps] == [0.0, 0.021, 5.0]


def test_a_step_composed_while_another_ran_begins_with_its_end() -> None:
    events = [event(0.0, 0.020), event(0.005, 0.045), event(0.020, 0.060), event(0.5, 0.520)]
    assert [step.step_s for step in steps_from_events(events)] == pytest.approx([0.020, 0.025, 0.015, 0.020])
    assert [step.step_s for step in steps_from_events(events, 0.02)] == pytest.approx([0.015, 0.020])
    assert [step.step_s for step in steps_from_events(events, 0.001, 0.01)] == pytest.approx([0.025])


def test_a_step_before_prompts_is_known_with_them_only() -> None:
    """Their launch hides its end: of 20 ms each, one seems to take 35 and the other 5."""
    events = [
        event(0.0, 0.020), event(0.001, 0.055), event(0.020, 0.060, prefills=1, prefill_tokens=60),
        event(0.055, 0.080), event(0.060, 0.100),
    ]  # fmt: skip
    steps = steps_from_events(events)
    assert [step.step_s for step in steps] == pytest.approx([0.020] * 5)
    assert [step.prefill_tokens for step in steps] == [0, 30, 30, 0, 0]
    assert sum(step.decodes for step in steps) == 5
    # Composed when nothing ran, a prompt is seen as it is.
    alone = [event(0.0, 0.020), event(0.021, 0.060, prefills=1, prefill_tokens=60)]
    assert [step.prefill_tokens for step in steps_from_events(alone)] == [0, 60]


def test_a_journal_is_read_from_a_time_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(
        "".join(json.dumps(e) + "\n" for e in (event(0.0, 0.5), {"event": "park"}, event(2.0, 2.1)))
    )
    assert [step.step_s for step in steps_from_events(read_step_journal(path), since_s=1.0)] == pytest.approx(
        [0.1]
    )
    assert len(steps_from_events(read_step_journal(path))) == 2
    assert len(steps_from_events(read_step_journal(path), until_s=0.9)) == 1


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"event": "timed", "t_s": 1.0}', '{"event": "timed", "t_s": "x", "end_s": 2}', "\\u00ff"],
)
def test_what_is_no_journal_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(event(0.0, 0.5)) + "\n" + line + "\n")
    with pytest.raises(InvalidInput, match=r"journal\.jsonl:2"):
        read_step_journal(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.jsonl: cannot read it"):
        read_step_journal(tmp_path / "none.jsonl")


def arrive(job: str, when_s: float) -> dict[str, Any]:
    return {"event": "arrive", "t_s": when_s, "job": job}


def composed(when_s: float) -> dict[str, Any]:
    return {"event": "step", "t_s": when_s, "tokens": {}}


def test_how_long_each_task_was_at_the_door() -> None:
    """Of five at once two are through when an engine that slept composes its first step; the others just miss it."""
    events = [
        arrive("a", 1.0), arrive("b", 1.0), composed(1.004), event(1.004, 1.5),
        arrive("c", 1.0), arrive("d", 1.499), composed(1.501), event(1.501, 2.0),
        arrive("e", 3.0), composed(3.010), event(3.010, 3.1), arrive("f", 9.0),
    ]  # fmt: skip
    assert step_journal_admission_s(events, 0.003) == {
        "a": pytest.approx(0.004), "b": pytest.approx(0.004), "c": pytest.approx(0.0041), "d": 0.003,
        "e": pytest.approx(0.010),
    }  # fmt: skip
    assert set(step_journal_admission_s(events, 0.003, 1.2, 5.0)) == {"d", "e"}
