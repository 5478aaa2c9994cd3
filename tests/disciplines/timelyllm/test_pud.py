"""Potential utility density against a scalar Eq. 4, late and on time, and the admission rule of section 4.4."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hints import with_hints
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits
from timely.disciplines.timely.discipline import Timely
from timely.disciplines.timelyllm.pud import Pud
from timely.engines.step_time.learned import FixedSpeed

TOKEN_S, PREFILL_S = 0.02, 0.0003
SPEED = FixedSpeed(TOKEN_S, 0.0, PREFILL_S)


def limits(now: float, **changes: Any) -> StepLimits:
    values = {
        "token_budget": 4096, "max_batch": 64, "max_resident": 64, "prefill_chunk": 4096, "free_blocks": 10_000,
        "block_tokens": 16,
    } | changes  # fmt: skip
    return StepLimits(now=now, speed=SPEED, **values)


def eq4(job: Job, now: float, fraction: float = 0.5) -> float:
    """One job's priority, written out with the paper's symbols."""
    table, row, tuf = job.table, job.row, job.spec.hints.utility
    tokens = max(1.0, fraction * job.spec.segment_tokens - int(table.segment_tokens[row]))
    g = tokens * TOKEN_S + int(table.prefill_left[row]) * PREFILL_S
    first = int(table.segment[row]) == 0
    function = tuf if first else tuf.suspended()
    due = float(table.due_s[row])
    w = max(0.0, now + g + job.spec.hints.network_s - due)
    u = function.value(w)
    if u <= 0.0:
        return -1.0 / (1e-9 + abs(tuf.alpha) / g)
    slack = due + function.ert_s - (now + g + job.spec.hints.network_s)
    if tuf.alpha == 0.0:
        slack = tuf.ert_s
    return u / (g * max(slack, TOKEN_S))


jobs = st.fixed_dictionaries(
    {
        "ert": st.floats(0.0, 3.0),
        "alpha": st.sampled_from([0.0, -0.1, -2.0, -6.67]),
        "beta": st.floats(0.1, 3.0),
        "age": st.floats(0.0, 5.0),
        "due_in": st.floats(-5.0, 5.0),
        "segment": st.integers(0, 4),
        "generated": st.integers(0, 15),
        "prefill": st.integers(0, 2000),
        "network": st.floats(0.0, 0.1),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(jobs, min_size=1, max_size=12))
def test_all_rows_at_once_equal_eq4_one_by_one(cases: list[dict[str, Any]]) -> None:
    table, now = JobTable(), 10.0
    for name, case in enumerate(cases):
        tuf = TimeUtility(case["ert"], case["alpha"], case["beta"])
        job = table.add(
            JobSpec(name, now - case["age"], hints=RequestHints(utility=tuf, network_s=case["network"]))
        )
        row = job.row
        table.segment[row], table.segment_tokens[row] = case["segment"], case["generated"]
        table.prefill_left[row] = case["prefill"]
        if case["segment"]:
            table.due_s[row] = now + case["due_in"]
    keys = Pud().keys(table, limits(now))
    np.testing.assert_allclose(keys, [eq4(job, now) for job in table], rtol=1e-12)


def one(tuf: TimeUtility, age: float, **spec: Any) -> float:
    table = JobTable()
    job = table.add(JobSpec("a", 10.0 - age, **with_hints({"utility": tuf, **spec})))
    table.prefill_left[job.row] = 0
    return float(Pud().keys(table, limits(10.0))[0])


def test_priority_grows_until_the_deadline_and_is_continuous_there() -> None:
    keys = [one(NORMAL, float(age)) for age in np.linspace(0.0, 0.879, 200)]
    assert all(later > earlier for earlier, later in itertools.pairwise(keys))
    g = 0.5 * 10 * TOKEN_S
    assert one(NORMAL, 1.0 - g - 1e-9) == pytest.approx(one(NORMAL, 1.0 - g + 1e-9), rel=1e-5)


def test_late_but_before_the_cutoff_it_falls_with_utility() -> None:
    keys = [one(NORMAL, age) for age in (1.0, 1.1, 1.2, 1.3)]
    assert keys == sorted(keys, reverse=True)
    assert keys[-1] > 0.0


def test_past_the_cutoff_it_ranks_below_all_that_can_gain() -> None:
    hopeless = one(NORMAL, 5.0)
    assert hopeless < 0.0 < one(NORMAL, 1.399) < one(NORMAL, 0.0)
    # Not by how late: two of a kind are equal, and the steeper loss goes first (Smith's rule).
    assert hopeless == one(NORMAL, 50.0)
    assert one(URGENT, 5.0) > hopeless


def test_two_late_jobs_the_shorter_first() -> None:
    assert one(NORMAL, 5.0, segment_tokens=8) > one(NORMAL, 5.0, segment_tokens=30)


def test_urgent_goes_before_normal_of_the_same_moment() -> None:
    assert one(URGENT, 0.0) > one(NORMAL, 0.0)


def test_a_flat_utility_does_not_rise_for_ever() -> None:
    flat = TimeUtility(1.0, 0.0, 1.0)
    assert one(flat, 0.0) == one(flat, 100.0)
    assert one(flat, 100.0) < one(URGENT, 0.0)


def test_the_mean_segment_is_learned() -> None:
    pud, table = Pud(), JobTable()
    job = table.add(JobSpec("a", 0.0, segment_tokens=10))
    before = pud.generation_s(table, limits(0.0))[0]
    for index in range(200):
        job.segments.append(Segment(index, "", 9, 0.0, 1.0))
        pud.parked(job, 0.0)
    table.prefill_left[job.row] = 0
    assert pud.generation_s(table, limits(0.0))[0] == pytest.approx(9 * TOKEN_S, rel=0.01)
    assert before != pytest.approx(9 * TOKEN_S, rel=0.01)


# ---------------------------------------------------------------- section 4.4


def pool(urgent_left_s: float, generated: int = 0, tuf: TimeUtility = NORMAL) -> JobTable:
    """One job in the pool with so long to its deadline, one waiting."""
    table = JobTable()
    running = table.add(
        JobSpec(
            "running", 10.0 + urgent_left_s - tuf.ert_s, hints=RequestHints(utility=tuf), segment_tokens=10
        )
    )
    row = running.row
    table.active[row] = table.resident[row] = True
    table.prefill_left[row], table.context_tokens[row], table.blocks[row] = 0, 10, 1
    table.segment_tokens[row] = generated
    table.add(JobSpec("waiting", 9.0))
    return table


@pytest.mark.parametrize(
    ("left_s", "generated", "joins"),
    [
        (0.21, 0, True), (0.19, 0, False),       # ten tokens at 20 ms each
        (0.07, 7, True), (0.05, 7, False),       # three left
        (0.03, 15, True), (0.01, 15, False),     # longer than its bound: one more at least
        (-0.3, 0, False),                        # late, and each token later costs
        (-0.6, 0, True),                         # past its cutoff (0.5 s after the deadline)
    ],
)  # fmt: skip
def test_others_join_while_the_most_urgent_makes_it_at_its_longest(
    left_s: float, generated: int, joins: bool
) -> None:
    plan = Pud().compose(pool(left_s, generated), limits(10.0))
    assert list(plan.tokens) == (["running", "waiting"] if joins else ["running"])


def test_nobody_is_held_back_for_a_flat_utility() -> None:
    plan = Pud().compose(pool(-5.0, tuf=TimeUtility(1.0, 0.0, 1.0)), limits(10.0))
    assert list(plan.tokens) == ["running", "waiting"]


def test_an_empty_pool_always_admits() -> None:
    table = JobTable()
    table.add(JobSpec("late", 8.7))
    assert list(Pud().compose(table, limits(10.0)).tokens) == ["late"]


def test_the_pool_goes_on_when_admission_is_closed() -> None:
    table = pool(0.1)
    job = table.add(JobSpec("also running", 9.5, segment_tokens=10))
    table.active[job.row] = table.resident[job.row] = True
    table.prefill_left[job.row], table.context_tokens[job.row], table.blocks[job.row] = 0, 10, 1
    assert set(Pud().compose(table, limits(10.0)).tokens) == {"running", "also running"}


# ---------------------------------------------------------------- eviction, and vLLM's priority


def park(table: JobTable, name: str, resume_s: float, blocks: int = 10) -> None:
    job = table.add(JobSpec(name, 5.0, prompt_tokens=blocks * 16 - 4))
    row = job.row
    table.resident[row], table.blocks[row], table.prefill_left[row] = True, blocks, 0
    table.context_tokens[row] = table.prompt_tokens[row]
    table.segment[row], table.resume_s[row], table.due_s[row] = 1, resume_s, resume_s + 0.5


def test_the_parked_generation_needed_last_gives_way() -> None:
    table = JobTable()
    for name, resume in (("soon", 10.5), ("later", 30.0), ("waits for a value", math.inf)):
        park(table, name, resume)
    table.add(JobSpec("new", 9.9, prompt_tokens=150))
    assert Pud().compose(table, limits(10.0, free_blocks=0)).evict == ["waits for a value"]
    table.add(JobSpec("another", 9.9, prompt_tokens=150))
    assert Pud().compose(table, limits(10.0, free_blocks=0)).evict == ["waits for a value", "later"]


def test_a_waiting_job_that_cannot_fit_evicts_nobody_and_blocks_only_newcomers() -> None:
    table = JobTable()
    park(table, "parked", 30.0)
    park(table, "resumed", 9.0, blocks=3)
    table.add(JobSpec("huge", 9.95, hints=RequestHints(utility=URGENT), prompt_tokens=16 * 50))
    table.add(
        JobSpec("small", 9.9, hints=RequestHints(utility=TimeUtility(5.0, -0.1, 0.1)), prompt_tokens=16)
    )
    plan = Pud().compose(table, limits(10.0, free_blocks=1))
    assert (list(plan.tokens), plan.evict) == (["resumed"], [])


@pytest.mark.parametrize("gap", [1.0, 0.5, 1e-3])
def test_a_more_important_class_of_vllm_goes_first_in_the_default(gap: float) -> None:
    table = JobTable()
    table.add(JobSpec("urgent", 10.0, hints=RequestHints(utility=URGENT, priority=gap)))
    table.add(JobSpec("plain", 0.0, hints=RequestHints(priority=0.0)))
    assert list(Timely().compose(table, limits(10.0)).tokens)[0] == "plain"  # noqa: RUF015
    assert list(Pud().compose(table, limits(10.0)).tokens)[0] == "urgent"  # noqa: RUF015


def test_the_grammars_worst_case_holds_nobody_back() -> None:
    """A skill set whose longest possible segment has 42 tokens: admission takes the longest seen, at least ten."""
    pud, table = Pud(), JobTable()
    running = table.add(JobSpec("running", 10.0, hints=RequestHints(utility=URGENT), segment_tokens=42))
    table.prefill_left[0], table.resident[0], table.active[0] = 0, True, True
    table.add(JobSpec("new", 10.0, hints=RequestHints(utility=NORMAL), segment_tokens=42))

    def admitted() -> bool:
        limits = StepLimits(10.0, 512, 8, 64, 512, 1000, 16, FixedSpeed(0.012, 0.0, 0.0001))
        return "new" in pud.compose(table, limits).tokens

    assert admitted()  # 10 tokens of 12 ms fit into 200 ms; 42 would not
    lead = pud.lead_s(running, FixedSpeed(0.012, 0.0, 0.0001))
    running.segments.append(Segment(0, "long", 30, 10.0, 1.0))
    pud.parked(running, 10.0)
    assert not admitted()
    assert pud.lead_s(running, FixedSpeed(0.012, 0.0, 0.0001)) == pytest.approx(lead + 2 * 20 * 0.012)
