"""Parked plans that decode ahead of time, in a step that costs less than others."""

from __future__ import annotations

import pytest
from utility_scene import dated, join, limits, make_resident

from timely.core.job import JobTable, Segment
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.timely.discipline import Timely

NOW_S = 20.0

PARKED = [f"parked-{number}" for number in range(6)]


def machine_with_late_tasks(count: int, member: TimeUtility = NORMAL) -> tuple[JobTable, Timely]:
    """So many urgent tasks have been late for 10 s, and now another one is; six plans of robots that report wait."""
    table, discipline = JobTable(), Timely()
    late = join(table, discipline, *(dated(f"late-{number}", URGENT) for number in range(count)))
    for job in late:
        make_resident(job)
    for step in range(500):
        discipline.compose(table, limits(10.0 + 0.02 * step, max_batch=32))
    for job in late:
        discipline.finished(job, NOW_S)
        table.remove(job.job_id)
    (last,) = join(table, discipline, dated("member", member))
    make_resident(last)
    for job in join(table, discipline, *(dated(name, NORMAL) for name in PARKED)):
        make_resident(job)
        row = job.row
        table.active[row] = False
        table.segment[row] = 1
        table.due_s[row], table.resume_s[row] = NOW_S + 5.0, NOW_S + 4.0
        job.parked = True
        job.segments.append(Segment(0, "s", 4, 0.0, NOW_S + 5.0, started=True))
        discipline.parked(job, NOW_S)
    return table, discipline


@pytest.mark.parametrize(("late", "joining"), [(2, PARKED), (0, [])])
def test_parked_plans_join_a_late_task_if_other_steps_cost_more(late: int, joining: list[str]) -> None:
    """A second of delay costs the member 2; it cost the late urgent tasks 13."""
    table, discipline = machine_with_late_tasks(late)
    tokens = discipline.compose(table, limits(NOW_S, max_batch=32)).tokens
    assert set(tokens) == {"member", *joining}


def test_parked_plans_never_join_a_late_urgent_task() -> None:
    """However cheap its step is: the others may be due in a step that costs as little and hurts no urgent task."""
    table, discipline = machine_with_late_tasks(2, URGENT)
    assert set(discipline.compose(table, limits(NOW_S, max_batch=32)).tokens) == {"member"}
