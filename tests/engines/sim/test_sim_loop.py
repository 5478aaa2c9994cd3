"""The time of the engine's own loop that grows with its jobs: worked out by hand, and nothing changes without it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sim_cases import profile, random_tasks, run, task

from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import ProfileLimits, StepTimeProfile
from timely.replay.results import replay_job_result

approx = pytest.approx


def machine(shape: StepTimeProfile | None = None, **limits: float) -> StepTimeProfile:
    """The machine of the other tests (10 ms a step), with other limits."""
    shape = shape or profile()
    return shape.model_copy(update={"limits": shape.limits.model_copy(update=limits)})


def one_after_the_other() -> list[PlannedTask]:
    """Two tasks of ten tokens; with one place in a step, the second waits for the end of the first."""
    return [task(job, plan=((10, 1.0),), network_s=0.0) for job in range(2)]


@pytest.mark.parametrize("repeat_steps", [False, True])
def test_a_job_that_waits_makes_each_step_longer(repeat_steps: bool) -> None:
    shape = machine(profile(max_batch=1), loop_waiting_s=0.002)
    simulator = Simulator(ReplayOptions(discipline="fcfs"), shape, repeat_steps=repeat_steps)
    first, second = simulator.run(one_after_the_other()).records
    assert first.ready_s == approx([0.12])
    assert second.ready_s == approx([0.22])


@pytest.mark.parametrize("repeat_steps", [False, True])
def test_a_parked_job_waits_too(repeat_steps: bool) -> None:
    """Task 1 waits for a robot's value from its second token on: the other tokens of task 0 take 12 ms each."""
    shape = machine(loop_waiting_s=0.002)
    look = (PlannedSegment("look", 2, 1.0, blocking=True), PlannedSegment("go", 1, 1.0))
    tasks = [
        task(0, plan=((10, 1.0),), network_s=0.0),
        replace(task(1, network_s=0.0), plan=look),
    ]
    simulator = Simulator(ReplayOptions(discipline="fcfs"), shape, repeat_steps=repeat_steps)
    first, second = simulator.run(tasks).records
    assert second.ready_s[0] == approx(0.02)
    assert first.ready_s == approx([0.02 + 8 * 0.012])


@pytest.mark.parametrize("repeat_steps", [False, True])
def test_disciplines_do_not_learn_it(repeat_steps: bool) -> None:
    """Of 10 ms a step the loop takes 2 for its member, and 2 more while another job waits."""
    shape = machine(profile(max_batch=1), loop_member_s=0.002, loop_waiting_s=0.002)
    simulator = Simulator(ReplayOptions(discipline="fcfs"), shape, repeat_steps=repeat_steps)
    tasks = [task(job, plan=((100, 1.0),), network_s=0.0) for job in range(2)]
    first, second = simulator.run(tasks).records
    assert first.ready_s == approx([1.2])
    assert second.ready_s == approx([2.2])
    assert simulator.controller.speed.step_s(1, 0) == approx(0.008, rel=1e-3)


def test_an_asynchronous_engine_that_drafts_composes_no_step_ahead_so_nothing_hides_it() -> None:
    """A step takes 10 ms, and the loop 2 for its member and 3 for the other job."""
    shape = machine(profile(max_batch=1), asynchronous=True, loop_member_s=0.002, loop_waiting_s=0.003)
    simulator = Simulator(ReplayOptions(discipline="fcfs", draft_tokens=4), shape)
    tasks = [task(job, plan=((100, 1.0),), network_s=0.0) for job in range(2)]
    first, _ = simulator.run(tasks).records
    assert first.ready_s[0] / 0.015 == approx(round(first.ready_s[0] / 0.015))
    assert simulator.controller.speed.step_s(1, 0) == approx(0.01, rel=1e-3)


def test_no_step_takes_less_than_nothing() -> None:
    """The loop is said to take more than whole steps."""
    simulator = Simulator(ReplayOptions(discipline="fcfs"), machine(loop_member_s=0.02))
    simulator.run(one_after_the_other())
    assert simulator.controller.busy_s == 0.0


def test_an_asynchronous_engine_hides_it_behind_a_step() -> None:
    for limits in ({"loop_waiting_s": 0.009}, {"loop_member_s": 0.009}):
        plain, slow = (
            run(
                one_after_the_other(),
                machine(profile(max_batch=1), asynchronous=True, **more),
                discipline="fcfs",
            )
            for more in ({}, limits)
        )
        assert [record.ready_s for record in slow.records] == [record.ready_s for record in plain.records]


def test_an_asynchronous_engine_whose_loop_takes_longer_than_a_step_is_bound_by_it() -> None:
    """Each step is launched 16 ms after its composition, when the one before has been over for 6 ms."""
    shape = machine(profile(max_batch=1), asynchronous=True, loop_member_s=0.004, loop_waiting_s=0.012)
    first, _ = run(one_after_the_other(), shape, discipline="fcfs").records
    assert first.first_token_s == approx(0.016)
    assert first.ready_s == approx([0.16])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("discipline", ["timely", "fcfs"])
def test_slopes_of_nothing_change_nothing(discipline: str, asynchronous: bool) -> None:
    """The same times to the last digit, with a profile that does not name them and one that names zero."""
    shape = machine(profile(blocks=60, per_sequence=0.001), asynchronous=asynchronous, between_s=0.001)
    data = shape.model_dump()
    for name in ("loop_member_s", "loop_waiting_s"):
        assert data["limits"].pop(name) == 0.0
    old = StepTimeProfile.model_validate(data)
    zero = machine(shape, loop_member_s=0.0, loop_waiting_s=0.0)
    before, after = (run(random_tasks(3, 40), one, discipline=discipline) for one in (old, zero))
    assert [replay_job_result(record, before.end_s) for record in before.records] == [
        replay_job_result(record, after.end_s) for record in after.records
    ]
    assert before.counters == after.counters


def test_growth_is_a_sum() -> None:
    limits = ProfileLimits(max_batch=4, token_budget=64, loop_member_s=0.5, loop_waiting_s=0.25)
    assert limits.loop_growth_s(2, 8) == 3.0
