"""Several simulated engines under one router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sim_cases import profile, random_tasks, task

from examples import examples
from timely.core.errors import InvalidInput
from timely.engines.replay_types import BackendRun, ReplayOptions
from timely.engines.sim.fleet import SimFleet
from timely.engines.sim.simulator import Simulator
from timely.routing.routers import ROUTERS, create_router

OPTIONS = ReplayOptions(discipline="timely", journal=False)
SHAPE = profile(per_sequence=0.002, per_prefill_token=0.0005, blocks=60)


def outcome(run: BackendRun) -> list[object]:
    """All that a run gives of its tasks."""
    return [(record.task.job, record.outcome, record.ready_s, record.end_s) for record in run.records]


def journal_of(*engines: Simulator) -> list[Mapping[str, Any]]:
    """The events of some engines, once they have run."""
    events: list[Mapping[str, Any]] = []
    for engine in engines:
        engine.controller.journal = events.append
    return events


@pytest.mark.parametrize("router", ROUTERS)
def test_a_fleet_of_one_engine_is_that_engine(router: str) -> None:
    tasks = random_tasks(3, examples(60))
    engine = Simulator(OPTIONS, SHAPE)
    engines = SimFleet(OPTIONS, [SHAPE], create_router(router))
    journals = journal_of(engine), journal_of(*engines._engines)
    alone, fleet = engine.run(tasks), engines.run(tasks)
    assert journals[0] == journals[1]
    assert outcome(fleet) == outcome(alone)
    assert fleet.counters == alone.counters
    assert fleet.end_s == alone.end_s


def test_rows_of_steps_of_one_engine_end_when_a_task_comes_for_it() -> None:
    """Under a discipline that follows no token: the next step of others depends on it."""
    tasks = random_tasks(4, 10 + examples(70))
    options, runs, decisions = replace(OPTIONS, discipline="edf"), [], []
    for repeat in (True, False):
        fleet = SimFleet(options, [SHAPE] * 3, create_router("least-loss"), repeat_steps=repeat)
        journal = journal_of(*fleet._engines)
        runs.append(fleet.run(tasks))
        decisions.append(sum(event["event"] == "step" for event in journal))
    assert outcome(runs[0]) == outcome(runs[1])
    assert all(record.outcome == "complete" for record in runs[0].records)
    assert decisions[0] < 0.8 * decisions[1]


def test_a_burst_is_spread_over_the_engines_by_their_speed() -> None:
    slow = profile(base=0.03, per_sequence=0.006, per_prefill_token=0.0015)
    fast = profile(per_sequence=0.002, per_prefill_token=0.0005)
    fleet = SimFleet(replace(OPTIONS, learned_speed=False), [fast, slow], create_router("least-loss"))
    fleet.run([task(number, prompt_tokens=200) for number in range(40)])
    assert 2.0 < fleet.task_counts[0] / fleet.task_counts[1] < 5.0


def test_tasks_of_applications_are_refused() -> None:
    waiting = replace(task(2), after=(1,))
    with pytest.raises(InvalidInput, match="applications"):
        SimFleet(OPTIONS, [SHAPE] * 2, create_router("round-robin")).run([task(1), waiting])
