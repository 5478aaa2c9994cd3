"""The contract every registered discipline keeps: parametrised over the registry, so nothing registered skips it."""

from __future__ import annotations

import gc
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from step_driver import Machine, StepDriver, Work, check_plan, random_chats, random_works, snapshot

from examples import examples
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.basic import Fcfs
from timely.engines.step_time.learned import FixedSpeed

NAMES = registry.discipline_names()
ROOMY = Machine()
TIGHT = Machine(blocks=60, max_batch=4, max_resident=6, token_budget=96, prefill_chunk=64)
"""Room for about three prompts: parked generations and running ones have to give way."""
SWAPPING = replace(TIGHT, swap_s_per_token=1e-5)
SPAN_S = 1.0 + examples(7)
"""All jobs arrive within it; a run with fewer jobs is shorter, and just as dense."""


def finish_all(driver: StepDriver) -> None:
    driver.run()
    for job_id, fate in driver.fates.items():
        work = fate.work
        assert fate.outcome in ("complete", "cancelled"), f"{job_id} was lost"
        if work.cancel_s == math.inf:
            assert fate.outcome == "complete"
        if fate.outcome == "complete":
            assert fate.emitted == [tokens for tokens, _, _ in work.segments], "lost or repeated tokens"
    assert len(driver.table) == 0


# ---------------------------------------------------------------- every run, under every condition


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("machine", "seed"), [(ROOMY, 1), (TIGHT, 2), (SWAPPING, 3)], ids=["roomy", "tight", "swapping"]
)
def test_no_job_is_lost_and_every_plan_keeps_the_contract(name: str, machine: Machine, seed: int) -> None:
    """Parking, blocking skills, reports late and twice, cancels, speculation, memory pressure."""
    works = random_works(seed, 4 + examples(20), span_s=SPAN_S)
    finish_all(StepDriver(name, works, machine, seed=seed))


@pytest.mark.parametrize("name", NAMES)
def test_a_spike_all_at_once(name: str) -> None:
    works = random_works(3, examples(40), span_s=0.0)
    finish_all(StepDriver(name, works, TIGHT, twice=False))


@pytest.mark.parametrize("name", NAMES)
def test_memory_for_one_job_only_still_serves_all(name: str) -> None:
    """Each context needs nearly all blocks: whoever runs has evicted the others, and all get there."""
    machine = Machine(blocks=24, max_batch=4, max_resident=8, token_budget=512, prefill_chunk=512)
    works = [
        replace(work, spec=replace(work.spec, prompt_tokens=250))
        for work in random_works(4, 8, span_s=0.5)
        if work.tokens <= 100
    ]
    finish_all(StepDriver(name, works, machine))


@pytest.mark.parametrize("name", NAMES)
def test_switching_at_any_time_loses_and_repeats_nothing(name: str) -> None:
    driver = StepDriver(name, random_works(5, 8 + examples(22), span_s=SPAN_S), TIGHT, seed=5)
    rng = np.random.default_rng(5)
    last_s = SPAN_S + 4.0
    for when in np.sort(rng.uniform(0.0, last_s, size=12)):
        driver.switch_at(float(when), str(rng.choice(NAMES)))
    driver.switch_at(last_s + 0.5, name)
    finish_all(driver)


WORKS = {
    "all kinds": random_works(6, 4 + examples(26), span_s=SPAN_S),
    "chats": random_chats(6, 8 + examples(32), span_s=SPAN_S),
}


def decisions(name: str, kind: str, *, recorded: bool, maintain: bool) -> list[object]:
    driver = StepDriver(
        name, WORKS[kind], TIGHT, seed=6, twice=False, recorded=recorded, maintain=maintain
    ).run()
    assert any("choice" in event for event in driver.journal) == recorded
    return [(t, list(plan.tokens.items()), plan.evict, plan.wake_s) for t, plan in driver.plans]


@pytest.mark.parametrize("kind", WORKS)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_run_decides_the_same_recorded_and_unmaintained(name: str, kind: str) -> None:
    """``timely`` predicted lengths earlier for the record, so from fewer answers."""
    plain = decisions(name, kind, recorded=False, maintain=True)
    assert decisions(name, kind, recorded=True, maintain=False) == plain


# ---------------------------------------------------------------- single plans on arbitrary states


def state(draw_seed: int, jobs: int, machine: Machine) -> tuple[JobTable, list[JobSpec], np.random.Generator]:
    rng = np.random.default_rng(draw_seed)
    table = JobTable(capacity=1)
    specs = [work.spec for work in random_works(draw_seed, jobs, span_s=4.0)]
    free, residents = machine.blocks, machine.max_resident
    for spec in specs:
        job = table.add(spec)
        row = job.row
        blocks = -(-spec.prompt_tokens // machine.block_tokens)
        if rng.random() < 0.6 and blocks + 1 <= free and residents:
            residents -= 1
            table.resident[row] = True
            output = int(rng.integers(0, 12))
            table.output_tokens[row] = table.segment_tokens[row] = output
            table.context_tokens[row] = spec.prompt_tokens + output
            table.blocks[row] = -(-int(table.context_tokens[row]) // machine.block_tokens)
            free -= int(table.blocks[row])
            table.prefill_left[row] = 0 if rng.random() < 0.8 else int(rng.integers(1, 60))
            kind = rng.random()
            if kind < 0.4:
                table.active[row] = True
            elif kind < 0.8:
                table.resume_s[row] = rng.uniform(0.0, 10.0)
                table.segment[row] = 1
                table.due_s[row] = table.resume_s[row] + 0.5
                table.segment_tokens[row] = 0
            else:
                table.resume_s[row] = math.inf
    return table, specs, rng


def limits_for(table: JobTable, machine: Machine, now: float) -> StepLimits:
    return StepLimits(
        now, machine.token_budget, machine.max_batch, machine.max_resident, machine.prefill_chunk,
        machine.blocks - int(table.blocks.sum()), machine.block_tokens, FixedSpeed(), machine.swap_s_per_token,
    )  # fmt: skip


def events(name: str, table: JobTable) -> Discipline:
    """A discipline that has heard of the jobs in the order they arrived, as after a switch."""
    discipline = registry.create_discipline(name)
    for job in sorted(table, key=lambda job: int(table.sequence[job.row])):
        discipline.arrived(job, 5.0)
    return discipline


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=examples(25),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10_000), jobs=st.integers(0, 40), now=st.floats(4.0, 11.0), tight=st.booleans())
def test_any_state_gives_a_lawful_plan_twice(
    name: str, seed: int, jobs: int, now: float, tight: bool
) -> None:
    machine = TIGHT if tight else ROOMY
    table, _, _ = state(seed, jobs, machine)
    discipline = events(name, table)
    limits = limits_for(table, machine, now)
    before = snapshot(table)
    plan = discipline.compose(table, limits)
    again = discipline.compose(table, limits)
    assert (list(plan.tokens.items()), plan.evict, plan.keep, plan.wake_s) == (
        list(again.tokens.items()), again.evict, again.keep, again.wake_s,
    )  # fmt: skip
    assert snapshot(table) == before, "compose changed the table"
    check_plan(table, limits, plan)


def garbage_of_steps(discipline: Discipline, table: JobTable, machine: Machine) -> int:
    """Objects in cycles that three composed steps made and left behind."""
    discipline.compose(table, limits_for(table, machine, 4.0))
    gc.collect(1)
    gc.disable()
    try:
        for now in (4.5, 5.0, 9.0):
            discipline.compose(table, limits_for(table, machine, now))
        return gc.collect(1)  # of what is new; no object from before has left
    finally:
        gc.enable()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", [ROOMY, TIGHT], ids=["roomy", "tight"])
def test_a_composed_step_needs_no_garbage_collection(name: str, machine: Machine) -> None:
    """A collection stops server or engine; a cycle in every step would bring one about."""
    table, _, _ = state(3, 30, machine)
    assert garbage_of_steps(events(name, table), table, machine) == 0


@pytest.mark.parametrize("keeps", [False, True], ids=["dropped at once", "kept until the next step"])
def test_a_cycle_in_every_step_is_seen(keeps: bool) -> None:
    class Cyclic(Fcfs):
        kept: list[object] | None = None

        def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
            cycle: list[object] = []
            cycle.append(cycle)
            if keeps:
                self.kept = cycle
            return super().compose(table, limits)

    assert garbage_of_steps(Cyclic(), JobTable(), ROOMY) == (2 if keeps else 3)


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_matter(name: str) -> None:
    """The same jobs in other rows of the table: the same decision. Rows move whenever a job leaves."""
    specs = [work.spec for work in random_works(7, 20, span_s=0.0)]

    def plan(decoys: int) -> list[tuple[object, int]]:
        table = JobTable(capacity=2)
        discipline = registry.create_discipline(name)
        for index, spec in enumerate(specs):
            if index < decoys:
                table.add(JobSpec(job_id=("decoy", index), arrival_s=0.0))
            discipline.arrived(table.add(spec), 0.0)
        for index in range(decoys):
            table.remove(("decoy", index))
        return list(discipline.compose(table, limits_for(table, ROOMY, 0.5)).tokens.items())

    assert plan(0) == plan(6) == plan(13)


@pytest.mark.parametrize("name", NAMES)
def test_equal_jobs_run_in_order_of_arrival(name: str) -> None:
    table = JobTable()
    discipline = registry.create_discipline(name)
    for index in (3, 0, 2, 1, 5, 4, 6, 7):
        spec = JobSpec(
            job_id=index,
            arrival_s=0.0,
            prompt_tokens=16,
            hints=RequestHints(urgency=2, app="a", app_requests=8, expected_tokens=20.0),
            text="the same",
        )
        discipline.arrived(table.add(spec), 0.0)
    machine = replace(ROOMY, max_batch=3)
    assert list(discipline.compose(table, limits_for(table, machine, 0.0)).tokens) == [3, 0, 2]


def run_one_segment(job: Job, resume_s: float) -> None:
    """The job has generated its first segment and is parked until then."""
    table, row = job.table, job.row
    job.parked = True
    table.resident[row] = True
    table.context_tokens[row], table.blocks[row], table.prefill_left[row] = 45, 3, 0
    table.segment[row], table.output_tokens[row] = 1, 5
    table.due_s[row], table.resume_s[row] = resume_s + 1.0, resume_s


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_and_one_where_all_are_parked(name: str) -> None:
    table = JobTable()
    discipline = registry.create_discipline(name)
    plan = discipline.compose(table, limits_for(table, ROOMY, 0.0))
    assert (plan.tokens, plan.evict, plan.wake_s) == ({}, [], math.inf)
    for index, resume in enumerate((7.0, 3.5, math.inf)):
        job = table.add(JobSpec(job_id=index, arrival_s=0.0, hints=RequestHints(urgency=1)))
        run_one_segment(job, resume)
        discipline.arrived(job, 1.0)
    assert discipline.compose(table, limits_for(table, ROOMY, 1.0)).wake_s == 3.5
    table.resume_s[:] = math.inf
    for job in table:
        discipline.due_changed(job, 1.0)
    assert discipline.compose(table, limits_for(table, ROOMY, 1.0)).wake_s == math.inf


@pytest.mark.parametrize("name", NAMES)
def test_a_parked_job_comes_back_when_it_is_due(name: str) -> None:
    """Runnable from ``resume_s`` on, not before, without anybody saying so."""
    table = JobTable()
    discipline = registry.create_discipline(name)
    job = table.add(
        JobSpec(
            job_id="r", arrival_s=0.0, prompt_tokens=40, hints=RequestHints(urgency=1, expected_tokens=30.0)
        )
    )
    discipline.arrived(job, 0.0)
    assert list(discipline.compose(table, limits_for(table, ROOMY, 0.5)).tokens) == ["r"]
    discipline.progressed(job, 5, 1.0)
    row = job.row
    run_one_segment(job, 3.0)
    discipline.parked(job, 1.0)
    early = discipline.compose(table, limits_for(table, ROOMY, 2.9))
    assert (early.tokens, early.wake_s) == ({}, 3.0)
    assert list(discipline.compose(table, limits_for(table, ROOMY, 3.0)).tokens) == ["r"]
    table.resume_s[row] = 5.0
    discipline.due_changed(job, 3.1)
    assert not discipline.compose(table, limits_for(table, ROOMY, 3.2)).tokens
    table.resume_s[row] = -math.inf
    discipline.due_changed(job, 3.3)
    assert list(discipline.compose(table, limits_for(table, ROOMY, 3.4)).tokens) == ["r"]


# ---------------------------------------------------------------- starvation


PATIENT = TimeUtility(20.0, -0.01, 0.1)
ORDINARY = JobSpec(
    "v",
    1.0,
    prompt_tokens=32,
    hints=RequestHints(urgency=2, expected_tokens=12.0, app="v", app_requests=1),
    segmented=False,
)
VICTIMS: dict[str, JobSpec] = {
    "patient": replace(ORDINARY, hints=replace(ORDINARY.hints, utility=PATIENT)),
    "long": replace(ORDINARY, hints=replace(ORDINARY.hints, expected_tokens=40.0)),
    "unimportant": replace(ORDINARY, hints=replace(ORDINARY.hints, urgency=4, priority=3.0)),
    "late": replace(ORDINARY, hints=replace(ORDINARY.hints, utility=URGENT)),
    "stranger": JobSpec(
        "v", 1.0, prompt_tokens=32, hints=RequestHints(expected_tokens=12.0), segmented=False
    ),
}


@pytest.mark.process
@pytest.mark.parametrize("name", [name for name in NAMES if not registry.load_discipline(name).info.starves])
@pytest.mark.parametrize("kind", VICTIMS)
def test_nobody_starves_unless_the_discipline_says_so(name: str, kind: str) -> None:
    """An endless stream takes a fifth more than the machine has, and has for a second when somebody else comes."""
    works = [Work(VICTIMS[kind], [(40 if kind == "long" else 12, 0.0, False)])]
    rng = np.random.default_rng(11)
    for index in range(600):
        spec = JobSpec(
            job_id=index,
            arrival_s=0.02 + 0.05 * index,
            prompt_tokens=int(rng.integers(8, 64)),
            segmented=False,
            hints=RequestHints(
                utility=NORMAL if index % 3 else URGENT,
                urgency=1,
                expected_tokens=12.0,
                app=f"stream{index // 3}",
                app_requests=3,
            ),
            acceptance=0.6,
        )
        works.append(Work(spec, [(int(rng.integers(8, 16)), 0.0, False)]))
    driver = StepDriver(name, works, replace(TIGHT, max_batch=2), twice=False, maintain=False)
    until_s = 1.0
    while until_s < 30.0 and driver.fates["v"].outcome != "complete":
        until_s += 1.0
        driver.run(until_s)
    assert driver.fates["v"].outcome == "complete"
    if kind == "patient":  # the streams of all kinds are equal
        driver.run(until_s=30.0)
        assert len(driver.table) > 50, "the stream was not endless enough to show anything"


# ---------------------------------------------------------------- how it presents itself


@pytest.mark.parametrize("name", NAMES)
def test_it_presents_itself(name: str) -> None:
    info = registry.load_discipline(name).info
    assert info.name == name
    assert info.summary
    assert info.source
    assert info.good_at
    assert isinstance(info.needs, tuple)


def test_the_registry_names_what_it_knows() -> None:
    from timely.core.errors import UnknownName

    with pytest.raises(UnknownName, match=r"unknown discipline 'nope'; known: .*\bfcfs\b"):
        registry.create_discipline("nope")
    assert registry.discipline_infos()[0].name == registry.DEFAULT
    assert sorted(info.name for info in registry.discipline_infos()) == NAMES
