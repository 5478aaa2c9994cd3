"""What sets each rival apart, as its paper says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import URGENT, TimeUtility
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline
from timely.disciplines.rivals import jitserve
from timely.disciplines.rivals.slos_serve import SlosServe
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0005, 0.0003)
"""A step takes 20 ms, 0.5 ms a sequence and 0.3 ms a prompt token."""


def limits(
    now: float = 0.0, token_budget: int = 2048, max_batch: int = 64, blocks: int = 10_000
) -> StepLimits:
    return StepLimits(now, token_budget, max_batch, max_batch, token_budget, blocks, 16, SPEED)


def add(
    table: JobTable,
    discipline: Discipline,
    name: str,
    *,
    ert_s: float = 1.0,
    prompt: int = 100,
    decoding: bool = False,
    priority: float = 0.0,
    urgency: int | None = None,
    segmented: bool = True,
) -> Job:
    """A job that waits, or decodes its first segment."""
    utility = TimeUtility(ert_s, -2.0, 1.0)
    hints = RequestHints(utility=utility, priority=priority, urgency=urgency, expected_tokens=20.0)
    job = table.add(JobSpec(name, 0.0, hints, prompt, segmented=segmented))
    if decoding:
        row = job.row
        table.resident[row] = table.active[row] = True
        table.context_tokens[row], table.blocks[row], table.prefill_left[row] = prompt, prompt // 16 + 1, 0
        table.output_tokens[row] = table.segment_tokens[row] = 1
    discipline.arrived(job, 0.0)
    return job


def composed(discipline: Discipline, table: JobTable, step: StepLimits | None = None) -> StepPlan:
    return discipline.compose(table, limits() if step is None else step)


def test_vllm_priority_displaces_no_running_request() -> None:
    for name, first in (("vllm-priority", "running"), ("priority", "important")):
        table, discipline = JobTable(), create_discipline(name)
        add(table, discipline, "running", priority=2.0, decoding=True)
        add(table, discipline, "ordinary", priority=1.0)
        add(table, discipline, "important", priority=0.0)
        plan = composed(discipline, table, limits(max_batch=1))
        assert list(plan.tokens) == [first]
        assert list(composed(discipline, table).tokens).index("important") < 2


# ---------------------------------------------------------------- QoServe


@pytest.mark.parametrize(("ert_s", "chunk"), [(0.1, 127), (0.3, 511), (0.8, 1791)])
def test_qoserve_cuts_prompts_to_the_slack_of_decoding(ert_s: float, chunk: int) -> None:
    """The largest step of its list that fits into the slack with the margin; the smallest, if none does."""
    table, discipline = JobTable(), create_discipline("qoserve")
    add(table, discipline, "decoding", ert_s=ert_s, decoding=True)
    add(table, discipline, "long", ert_s=30.0, prompt=3000)
    assert composed(discipline, table).tokens == {"decoding": 1, "long": chunk}


def test_qoserve_weighs_deadline_and_prompt_and_relegates_the_hopeless() -> None:
    table, discipline = JobTable(), create_discipline("qoserve")
    add(table, discipline, "long", ert_s=4.0, prompt=900)
    add(table, discipline, "short", ert_s=9.0, prompt=100)
    add(table, discipline, "hopeless", ert_s=0.01, prompt=100)
    # 8 ms a token: 900 tokens weigh 7.2 s, so the short prompt goes first although it is due later.
    assert list(composed(discipline, table).tokens) == ["short", "long", "hopeless"]


# ---------------------------------------------------------------- JITServe


def test_jitserve_prefers_goodput_for_little_service() -> None:
    table, discipline = JobTable(), create_discipline("jitserve")
    add(table, discipline, "late", ert_s=0.001)
    add(table, discipline, "timely", ert_s=1.0)
    assert list(composed(discipline, table).tokens) == ["timely", "late"]


def test_jitserve_batches_neighbours_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    table, discipline = JobTable(), create_discipline("jitserve")
    priorities = np.array([8.3, 8.2, 8.1, 8.0, 7.0])
    monkeypatch.setattr(jitserve.JitServe, "keys", lambda self, table, limits: priorities)
    for name, prompt in zip("abcde", (1000, 20, 900, 21, 22), strict=True):
        add(table, discipline, name, prompt=prompt)
    # A batch of three is cut at 0.95 of 8.1, so "e" is no candidate; its length would fit best.
    # By length the candidates are b, d, c, a: "a" has the highest priority, and its neighbours are d and c.
    assert list(composed(discipline, table, limits(max_batch=3)).tokens) == ["a", "c", "d"]
    # A request whose next token is due goes along whatever its length.
    priorities[4] += jitserve.PRESSED_PRIORITY
    assert list(composed(discipline, table, limits(max_batch=3)).tokens) == ["e", "a", "c"]


# ---------------------------------------------------------------- SLOs-Serve


def feasible(table: JobTable, rows: Sequence[int], dues_s: np.ndarray, discipline: SlosServe) -> bool:
    """Whether these prompts are all done in time, one after the other by deadline."""
    step = limits()
    pace_s = discipline._pace_s(step)
    budget = last_s = 0.0
    for count, row in enumerate(rows):
        budget += max(0.0, dues_s[row] - last_s) / pace_s * discipline._prompt_tokens(count, step)
        last_s = max(last_s, float(dues_s[row]))
        budget -= float(table.prefill_left[row])
        if budget < 0.0:
            return False
    return True


@pytest.mark.parametrize("seed", range(5))
def test_slos_serve_accepts_as_many_as_any_choice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, discipline = JobTable(), SlosServe()
    for number in range(7):
        add(
            table,
            discipline,
            str(number),
            ert_s=float(rng.uniform(0.3, 3.0)),
            prompt=int(rng.integers(50, 900)),
        )
    composed(discipline, table)
    accepted = [row for row in range(7) if discipline._verdicts[str(row)]]
    from timely.disciplines.rivals.deadlines import rival_prompt_due_s

    dues_s = rival_prompt_due_s(table, discipline._pace_s(limits()))
    order = sorted(range(7), key=lambda row: dues_s[row])
    assert feasible(table, [row for row in order if row in accepted], dues_s, discipline)
    most = max(
        len(rows)
        for count in range(8)
        for rows in itertools.combinations(order, count)
        if feasible(table, rows, dues_s, discipline)
    )
    assert len(accepted) == most


def test_slos_serve_keeps_its_verdict_and_serves_the_rest_last() -> None:
    table, discipline = JobTable(), create_discipline("slos-serve")
    add(table, discipline, "hopeless", ert_s=0.01)
    add(table, discipline, "fine", ert_s=5.0)
    assert list(composed(discipline, table).tokens) == ["fine", "hopeless"]
    add(table, discipline, "later", ert_s=6.0)
    assert list(composed(discipline, table).tokens) == ["fine", "later", "hopeless"]


# ---------------------------------------------------------------- inferential


def test_inferential_sums_its_weights() -> None:
    table, discipline = JobTable(), create_discipline("inferential")
    add(table, discipline, "normal")
    add(table, discipline, "urgent", ert_s=URGENT.ert_s)
    add(table, discipline, "level 0", urgency=0)
    overdue = add(table, discipline, "overdue", decoding=True)
    row = overdue.row
    table.active[row], table.segment[row], table.due_s[row] = False, 1, 0.9
    keys = discipline.keys(table, limits(now=1.0))  # type: ignore[attr-defined]
    assert keys[:3] == pytest.approx([12.5 + 15 + 10 + 15, 25 + 15 + 10 + 15, 25 + 15 + 10 + 15])
    assert keys[3] == pytest.approx(45 + 12.5 + 15 + 10 + 1.5)
    assert next(iter(composed(discipline, table, limits(now=1.0)).tokens)) == "overdue"


# ---------------------------------------------------------------- paces


def add_chat(
    table: JobTable,
    discipline: Discipline,
    name: str,
    pace_s: float | None,
    *,
    ert_s: float = 0.5,
    output: int = 1,
) -> Job:
    """A chat that came at 0 s and decodes."""
    hints = RequestHints(utility=TimeUtility(ert_s, -2.0, 1.0), expected_tokens=200.0, pace_s=pace_s)
    job = table.add(JobSpec(name, 0.0, hints, 100, segmented=False, plain=True))
    discipline.arrived(job, 0.0)
    row = job.row
    table.resident[row] = table.active[row] = True
    table.context_tokens[row], table.blocks[row], table.prefill_left[row] = 100 + output, 8, 0
    table.output_tokens[row] = output
    return job


@pytest.mark.parametrize(("pace_s", "chunk"), [(None, 127), (0.1, 127), (1.0, 2047)])
def test_qoserve_counts_the_slack_of_a_named_pace(pace_s: float | None, chunk: int) -> None:
    """At 0.6 s the second token of a chat is due at 0.55, 0.6 or 1.5 s."""
    table, discipline = JobTable(), create_discipline("qoserve")
    add_chat(table, discipline, "chat", pace_s)
    add(table, discipline, "long", ert_s=30.0, prompt=3000)
    assert composed(discipline, table, limits(now=0.6)).tokens == {"chat": 1, "long": chunk}


@pytest.mark.parametrize(("pace_s", "first"), [(0.2, "chat"), (30.0, "prompt")])
def test_jitserve_serves_a_pace_just_in_time(pace_s: float, first: str) -> None:
    table, discipline = JobTable(), create_discipline("jitserve")
    add_chat(table, discipline, "chat", pace_s)
    # Much goodput for little service.
    add(table, discipline, "prompt", ert_s=30.0, prompt=2000)
    assert next(iter(composed(discipline, table, limits(now=0.3)).tokens)) == first


def test_jitserve_exchanges_requests_in_memory_for_more_goodput_only() -> None:
    table, discipline = JobTable(), create_discipline("jitserve")
    for name in "abc":
        add(table, discipline, name, ert_s=30.0, decoding=True)
    add(table, discipline, "new", ert_s=30.0, prompt=300)
    # Its 19 blocks are those of three that bring more together.
    assert composed(discipline, table, limits(blocks=0)).evict == []


def test_slos_serve_paces_steps_by_the_tightest_named_pace() -> None:
    table, discipline = JobTable(), SlosServe()
    add_chat(table, discipline, "loose", 0.1)
    add_chat(table, discipline, "tight", 0.05)
    composed(discipline, table)
    assert discipline._pace_s(limits()) == 0.05
    discipline, table = SlosServe(), JobTable()
    add_chat(table, discipline, "none", None)
    composed(discipline, table)
    assert discipline._pace_s(limits()) == pytest.approx(2.0 * SPEED.token_s)
