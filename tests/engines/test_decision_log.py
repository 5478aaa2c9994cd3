"""The log of decisions is plain data whatever keys a discipline computes."""

from __future__ import annotations

import json
import math

import numpy as np
from utility_scene import dated, join, limits, ordinary

from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline
from timely.disciplines.timely.discipline import Timely
from timely.engines.decision_log import MAX_LEFT_OUT, engine_scheduling_choice

KEYS = {"a": math.nan, "b": -math.inf, "c": 1.0, "d": math.inf, "e": 2.0}


class GivenKeys(KeyedDiscipline):
    info = DisciplineInfo(name="given", summary="keys from a table", source="this test")

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        return np.array([KEYS[str(job.job_id)] for job in table])


def test_a_key_that_is_no_finite_number_is_none_and_nan_is_the_least_important() -> None:
    table = JobTable()
    for name in KEYS:
        table.add(JobSpec(name, 0.0, prompt_tokens=4))
    step = limits(token_budget=4, max_batch=1)
    discipline = GivenKeys()
    choice = engine_scheduling_choice(discipline.compose(table, step), table, step.now)
    json.dumps(choice, allow_nan=False)
    assert choice["served"] == [["d", None]]
    assert choice["out"] == [["e", 2.0], ["c", 1.0], ["b", None], ["a", None]]


def test_keys_are_those_of_the_decision_and_not_computed_again() -> None:
    """With 1,000 jobs a record computed most of the decision twice."""
    table, discipline = JobTable(), Timely()
    join(table, discipline, *(dated(str(number), NORMAL, prompt=50 + number) for number in range(400)))
    step = limits(1.0, max_batch=2)
    plan = discipline.compose(table, step)
    assert plan.keys is not None
    rows, keys = plan.keys
    key_of = {table.jobs[row].job_id: float(f"{key:.6g}") for row, key in zip(rows, keys, strict=True)}
    choice = engine_scheduling_choice(plan, table, step.now)
    assert choice["left"] == 398
    for side in ("served", "out"):
        assert choice[side] == [[job_id, key_of[job_id]] for job_id, _ in choice[side]]
    best = sorted((key for job_id, key in key_of.items() if job_id not in plan.tokens), reverse=True)
    assert [key for _, key in choice["out"]] == best[:MAX_LEFT_OUT]


def test_requests_in_the_order_of_arrival_have_no_keys() -> None:
    table, discipline = JobTable(), Timely()
    join(table, discipline, *(ordinary(name, expected=None) for name in "abc"))
    step = limits(max_batch=1)
    choice = engine_scheduling_choice(discipline.compose(table, step), table, step.now)
    assert (choice["served"], choice["out"]) == ([["a", None]], [["b", None], ["c", None]])
