"""Scenes on vLLM's real scheduler in which room runs out: context, KV blocks, slots, and what jumps the queue."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene, StubConnector

require_package("vllm")

pytestmark = [pytest.mark.engine]

LONG_S = 300.0
"""An execution time beyond every test."""

URGENT = {"tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 4.0}}


def blocked(scene: Scene, count: int = 1) -> Callable[[], bool]:
    return lambda: scene.scheduler.control({"kind": "stats"})["blocked"] == count


def give_value(scene: Scene, task_id: str, value: str = "box") -> None:
    assert scene.report(task_id, 0, "value", value=value) == {"known": True}


# ---------------------------------------------------------------------- shared blocks


@pytest.mark.parametrize(
    ("holders", "held_blocks"),
    [([1, 1, 1, 0, 0], 3), ([1, 1], 2), ([], 0), ([0, 0], 0), ([0, 0, 0, 1, 1, 1, 1, 1], 0)],
)
def test_blocks_that_others_hold_cost_no_room(holders: list[int], held_blocks: int) -> None:
    """Requests that came together have a copy each: of one that ended the tail may be gone, not the head."""
    view = object.__new__(type(Scene().scheduler.blocks._prefix))
    view._pool = SimpleNamespace(
        get_cached_block=lambda place, groups: [SimpleNamespace(ref_cnt=holders[place])]
    )
    request = SimpleNamespace(block_hashes=list(range(len(holders))))
    assert view.held_by_others(request, len(holders) + 1) == held_blocks


def test_evicting_a_plan_frees_no_block_that_another_holds() -> None:
    """Of two plans with one prompt the first alone would free too little for the urgent request."""
    scene = Scene(blocks=20)
    for count, (name, prompt) in enumerate(
        [("first", [7] * 160), ("second", [7] * 160), ("other", [8] * 60)], 1
    ):
        scene.add(name, prompt, 8, scene.plan((4, LONG_S, True), (4, 0.1)))
        scene.run(until=blocked(scene, count))
    assert scene.scheduler.blocks.free_blocks == 3
    scene.add("urgent", 90, 4, {**URGENT, **scene.plan((4, 0.1))})
    assert scene.schedule() == {"urgent": 90}


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("moment", ["late", "in flight"])
def test_a_value_that_leaves_no_room_for_a_token_ends_its_plan(depth: int, moment: str) -> None:
    scene = Scene(blocks=400, budget=2048, depth=depth)
    scene.add("chat", 20, 60)
    scene.add("asks", 2000, 48, scene.plan((5, 0.1, True), (43, 0.1), task_id="asks"))
    scene.run(until=blocked(scene))
    if moment == "late":
        for _ in range(5):
            scene.step()
    give_value(scene, "asks", "box " * 120)
    scene.run()
    assert scene.finished == {"asks": "length", "chat": "length"}
    assert (len(scene.outputs["asks"]), len(scene.outputs["chat"])) == (5, 60)
    account = scene.accounts["asks"]
    assert [segment["tokens"] for segment in account["segments"]] == [5]
    assert account["last_token_s"] == account["segments"][0]["ready_s"]
    scene.check_empty()


def test_a_value_may_leave_room_for_one_token() -> None:
    scene = Scene(blocks=400, budget=2048)
    scene.add("asks", 2000, 48, scene.plan((5, 0.1, True), (43, 0.1), task_id="asks"))
    scene.run(until=blocked(scene))
    scene.scheduler.max_model_len = 2010
    give_value(scene, "asks")
    scene.run()
    assert scene.finished == {"asks": "length"}
    assert scene.workers["asks"].length == 2010
    scene.check_empty()


@pytest.mark.parametrize("pause", [False, True])
def test_a_reset_of_the_prefix_cache_takes_the_blocks_of_a_plan_that_waits_with_its_value(
    pause: bool,
) -> None:
    from vllm.v1.core.sched.interface import PauseState

    scene = Scene(blocks=40)
    scene.add("asks", 60, 10, scene.plan((5, 0.1, True), (5, 0.1), task_id="asks"))
    scene.run(until=blocked(scene))
    if pause:
        scene.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    give_value(scene, "asks")
    assert scene.scheduler.live["asks"].request in list(scene.scheduler.kv_holding_waiting)
    assert scene.scheduler.reset_prefix_cache(reset_running_requests=True)
    scene.check()
    table = scene.scheduler.controller.table
    assert table.prefill_left[0] == scene.scheduler.requests["asks"].num_tokens
    scene.scheduler.set_pause_state(PauseState.UNPAUSED)
    scene.run()
    assert len(scene.outputs["asks"]) == 10
    scene.check_empty()


# ---------------------------------------------------------------------- blocks that the plan does not count


def test_a_plan_with_its_value_resumes_although_vllm_leaves_blocks_free() -> None:
    """Two plans hold nearly all blocks; the one with its value needs those that vLLM keeps for its watermark."""
    scene = Scene(blocks=20)
    scene.add("asks", 61, 40, scene.plan((2, 0.1, True), (38, 0.1), task_id="asks"))
    scene.add("other", 180, 40, scene.plan((4, 0.1, True), (36, 0.1), task_id="other"))
    scene.run(until=blocked(scene, 2))
    scene.scheduler.kv_cache_manager.watermark_blocks = 6
    give_value(scene, "asks")
    scene.run(until=lambda: "asks" in scene.finished, most=100)
    assert len(scene.outputs["asks"]) == 40


@pytest.mark.parametrize("watermark_blocks", [0, 2])
def test_no_admission_is_planned_into_vllms_watermark(watermark_blocks: int) -> None:
    """The newcomer's prompt takes all but one of the free blocks, so vLLM would refuse it beside a running chat."""
    scene = Scene(blocks=20, watermark_blocks=watermark_blocks)
    scene.add("chat", 20, 60)
    scene.step()
    scene.add("newcomer", (scene.scheduler.blocks.free_blocks - 1) * BLOCK_TOKENS - 1, 1)
    scene.schedule()
    assert ("newcomer" in scene.scheduler._plan.tokens) == (watermark_blocks == 0)


def test_a_plan_with_its_value_resumes_in_a_hybrid_model() -> None:
    scene = Scene(blocks=49, windows=1)
    scene.add("asks", 63, 40, scene.plan((1, 0.1, True), (39, 0.1), task_id="asks"))
    scene.add("other", 319, 40, scene.plan((1, 0.1, True), (39, 0.1), task_id="other"))
    scene.run(until=blocked(scene, 2))
    give_value(scene, "asks", "box " * 5)
    scene.run(until=lambda: "asks" in scene.finished, most=100)
    assert len(scene.outputs["asks"]) == 40


@pytest.mark.parametrize(
    ("blocks", "prompt", "model"),
    [(40, 130, {"watermark_blocks": 8}), (68, 160, {"windows": 1})],
    ids=["watermark", "hybrid"],
)
def test_an_urgent_request_does_not_wait_for_a_chat_to_end(
    blocks: int, prompt: int, model: dict[str, Any]
) -> None:
    """Blocks of plans that await values are taken, although the steps of a chat are never empty."""
    scene = Scene(blocks=blocks, **model)
    scene.add("chat", 20, 200)
    for name in ("first", "second"):
        scene.add(name, 180, 8, scene.plan((4, LONG_S, True), (4, 0.1), task_id=name))
    scene.run(until=blocked(scene, 2))
    tokens = len(scene.outputs["chat"])
    scene.add("urgent", prompt, 8, {**URGENT, **scene.plan((8, 0.1))})
    scene.run(until=lambda: "urgent" in scene.finished)
    assert len(scene.outputs["chat"]) - tokens <= 12
    assert scene.scheduler.controller.evictions == 1


@pytest.mark.parametrize("plans", [1, 3])
def test_a_prefill_interval_keeps_no_prompt_waiting_for_parked_plans(plans: int) -> None:
    scene = Scene(prefill_schedule_interval=64)
    for number in range(plans):
        scene.add(f"plan-{number}", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == plans)
    scene.add("chat", 20, 4)
    scene.run(until=lambda: "chat" in scene.finished)
    assert scene.scheduler.control({"kind": "stats"})["parked"] == plans
    assert scene.scheduler.controller.evictions == 0
    scene.run()
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_load_keeps_a_slot_for_its_request(depth: int) -> None:
    """Else a request that waits with its value, whose slot vLLM does not count, was one too many for the workers."""
    connector = StubConnector({"loaded": 4 * BLOCK_TOKENS})
    scene = Scene(connector=connector, max_num_seqs=2, depth=depth)
    scene.add("loaded", 5 * BLOCK_TOKENS, 6)
    scene.step()
    assert connector.loading == {"loaded"}
    scene.add("asks", 20, 20, scene.plan((4, 0.1, True), (16, 0.1), task_id="asks"))
    scene.add("chat", 20, 200)
    job = scene.scheduler.controller.table["asks"]
    scene.run(until=lambda: job.awaiting is not None)
    scene.received = {"loaded"}
    scene.report("asks", 0, "value", value="1")
    while scene.held:
        scene.step()
        assert depth > 1 or scene.steps[-1].keys() == scene.scheduler._plan.tokens.keys()
    assert len(scene.outputs["loaded"]) == 6
    assert len(scene.outputs["asks"]) == 20
    scene.run()
    scene.check_empty()


@pytest.mark.parametrize("delivers", [False, True])
def test_an_evicted_request_waits_for_its_token_in_flight(delivers: bool) -> None:
    """vLLM keeps that token, unless a connector delivers the KV cache. The engine slept on where nothing else ran."""
    scene = Scene(depth=2)
    scene.scheduler.requires_kv_delivery = delivers
    scene.add("chat", 20, 8)
    scene.step()
    state = scene.scheduler.live["chat"]
    scene.scheduler.blocks.evict(state, scene.clock.now())
    assert state.job.ready == delivers
    before = len(scene.outputs["chat"])
    scene.update()
    assert len(scene.outputs["chat"]) == before + (not delivers)
    scene.run()
    assert len(scene.outputs["chat"]) == 8
    scene.check_empty()


def test_an_idle_streaming_session_keeps_its_slot() -> None:
    scene = Scene(blocks=60, max_num_seqs=2)
    scene.add("session", 20, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    scene.add("chat", 20, 150)
    for _ in range(3):
        scene.step()
    scene.add("urgent", 20, 8, {**URGENT, **scene.plan((8, 0.1))})
    scene.run(until=lambda: "urgent" in scene.finished)
    assert len(scene.outputs["chat"]) <= 5, "the urgent request displaces the chat, not the session"


# ---------------------------------------------------------------------- loads


def test_an_evicted_load_reserves_no_blocks() -> None:
    connector = StubConnector({"evicted": 8 * BLOCK_TOKENS})
    scene = Scene(connector=connector, blocks=30)
    scene.add("evicted", 26 * BLOCK_TOKENS, 6)
    scene.schedule()
    scene.received = {"evicted"}
    scene.update()
    scheduler = scene.scheduler
    scheduler._readiness.refresh(0.0)
    assert scheduler._inflight_prefill_reserved_blocks() > 0
    scheduler.blocks.evict(scheduler.live["evicted"], 0.0)
    assert scheduler._inflight_prefill_reserved_blocks() == 0


def failed_load(scene: Scene, name: str, block: int = 0) -> None:
    """The first step of the request ends with the report that this block of it could not be loaded."""
    scene.scheduler.recompute_kv_load_failures = True
    while len(scene.in_flight) < scene.depth:
        scene.schedule()
    scene.failed_blocks = {scene.scheduler.kv_cache_manager.get_block_ids(name)[0][block]}
    scene.update()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("block", [0, 5])
def test_a_failed_load_is_computed_again_in_one_step(depth: int, block: int) -> None:
    scene = Scene(
        connector=StubConnector({"loaded": 20 * BLOCK_TOKENS}, asynchronous=False),
        blocks=200, budget=512, depth=depth,
    )  # fmt: skip
    scene.add("loaded", 21 * BLOCK_TOKENS, 6, scene.plan((3, 0.1), (3, 0.1)))
    failed_load(scene, "loaded", block)
    assert scene.schedule() == {"loaded": (21 - block) * BLOCK_TOKENS}
    scene.run()
    assert scene.outputs["loaded"] == [FIRST_TOKEN + 21 * BLOCK_TOKENS + number for number in range(6)]
    scene.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
def test_requests_that_share_blocks_of_a_failed_load_compute_them_each(depth: int) -> None:
    """A step may hold any of them, so none may count on another."""
    scene = Scene(
        connector=StubConnector({"first": 20 * BLOCK_TOKENS}, asynchronous=False),
        blocks=200, budget=1024, depth=depth,
    )  # fmt: skip
    for name in ("first", "second"):
        scene.add(name, [5] * (21 * BLOCK_TOKENS), 6)
    failed_load(scene, "first")
    assert scene.schedule() == {"first": 21 * BLOCK_TOKENS, "second": 21 * BLOCK_TOKENS}
    scene.run()
    assert scene.outputs["first"] == scene.outputs["second"]
    assert len(scene.outputs["first"]) == 6
    scene.check_empty()


# ---------------------------------------------------------------------- whose turn it is


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_vllms_priority_counts_under_its_own_policy_only(policy: str) -> None:
    scene = Scene(max_num_seqs=1, policy=policy)
    scene.add("first", 20, 30)
    scene.step()
    scene.add("jump", 20, 8, priority=-100)
    scene.run()
    assert next(iter(scene.finished)) == ("jump" if policy == "priority" else "first")


@pytest.mark.parametrize("field", [{"arrival_s": 0.0}, {"priority": -5.0}, {"names": ["cup"]}])
def test_the_token_endpoint_takes_no_fields_of_our_own_server(field: dict[str, Any]) -> None:
    from vllm.exceptions import VLLMValidationError

    from timely.engines.vllm.plugin import _validating_vllm_parameters

    accepted: list[str] = []
    process = _validating_vllm_parameters(
        lambda self, request_id, prompt, params: accepted.append(request_id)
    )
    params = SimpleNamespace(extra_args={"timely": field})
    with pytest.raises(VLLMValidationError, match="not for clients"):
        process(None, "generate-tokens-1", None, params)
    process(None, "task-1", None, params)
    process(None, "generate-tokens-2", None, SimpleNamespace(extra_args={"timely": {"urgency": 1}}))
    assert accepted == ["task-1", "generate-tokens-2"]


# ---------------------------------------------------------------------- refused at start


@pytest.mark.parametrize(
    ("size", "asynchronous", "newer"),
    [(1, False, False), (2, True, True), (2, False, False), (2, False, True), (2, True, False)],
)
def test_pipeline_parallelism_is_refused_where_workers_get_wrong_tokens(
    size: int, asynchronous: bool, newer: bool
) -> None:
    from timely.core.errors import Unsupported
    from timely.engines.vllm.compatibility import refuse_unsupported_vllm

    config = SimpleNamespace(
        model_config=SimpleNamespace(is_diffusion=False),
        parallel_config=SimpleNamespace(pipeline_parallel_size=size),
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        use_v2_model_runner=newer,
        speculative_config=None,
    )
    if size == 1 or asynchronous == newer:
        refuse_unsupported_vllm(config, recurrent=True)
        return
    with pytest.raises(Unsupported, match="pipeline parallelism with asynchronous scheduling needs"):
        refuse_unsupported_vllm(config, recurrent=True)


def test_a_diffusion_language_model_is_refused() -> None:
    from timely.core.errors import Unsupported
    from timely.engines.vllm.compatibility import refuse_unsupported_vllm

    config = SimpleNamespace(model_config=SimpleNamespace(is_diffusion=True))
    with pytest.raises(Unsupported, match="their tokens do not come in order"):
        refuse_unsupported_vllm(config, recurrent=False)


# ---------------------------------------------------------------------- sessions that grow, blocks of finished requests


def idle_session(scene: Scene) -> Any:
    request = scene.add("session", 20, 4, resumable=True, priority=1)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    return request


def test_an_evicted_session_takes_no_more_memory_than_its_plan_counts() -> None:
    """It has grown, so it needs more blocks than its first prompt; a more important plan keeps its own."""
    scene = Scene(blocks=12, policy="priority")
    request = idle_session(scene)
    scene.add("parked", 80, 8, scene.plan((4, 0.6), (4, 0.1), **URGENT))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    scene.add("session", 80, 4, resumable=True)
    scene.scheduler.blocks.evict(scene.scheduler.live["session"], scene.clock.now())
    for _ in range(8):
        scene.step()
        scene.check()
    assert (request.num_tokens, scene.scheduler.controller.table["parked"].preemptions) == (103, 0)
    scene.run(until=lambda: len(scene.outputs["session"]) == 8)
    assert "parked" in scene.finished


def test_an_idle_session_gives_up_no_blocks() -> None:
    """vLLM cannot take them, so the plan takes those of a parked plan."""
    scene = Scene(blocks=20)
    scene.add("session", 100, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    scene.add("parked", 100, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    scene.add("urgent", 200, 4, URGENT)
    assert scene.step() == {"urgent": 200}
    assert scene.scheduler.controller.table["parked"].preemptions == 1


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("end", ["abort", "input"])
def test_the_engine_sleeps_while_an_idle_session_leaves_no_room(depth: int, end: str) -> None:
    """It composed empty steps without a pause."""
    from vllm.v1.request import RequestStatus

    scene = Scene(blocks=20, depth=depth)
    scene.add("session", 100, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    scene.add("long", 250, 4)
    for _ in range(3):
        scene.step()
    assert not scene.scheduler.has_requests()
    assert 0.0 < scene.scheduler.seconds_to_resume() <= 0.05
    if end == "input":
        scene.add("session", 20, 4, resumable=True)
        assert scene.step() == {"session": 20}
        scene.run(until=lambda: len(scene.outputs["session"]) == 8)
    scene.scheduler.finish_requests("session", RequestStatus.FINISHED_ABORTED)
    scene.run()
    assert len(scene.outputs["long"]) == 4
    scene.check_empty()


def test_a_session_whose_next_input_came_early_is_planned_with_it() -> None:
    scene = Scene()
    for _ in range(2):
        scene.add("session", 20, 4, resumable=True)
    scene.run(until=lambda: len(scene.outputs["session"]) == 4)
    # The last token of a turn is not part of the session, as in vLLM.
    assert scene.step() == {"session": 20}
    assert scene.scheduler._plan.tokens == {"session": 20}


def test_the_wait_of_a_session_begins_with_its_input() -> None:
    scene = Scene()
    idle_session(scene)
    scene.clock.advance_to(600.0)
    scene.add("session", 10, 4, resumable=True)
    table = scene.scheduler.controller.table
    assert (table.arrival_s[0], table.due_s[0]) == (600.0, 600.0)


def test_blocks_that_a_connector_holds_are_part_of_the_cache() -> None:
    class Holding(StubConnector):
        def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            return True, None

    scene = Scene(connector=Holding())
    scene.add("held", 100, 4)
    scene.run(until=lambda: "held" in scene.finished)
    scene.add("next", 20, 4)
    scene.step()
    clock = scene.scheduler.controller.discipline._requests.applications.clock
    limits = scene.scheduler._room.limits(0.0, throttle_prefills=False)
    assert limits.free_blocks < 200 - 6
    assert clock.cache_tokens(scene.scheduler.controller.table, limits) == 200 * BLOCK_TOKENS
