"""The check of a live run's journal finds what it is there to find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from timely.bench.journal_audit import (
    RULES,
    audit_benchmark_event_log,
    audit_benchmark_journal,
)
from timely.core.errors import InvalidInput
from timely.engines.step_time.journal import read_step_journal

Line = dict[str, Any]


def arrive(job: str, **more: Any) -> Line:
    return {"event": "arrive", "t_s": 0.0, "job": job, **more}


def step(*jobs: str, evict: tuple[str, ...] = ()) -> Line:
    return {"event": "step", "t_s": 0.0, "tokens": dict.fromkeys(jobs, 1), "evict": list(evict)}


def ran(*jobs: str, preempted: tuple[str, ...] = ()) -> Line:
    return {"event": "ran", "t_s": 0.0, "tokens": dict.fromkeys(jobs, 1), "preempted": list(preempted)}


def finish(job: str, outcome: str = "length") -> Line:
    return {"event": "finish", "t_s": 0.0, "job": job, "outcome": outcome}


def segment(job: str, index: int) -> Line:
    return {"event": "segment", "t_s": 0.0, "job": job, "index": index}


GOOD = [
    arrive("a"), arrive("b"), step("a"), ran("a"), segment("a", 0), step("b", evict=("a",)),
    {"event": "evict", "t_s": 0.0, "job": "a"}, ran("b"), finish("b"), step("a"), ran("a"), segment("a", 1),
    finish("a", "stop"),
]  # fmt: skip


def test_a_run_in_which_all_went_as_decided() -> None:
    verdict = audit_benchmark_journal(GOOD)
    assert verdict.good
    assert (verdict.arrived, verdict.finished, verdict.outcomes) == (2, 2, {"length": 1, "stop": 1})
    assert (verdict.steps, verdict.as_asked, verdict.evictions, verdict.starts) == (3, 3, 1, 2)


@pytest.mark.parametrize(
    ("events", "field", "value"),
    [
        ([arrive("a"), step("a"), ran("a")], "lost", ["a"]),
        ([arrive("a"), finish("a"), finish("a")], "twice", ["a"]),
        ([arrive("a"), segment("a", 0), segment("a", 2), finish("a")], "gaps", ["a"]),
        ([arrive("a"), segment("a", 0), segment("a", 0), finish("a")], "gaps", ["a"]),
        ([arrive("a"), step(), ran("a"), finish("a")], "strangers", 1),
        ([arrive("a"), step("a", evict=("b",)), ran("a"), finish("a")], "unmade", 1),
        (
            [*map(arrive, "ab"), step("a"), ran(), step("a", "b"), ran("b"), finish("a"), finish("b")],
            "overtaken",
            1,
        ),
    ],
)
def test_what_went_wrong_is_found(events: list[Line], field: str, value: object) -> None:
    verdict = audit_benchmark_journal(events)
    assert getattr(verdict, field) == value
    assert not verdict.good


def test_one_that_is_over_is_not_overtaken() -> None:
    events = [*map(arrive, "ab"), step("a"), ran(), finish("a", "abort"), step("b"), ran("b"), finish("b")]
    verdict = audit_benchmark_journal(events)
    assert verdict.overtaken == 0
    assert verdict.short == 1


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("fcfs", {}, {}),
        ("hpjf", {"urgency": 1}, {"urgency": 3}),
        ("semantic", {"urgency": 1}, {}),
        ("priority", {"priority": -1.0}, {"priority": 2.0}),
        ("ssjf", {"expected_tokens": 9.0}, {"expected_tokens": 90.0}),
    ],
)
def test_the_disciplines_own_rule_is_checked(name: str, first: Line, second: Line) -> None:
    both = [arrive("a", **first), arrive("b", **second)]
    end = [finish("a"), finish("b")]
    right = [*both, step("a"), ran("a"), step("b"), ran("b"), *end]
    wrong = [*both, step("b"), ran("b"), step("a"), ran("a"), *end]
    together = [*both, step("b", "a"), ran("b", "a"), *end]
    assert audit_benchmark_journal(right, RULES[name]).out_of_rule == 0
    assert audit_benchmark_journal(wrong, RULES[name]).out_of_rule == 1
    assert audit_benchmark_journal(together, RULES[name]).out_of_rule == 0
    late = [arrive("b", **second), step("b"), arrive("a", **first), ran("b"), step("a"), ran("a"), *end]
    assert audit_benchmark_journal(late, RULES["hpjf" if name == "fcfs" else name]).out_of_rule == 0, (
        "not there when it was decided"
    )


def test_robots_are_not_judged_by_the_rule_of_ordinary_requests() -> None:
    events = [arrive("r", segmented=True), arrive("b"), step("b"), ran("b"), step("r"), ran("r")]
    assert audit_benchmark_journal([*events, finish("r"), finish("b")], RULES["fcfs"]).out_of_rule == 0


def test_reading_begins_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    lines = [json.dumps(event) + "\n" for event in GOOD]
    path.write_text("".join(lines))
    assert read_step_journal(path) == GOOD
    assert read_step_journal(path, len(lines[0])) == GOOD[1:]
    path.write_text("".join(lines)[:-5])
    assert read_step_journal(path) == GOOD[:-1], "the last is being written"
    path.write_text("{}\n")
    with pytest.raises(InvalidInput, match="no journal event: KeyError"):
        read_step_journal(path)
    path.write_text("no\n")
    with pytest.raises(InvalidInput, match="no journal event: JSONDecodeError"):
        read_step_journal(path)
    with pytest.raises(InvalidInput, match="cannot read it"):
        read_step_journal(tmp_path / "none")


def task(task_id: str) -> Line:
    return {"event": "task", "t_s": 0.0, "task_id": task_id}


def left(task_id: str, index: int) -> Line:
    return {"event": "segment", "t_s": 0.0, "task_id": task_id, "index": index}


def settled(task_id: str) -> Line:
    return {"event": "settled", "t_s": 0.0, "task_id": task_id}


@pytest.mark.parametrize(
    ("events", "unsettled", "gaps"),
    [
        ([task("a"), left("a", 0), task("b"), left("a", 1), settled("a"), settled("b")], [], []),
        ([task("a"), left("a", 0)], ["a"], []),
        ([task("a"), settled("a"), settled("a")], ["a"], []),
        ([task("a"), left("a", 1), settled("a")], [], ["a"]),
        ([task("a"), left("a", 0), left("a", 0), settled("a")], [], ["a"]),
        ([settled("before"), task("a"), settled("a")], [], []),
    ],
)
def test_the_event_log_accounts_for_every_plan(
    events: list[Line], unsettled: list[str], gaps: list[str]
) -> None:
    audit = audit_benchmark_event_log(events)
    assert (audit.unsettled, audit.gaps) == (unsettled, gaps)
    assert audit.good == (not unsettled and not gaps)
    assert audit.tasks == sum(event["event"] == "task" for event in events)
