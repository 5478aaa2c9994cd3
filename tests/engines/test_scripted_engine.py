"""The engine without a model: it must behave like one, since others are tested against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hints import with_hints
from manual_clock import ManualClock, settle_clock_tasks

from timely.core.errors import Conflict, EngineFailed, InvalidInput, TooLarge, UnknownName, Unsupported
from timely.core.reports import ExecutionReport
from timely.core.utility import NORMAL
from timely.disciplines import registry
from timely.disciplines.requirements import discipline_lacks
from timely.engines.base import EngineEvent, ForcedPlan, GenerationDone, GenerationRequest, SegmentReady
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment
from timely.plans.language.parser import SegmentParser
from timely.plans.robot_profiles import find_plan_robot_profile
from timely.plans.skill_library import find_skill_set, skill_set_names
from timely.plans.validation import check_plan_segment

PLANS: dict[str, Script] = {
    "two": [ScriptedSegment("mu(50);", 2.0, 5), ScriptedSegment("tc(90);", 1.0, 4)],
    "ask": [ScriptedSegment("iv('cat');", 0.5, 5, blocking=True), ScriptedSegment("mu(50);", 2.0, 5)],
    "many": [ScriptedSegment("tc(10);", 1.0, 4) for _ in range(20)],
}


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[ScriptedEngine, ManualClock]]:
    clock = ManualClock(50.0)
    engine = ScriptedEngine(PLANS, **{"clock": clock, "token_s": 0.01, **options})
    await engine.start()
    try:
        yield engine, clock
    finally:
        await engine.stop()
        await engine.stop()


class Generation:
    """Collects what a generation yields."""

    def __init__(self, engine: ScriptedEngine, task: str, name: str = "", **fields: Any) -> None:
        self.events: list[EngineEvent] = []
        request = GenerationRequest(
            task_id=name or task, prompt=f"Task: {task}", **with_hints({"agent": name, **fields})
        )
        self.task = asyncio.create_task(self._read(engine.generate(request)))

    async def _read(self, stream: AsyncIterator[EngineEvent]) -> None:
        async for event in stream:
            self.events.append(event)

    @property
    def segments(self) -> list[SegmentReady]:
        return [event for event in self.events if isinstance(event, SegmentReady)]

    @property
    def done(self) -> GenerationDone | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, GenerationDone) else None


async def test_it_parks_between_segments_and_goes_on_before_the_robot_runs_dry() -> None:
    async with running() as (engine, clock):
        plan = Generation(engine, "two", network_s=0.008)
        await clock.run_for(0.5)
        (first,) = plan.segments
        assert first.execution_s == 2.0
        assert first.due_s == pytest.approx(first.ready_s + 0.008 + 2.0)
        stats = await engine.stats()
        assert (stats.parked, stats.running, stats.jobs[0].state) == (1, 0, "parked")
        steps = stats.steps
        await clock.run_for(1.0)
        assert (await engine.stats()).steps == steps  # parked costs no steps
        await clock.run_for(2.0)
        assert [segment.index for segment in plan.segments] == [0, 1]
        assert plan.segments[1].ready_s < first.due_s
        assert plan.done is not None
        assert (plan.done.reason, plan.done.text, plan.done.tokens) == ("complete", "mu(50);tc(90);", 9)
        assert (plan.done.suspensions, plan.done.recomputed_tokens) == (1, 0)
        assert (await engine.stats()).kv_usage == 0.0


async def test_reports_move_the_moment_it_goes_on() -> None:
    async with running() as (engine, clock):
        early, late = Generation(engine, "two", "early"), Generation(engine, "two", "late")
        await clock.run_for(0.4)
        await engine.report("early", ExecutionReport(0, "done", elapsed_s=0.1))
        await engine.report("late", ExecutionReport(0, "progress", remaining_s=30.0))
        await clock.run_for(0.3)
        assert (len(early.segments), len(late.segments)) == (2, 1)
        await clock.run_for(25.0)
        assert len(late.segments) == 1
        await clock.run_for(6.0)
        assert len(late.segments) == 2


async def test_a_blocking_segment_waits_for_its_value_only() -> None:
    async with running() as (engine, clock):
        plan = Generation(engine, "ask")
        await clock.run_for(0.5)
        assert plan.segments[0].blocking
        with pytest.raises(Conflict):
            await engine.report("ask", ExecutionReport(3, "done"))
        await engine.report("ask", ExecutionReport(0, "done"))
        await clock.run_for(1000.0)
        assert (await engine.stats()).blocked == 1
        await engine.report("ask", ExecutionReport(0, "value", value="True"))
        await clock.run_for(0.5)
        assert plan.done is not None


async def test_its_predictions_learn_from_its_responses() -> None:
    async with running() as (engine, clock):
        responses_s = []
        for number in range(40):
            begin_s, plan = clock.now(), Generation(engine, "two", f"robot-{number}")
            await clock.run_for(20.0)
            responses_s.append(plan.segments[0].ready_s - begin_s)
        prediction = await engine.predict_response(NORMAL)
        assert prediction is not None
        assert prediction.eta_s == pytest.approx(responses_s[-1], rel=0.25)


@pytest.mark.parametrize("mode", ["segmented", "stream", "whole"])
async def test_every_mode_gives_the_same_text(mode: str) -> None:
    async with running(mode=mode) as (engine, clock):
        plan = Generation(engine, "many")
        await clock.run_for(100.0)
        assert plan.done is not None
        assert "".join(segment.text for segment in plan.segments) == plan.done.text == 20 * "tc(10);"
        assert len(plan.segments) == (1 if mode == "whole" else 20)
        assert sum(segment.tokens for segment in plan.segments) == plan.done.tokens == 80
        assert sum(segment.execution_s for segment in plan.segments) == 20.0
        assert plan.done.suspensions == (19 if mode == "segmented" else 0)


async def test_in_mode_whole_a_plan_is_one_segment_for_its_discipline_too() -> None:
    async with running(mode="whole") as (engine, clock):
        plan = Generation(engine, "many")
        await clock.run_for(0.5)
        table = engine._controller.table
        assert table.whole_answer.tolist() == [True]
        assert table.segment_tokens.tolist() == table.output_tokens.tolist() != [0]
        await clock.run_for(100.0)
        assert plan.done is not None
        assert (await engine.stats()).segments == 1


async def test_cancel_and_a_closed_iterator_free_everything() -> None:
    async with running() as (engine, clock):
        cancelled, closed = Generation(engine, "many", "cancelled"), Generation(engine, "many", "closed")
        await clock.run_for(0.5)
        assert await engine.cancel("cancelled")
        assert not await engine.cancel("cancelled")
        closed.task.cancel()
        await settle_clock_tasks()
        assert cancelled.done is not None
        assert cancelled.done.reason == "cancelled"
        stats = await engine.stats()
        assert (stats.jobs, stats.kv_usage) == ((), 0.0)
        await engine.report("closed", ExecutionReport(0, "done"))  # finished tasks are ignored


async def test_the_second_of_two_equal_prompts_finds_the_first_in_the_prefix_cache() -> None:
    async with running(prefill_token_s=0.001) as (engine, clock):
        first = Generation(engine, "two", "a", system="skills " * 100)
        await clock.run_for(10.0)
        second = Generation(engine, "two", "b", system="skills " * 100)
        await clock.run_for(10.0)
        assert first.done is not None
        assert second.done is not None
        assert (first.done.cached_tokens, second.done.cached_tokens) == (0, 234)
        waits = [plan.segments[0].ready_s - start for plan, start in ((first, 50.0), (second, 60.0))]
        assert waits[1] < waits[0] - 0.2


async def test_under_memory_pressure_parked_plans_are_evicted_and_still_end_with_their_text() -> None:
    async with running(kv_blocks=12, max_batch=4) as (engine, clock):
        plans = [Generation(engine, "many", f"robot-{number}") for number in range(8)]
        await clock.run_for(400.0)
        for plan in plans:
            assert plan.done is not None
            assert plan.done.text == 20 * "tc(10);"
        stats = await engine.stats()
        assert stats.evictions > 0
        assert stats.recomputed_tokens == sum(plan.done.recomputed_tokens for plan in plans if plan.done) > 0
        assert stats.kv_usage == 0.0


NEEDY = [info.name for info in registry.discipline_infos() if discipline_lacks(info, ())]


async def test_a_discipline_that_needs_speculation_is_refused_at_start_and_when_switched_to() -> None:
    assert NEEDY == ["laps-sd"]
    with pytest.raises(Unsupported, match="'laps-sd' needs speculation"):
        ScriptedEngine(PLANS, discipline="laps-sd")
    async with running(discipline="fcfs") as (engine, _):
        with pytest.raises(Unsupported, match="'laps-sd' needs speculation"):
            await engine.set_discipline("laps-sd")
        assert (await engine.stats()).discipline == "fcfs"
        assert {info.name for info in engine.disciplines()} == set(registry.discipline_names()) - set(NEEDY)


@pytest.mark.parametrize("name", [name for name in registry.discipline_names() if name not in NEEDY])
async def test_every_discipline_serves_and_can_be_switched_to(name: str) -> None:
    async with running(discipline="timely", max_batch=2) as (engine, clock):
        plans = [Generation(engine, "many", f"robot-{number}") for number in range(3)]
        await clock.run_for(2.0)
        await engine.set_discipline(name)
        assert (await engine.stats()).discipline == name
        await clock.run_for(300.0)
        assert [len(plan.segments) for plan in plans] == 3 * [20]
        assert all(plan.done is not None and plan.done.recomputed_tokens == 0 for plan in plans)


async def test_a_reader_that_does_not_read_delays_nobody() -> None:
    async with running() as (engine, clock):
        stream = engine.generate(GenerationRequest("deaf", "Task: many"))
        first = asyncio.ensure_future(anext(stream))
        other = Generation(engine, "two")
        await clock.run_for(60.0)
        assert isinstance(await first, SegmentReady)
        assert other.done is not None
        rest = [event async for event in stream]
        assert len(rest) == 20


async def test_what_it_refuses() -> None:
    async with running(max_prompt_tokens=100, kv_blocks=8) as (engine, clock):
        with pytest.raises(TooLarge, match="limit is 100"):
            await anext(engine.generate(GenerationRequest("a", "Task: two " + "x" * 600)))
        with pytest.raises(TooLarge, match="KV cache"):
            await anext(engine.generate(GenerationRequest("a", "Task: many " + "x" * 200)))
        with pytest.raises(UnknownName):
            await anext(engine.generate(GenerationRequest("a", "something else", skill_set="nope")))
        with pytest.raises(UnknownName):
            await engine.set_discipline("nope")
        plan = Generation(engine, "two")
        await clock.run_for(0.1)
        with pytest.raises(Conflict):
            await anext(engine.generate(GenerationRequest("two", "Task: two")))
        engine.crash("power")
        await settle_clock_tasks()
        with pytest.raises(EngineFailed, match="power"):
            plan.task.result()
        with pytest.raises(EngineFailed):
            await engine.stats()
    with pytest.raises(EngineFailed, match="not been started"):
        await anext(ScriptedEngine(PLANS).generate(GenerationRequest("a", "Task: two")))


async def test_the_deadline_of_a_task_counts_from_its_arrival_at_the_server() -> None:
    async with running() as (engine, clock):
        Generation(engine, "two", arrival_s=49.9)
        Generation(engine, "many", arrival_s=51.0)
        await settle_clock_tasks()
        assert engine._controller.table.due_s.tolist() == [49.9, clock.now()]


async def test_a_forced_plan_goes_before_any_script() -> None:
    async with running() as (engine, clock):
        plan = Generation(engine, "two", forced=ForcedPlan((("g('x');", 7, 3.0),)))
        await clock.run_for(1.0)
        (segment,) = plan.segments
        assert (segment.text, segment.tokens, segment.execution_s) == ("g('x');", 7, 3.0)


@pytest.mark.parametrize("name", skill_set_names())
async def test_for_every_skill_set_it_has_a_plan_that_is_safe(name: str) -> None:
    skill_set = find_skill_set(name)
    profile = find_plan_robot_profile(skill_set.profile)
    async with running() as (engine, clock):
        plan = Generation(engine, "put the red box away", skill_set=name, robot=profile.name)
        for _ in range(100):
            await clock.run_for(10.0)
            for segment in plan.segments:
                if segment.blocking:
                    await engine.report(
                        plan.segments[0].task_id, ExecutionReport(segment.index, "value", value="True")
                    )
        assert plan.done is not None
    parser = SegmentParser(skill_set) if skill_set.language != "text" else None
    for segment in plan.segments:
        check_plan_segment(segment.text, skill_set, profile, parser_state=parser)
        assert segment.execution_s >= 0.0


async def test_the_same_script_takes_the_same_time_each_run() -> None:
    runs = []
    for _ in range(2):
        async with running(max_batch=2) as (engine, clock):
            plans = [Generation(engine, task, f"{task}-{n}") for n in range(4) for task in ("two", "many")]
            await clock.run_for(200.0)
            runs.append([plan.events for plan in plans])
    assert runs[0] == runs[1]


async def test_a_skill_set_without_examples_needs_a_script() -> None:
    async with running() as (engine, _):
        with pytest.raises(InvalidInput):
            await anext(engine.generate(GenerationRequest("a", "x", skill_set="")))
