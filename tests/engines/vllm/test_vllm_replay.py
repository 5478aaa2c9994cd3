"""Replay on the live engine against a fake one: prompts, forced plans, reports, and Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hints import with_hints

from timely.core.errors import EngineFailed, InvalidInput
from timely.core.reports import ExecutionReport
from timely.engines.base import (
    EngineEvent,
    EngineStats,
    ForcedPlan,
    ForcedSegment,
    GenerationDone,
    GenerationRequest,
    SegmentReady,
)
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.vllm import replay
from timely.engines.vllm.replay import VllmBackend
from timely.plans.skill_library import find_skill_set

DEADLINE_S = 10.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine needs no pause after its warm-up."""
    monkeypatch.setattr(replay, "START_S", 0.01)


def _forced(request: GenerationRequest) -> ForcedPlan:
    assert request.forced is not None
    return request.forced


def _segments(request: GenerationRequest) -> tuple[ForcedSegment, ...]:
    return _forced(request).segments


class FakeEngine:
    """Plays forced plans at once; waits for a value after a blocking segment; can die, can hang."""

    def __init__(self, hang: str = "", dies: bool = False, refuses: tuple[str, ...] = ()) -> None:
        self.requests: list[GenerationRequest] = []
        self.reports: list[tuple[str, ExecutionReport]] = []
        self.switched: list[tuple[str, int]] = []
        """To which discipline, and how many requests had come by then."""
        self.waits: dict[str, asyncio.Event] = {}
        self.hang = hang
        self.dies = dies
        self.refuses = refuses
        self.hung = asyncio.Event()
        self.over = asyncio.Event()
        """A plan of two segments has been read to its end."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        if request.task_id.startswith(self.refuses):
            raise InvalidInput("the prompt is too long", where="task")
        self.requests.append(request)
        for index, (text, tokens, execution_s, *more) in enumerate(_segments(request)):
            if self.hang and request.task_id.startswith(self.hang):
                self.hung.set()
                await asyncio.Event().wait()
            now = time.monotonic()
            blocking = bool(more and more[0])
            event = self.waits.setdefault(request.task_id, asyncio.Event())
            yield SegmentReady(request.task_id, index, text, tokens, now, execution_s, now, blocking)
            if blocking:
                await asyncio.wait_for(event.wait(), DEADLINE_S)
        now = time.monotonic()
        yield GenerationDone(
            request.task_id, "complete", "", tokens=request.max_tokens, first_token_s=now, last_token_s=now
        )
        if len(_segments(request)) == 2:
            self.over.set()

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        self.reports.append((task_id, report))
        if report.kind == "value":
            self.waits[task_id].set()

    async def set_discipline(self, name: str) -> None:
        self.switched.append((name, len(self.requests)))

    async def stats(self) -> EngineStats:
        if self.dies and self.hung.is_set():
            raise EngineFailed("the process is gone", where="vllm")
        return EngineStats(engine="fake", discipline="timely", mode="segmented", now_s=time.monotonic())


def task(job: str, *plan: PlannedSegment, **more: Any) -> PlannedTask:
    values: dict[str, Any] = {"prompt_tokens": 40, "shared_prefix_tokens": 30, "prefix": "drone"}
    return PlannedTask(job=job, arrival_s=0.0, plan=plan, **with_hints(values | more))


def backend(engine: FakeEngine) -> VllmBackend:
    return VllmBackend(engine)  # type: ignore[arg-type]


async def test_a_blocking_segment_is_answered_with_a_value() -> None:
    engine = FakeEngine()
    plan = (PlannedSegment("look", 4, 0.01, blocking=True), PlannedSegment("take", 5, 0.01))
    run = await backend(engine).run([task("a", *plan)], ReplayOptions(closed_loop=False))
    assert run.records[0].outcome == "complete"
    assert not run.partial
    assert _segments(engine.requests[-1]) == (("look", 4, 0.01, True), ("take", 5, 0.01, False))
    assert [(report.segment, report.kind) for _, report in engine.reports][-1] == (0, "value")


async def test_a_full_collection_in_a_run_skips_what_was_there_before() -> None:
    """One over all that vLLM's import makes stopped every task for half a second."""
    skipped: list[int] = []

    class Watched(FakeEngine):
        async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
            skipped.append(gc.get_freeze_count())
            async for event in super().generate(request):
                yield event

    before = gc.get_freeze_count()
    await backend(Watched()).run([task("a", PlannedSegment("x", 3, 0.0))], ReplayOptions())
    assert skipped
    assert min(skipped) > before
    assert gc.get_freeze_count() == 0


async def test_two_runs_share_the_prefix_and_nothing_else() -> None:
    engine = FakeEngine()
    for _ in range(2):
        await backend(engine).run([task("a", PlannedSegment("x", 3, 0.0))], ReplayOptions())
    _, first, _, second = (list(_forced(request).prompt_token_ids or ()) for request in engine.requests)
    assert first[:30] == second[:30]
    assert len(first) == len(second) == 40
    assert first[30:] != second[30:]


async def test_prompts_of_an_imported_trace_share_the_blocks_that_they_name() -> None:
    """All were taken for one conversation."""
    engine = FakeEngine()
    plan = PlannedSegment("", 3, 0.0)
    tasks = [
        replace(task(job, plan, prompt_tokens=tokens, plain=True), block_ids=block_ids)
        for job, tokens, block_ids in (("a", 700, (0, 1)), ("b", 800, (0, 2)), ("c", 900, (0, 1)))
    ]
    for _ in range(2):
        await backend(engine).run(tasks, ReplayOptions())
    prompts = [list(_forced(request).prompt_token_ids or ()) for request in engine.requests]
    assert len(prompts) == 8, "one of each warm-up: no server has these prompts from the start"
    first, second, third = prompts[1:4]
    assert [len(prompt) for prompt in (first, second, third)] == [700, 800, 900]
    assert first[:512] == second[:512]
    assert first[512:] != second[512:700]
    assert first == third[:700]
    assert first[:3] != prompts[5][:3], "another run has prompts of its own"


async def test_tasks_that_arrive_together_come_in_the_order_of_the_trace() -> None:
    engine = FakeEngine()
    tasks = [
        replace(task(f"{index}", PlannedSegment("x", 3, 0.0)), arrival_s=0.02 * (index // 12))
        for index in range(36)
    ]
    run = await backend(engine).run(tasks, ReplayOptions())
    assert all(record.outcome == "complete" for record in run.records)
    came = [request.task_id.split("-")[0] for request in engine.requests if "warm" not in request.task_id]
    assert came == [f"{index}" for index in range(36)]


async def test_what_the_warm_up_taught_is_forgotten() -> None:
    engine = FakeEngine()
    await backend(engine).run([task("a", PlannedSegment("look", 4, 0.01))], ReplayOptions(discipline="pud"))
    assert engine.requests[0].task_id.startswith("warm-up")
    assert engine.switched == [("pud", 1)]


async def test_a_real_machine_has_noise_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="noise"):
        await backend(FakeEngine()).run([], ReplayOptions(step_noise=0.1))


async def test_a_real_server_has_a_door_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="door of its own"):
        await backend(FakeEngine()).run(
            [task("a", PlannedSegment("x", 3, 0.0))], ReplayOptions(admission_s=0.01)
        )


async def test_the_longest_segment_of_the_skill_set_is_told() -> None:
    engine = FakeEngine()
    await backend(engine).run([task("a", PlannedSegment("x", 3, 0.0), segment_bound=12)], ReplayOptions())
    assert _forced(engine.requests[-1]).segment_tokens == 12


async def test_estimates_and_limits_are_those_of_the_simulator() -> None:
    """The live engine drew its own random numbers, and gave the length of each plan away as its limit."""
    engine = FakeEngine()
    options = ReplayOptions(seed=3, estimate_noise=0.4, estimate_factor=2.0)
    tasks = [
        task(name, PlannedSegment("x", 3, 0.01), PlannedSegment("y", tokens, 0.02), skill_set="drone")
        for name, tokens in (("a", 2), ("b", 12), ("c", 2))
    ]
    await backend(engine).run(tasks, options)
    requests = {request.task_id.split("-")[0]: request for request in engine.requests}
    estimates = ReplayEstimates(options)
    for one in tasks:
        expected = [estimates.estimate_s(one, index) for index in range(2)]
        assert [segment[2] for segment in _segments(requests[str(one.job)])] == expected
    assert {requests[name].max_tokens for name in "abc"} == {find_skill_set("drone").max_tokens}
    assert [_forced(requests[name]).segment_tokens for name in "abc"] == [10, 12, 12]


@pytest.mark.parametrize("dies", [False, True])
async def test_ctrl_c_keeps_what_is_done(dies: bool) -> None:
    """Ctrl-C cancels the run; the engine's process may have got it too and be gone."""
    engine = FakeEngine(hang="b", dies=dies)
    plan = (PlannedSegment("x", 3, 0.01), PlannedSegment("y", 3, 0.01))
    tasks = [task("a", *plan), task("b", *plan), replace(task("c", *plan), arrival_s=60.0)]
    done = asyncio.create_task(backend(engine).run(tasks, ReplayOptions()))
    async with asyncio.timeout(DEADLINE_S):
        await engine.hung.wait()
        await engine.over.wait()
        done.cancel()
        run = await done
    assert run.partial
    assert [record.outcome for record in run.records] == ["complete", "unfinished"]
    assert len(run.records[0].end_s) == 2
    assert not run.records[1].start_s


async def test_an_engine_that_dies_by_itself_is_an_error() -> None:
    engine = FakeEngine(hang="b", dies=True)
    tasks = [task("b", PlannedSegment("x", 3, 0.01))]
    tasks = [task("a", PlannedSegment("x", 3, 0.01)), *tasks]
    with pytest.raises(EngineFailed, match="gone"):
        await asyncio.wait_for(backend(engine).run(tasks, ReplayOptions(until_s=0.1)), DEADLINE_S)


async def test_a_report_that_fails_ends_the_replay() -> None:
    """The generation awaits the value, so the replay would wait as long as it may."""
    engine = FakeEngine()

    async def fail(task_id: str, report: ExecutionReport) -> None:
        raise EngineFailed(f"no answer to {report.kind}", where="vllm")

    engine.report = fail  # type: ignore[method-assign]
    tasks = [task("a", PlannedSegment("look", 4, 0.01, blocking=True), PlannedSegment("take", 5, 0.01))]
    with pytest.raises(EngineFailed, match="no answer to value"):
        await asyncio.wait_for(backend(engine).run(tasks, ReplayOptions()), DEADLINE_S)


async def test_a_plain_request_closes_no_segment_and_its_length_is_not_given_away() -> None:
    engine = FakeEngine()
    chat = task("a", PlannedSegment("", 30, 0.5), network_s=0.25, plain=True, max_tokens=90)
    run = await backend(engine).run([chat], ReplayOptions())
    request = engine.requests[-1]
    forced = _forced(request)
    assert (forced.segments, request.max_tokens) == ((), 90)
    assert forced.output_token_ids is not None
    assert forced.stop_token_id is not None
    assert list(forced.output_token_ids).index(forced.stop_token_id) == 29
    record = run.records[0]
    assert record.ready_s == [record.last_token_s]
    assert record.start_s == [record.last_token_s + 0.25]
    assert record.end_s == [record.last_token_s + 0.75]
    assert engine.reports == []


async def test_a_request_waits_for_the_answers_of_its_application() -> None:
    engine = FakeEngine()
    plan = PlannedSegment("", 3, 0.0)
    tasks = [
        task("last", plan, plain=True, app="one", after=("first", "second"), after_s=0.05),
        task("second", plan, plain=True, app="one", after=("first",)),
        task("first", plan, plain=True, app="one"),
    ]
    run = await backend(engine).run(tasks, ReplayOptions())
    came = [request.task_id.split("-")[0] for request in engine.requests if "warm" not in request.task_id]
    assert came == ["first", "second", "last"]
    last, second, first = run.records
    assert first.last_token_s <= second.arrived_s <= second.last_token_s <= last.arrived_s - 0.05
    assert engine.requests[-1].arrival_s is not None


@pytest.mark.parametrize(
    ("after", "words"), [(("b",), "waits for b, which never ends"), (("a",), "wait for each other")]
)
async def test_a_request_that_waits_for_ever_is_refused(after: tuple[str, ...], words: str) -> None:
    tasks = [task("a", PlannedSegment("", 3, 0.0), plain=True, app="one", after=after)]
    with pytest.raises(InvalidInput, match=words):
        await backend(FakeEngine()).run(tasks, ReplayOptions())


async def test_a_request_that_comes_after_those_it_needs_waits_for_what_is_left_of_its_time() -> None:
    """It waited for the whole of ``after_s`` from its own arrival on."""
    plan = PlannedSegment("", 3, 0.0)
    tasks = [
        task("first", plan, plain=True, app="one"),
        replace(task("next", plan, plain=True, app="one", after=("first",), after_s=0.3), arrival_s=0.2),
    ]
    first, following = (await backend(FakeEngine()).run(tasks, ReplayOptions())).records
    assert following.arrived_s == pytest.approx(first.last_token_s + 0.3, abs=0.1)


async def test_a_task_that_the_engine_refuses_is_an_outcome_as_in_the_simulator() -> None:
    """It ended the replay of all others."""
    plan = PlannedSegment("x", 3, 0.01)
    run = await backend(FakeEngine(refuses=("a", "warm-up"))).run(
        [task("a", plan), task("b", plan)], ReplayOptions()
    )
    assert [(record.outcome, record.note) for record in run.records] == [
        ("refused", "task: the prompt is too long"),
        ("complete", ""),
    ]


async def test_an_answer_that_failed_reached_no_reader() -> None:
    engine = FakeEngine()
    play = engine.generate

    async def fail(request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        async for event in play(request):
            yield replace(event, reason="length") if isinstance(event, GenerationDone) else event

    engine.generate = fail  # type: ignore[method-assign]
    chat = task("a", PlannedSegment("", 30, 0.5), plain=True)
    (record,) = (await backend(engine).run([chat], ReplayOptions())).records
    assert (record.outcome, record.start_s) == ("failed", [])


async def test_the_end_that_was_asked_for_is_no_interruption() -> None:
    engine = FakeEngine(hang="b")
    plan = PlannedSegment("x", 3, 0.01)
    options = ReplayOptions(until_s=0.1)
    run = await asyncio.wait_for(backend(engine).run([task("a", plan), task("b", plan)], options), DEADLINE_S)
    assert not run.partial
    assert [record.outcome for record in run.records] == ["complete", "unfinished"]


async def test_a_whole_plan_has_the_segments_that_the_simulator_gives_it() -> None:
    engine = FakeEngine()
    play = engine.generate

    async def whole(request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        events = [event async for event in play(request)]
        yield events[-2]
        yield events[-1]

    engine.generate = whole  # type: ignore[method-assign]
    plan = (PlannedSegment("x", 3, 0.5), PlannedSegment("y", 4, 0.25))
    run = await backend(engine).run([task("a", *plan)], ReplayOptions(mode="whole"))
    (record,) = run.records
    assert len(record.ready_s) == 2
    assert record.end_s[0] - record.start_s[0] == pytest.approx(0.5)
    assert record.start_s[1] == record.end_s[0]
    assert record.end_s[1] - record.start_s[1] == pytest.approx(0.25)


@pytest.mark.parametrize("options", [{"keep_prefixes": True}, {"learned_speed": False}])
async def test_options_of_the_simulator_alone_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        await backend(FakeEngine()).run([], ReplayOptions(**options))
