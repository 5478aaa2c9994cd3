"""The live engine as the server uses it: vLLM's engine loop in its own process, control events from outside."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from hints import with_hints

from timely.core.errors import (
    Conflict,
    EngineDied,
    EngineFailed,
    InvalidInput,
    Overloaded,
    TooLarge,
    UnknownName,
    Unsupported,
)
from timely.core.repeat_limit import REPEATS
from timely.core.reports import ExecutionReport
from timely.core.utility import NORMAL, URGENT
from timely.engines.base import (
    ForcedPlan,
    GenerationDone,
    GenerationRequest,
    PastReport,
    PlanHistory,
    SegmentReady,
)
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.step_time.journal import read_step_journal, steps_from_events
from timely.engines.vllm import boundaries, calibrate
from timely.engines.vllm import engine as vllm_engine
from timely.engines.vllm.arguments import VllmOptions
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.forced_decoding import vllm_engine_arguments
from timely.engines.vllm.openai import GENERATION_PATHS
from timely.engines.vllm.replay import VllmBackend
from timely.plans.object_names import names_of_plan
from timely.plans.prompt import build_prompt
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

WORDS = [2000 + number for number in range(60)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    journal = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    # Without blanks: the grammar of JSON allows any number of them, and the small model may write nothing else.
    grammars = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})
    arguments = ("--max-model-len", "1024", "--structured-outputs-config", grammars, *vllm_engine_arguments())
    running = VllmEngine(VllmOptions(arguments=arguments, journal=str(journal), warm_up=("drone",)))
    await running.start()
    yield running
    await running.stop()
    await running.stop()


def planned(
    task_id: str, execution_s: float, segments: int = 5, tokens: int = 2, **more: Any
) -> GenerationRequest:
    """A plan of ``segments`` times ``tokens``; each segment takes the robot ``execution_s`` seconds.

    A token takes 0.1 s of processor time.
    """
    return GenerationRequest(
        task_id=task_id,
        prompt="move",
        max_tokens=tokens * segments,
        forced=ForcedPlan(
            tuple(("move", tokens, execution_s) for _ in range(segments)),
            WORDS,
            range(3000, 3000 + tokens * segments),
        ),
        **with_hints(more),
    )


async def until(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Poll an awaitable condition until it holds."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # the engine is another process: nothing here to be woken by


async def collect(engine: VllmEngine, request: GenerationRequest) -> list[Any]:
    return [event async for event in engine.generate(request)]


async def test_segments_come_in_order_once_and_then_the_end(engine: VllmEngine) -> None:
    events = await collect(engine, planned("order", 0.01))
    segments = [event for event in events if isinstance(event, SegmentReady)]
    assert [segment.index for segment in segments] == [0, 1, 2, 3, 4]
    assert all(segment.tokens == 2 for segment in segments)
    done = events[-1]
    assert isinstance(done, GenerationDone)
    assert (done.reason, done.tokens, done.recomputed_tokens) == ("complete", 10, 0)
    assert done.suspensions == 4


async def test_a_real_plan_of_the_real_model_is_executable(engine: VllmEngine) -> None:
    from lrtrace.profiles import find_robot_profile
    from timely.plans.prompt import build_prompt
    from timely.plans.skill_library import find_skill_set
    from timely.plans.validation import check_plan_segment

    skill_set, profile = find_skill_set("drone"), find_robot_profile("tello")
    prompt = build_prompt(skill_set, "Go up and look for the cat", "chair, table")
    request = GenerationRequest(
        task_id="plan",
        prompt=prompt.user,
        system=prompt.system,
        skill_set="drone",
        skill_set_fingerprint=skill_set.fingerprint,
        robot="tello",
        max_tokens=128,
    )
    events = await collect(engine, request)
    segments = [event for event in events if isinstance(event, SegmentReady)]
    assert 1 <= len(segments) <= skill_set.max_statements
    done = events[-1]
    assert "".join(segment.text for segment in segments) + done.tail == done.text
    for segment in segments:
        assert check_plan_segment(segment.text, skill_set, profile)


async def test_while_all_is_parked_the_engine_sleeps(engine: VllmEngine) -> None:
    """Under 5 steps a second and under 10% of a core."""
    tasks = [asyncio.create_task(collect(engine, planned(f"idle-{n}", 60.0))) for n in range(8)]

    async def parked() -> bool:
        return (await engine.stats()).parked == 8

    await until(parked)
    core = engine_core_pid()
    before, used = await engine.stats(), cpu_seconds(core)
    await asyncio.sleep(3.0)  # the thing measured is time going by
    after, used_after = await engine.stats(), cpu_seconds(core)
    assert after.steps - before.steps < 5 * 3.0
    assert used_after - used < 0.10 * 3.0
    for number in range(8):
        assert await engine.cancel(f"idle-{number}")
    for task in tasks:
        events = await asyncio.wait_for(task, 10)
        assert events[-1].reason == "cancelled"
    assert (await engine.stats()).kv_usage == 0.0


def engine_core_pid() -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
                name = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"EngineCore" in name and f"PPid:\t{os.getpid()}" in status:
                return int(entry.name)
    raise AssertionError("no engine process")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_report_wakes_a_parked_generation_at_once(engine: VllmEngine) -> None:
    stream = engine.generate(planned("wake", 60.0, segments=3))
    first = await asyncio.wait_for(anext(stream), 20)
    assert isinstance(first, SegmentReady)
    for kind in ("started", "done", "done", "started"):
        await engine.report("wake", ExecutionReport(0, kind))
    second = await asyncio.wait_for(anext(stream), 20)
    assert isinstance(second, SegmentReady)
    assert second.index == 1
    with pytest.raises(Conflict, match="segment 7 has not been sent"):
        await engine.report("wake", ExecutionReport(7, "done"))
    await engine.report("nobody", ExecutionReport(0, "done"))
    await stream.aclose()


async def test_closing_the_stream_frees_the_kv_cache(engine: VllmEngine) -> None:
    stream = engine.generate(planned("gone", 60.0))
    await asyncio.wait_for(anext(stream), 20)
    assert (await engine.stats()).kv_usage > 0.0
    await stream.aclose()

    async def free() -> bool:
        return (await engine.stats()).kv_usage == 0.0

    await until(free)
    assert not await engine.cancel("gone")


async def test_a_reader_that_never_reads_delays_nobody(engine: VllmEngine) -> None:
    stuck = engine.generate(planned("stuck", 0.01))
    await asyncio.wait_for(anext(stuck), 20)  # and never again
    events = await asyncio.wait_for(collect(engine, planned("other", 0.01)), 30)
    assert events[-1].reason == "complete"
    await stuck.aclose()


async def test_urgent_first_segments_come_before_normal_rests(engine: VllmEngine) -> None:
    normal = [asyncio.create_task(collect(engine, planned(f"n{n}", 0.5, utility=NORMAL))) for n in range(4)]
    urgent = asyncio.create_task(collect(engine, planned("u", 0.5, segments=2, utility=URGENT)))
    ends = [(await asyncio.wait_for(task, 60))[-1] for task in [urgent, *normal]]
    assert all(end.reason == "complete" for end in ends)


async def test_switching_disciplines_live(engine: VllmEngine) -> None:
    running = asyncio.create_task(collect(engine, planned("switch", 0.3, tokens=6)))
    for name in ("fcfs", "edf", "pud", "weighted-tardiness", "timely"):
        await engine.set_discipline(name)
        assert (await engine.stats()).discipline == name
    with pytest.raises(UnknownName):
        await engine.set_discipline("nonsense")
    # This engine does not speculate: what needs that is neither offered nor taken.
    assert "laps-sd" not in {info.name for info in engine.disciplines()}
    with pytest.raises(Unsupported, match=r"'laps-sd' needs speculation: start the engine with"):
        await engine.set_discipline("laps-sd")
    assert (await engine.stats()).discipline == "timely"
    assert (await asyncio.wait_for(running, 60))[-1].reason == "complete"


async def test_bad_requests_are_refused_and_the_engine_lives_on(engine: VllmEngine) -> None:
    with pytest.raises(TooLarge):
        await collect(engine, GenerationRequest(task_id="big", prompt="word " * 5000))
    with pytest.raises(InvalidInput, match="skill set"):
        await collect(engine, GenerationRequest(task_id="set", prompt="x", skill_set="nonsense"))
    other = GenerationRequest(
        task_id="copy", prompt="x", skill_set="drone", skill_set_fingerprint="0123456789abcdef"
    )
    with pytest.raises(EngineFailed, match=r"skill set drone is .* here, 0123456789abcdef where its plans"):
        await collect(engine, other)
    live = engine.generate(planned("twice", 60.0))
    await asyncio.wait_for(anext(live), 20)
    with pytest.raises(Conflict):
        await collect(engine, planned("twice", 60.0))
    await live.aclose()
    assert (await collect(engine, planned("after", 0.01)))[-1].reason == "complete"


@pytest.mark.parametrize("limit", ["max_num_queued_reqs", "max_num_queued_tokens"])
async def test_a_limit_of_vllms_own_queue_refuses_a_plan(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(engine._running().scheduler_config, limit, 0)
        with pytest.raises(Overloaded, match="again later"):
            await collect(engine, planned("refused", 0.01))
    assert (await collect(engine, planned("refused", 0.01)))[-1].reason == "complete"


async def test_an_error_of_the_engine_process_reaches_the_task_with_its_kind(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_copy(name: str, fingerprint: str = "") -> SkillSet:
        return find_skill_set(name)

    monkeypatch.setattr(vllm_engine, "vllm_skill_set", other_copy)
    monkeypatch.setattr(boundaries, "vllm_skill_set", other_copy)
    other = GenerationRequest(
        task_id="engine-copy", prompt="x", skill_set="drone", skill_set_fingerprint="0123456789abcdef"
    )
    with pytest.raises(EngineFailed, match=r"skill set drone is .* here, 0123456789abcdef where") as raised:
        await collect(engine, other)
    assert raised.value.where == "skill_set"
    assert (await collect(engine, planned("after-it", 0.01)))[-1].reason == "complete"


async def test_an_engine_error_in_an_openai_request_gets_the_answer_of_vllm(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine.exceptions import EngineGenerateError

    async def failing(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        raise EngineGenerateError
        yield  # type: ignore[unreachable]  # makes it a generator

    monkeypatch.setattr(engine._llm, "generate", failing)
    transport = httpx.ASGITransport(engine.openai_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
        answer = await http.post("/v1/completions", json={"prompt": "move", "max_tokens": 1})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "InternalServerError")


async def test_a_client_with_a_wrong_model_name_leaves_few_lines_in_the_log(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = {"model": "another", "messages": [{"role": "user", "content": "move"}]}
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lines.append)
    logging.getLogger("vllm").addHandler(handler)
    transport = httpx.ASGITransport(engine.openai_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
        for _ in range(2 * REPEATS):
            answer = await http.post("/v1/chat/completions", json=chat)
            assert answer.status_code == 404
    logging.getLogger("vllm").removeHandler(handler)
    assert len(lines) == REPEATS


async def test_a_generation_tries_no_other_route_of_vllm(engine: VllmEngine) -> None:
    """vLLM has about twenty routes before these, and its metrics try them a second time."""
    paths = [getattr(route, "path", None) for route in engine.openai_app.router.routes]
    assert set(paths[:2]) == set(GENERATION_PATHS)
    assert not set(paths[2:]) & set(GENERATION_PATHS)
    assert "/v1/models" in paths


async def test_an_eager_engine_compiles_nothing_while_it_serves(engine: VllmEngine) -> None:
    """The first chat with log-probabilities kept all robots waiting for a compiler, 24 s here."""
    (process,) = engine._llm.engine_core.resources.engine_manager.processes
    environment = await asyncio.to_thread(Path(f"/proc/{process.pid}/environ").read_bytes)
    assert b"TORCHDYNAMO_DISABLE=1" in environment.split(b"\0")
    assert "TORCHDYNAMO_DISABLE" not in os.environ, "another engine of this process could not compile"


async def test_a_chat_has_a_grammar_of_its_own_beside_a_plan(engine: VllmEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    chat = {
        "messages": [{"role": "user", "content": "How many legs has a spider?"}],
        "max_tokens": 48,
        "response_format": {"type": "json_schema", "json_schema": {"name": "legs", "schema": schema}},
    }
    transport = httpx.ASGITransport(engine.openai_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
        answer, plan = await asyncio.gather(
            http.post("/v1/chat/completions", json=chat, timeout=60.0),
            collect(engine, planned("beside", 0.5)),
        )
    assert isinstance(json.loads(answer.json()["choices"][0]["message"]["content"])["answer"], int)
    assert plan[-1].reason == "complete"


async def test_an_operators_urgency_reaches_the_generation_and_the_journal(engine: VllmEngine) -> None:
    path = Path(engine.options.journal or "")
    stream = engine.generate(planned("hurried", 0.5, tokens=6, urgency=3))
    first = await anext(stream)
    assert isinstance(first, SegmentReady)
    assert first.index == 0
    assert await engine.set_urgency("hurried", 0)
    assert not await engine.set_urgency("nobody", 0)
    with pytest.raises(InvalidInput, match="urgency must be 0"):
        await engine.set_urgency("hurried", 7)
    done = [event async for event in stream][-1]
    assert isinstance(done, GenerationDone)
    assert done.reason == "complete"
    events = [json.loads(line) for line in (await asyncio.to_thread(path.read_text)).splitlines()]
    mine = [event for event in events if str(event.get("job", "")).startswith("hurried")]
    assert next(event for event in mine if event["event"] == "arrive")["urgency"] == 3
    assert [event["urgency"] for event in mine if event["event"] == "urgency"] == [0]
    ran = [event for event in events if event["event"] == "ran"]
    assert any(name.startswith("hurried") for event in ran for name in event["tokens"])


async def test_the_order_asked_for_is_the_order_in_the_journal(engine: VllmEngine) -> None:
    path = Path(engine.options.journal or "")
    assert (await collect(engine, planned("journal", 0.01)))[-1].reason == "complete"
    lines = await asyncio.to_thread(path.read_text)
    events = [json.loads(line) for line in lines.splitlines()]
    mine = [event for event in events if str(event.get("job", "")).startswith("journal")]
    assert [event["event"] for event in mine] == ["arrive", *["segment"] * 5, "finish"]


async def test_the_mode_is_switched_between_runs_only(engine: VllmEngine) -> None:
    live = engine.generate(planned("busy", 60.0))
    await asyncio.wait_for(anext(live), 20)
    with pytest.raises(Conflict, match="another mode"):
        await engine.set_mode("whole")
    await live.aclose()

    async def free() -> bool:
        return (await engine.stats()).kv_usage == 0.0

    await until(free)
    await engine.set_mode("whole")
    try:
        assert (await engine.stats()).mode == "whole"
        events = await asyncio.wait_for(collect(engine, planned("whole", 60.0)), 30)
        assert [type(event) for event in events] == [SegmentReady, GenerationDone]
        assert events[0].tokens == 10
    finally:
        await engine.set_mode("segmented")


async def test_a_replay_with_a_blocking_segment_and_a_shared_prefix(engine: VllmEngine) -> None:
    plan = (PlannedSegment("look", 5, 0.05, blocking=True), PlannedSegment("take", 6, 0.05))
    tasks = [
        PlannedTask(
            job=number,
            arrival_s=0.3 * number,
            plan=plan,
            prompt_tokens=150,
            shared_prefix_tokens=96,
            prefix="p",
        )
        for number in range(3)
    ]
    run = await asyncio.wait_for(VllmBackend(engine).run(tasks, ReplayOptions()), 60)
    assert [record.outcome for record in run.records] == ["complete"] * 3
    assert all(len(record.end_s) == 2 for record in run.records)
    for record in run.records:
        assert record.start_s[1] >= record.end_s[0]  # the value was awaited
        assert record.cached_tokens == 96


async def test_a_replay_with_plain_requests(engine: VllmEngine) -> None:
    """The scheduler takes them for such: they close no segment, and it does not get their length."""
    answer = (PlannedSegment("", 12, 0.0),)
    plan = (PlannedSegment("look", 5, 0.05), PlannedSegment("take", 6, 0.05))
    tasks = [
        PlannedTask(job="chat", arrival_s=0.0, plan=answer, prompt_tokens=40, plain=True),
        PlannedTask(job="robot", arrival_s=0.1, plan=plan, prompt_tokens=40),
    ]
    before = (await engine.stats()).segments
    run = await asyncio.wait_for(VllmBackend(engine).run(tasks, ReplayOptions()), 60)
    chat, robot = run.records
    assert [record.outcome for record in run.records] == ["complete"] * 2
    assert (chat.output_tokens, robot.output_tokens) == (12, 11)
    assert chat.ready_s == [chat.last_token_s]
    assert chat.first_token_s < chat.last_token_s
    assert len(robot.ready_s) == 2
    # The warm-up of the robot's prefix closes one.
    assert (await engine.stats()).segments - before == 3


async def test_the_journal_times_every_step(engine: VllmEngine) -> None:
    before = (await engine.stats()).now_s
    assert (await collect(engine, planned("timed", 0.0, segments=2, tokens=6)))[-1].reason == "complete"
    steps = steps_from_events(
        await asyncio.to_thread(read_step_journal, Path(engine.options.journal or "")), before
    )
    assert sum(step.decodes for step in steps) == 11  # the prompt's step yields the first of twelve tokens
    assert sum(step.prefill_tokens for step in steps) <= len(WORDS)
    assert all(0.0 < step.step_s < 10.0 for step in steps)
    decoding = [step.context_tokens for step in steps if step.decodes]
    assert decoding == sorted(decoding)
    assert decoding[0] == len(WORDS) + 1


async def test_a_calibration_decodes_beside_plans_that_wait(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WAITING_PLANS", 12), ("MOST_BESIDE_WAITING", 2), ("DECODE_TOKENS", 4)):
        monkeypatch.setattr(calibrate, name, value)
    before = (await engine.stats()).now_s
    async with asyncio.timeout(200):
        await calibrate._VllmCalibration(engine).beside_waiting_plans(1)
    events = await asyncio.to_thread(read_step_journal, Path(engine.options.journal or ""))
    steps = steps_from_events(events, before)
    assert sum(step.waiting >= 12 for step in steps) >= 3


async def test_plans_copy_words_that_no_model_knows(engine: VllmEngine) -> None:
    drone = find_skill_set("drone")
    words = ("zorbluqt", "glimfraxon", "wembrilt", "oqualdrist")
    written = []
    for word in words:
        prompt = build_prompt(drone, f"Find the {word} and take a picture of it.", "sofa", examples=False)
        request = GenerationRequest(
            task_id=word, prompt=prompt.user, system=prompt.system, skill_set="drone", max_tokens=64
        )
        done = [event async for event in engine.generate(request)][-1]
        assert isinstance(done, GenerationDone)
        written.append(set(names_of_plan(done.text, drone)))
    assert written == [{word} for word in words]


async def test_a_killed_engine_is_started_again_and_plans_go_on(engine: VllmEngine) -> None:
    """The last test of this module, for it costs a start of the engine."""
    drone = find_skill_set("drone")
    prompt = build_prompt(
        drone, "Go forward 1 meter, turn left 90 degrees and take a picture.", examples=False
    )
    request = GenerationRequest(
        task_id="killed",
        prompt=prompt.user,
        system=prompt.system,
        skill_set="drone",
        robot="tello",
        max_tokens=64,
    )

    async def rest(request: GenerationRequest) -> tuple[list[SegmentReady], GenerationDone]:
        segments: list[SegmentReady] = []
        async for event in engine.generate(request):
            if isinstance(event, GenerationDone):
                return segments, event
            segments.append(event)
            await engine.report("killed", ExecutionReport(event.index, "done"))
        raise AssertionError("no end")

    whole, end = await rest(request)
    assert len(whole) >= 3
    stream = engine.generate(request)
    first = await asyncio.wait_for(anext(stream), 20)
    assert isinstance(first, SegmentReady)
    await asyncio.wait_for(engine.answer(), 20)
    os.kill(engine_core_pid(), signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.answer(), 0.3)
    await engine.kill()
    with pytest.raises(EngineDied):
        await asyncio.wait_for(anext(stream), 20)
    assert isinstance(await asyncio.wait_for(engine.wait_dead(), 20), EngineDied)
    with pytest.raises(EngineDied):
        await engine.stats()
    await engine.stop()
    await engine.start()
    done = PastReport(ExecutionReport(0, "done"), first.ready_s + 0.1)
    history = PlanHistory(first.ready_s - 1.0, (first, done))
    segments, resumed_end = await rest(replace(request, history=history))

    def written(segments: list[SegmentReady]) -> list[tuple[int, str, tuple[int, ...]]]:
        return [(segment.index, segment.text, segment.token_ids) for segment in segments]

    assert written([first, *segments]) == written(whole)
    assert (resumed_end.text, resumed_end.tokens) == (end.text, end.tokens)
