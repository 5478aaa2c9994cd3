"""Requests of an application that wait for each other's answers, on the simulator's clock."""

from __future__ import annotations

import pytest
from hints import with_hints

from timely.core.errors import InvalidInput
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.basic import Fcfs
from timely.engines.replay_types import BackendRun, PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile


def task(job: int, tokens: int, *, after: tuple[int, ...] = (), **fields: object) -> PlannedTask:
    defaults: dict[str, object] = {"arrival_s": 0.0, "app": "a", "prompt_tokens": 16, "max_tokens": 512}
    return PlannedTask(
        job, plan=(PlannedSegment("", tokens, 0.0),), after=after, **with_hints({**defaults, **fields})
    )


def simulate(*tasks: PlannedTask, discipline: Discipline | None = None, **options: object) -> BackendRun:
    chosen = ReplayOptions(discipline="fcfs", mode="whole", journal=False, **options)  # type: ignore[arg-type]
    return Simulator(chosen, load_step_profile("unit"), discipline=discipline).run(tasks)


def test_a_request_is_sent_when_those_it_needs_have_ended() -> None:
    """Steps of 10 ms: a prompt takes one and gives the first token."""
    run = simulate(task(0, 5), task(1, 9), task(2, 3, after=(0, 1), after_s=0.5), task(3, 1, after=(2,)))
    first = {record.task.job: record.first_token_s for record in run.records}
    last = {record.task.job: record.last_token_s for record in run.records}
    assert last[0] == pytest.approx(0.05)
    assert last[1] == pytest.approx(0.09)
    assert first[2] == pytest.approx(0.09 + 0.5 + 0.01)
    assert first[3] == pytest.approx(last[2] + 0.01)
    assert {record.outcome for record in run.records} == {"complete"}
    assert all(record.note == "" for record in run.records)


def test_it_is_never_sent_before_its_own_arrival() -> None:
    run = simulate(task(0, 1), task(1, 1, after=(0,), arrival_s=2.0))
    assert run.records[1].first_token_s == pytest.approx(2.01)


@pytest.mark.parametrize(("after_s", "arrival_s"), [(9.0, 9.01), (3.0, 5.0)])
def test_arriving_after_those_it_needs_have_ended_it_waits_for_what_is_left_of_its_time(
    after_s: float, arrival_s: float
) -> None:
    run = simulate(task(0, 1), task(1, 1, after=(0,), after_s=after_s, arrival_s=5.0))
    assert run.records[1].arrived_s == pytest.approx(arrival_s)
    assert run.records[1].first_token_s == pytest.approx(arrival_s + 0.01)


def test_one_that_waits_for_nobody_known_is_an_error_that_says_who() -> None:
    with pytest.raises(InvalidInput, match="job 1: after: waits for 7"):
        simulate(task(0, 1), task(1, 1, after=(7,)))


def test_a_refused_request_holds_nobody_up() -> None:
    run = simulate(task(0, 1, prompt_tokens=10**7), task(1, 1, after=(0,)))
    assert [record.outcome for record in run.records] == ["refused", "complete"]


class Picky(Fcfs):
    """Refuses applications of 13 requests."""

    def check(self, spec: JobSpec) -> None:
        if spec.hints.app_requests == 13:
            raise InvalidInput("no", where="app_requests")


def test_what_the_discipline_refuses_at_the_door_is_an_outcome() -> None:
    run = simulate(task(0, 1, app_requests=13), task(1, 1, app_requests=12), discipline=Picky())
    assert [(record.outcome, record.note) for record in run.records] == [
        ("refused", "app_requests: no"),
        ("complete", ""),
    ]


class Curious(Fcfs):
    """Notes what it is told of each request."""

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []

    def arrived(self, job: Job, now: float) -> None:
        self.specs.append(job.spec)

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        return super().compose(table, limits)


def test_hints_and_limits_of_the_trace_reach_the_discipline_and_the_true_length_does_not() -> None:
    curious = Curious()
    simulate(task(0, 7, app_requests=3, expected_tokens=99.0, max_tokens=1000), discipline=curious)
    (spec,) = curious.specs
    assert (spec.hints.app, spec.hints.app_requests, spec.hints.expected_tokens, spec.max_tokens) == (
        "a",
        3,
        99.0,
        1000,
    )
