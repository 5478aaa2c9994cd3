"""Steps taken in a row without asking give the very result that asking at every step gives; time has one order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sim_cases import profile, random_tasks, task

from examples import examples
from timely.core.errors import EngineFailed, InvalidInput, UnknownName
from timely.core.job import JobTable
from timely.disciplines import registry
from timely.disciplines.base import DisciplineInfo, StepLimits, StepPlan
from timely.disciplines.basic import Fcfs
from timely.disciplines.step_builder import KeyedDiscipline
from timely.engines.replay_types import PlannedTask, ReplayOptions
from timely.engines.sim.events import ARRIVAL, REPORT, STEP_END, SimAgenda
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.learned import LearnedSpeed
from timely.replay import results


def outcome(tasks: list[PlannedTask], repeat_steps: bool, blocks: int, **options: object) -> str:
    """A run's whole result as text."""
    chosen = ReplayOptions(**options)  # type: ignore[arg-type]
    simulator = Simulator(chosen, profile(blocks=blocks, per_context_token=1e-6), repeat_steps=repeat_steps)
    run = simulator.run(tasks)
    result = results.build_replay_result(run, chosen, engine="sim", trace="t", wall_s=0.0)
    result["series"] = None  # samples are taken where steps begin, and rows of steps have one beginning
    result["journal"] = result["journal"] and {k: v for k, v in result["journal"].items() if k != "choices"}
    return json.dumps(result)


ROWS = ["fcfs", "edf", "pud", "timely", "sjf", "hpjf", "priority", "semantic", "semantic-mixed"]


# Blocks run short at the end of a row in a few of many tasks; what else ends rows is seen with fewer.
@pytest.mark.parametrize("discipline", ROWS)
@pytest.mark.parametrize(("blocks", "jobs"), [(18, 60), (400, 24)])
@pytest.mark.parametrize("mode", ["segmented", "stream", "whole"])
def test_rows_of_steps_change_nothing(discipline: str, blocks: int, jobs: int, mode: str) -> None:
    tasks = random_tasks(11, examples(jobs))
    options = {"discipline": discipline, "mode": mode, "estimate_noise": 0.3, "max_batch": 6}
    assert outcome(tasks, True, blocks, **options) == outcome(tasks, False, blocks, **options)


def test_rows_of_steps_are_taken() -> None:
    calls = 0

    class Counting(Fcfs):
        def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
            nonlocal calls
            calls += 1
            return super().compose(table, limits)

    simulator = Simulator(ReplayOptions(discipline="fcfs"), profile())
    simulator.controller.switch("counting", 0.0, Counting())
    run = simulator.run([task(0, plan=((200, 1.0),))])
    assert run.counters["steps"] == 200
    assert calls <= 3


def test_agenda_orders_by_time_then_kind_then_entry() -> None:
    agenda, seen = SimAgenda(), []
    for when, kind, name in (
        (1.0, ARRIVAL, "late arrival"), (0.5, ARRIVAL, "first arrival"), (0.5, ARRIVAL, "second arrival"),
        (0.5, REPORT, "report"), (0.5, STEP_END, "step"),
    ):  # fmt: skip
        agenda.at(when, kind, lambda now, text: seen.append((now, text)), name)
    while agenda.next_s() < float("inf"):
        agenda.run_next()
    assert [text for _, text in seen] == ["step", "report", "first arrival", "second arrival", "late arrival"]
    assert agenda.event_count == 5


class Idle(KeyedDiscipline):
    """Never runs anything."""

    info = DisciplineInfo("idle", "", "")

    def keys(self, table, limits):  # type: ignore[no-untyped-def]
        """All equal."""
        return table.beta

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """Nothing, and nothing to come."""
        return StepPlan()


def test_a_discipline_that_runs_nothing_fails_loudly() -> None:
    simulator = Simulator(ReplayOptions(discipline="fcfs"), profile())
    simulator.controller.switch("idle", 0.0, Idle())
    with pytest.raises(EngineFailed, match="1 jobs are left"):
        simulator.run([task(0)])


def test_interrupt_keeps_what_is_done() -> None:
    def tasks() -> Iterator[PlannedTask]:
        yield task(0)
        yield task(1, 3.0)
        raise KeyboardInterrupt

    run = Simulator(ReplayOptions(discipline="fcfs"), profile()).run(tasks(), keep_partial=True)
    assert run.partial
    assert run.records[0].outcome == "complete"
    with pytest.raises(KeyboardInterrupt):  # an evaluation would take the part for the whole
        Simulator(ReplayOptions(discipline="fcfs"), profile()).run(tasks())


def test_unknown_names_and_nonsense_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"known: .*fcfs"):
        Simulator(ReplayOptions(discipline="nope"))
    with pytest.raises(UnknownName, match="rtx4090-llama3-8b"):
        Simulator(ReplayOptions(profile="nope"))
    with pytest.raises(InvalidInput, match="max_batch"):
        Simulator(ReplayOptions(max_batch=0))


@pytest.mark.parametrize("discipline", registry.discipline_names())
def test_every_registered_discipline_serves_a_small_fleet(discipline: str) -> None:
    options = ReplayOptions(discipline=discipline, draft_tokens=3)
    tasks = [replace(task, acceptance=0.5) for task in random_tasks(2, examples(40))]
    run = Simulator(options, profile(blocks=60)).run(tasks)
    assert all(record.outcome == "complete" for record in run.records)


@pytest.mark.process
def test_noise_scatters_step_times_as_the_seed_has_it() -> None:
    def ended_s(noise: float, seed: int = 0) -> float:
        simulator = Simulator(ReplayOptions(discipline="fcfs", step_noise=noise, seed=seed), profile())
        return simulator.run([task(0, plan=((2000, 1.0),))]).records[0].start_s[0]

    plain = ended_s(0.0)
    assert ended_s(0.2) == ended_s(0.2) != ended_s(0.2, seed=1)
    # The mean step is as long as without: 2,000 steps of sigma 0.2 are within a hundredth and a half.
    assert ended_s(0.2) == pytest.approx(plain, rel=0.015)
    with pytest.raises(InvalidInput, match="step_noise"):
        ended_s(1.0)


def test_steps_with_prompts_scatter_by_themselves() -> None:
    def first_and_last_s(**noise: Any) -> tuple[float, float]:
        simulator = Simulator(ReplayOptions(discipline="fcfs", **noise), profile())
        (record,) = simulator.run([task(0, plan=((20, 1.0),))]).records
        return record.first_token_s, record.last_token_s - record.first_token_s

    plain = first_and_last_s()
    prompts, decoding = first_and_last_s(prompt_noise=0.2), first_and_last_s(step_noise=0.2, prompt_noise=0.0)
    assert prompts[0] != plain[0]
    assert prompts[1] == pytest.approx(plain[1])
    assert decoding[0] == plain[0]
    assert decoding[1] != pytest.approx(plain[1])
    with pytest.raises(InvalidInput, match="prompt_noise"):
        first_and_last_s(prompt_noise=1.0)


def test_a_simulation_can_begin_with_what_is_known_of_step_times() -> None:
    speed = LearnedSpeed()
    tasks = [task(0, plan=((50, 1.0),))]
    Simulator(ReplayOptions(), profile(base=0.3), speed=speed).run(tasks)
    assert speed.step_s(1, 0) == pytest.approx(0.3, rel=0.05)
    again = Simulator(ReplayOptions(), profile(base=0.3), speed=speed)
    assert again.controller.speed is speed
