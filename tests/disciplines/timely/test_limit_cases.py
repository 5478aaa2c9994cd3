"""Limit cases of `timely`: one job, equal jobs, no deadlines, all deadlines, light load."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from step_driver import Machine, StepDriver, Work
from utility_scene import SPEED, STEP_S, dated, join, keys, limits, make_resident, ordinary

from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.registry import create_discipline
from timely.disciplines.sagesched.gittins import CostDistribution
from timely.disciplines.timely.discipline import SLOPE, Timely
from timely.engines.step_time.learned import FixedSpeed


@pytest.mark.parametrize("spec", [ordinary("one"), dated("one", NORMAL), dated("one", URGENT)])
def test_one_job_runs_at_once(spec: JobSpec) -> None:
    table, discipline = JobTable(), Timely()
    join(table, discipline, spec)
    assert discipline.compose(table, limits()).tokens == {"one": 100}


def test_equal_jobs_run_in_order_of_arrival() -> None:
    table, discipline = JobTable(), Timely()
    join(table, discipline, *(ordinary(name) for name in "dacbe"))
    assert list(discipline.compose(table, limits(max_batch=3)).tokens) == ["d", "a", "c"]


def test_without_deadlines_it_is_the_gittins_index() -> None:
    """The index of requests of one slot and no cache limit is that of the textbook, at every age."""
    table, discipline = JobTable(), Timely()
    jobs = join(table, discipline, *(ordinary(str(tokens), expected=tokens) for tokens in (8, 30, 90, 300)))
    ages = (0, 24, 48, 200)
    for job, age in zip(jobs, ages, strict=True):
        make_resident(job, age)
    index = keys(discipline, table, max_batch=1)
    for job, age in zip(jobs, ages, strict=True):
        lengths = discipline._requests.lengths[discipline._requests.place(job)]
        textbook = CostDistribution(lengths * STEP_S).index(age * STEP_S)
        expected = SLOPE / textbook if not math.isnan(textbook) else None
        assert expected is None or index[job.job_id] == pytest.approx(expected)
    assert not any(math.isnan(value) for value in index.values())


def test_with_deadlines_only_it_is_the_rule_for_weighted_tardiness() -> None:
    tables = {name: JobTable() for name in ("timely", "weighted-tardiness")}
    rng = np.random.default_rng(3)
    specs = [
        dated(str(number), URGENT if number % 3 else NORMAL, prompt=int(rng.integers(20, 900)),
              arrival_s=-float(rng.uniform(0.0, 3.0)))
        for number in range(12)
    ]  # fmt: skip
    plans = []
    for name, table in tables.items():
        discipline = create_discipline(name)
        join(table, discipline, *specs)
        plans.append(list(discipline.compose(table, limits()).tokens.items()))
    assert plans[0] == plans[1]


def test_light_load_meets_every_deadline_that_earliest_deadline_first_meets() -> None:
    works = [
        Work(
            replace(dated(str(number), URGENT if number % 2 else NORMAL), arrival_s=0.3 * number),
            [(3, 0.5, False)],
        )
        for number in range(20)
    ]
    machine = Machine(max_batch=8, token_budget=1024, prefill_chunk=1024, speed=FixedSpeed(0.01, 0.0, 1e-4))
    for name in ("edf", "timely"):
        driver = StepDriver(name, works, machine, twice=False).run()
        late = [
            job_id for job_id, fate in driver.fates.items()
            if fate.first_token_s + 0.03 - fate.work.spec.arrival_s > fate.work.spec.hints.utility.ert_s
        ]  # fmt: skip
        assert not late, name


def test_earliest_deadline_first_can_be_better_where_one_slot_is_contended() -> None:
    """A counterexample to more: a steep job overtakes, though its deadline is later, and the other is late."""
    tight = dated("tight", TimeUtility(0.32, -0.1, 1.0), prompt=2000)
    steep = dated("steep", TimeUtility(0.6, -20.0, 2.0), prompt=800)
    machine = Machine(max_batch=1, token_budget=4096, prefill_chunk=4096, speed=SPEED)
    late: dict[str, list[object]] = {}
    for name in ("edf", "timely"):
        driver = StepDriver(name, [Work(spec, [(2, 0.0, False)]) for spec in (tight, steep)], machine).run()
        late[name] = [
            job_id for job_id, fate in driver.fates.items() if fate.end_s > fate.work.spec.hints.utility.ert_s
        ]
    assert late == {"edf": [], "timely": ["tight"]}
