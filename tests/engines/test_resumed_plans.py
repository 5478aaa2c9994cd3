"""Plans of an earlier life of the server go on in the scheduling core and in the scripted engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from manual_clock import ManualClock

from timely.core.errors import Conflict
from timely.core.hints import RequestHints
from timely.core.job import NEVER
from timely.core.reports import ExecutionReport
from timely.core.utility import URGENT
from timely.disciplines import registry
from timely.disciplines.requirements import discipline_lacks
from timely.engines.base import (
    EngineEvent,
    GenerationDone,
    GenerationRequest,
    Mode,
    PastReport,
    PlanHistory,
    SegmentReady,
)
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import Script, ScriptedSegment

PLANS: dict[str, Script] = {
    "many": [ScriptedSegment(f"tc({n});", 1.0, 4) for n in range(1, 6)],
    "ask": [
        ScriptedSegment("tc(1);", 1.0, 4),
        ScriptedSegment("iv('cat');", 0.5, 5, blocking=True),
        ScriptedSegment("tc(2);", 1.0, 4),
    ],
}
NOW_S = 100.0
NAMES = [info.name for info in registry.discipline_infos() if not discipline_lacks(info, ())]


def history(task: str, sent: int, *reports: ExecutionReport) -> PlanHistory:
    """A plan whose first ``sent`` segments left one second apart, before a restart at ``NOW_S``."""
    segments = [
        SegmentReady(task, index, part.text, part.length, 90.0 + index, part.execution_s, 92.0, part.blocking)
        for index, part in enumerate(PLANS[task][:sent])
        if isinstance(part, ScriptedSegment)
    ]
    return PlanHistory(89.0, (*segments, *(PastReport(report, 95.0) for report in reports)))


async def resumed(
    past: PlanHistory,
    task: str = "many",
    *,
    discipline: str = "timely",
    mode: Mode = "segmented",
    others: int = 0,
    **report: Any,
) -> list[EngineEvent]:
    """The events of the rest of a plan, beside new plans; the robot never reports but for ``report``."""
    clock = ManualClock(NOW_S)
    engine = ScriptedEngine(PLANS, clock=clock, token_s=0.01, discipline=discipline, mode=mode)
    await engine.start()
    events: list[EngineEvent] = []

    async def read(request: GenerationRequest, into: list[EngineEvent]) -> None:
        async for event in engine.generate(request):
            into.append(event)

    hints = RequestHints(agent="robot")
    requests = [GenerationRequest("old", "x", task=task, hints=hints, history=past)]
    requests += [GenerationRequest(f"new-{n}", "x", task="many") for n in range(others)]
    reading = [asyncio.create_task(read(request, events if request.history else [])) for request in requests]
    await clock.run_for(2.0)
    if report:
        assert (await engine.stats()).blocked == 1
        assert not events
        await engine.report("old", ExecutionReport(1, "value", **report))
    await clock.run_for(60.0)
    await asyncio.gather(*reading)
    assert engine._controller.segments == sum(
        isinstance(event, SegmentReady) for event in events
    ) + others * len(PLANS["many"])
    await engine.stop()
    return events


@pytest.mark.parametrize("discipline", NAMES)
async def test_every_discipline_goes_on_behind_what_was_sent(discipline: str) -> None:
    *segments, done = await resumed(history("many", 2), discipline=discipline, others=2)
    assert [(event.index, event.text) for event in segments if isinstance(event, SegmentReady)] == [
        (2, "tc(3);"),
        (3, "tc(4);"),
        (4, "tc(5);"),
    ]
    assert isinstance(done, GenerationDone)
    assert done.reason == "complete"
    assert done.text == "".join(f"tc({n});" for n in range(1, 6))


async def test_mode_whole_sends_only_what_follows_the_segments_of_another_mode() -> None:
    segment, done = await resumed(history("many", 2), mode="whole")
    assert isinstance(segment, SegmentReady)
    assert (segment.index, segment.text) == (2, "tc(3);tc(4);tc(5);")
    assert (segment.tokens, segment.execution_s) == (12, 3.0)
    assert isinstance(done, GenerationDone)
    assert done.text == "".join(f"tc({n});" for n in range(1, 6))


async def test_a_plan_whose_last_segment_was_sent_is_complete_at_once() -> None:
    (done,) = await resumed(history("many", 5))
    assert isinstance(done, GenerationDone)
    assert done.reason == "complete"


async def test_it_awaits_a_value_that_had_not_come() -> None:
    first, _ = await resumed(history("ask", 2), "ask", value="True")
    assert isinstance(first, SegmentReady)
    assert first.index == 2


async def test_a_value_that_had_come_is_not_awaited() -> None:
    first, _ = await resumed(history("ask", 2, ExecutionReport(1, "value", value="True")), "ask")
    assert isinstance(first, SegmentReady)
    assert first.index == 2


async def test_reports_of_the_past_count() -> None:
    """A robot that has begun a long segment needs nothing before its end."""
    clock = ManualClock(NOW_S)
    engine = ScriptedEngine(PLANS, clock=clock)
    past = history("many", 2, ExecutionReport(1, "progress", remaining_s=30.0))
    engine._loop_task = asyncio.create_task(asyncio.sleep(0))
    engine._admit(GenerationRequest("old", "x", task="many", history=past))
    table = engine._controller.table
    row = table["old"].row
    assert float(table.due_s[row]) == pytest.approx(125.0)
    assert 120.0 < float(table.resume_s[row]) < NEVER
    await engine.stop()


async def test_another_script_is_refused() -> None:
    clock = ManualClock(NOW_S)
    engine = ScriptedEngine({"many": ["tc(9);"]}, clock=clock)
    await engine.start()
    with pytest.raises(Conflict, match="another one"):
        await anext(
            aiter(engine.generate(GenerationRequest("old", "x", task="many", history=history("many", 2))))
        )
    await engine.stop()


async def test_an_outage_is_no_response_time() -> None:
    """Else every later request is refused where late ones are, for the time that its forerunners waited."""
    clock = ManualClock(NOW_S)
    engine = ScriptedEngine(PLANS, clock=clock, mode="stream")
    await engine.start()
    before = await engine.predict_response(URGENT)
    assert before is not None
    hints = RequestHints(utility=URGENT)
    plans = [
        engine.generate(
            GenerationRequest(f"old {n}", "x", task="many", hints=hints, history=PlanHistory(NOW_S - 60.0))
        )
        for n in range(30)
    ]
    firsts = [asyncio.ensure_future(anext(aiter(plan))) for plan in plans]
    await clock.run_for(5.0)
    assert all(isinstance(first.result(), SegmentReady) for first in firsts)
    await engine.stop()
    after = await engine.predict_response(URGENT)
    assert after is not None
    assert after.upper_s < 2.0 * before.upper_s
