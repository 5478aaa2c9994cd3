"""The log of decisions is plain data whatever keys a discipline computes."""

from __future__ import annotations

import json
import math

import numpy as np
from utility_scene import limits

from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, StepLimits
from timely.disciplines.step_builder import KeyedDiscipline
from timely.engines.decision_log import engine_scheduling_choice

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
    choice = engine_scheduling_choice(discipline.compose(table, step), table, discipline, step)
    json.dumps(choice, allow_nan=False)
    assert choice["served"] == [["d", None]]
    assert choice["out"] == [["e", 2.0], ["c", 1.0], ["b", None], ["a", None]]
