"""The table of jobs: dense rows that move, columns that follow, against a plain dictionary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from examples import examples
from timely.core.hints import RequestHints
from timely.core.job import COLUMNS, Job, JobSpec, JobTable
from timely.core.utility import TimeUtility


class TableAgainstDictionary(RuleBasedStateMachine):
    """Adds, removes and writes at random; every job's numbers stay with it wherever its row goes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = JobTable(capacity=2)
        self.jobs: dict[int, Job] = {}
        self.values: dict[int, dict[str, Any]] = {}
        self.added = 0

    @rule(prompt=st.integers(1, 500), cached=st.integers(0, 600), arrival=st.floats(0.0, 100.0))
    def add(self, prompt: int, cached: int, arrival: float) -> None:
        job_id = self.added
        self.added += 1
        spec = JobSpec(job_id, arrival, prompt_tokens=prompt, cached_tokens=cached)
        job = self.jobs[job_id] = self.table.add(spec)
        assert job.row == len(self.table) - 1
        self.values[job_id] = {name: getattr(self.table, name)[job.row].item() for name in COLUMNS}
        assert self.values[job_id]["sequence"] == job_id
        assert self.values[job_id]["prefill_left"] == max(1, prompt - cached)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        job = self.table.remove(job_id)
        assert job is self.jobs.pop(job_id)
        assert job.row == -1
        del self.values[job_id]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), number=st.integers(0, 1000))
    def write(self, data: st.DataObject, number: int) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.jobs)))
        for name in COLUMNS:
            value = COLUMNS[name](number % 2 if COLUMNS[name] is np.bool_ else number).item()
            if name != "sequence":
                getattr(self.table, name)[self.jobs[job_id].row] = value
                self.values[job_id][name] = value

    @invariant()
    def rows_are_dense_and_follow_their_jobs(self) -> None:
        table = self.table
        assert len(table) == len(self.jobs)
        assert sorted(job.row for job in self.jobs.values()) == list(range(len(table)))
        assert [job.row for job in table.jobs] == list(range(len(table)))
        job_ids = [*self.jobs, self.added]
        for _ in range(2):
            assert table.rows(job_ids).tolist() == [*(job.row for job in self.jobs.values()), -1]
            assert table.rows(job_ids[:-1]).tolist() == [job.row for job in self.jobs.values()]
        for name in COLUMNS:
            assert getattr(table, name).shape == (len(table),)
        for job_id, job in self.jobs.items():
            assert job_id in table
            assert table[job_id] is table.get(job_id) is table.jobs[job.row] is job
            for name, value in self.values[job_id].items():
                held = getattr(table, name)[job.row].item()
                assert held == value or (math.isnan(held) and math.isnan(value)), name


TestTableAgainstDictionary = pytest.mark.process(TableAgainstDictionary.TestCase)
TestTableAgainstDictionary.settings = settings(max_examples=examples(40), stateful_step_count=40)


def test_a_new_row_holds_what_the_spec_says() -> None:
    table = JobTable()
    spec = JobSpec(
        "a",
        3.0,
        prompt_tokens=100,
        cached_tokens=96,
        segment_tokens=14,
        segmented=False,
        hints=RequestHints(
            utility=TimeUtility(0.2, -6.67, 2.0),
            network_s=0.008,
            priority=-1.0,
            urgency=0,
            expected_tokens=55.0,
            pace_s=0.05,
        ),
    )
    row = table.add(spec).row
    expected = {
        "arrival_s": 3.0, "due_s": 3.0, "ert_s": 0.2, "alpha": -6.67, "beta": 2.0, "network_s": 0.008,
        "resume_s": -math.inf, "priority": -1.0, "expected_tokens": 55.0, "attained_s": 0.0, "segment": 0,
        "pace_s": 0.05, "segment_bound": 14, "prompt_tokens": 100, "prefill_left": 4, "urgency": 0, "blocks": 0,
        "resident": False, "active": False, "segmented": False,
    }  # fmt: skip
    assert {name: getattr(table, name)[row].item() for name in expected} == expected


def test_what_is_unknown_is_marked_so() -> None:
    table = JobTable()
    row = table.add(JobSpec("a", 0.0)).row
    assert math.isnan(table.expected_tokens[row])
    assert math.isnan(table.pace_s[row])
    assert table.urgency[row] == 5


def test_a_reused_row_keeps_nothing_of_its_former_job() -> None:
    table = JobTable()
    row = table.add(JobSpec("a", 0.0)).row
    for name in COLUMNS:
        getattr(table, name)[row] = 1
    table.remove("a")
    fresh = JobTable()
    fresh.add(JobSpec("x", 9.0))
    fresh.remove("x")
    table.add(JobSpec("b", 1.0))
    fresh.add(JobSpec("b", 1.0))
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(table, name), getattr(fresh, name), err_msg=name)


def test_two_jobs_of_one_name_are_refused() -> None:
    table = JobTable()
    table.add(JobSpec("a", 0.0))
    with pytest.raises(KeyError, match="already here"):
        table.add(JobSpec("a", 1.0))
    assert len(table) == 1
    with pytest.raises(KeyError):
        table.remove("b")
    assert table.get("b") is None
