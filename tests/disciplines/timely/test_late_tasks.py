"""Late tasks beside those that can still be in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from step_driver import Machine, StepDriver, Work
from utility_scene import PROMPT_S, SPEED, STEP_S, complete, dated, join, limits, make_resident

from timely.core.job import JobSpec, JobTable, Segment
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.timely.discipline import Timely
from timely.engines.step_time.learned import FixedSpeed


def test_a_task_that_can_be_in_time_goes_before_a_late_equal() -> None:
    table, discipline = JobTable(), Timely()
    join(
        table, discipline, dated("late", NORMAL, arrival_s=-3.0), dated("in-time", NORMAL, arrival_s=-0.9),
        dated("early", NORMAL),
    )  # fmt: skip
    assert list(discipline.compose(table, limits(max_batch=1)).tokens) == ["in-time"]
    table.remove("in-time")
    assert list(discipline.compose(table, limits(max_batch=1)).tokens) == ["late"]


def test_a_task_whose_first_segment_may_be_short_goes_before_a_late_equal() -> None:
    """First segments have 4 tokens or 16, so up to 16 are expected; with the mean the task would be in time."""
    table, discipline = JobTable(), Timely()
    for number in range(100):
        (job,) = join(table, discipline, replace(dated(str(number), NORMAL), segment_tokens=20))
        job.segments.append(Segment(0, "s", 4 if number % 2 else 16, 0.0, 0.0))
        table.segment[job.row] = 1
        discipline.finished(job, 0.0)
        table.remove(job.job_id)
    waiting = [
        replace(dated(name, NORMAL, prompt=prompt, arrival_s=arrival_s), segment_tokens=20)
        for name, arrival_s, prompt in (("late", -3.0, 90), ("maybe", -0.75, 100))
    ]
    rows = np.array([job.row for job in join(table, discipline, *waiting)])
    slack_s = discipline._numbers(table, limits(max_batch=1)).slack_s[rows]
    assert slack_s.max() < 0.0
    assert list(discipline.compose(table, limits(max_batch=1)).tokens) == ["maybe"]


@pytest.mark.parametrize(("age_s", "joins"), [(0.0, False), (0.88, True)])
def test_a_prompt_that_may_be_late_by_waiting_joins_late_members(age_s: float, joins: bool) -> None:
    """The member is late and has 40 ms of work; the prompt adds 10 ms and has 50 ms left, or nearly a second."""
    table, discipline = JobTable(), Timely()
    (member,) = join(table, discipline, dated("member", NORMAL, arrival_s=-3.0))
    make_resident(member)
    join(table, discipline, dated("new", NORMAL, arrival_s=-age_s))
    assert ("new" in discipline.compose(table, limits()).tokens) is joins


@pytest.mark.parametrize(("prompt_tokens", "joins"), [(1, False), (300, True)])
def test_a_task_expects_prompts_in_its_steps_as_in_recent_ones(prompt_tokens: int, joins: bool) -> None:
    """It has 0.5 s left and decodes for nine steps more, which take 0.03 s longer each with such prompts."""
    table, discipline = JobTable(), Timely()
    now = 0.0
    for number in range(50):
        pair = join(
            table,
            discipline,
            dated(f"member-{number}", NORMAL, arrival_s=now),
            dated(f"prompt-{number}", NORMAL, prompt=prompt_tokens, arrival_s=now),
        )
        make_resident(pair[0])
        assert len(discipline.compose(table, limits(now)).tokens) == 2
        now += STEP_S + PROMPT_S * prompt_tokens
        for job in pair:
            complete(table, discipline, job, now)
    (late,) = join(table, discipline, dated("late", NORMAL, arrival_s=now - 3.0))
    make_resident(late)
    join(table, discipline, replace(dated("new", NORMAL, arrival_s=now - 0.5), segment_tokens=20))
    assert ("new" in discipline.compose(table, limits(now)).tokens) is joins


def promised(name: str, arrival_s: float = 0.0) -> JobSpec:
    spec = dated(name, URGENT, arrival_s=arrival_s)
    return replace(spec, hints=replace(spec.hints, promised=True))


def test_the_earlier_of_two_promised_prompts_goes_first_and_the_other_joins() -> None:
    table, discipline = JobTable(), Timely()
    join(table, discipline, promised("earlier"), promised("later", 0.004))
    # 73 ms until the earlier deadline, and 40 ms of tokens: both prompts of 10 ms fit, and neither can wait.
    assert discipline.compose(table, limits(0.127)).tokens == {"earlier": 100, "later": 100}


@pytest.mark.parametrize(("members", "now"), [(6, 0.135), (9, 0.128)])
def test_the_sequences_of_a_step_do_not_count_twice_against_a_promised_prompt(
    members: int, now: float
) -> None:
    table, discipline = JobTable(), Timely()
    for job in join(table, discipline, *(promised(str(number)) for number in range(members))):
        make_resident(job)
    join(table, discipline, promised("new", 0.004))
    # Two steps of 20 ms and 1 ms a further sequence, and a prompt of 10 ms.
    # So all end 3 or 4 ms before the deadline.
    machine = replace(limits(now, max_batch=32), speed=FixedSpeed(0.02, 0.001, 0.0001))
    assert "new" in discipline.compose(table, machine).tokens


def test_in_overload_most_tasks_are_in_time() -> None:
    """Work for 0.1 s comes every 0.08 s; served in order of arrival all but the first would be late."""
    works = [
        Work(replace(dated(str(number), URGENT, prompt=600), arrival_s=0.08 * number), [(2, 0.0, False)])
        for number in range(60)
    ]
    machine = Machine(max_batch=1, token_budget=4096, prefill_chunk=4096, speed=SPEED)
    fates = StepDriver("timely", works, machine).run().fates.values()
    in_time = [fate for fate in fates if fate.end_s - fate.work.spec.arrival_s <= URGENT.ert_s]
    assert len(in_time) >= 40
