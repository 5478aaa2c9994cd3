"""TimelyLLM's scheduler by the paper: its constants, Eq. 4 worked out by hand, admission of section 4.4, the queue."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.bench.papers.timelyllm import runs
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.base import StepLimits
from timely.disciplines.timely.discipline import Timely
from timely.disciplines.timelyllm import constants
from timely.disciplines.timelyllm.pud import Pud
from timely.engines.replay_types import ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.learned import FixedSpeed
from timely.engines.step_time.profile import load_step_profile

TOKEN_S, PREFILL_S = 0.02, 0.0003
SPEED = FixedSpeed(TOKEN_S, 0.0, PREFILL_S)


def limits(now: float, **changes: Any) -> StepLimits:
    values = {
        "token_budget": 4096, "max_batch": 64, "max_resident": 64, "prefill_chunk": 4096, "free_blocks": 10_000,
        "block_tokens": 16,
    } | changes  # fmt: skip
    return StepLimits(now=now, speed=SPEED, **values)


def test_the_constants_are_the_papers() -> None:
    assert constants.SEGMENT_GENERATION_S == 0.090  # section 7.1
    assert constants.LONGEST_SEGMENT_TOKENS == 10  # section 7.1
    assert constants.SUSPENDED_ERT_S == 0.0  # section 4.2
    # Section 7.1: the slopes follow from the cutoffs, 1.5 s and 0.5 s.
    assert (NORMAL.ert_s, NORMAL.beta, NORMAL.alpha) == (1.0, 1.0, -2.0)
    assert (URGENT.ert_s, URGENT.beta) == (0.2, 2.0)
    assert URGENT.alpha == pytest.approx(-2.0 / 0.3, abs=0.01)


# ---------------------------------------------------------------- Eq. 4


def key(tuf: TimeUtility, age_s: float, **spec: Any) -> float:
    """Priority of a first segment whose request arrived so long ago."""
    table = JobTable()
    table.add(JobSpec("a", 10.0 - age_s, **with_hints({"utility": tuf, **spec})))
    return float(Pud().keys(table, limits(10.0))[0])


@pytest.mark.parametrize(
    ("tuf", "age_s", "by_hand"),
    [
        # Just arrived: W = 90 ms < ERT, U = beta, L = ERT - 90 ms.
        (URGENT, 0.0, 2.0 / (0.09 * 0.11)),
        (NORMAL, 0.0, 1.0 / (0.09 * 0.91)),
        # A normal request after 0.8 s: W = 0.89 s, L = 0.11 s. Half of what the urgent one has.
        (NORMAL, 0.8, 1.0 / (0.09 * 0.11)),
        # An urgent one after 210 ms: W = 0.3 s, U = 2 - 6.67 * 0.1 = 1.333, and L ends at one token's 20 ms.
        (URGENT, 0.21, 1.333 / (0.09 * 0.02)),
        # A normal one after 1.16 s: W = 1.25 s, U = 1 - 2 * 0.25 = 0.5.
        (NORMAL, 1.16, 0.5 / (0.09 * 0.02)),
    ],
)
def test_eq_4_by_hand(tuf: TimeUtility, age_s: float, by_hand: float) -> None:
    assert key(tuf, age_s) == pytest.approx(by_hand, rel=1e-3)


def test_eq_4_of_a_suspended_generation_by_hand() -> None:
    """The robot runs dry in 0.59 s: W = 0, U = beta, and L = 0.59 - 0.09 = 0.5 s, since its ERT is zero."""
    table = JobTable()
    job = table.add(JobSpec("a", 0.0, RequestHints(NORMAL)))
    table.segment[job.row], table.due_s[job.row] = 1, 10.59
    assert Pud().keys(table, limits(10.0))[0] == pytest.approx(1.0 / (0.09 * 0.5))


def test_the_generation_time_is_the_papers_whatever_is_left_to_generate() -> None:
    table = JobTable()
    for name, prompt, tokens in (("a", 10, 0), ("b", 2000, 9)):
        job = table.add(JobSpec(name, 9.5, RequestHints(NORMAL), prompt_tokens=prompt))
        table.segment_tokens[job.row] = tokens
    first, second = Pud().keys(table, limits(10.0))
    assert first == second


def eq4(job: Job, now: float) -> float:
    """The priority of one job with the paper's symbols."""
    table, row = job.table, job.row
    g = 0.090
    tuf = job.spec.hints.utility
    if table.segment[row] > 0:
        tuf = replace(tuf, ert_s=0.0)  # TUF_1 of a suspended generation, section 4.2: no grace
    ready = now + g + job.spec.hints.network_s
    u = tuf.value(max(0.0, ready - float(table.due_s[row])))
    if u <= 0.0:
        return -1.0 / (1e-9 + abs(tuf.alpha) / g)
    slack = job.spec.hints.utility.ert_s if tuf.alpha == 0.0 else float(table.due_s[row]) + tuf.ert_s - ready
    return u / (g * max(slack, TOKEN_S))


jobs = st.fixed_dictionaries(
    {
        "ert": st.floats(0.0, 3.0),
        "alpha": st.sampled_from([0.0, -0.1, -2.0, -6.67]),
        "beta": st.floats(0.1, 3.0),
        "age": st.floats(0.0, 5.0),
        "due_in": st.floats(-5.0, 5.0),
        "segment": st.integers(0, 4),
        "network": st.floats(0.0, 0.1),
    }
)


@settings(max_examples=examples(150))
@given(st.lists(jobs, min_size=1, max_size=12))
def test_all_rows_at_once_equal_eq4_one_by_one(cases: list[dict[str, Any]]) -> None:
    table, now = JobTable(), 10.0
    for name, case in enumerate(cases):
        tuf = TimeUtility(case["ert"], case["alpha"], case["beta"])
        job = table.add(
            JobSpec(name, now - case["age"], RequestHints(utility=tuf, network_s=case["network"]))
        )
        table.segment[job.row] = case["segment"]
        if case["segment"]:
            table.due_s[job.row] = now + case["due_in"]
    keys = Pud().keys(table, limits(now))
    np.testing.assert_allclose(keys, [eq4(job, now) for job in table], rtol=1e-12)


def test_priority_grows_until_the_deadline_and_is_continuous_there() -> None:
    keys = [key(NORMAL, float(age_s)) for age_s in np.linspace(0.0, 0.889, 200)]
    assert all(later > earlier for earlier, later in itertools.pairwise(keys))
    assert key(NORMAL, 0.91 - 1e-9) == pytest.approx(key(NORMAL, 0.91 + 1e-9), rel=1e-5)


def test_late_but_before_the_cutoff_it_falls_with_utility() -> None:
    keys = [key(NORMAL, age_s) for age_s in (1.0, 1.1, 1.2, 1.3)]
    assert keys == sorted(keys, reverse=True)
    assert keys[-1] > 0.0


def test_past_the_cutoff_it_ranks_below_all_that_can_gain() -> None:
    hopeless = key(NORMAL, 5.0)
    assert hopeless < 0.0 < key(NORMAL, 1.405) < key(NORMAL, 0.0)
    # Lateness does not count: two of a kind are equal, and the steeper loss goes first.
    assert hopeless == key(NORMAL, 50.0)
    assert key(URGENT, 5.0) > hopeless


def test_a_flat_utility_does_not_rise_for_ever() -> None:
    flat = TimeUtility(1.0, 0.0, 1.0)
    assert key(flat, 0.0) == key(flat, 100.0)
    assert key(flat, 100.0) < key(URGENT, 0.0)


# ---------------------------------------------------------------- section 4.4


def pool(urgent_left_s: float, generated: int = 0, tuf: TimeUtility = NORMAL) -> JobTable:
    """One job in the pool with so long to its deadline, one waiting."""
    table = JobTable()
    running = table.add(
        JobSpec("running", 10.0 + urgent_left_s - tuf.ert_s, RequestHints(tuf), segment_tokens=42)
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
        (0.21, 0, True), (0.19, 0, False),       # ten tokens at 20 ms each, whatever the grammar's worst case
        (0.07, 7, True), (0.05, 7, False),       # three left
        (0.03, 15, True), (0.01, 15, False),     # longer than the maximum: one more at least
        (-0.3, 0, False), (-0.6, 0, False),      # late
    ],
)  # fmt: skip
def test_others_join_while_the_most_urgent_makes_it_at_its_longest(
    left_s: float, generated: int, joins: bool
) -> None:
    plan = Pud().compose(pool(left_s, generated), limits(10.0))
    assert list(plan.tokens) == (["running", "waiting"] if joins else ["running"])


def test_admission_stays_open_for_a_flat_utility() -> None:
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


def test_long_segments_teach_nothing() -> None:
    pud, table = Pud(), pool(0.21)
    running = table["running"]
    running.segments.append(Segment(0, "long", 30, 10.0, 1.0))
    before = pud.keys(table, limits(10.0)).tolist()
    pud.parked(running, 10.0)
    assert pud.keys(table, limits(10.0)).tolist() == before
    assert list(pud.compose(table, limits(10.0)).tokens) == ["running", "waiting"]


def test_a_suspended_generation_is_in_the_queue_at_once() -> None:
    table = JobTable()
    job = table.add(JobSpec("a", 0.0))
    assert Pud().lead_s(job, SPEED) == math.inf


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


def test_a_waiting_job_that_cannot_fit_evicts_nothing_and_blocks_only_new_jobs() -> None:
    table = JobTable()
    park(table, "parked", 30.0)
    park(table, "resumed", 9.0, blocks=3)
    table.add(JobSpec("huge", 9.95, RequestHints(URGENT), prompt_tokens=16 * 50))
    table.add(JobSpec("small", 9.9, RequestHints(TimeUtility(5.0, -0.1, 0.1)), prompt_tokens=16))
    plan = Pud().compose(table, limits(10.0, free_blocks=1))
    assert (list(plan.tokens), plan.evict) == (["resumed"], [])


@pytest.mark.parametrize("gap", [1.0, 0.5, 1e-3])
def test_a_more_important_class_of_vllm_goes_first_in_the_default(gap: float) -> None:
    table, default = JobTable(), Timely()
    default.arrived(table.add(JobSpec("urgent", 10.0, RequestHints(URGENT, priority=gap))), 10.0)
    default.arrived(table.add(JobSpec("plain", 0.0, RequestHints(priority=0.0))), 10.0)
    assert list(default.compose(table, limits(10.0)).tokens)[0] == "plain"  # noqa: RUF015
    assert list(Pud().compose(table, limits(10.0)).tokens)[0] == "urgent"  # noqa: RUF015


# ---------------------------------------------------------------- blocking calls inside a workload


def test_a_blocking_call_in_wid_2_waits_for_its_value_and_the_others_go_on() -> None:
    """Section 8: a generation with a blocking call waits, and is queued again when the value is there."""
    tasks, _ = runs.paper_workload("wid2", 1, 100)
    target = next(place for place, task in enumerate(tasks) if len(task.plan) > 1)
    plan = (replace(tasks[target].plan[0], blocking=True, execution_s=2.0), *tasks[target].plan[1:])
    changed = [*tasks[:target], replace(tasks[target], plan=plan), *tasks[target + 1 : target + 41]]
    options = ReplayOptions(discipline="pud", journal=False, warm_prefixes=True)
    simulator = Simulator(options, load_step_profile(runs.PROFILE), discipline=Pud())
    events: list[Mapping[str, Any]] = []
    simulator.controller.journal = events.append
    records = simulator.run(changed).records
    assert all(record.outcome == "complete" for record in records)
    record = records[target]
    value_s = record.end_s[0] + record.task.hints.network_s
    assert record.ready_s[1] >= value_s
    members = [
        e["tokens"] for e in events if e["event"] == "step" and record.ready_s[0] <= e["t_s"] < value_s
    ]
    assert any(members)
    assert not any(record.task.job in step for step in members)
