"""Plain requests in the simulator: no discipline knows their length, and they close no segment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sim_cases import Recording, task

from timely.core.job import PLAIN_SEGMENT_TOKENS
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.engines.replay_types import PLAIN_MAX_TOKENS, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile


def chat(job: int, arrival_s: float, tokens: int, **fields: object) -> PlannedTask:
    return replace(task(job, arrival_s, ((tokens, 0.0),), **fields), plain=True)


def test_the_discipline_gets_what_it_would_get_live() -> None:
    discipline = Recording()
    run = Simulator(ReplayOptions(), load_step_profile("unit"), discipline=discipline).run(
        [chat(0, 0.0, 500), chat(1, 0.0, 70, max_tokens=100)]
    )
    assert [record.output_tokens for record in run.records] == [500, 70]
    first, second = discipline.specs
    assert (first.plain, first.segmented, first.segment_tokens) == (True, False, PLAIN_SEGMENT_TOKENS)
    assert (first.max_tokens, second.max_tokens) == (PLAIN_MAX_TOKENS, 100)


def test_an_answer_is_one_segment_for_its_reader_and_none_for_the_engine() -> None:
    simulator = Simulator(ReplayOptions(), load_step_profile("unit"))
    journal: list[dict[str, Any]] = []
    simulator.controller.journal = lambda event: journal.append(dict(event))
    run = simulator.run([chat(0, 0.0, 40)])
    record = run.records[0]
    assert record.outcome == "complete"
    assert record.ready_s == record.start_s == [record.last_token_s]
    assert run.counters["segments"] == 0
    assert not [event for event in journal if event["event"] in ("segment", "report")]


@pytest.mark.parametrize("utility", [NORMAL, URGENT], ids=["normal", "urgent"])
def test_a_chat_delays_no_robot(utility: TimeUtility) -> None:
    """A chat of 400 tokens streams; a robot that comes while it does is answered as if it were alone."""

    def response_s(*tasks: PlannedTask) -> float:
        options = ReplayOptions(profile="rtx4090-llama3-8b", closed_loop=False)
        records = Simulator(options).run(tasks).records
        return next(record.response_time_s for record in records if record.task.job == 1)

    robot = task(1, 2.5, ((8, 2.0), (8, 2.0)), prompt_tokens=300, utility=utility)
    assert response_s(chat(0, 0.0, 400, prompt_tokens=300), robot) < 1.15 * response_s(robot)


def test_repeated_steps_change_nothing() -> None:
    tasks = [chat(job, 0.3 * job, 40 + 30 * (job % 5)) for job in range(12)]
    tasks += [task(job, 0.25 * job, ((7, 1.0), (9, 0.5))) for job in range(20, 32)]
    tasks.sort(key=lambda one: one.arrival_s)
    runs = [
        Simulator(ReplayOptions(), load_step_profile("unit"), repeat_steps=repeat).run(tasks)
        for repeat in (True, False)
    ]
    assert [r.ready_s for r in runs[0].records] == [r.ready_s for r in runs[1].records]
