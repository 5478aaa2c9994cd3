"""A discipline that raises an error is replaced, and no plan ends for it."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock

from timely.core.errors import EngineFailed
from timely.core.job import Job, JobTable
from timely.core.reports import ExecutionReport
from timely.disciplines.base import Floats, Speed, StepLimits, StepPlan
from timely.disciplines.basic import Fcfs
from timely.disciplines.timely.discipline import Timely
from timely.engines.base import EngineEvent, GenerationRequest, SegmentReady
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.scripted import ScriptedEngine
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.journal import read_step_journal
from timely.engines.vllm.settings import open_vllm_journal

PLANS = {f"plan {n}": [f"tc({n});", f"tc({n + 1});", f"tc({n + 2});"] for n in range(1, 6)}


@pytest.mark.parametrize(
    "hook", ["check", "arrived", "progressed", "parked", "due_changed", "finished", "compose", "lead_s"]
)
async def test_plans_go_on_under_first_come_first_served(
    hook: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    whole = getattr(Timely, hook)

    def fails(self: Timely, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= 3:
            raise ZeroDivisionError("of the test")
        return whole(self, *arguments)

    monkeypatch.setattr(Timely, hook, fails)
    clock = ManualClock()
    engine = ScriptedEngine(PLANS, clock=clock)
    await engine.start()

    async def read(task: str) -> list[EngineEvent]:
        return [event async for event in engine.generate(GenerationRequest(task, "x", task=task))]

    reading = [asyncio.create_task(read(task)) for task in PLANS]
    await clock.run_for(0.5)
    for task in PLANS:
        await engine.report(task, ExecutionReport(0, "started"))
    await clock.run_for(60.0)
    for task, events in zip(PLANS, await asyncio.gather(*reading), strict=True):
        assert [event.text for event in events if isinstance(event, SegmentReady)] == PLANS[task]
    assert (await engine.stats()).discipline == "fcfs"
    assert caplog.text.count("discipline timely failed; fcfs serves from now on") == 1
    await engine.stop()


class FaultyKeys(Fcfs):
    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        keys: Floats = table.no_such_column  # type: ignore[attr-defined]
        return keys


class NoPlan(Fcfs):
    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        return None  # type: ignore[return-value]


class UnknownJob(Fcfs):
    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        return StepPlan({"nobody": 1})


class UnknownEviction(Fcfs):
    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        return StepPlan(evict=["nobody"])


class LeadOfText(Fcfs):
    def lead_s(self, job: Job, speed: Speed) -> float:
        return "soon"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultyKeys, r"AttributeError: .*no_such_column.* \(.*test_discipline_fallback.py:\d+\)$"),
        (NoPlan, "TypeError: compose must return a StepPlan, got NoneType"),
        (UnknownJob, "ValueError: the plan names a job that is not live"),
        (UnknownEviction, "ValueError: the plan names a job that is not live"),
        (LeadOfText, "ValueError: could not convert string to float: 'soon'"),
    ],
)
def test_without_a_fallback_the_error_names_the_discipline_and_its_line(
    kind: type[Fcfs], reason: str
) -> None:
    task = PlannedTask(1, 0.0, (PlannedSegment("tc(90);", 3, 1.0), PlannedSegment("}", 3, 1.0)))
    with pytest.raises(EngineFailed, match="^discipline 'fcfs' failed: " + reason):
        Simulator(ReplayOptions(), discipline=kind()).run([task])


async def test_the_fallback_itself_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    engine = ScriptedEngine(PLANS, clock=clock, discipline="fcfs")

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(type(engine._controller.discipline), "compose", fails)
    await engine.start()
    with pytest.raises(EngineFailed, match="of the test"):
        await anext(aiter(engine.generate(GenerationRequest("one", "x", task="plan 1"))))
    await engine.stop()


def test_a_journal_on_a_full_disk_raises_nothing_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    journal = open_vllm_journal("/dev/full")
    assert journal is not None
    journal({"event": "step"})
    journal({"event": "step"})
    assert caplog.text.count("lines of the journal are missing") == 1


def test_a_line_that_a_full_disk_takes_in_part_leaves_the_journal_readable(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    journal = open_vllm_journal(str(path))
    assert journal is not None
    journal({"event": "finish", "job": "first"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, hard))
    try:
        journal({"event": "finish", "job": "second"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal({"event": "finish", "job": "third"})
    assert [event["job"] for event in read_step_journal(path)] == ["first", "third"]
