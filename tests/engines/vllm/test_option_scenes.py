"""Scenes on vLLM's real scheduler by option of vLLM and by kind of model; rows of the matrix in docs/vllm.md."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import FIRST_TOKEN, Scene

require_package("vllm")

pytestmark = [pytest.mark.engine]

LONG_S = 300.0
"""An execution time beyond every test."""

URGENT = {"tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 4.0}}


def blocked(scene: Scene) -> bool:
    return bool(scene.scheduler.control({"kind": "stats"})["blocked"])


def give_values(scene: Scene) -> None:
    for state in list(scene.scheduler.live):
        if state.job.awaiting is not None and not state.values:
            assert scene.report(state.task_id, state.job.awaiting, "value", value="box") == {"known": True}


def play(scene: Scene) -> None:
    """Plans with and without blocking segments beside a chat and an urgent request, while memory is short."""
    for number in range(5):
        plan = scene.plan((4, 0.3, number % 2 == 0), (8, 0.1), task_id=f"plan{number}")
        scene.add(f"plan{number}", [7] * 40 + [number] * (37 + 13 * number), 12, plan)
    scene.add("chat", 90, 40)
    scene.add("urgent", [7] * 40 + [99] * 50, 8, {**URGENT, **scene.plan((8, 0.1))})
    while scene.held:
        scene.run(until=lambda: blocked(scene) or not scene.held)
        give_values(scene)
        scene.check()
    scene.run()
    for name, tokens in scene.outputs.items():
        assert len(tokens) == {"chat": 40, "urgent": 8}.get(name, 12)
        assert tokens == sorted(set(tokens)), f"{name}: a token is repeated or out of order"
    scene.check_empty()


def without_chunks(scene: Scene) -> Scene:
    scene.scheduler.scheduler_config.enable_chunked_prefill = False
    return scene


# ---------------------------------------------------------------------- kinds of models and caches


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("blocks", "tokens_per_block", "model"),
    [
        (26, 16, {"mamba": "none", "enable_prefix_caching": False}),
        (26, 16, {"mamba": "align", "timely": {"prefill_chunk": 24}}),
        (8, 2048, {"mamba": "none", "attention": False, "enable_prefix_caching": False}),
        (26, 2048, {"mamba": "align", "attention": False}),
        (40, 16, {"windows": 1, "window_tokens": 48}),
        (26, 2048, {"windows": 1, "window_tokens": 48, "attention": False}),
        (8, 32, {"context_parallel": 2}),
        (16, 16, {"prefill_parallel": 2}),
        (8, 32, {"context_parallel": 2, "prefill_parallel": 2}),
        (16, 16, {"enable_prefix_caching": False}),
        (16, 16, {"pipeline": True}),
    ],
    ids=[
        "hybrid Mamba", "hybrid Mamba, cached", "Mamba", "Mamba, cached", "hybrid windows", "windows",
        "decode parallel", "prefill parallel", "both parallel", "no prefix cache", "pipeline",
    ],
)  # fmt: skip
def test_plans_and_chats_get_their_tokens(
    blocks: int, tokens_per_block: int, model: dict[str, Any], depth: int
) -> None:
    scene = Scene(blocks=blocks, depth=depth, budget=128, **model)
    assert scene.scheduler.blocks.block_tokens == tokens_per_block
    play(scene)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"max_num_active_seqs": 3},
        {"scheduler_reserve_full_isl": False},
        {"long_prefill_token_threshold": 24, "long_prefill_token_threshold_adaptive": True},
        {"log_stats": True, "kv_cache_metrics": True, "kv_cache_metrics_sample": 1.0},
        {"log_stats": True, "enable_mfu_metrics": True},
        {"log_stats": True, "drafts": 3, "accept": len, "per_request_spec_decode_metrics": "detailed"},
    ],
    ids=[
        "fewer active",
        "no reserve",
        "adaptive threshold",
        "cache metrics",
        "flop metrics",
        "draft metrics",
    ],
)
def test_options_change_no_tokens(options: dict[str, Any], depth: int) -> None:
    scene = Scene(blocks=20, depth=depth, budget=128, **options)
    play(scene)
    assert not options.get("log_stats") or scene.stats[-1].num_running_reqs == 0


def test_without_a_prefix_cache_a_repeated_prompt_counts_whole() -> None:
    scene = Scene(enable_prefix_caching=False)
    for name in ("first", "second"):
        scene.add(name, [5] * 100, 2)
        assert scene.scheduler.controller.table.prefill_left.tolist() == [100]
        scene.run()


def test_a_context_longer_than_the_pool_runs_where_windows_bound_its_blocks() -> None:
    scene = Scene(blocks=30, budget=64, windows=1, window_tokens=64, attention=False)
    scene.add("long", 1000, 20)
    scene.run(most=100)
    assert scene.finished == {"long": "length"}
    scene.check_empty()


def test_chunks_of_a_model_with_mamba_states_end_at_blocks() -> None:
    scene = Scene(mamba="align", budget=128, timely={"prefill_chunk": 24})
    scene.add("chat", 20, 30)
    scene.add("plan", 125, 8, scene.plan((4, 0.1), (4, 0.1)))
    scene.run()
    chunks = [step["plan"] for step in scene.steps if step.get("plan", 0) > 1]
    assert chunks == [32, 32, 32, 16, 13]


def test_speculation_with_mamba_states_is_refused_at_start() -> None:
    from timely.core.errors import Unsupported

    with pytest.raises(Unsupported, match="speculative decoding of models with Mamba states"):
        Scene(mamba="align", drafts=3)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("blocks", [60, 24])
def test_an_encoder_decoder_model_is_served(blocks: int, depth: int) -> None:
    """As vLLM sets it up: cross-attention in a group of its own, no chunks, no prefix cache."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.v1.core.encoder_cache_manager import EncoderDecoderCacheManager

    scene = without_chunks(
        Scene(blocks=blocks, depth=depth, budget=128, cross_attention=True, enable_prefix_caching=False)
    )
    scheduler = scene.scheduler
    scheduler.is_encoder_decoder = True
    scheduler.encoder_cache_manager = EncoderDecoderCacheManager(cache_size=200)
    scheduler.max_num_encoder_input_tokens = 200
    for number in range(5):
        plan = scene.plan((4, 0.3), (8, 0.1)) if number else None
        request = scene.add(f"r{number}", 8, 12, plan)
        place = PlaceholderRange(offset=0, length=100)
        request.mm_features = [
            MultiModalFeatureSpec(data=None, modality="audio", identifier=f"hash{number}", mm_position=place)
        ]
    scene.run()
    assert [len(tokens) for tokens in scene.outputs.values()] == [12] * 5
    scene.check_empty()


def test_the_encoder_instance_of_a_disaggregated_model_ends_requests_with_their_prompt() -> None:
    from vllm.v1.outputs import ModelRunnerOutput

    scene = Scene()
    scene.scheduler.is_mm_encoder_only = True
    scene.add("image", 60, 4)
    output = scene.scheduler.schedule()
    result = ModelRunnerOutput(req_ids=["image"], req_id_to_index={"image": 0}, sampled_token_ids=[[]])
    ((answer,),) = [
        outputs.outputs for outputs in scene.scheduler.update_from_output(output, result).values()
    ]
    assert str(answer.finish_reason) == "stop"
    scene.schedule()
    scene.update()
    scene.check_empty()


# ---------------------------------------------------------------------- chunks of prompts


def test_without_chunked_prefill_no_prompt_is_cut() -> None:
    scene = without_chunks(Scene(budget=256))
    scene.add("chat", 20, 60)
    scene.step()
    prompts = {"long": 250, "robot": 200, "second": 200}
    scene.add("long", 250, 4)
    for name in ("robot", "second"):
        scene.add(name, 200, 8, {**URGENT, **scene.plan((8, 0.1))})
    # As when the plan gave other requests more of the budget than vLLM then did.
    compose = scene.scheduler.controller.compose

    def smaller_shares(limits: Any) -> Any:
        plan = compose(limits)
        plan.tokens = {name: min(tokens, 50) for name, tokens in plan.tokens.items()}
        return plan

    scene.scheduler.controller.compose = smaller_shares
    scene.run()
    assert {name: step[name] for step in scene.steps for name in prompts if step.get(name, 0) > 1} == prompts
    scene.check_empty()


def test_without_chunked_prefill_a_prompt_that_waits_for_tokens_evicts_no_plan() -> None:
    scene = without_chunks(Scene())
    scene.add("plan", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: not scene.scheduler.has_requests())
    for number in range(10):
        scene.add(f"chat{number}", 20, 12)
    scene.step()
    scene.add("prompt", 250, 2)
    scene.run(until=lambda: "prompt" in scene.finished)
    assert scene.scheduler.controller.evictions == 0


def test_a_longest_chunk_without_chunked_prefill_is_refused_at_start() -> None:
    from timely.core.errors import InvalidInput
    from timely.engines.vllm.settings import SchedulerSettings

    config = SimpleNamespace(
        additional_config={"timely": {"prefill_chunk": 64}},
        scheduler_config=SimpleNamespace(enable_chunked_prefill=False),
    )
    with pytest.raises(InvalidInput, match="needs chunked prefill"):
        SchedulerSettings.from_vllm(config)


def test_a_small_chunk_does_not_stop_before_the_tokens_that_a_drafter_reads_ahead() -> None:
    """As with several modules of multi-token prediction: vLLM leaves them enough of the prompt, or nothing."""
    scene = Scene(timely={"prefill_chunk": 2})
    scene.scheduler.num_prefill_lookahead = 3
    scene.add("plan", 20, 8, scene.plan((4, 0.1), (4, 0.1)))
    scene.run(most=100)
    assert len(scene.outputs["plan"]) == 8


# ---------------------------------------------------------------------- what else a user of vLLM turns on


@pytest.mark.parametrize("depth", [1, 2])
def test_events_of_the_kv_cache_are_those_of_vllms_own_scheduler(depth: int) -> None:
    histories = []
    for stock in (True, False):
        scene = Scene(stock=stock, depth=depth, blocks=30, budget=128)
        scheduler, events = scene.scheduler, list[Any]()
        scheduler.enable_kv_cache_events = scheduler.kv_cache_manager.enable_kv_cache_events = True
        scheduler.kv_cache_manager.block_pool.enable_kv_cache_events = True
        scheduler.kv_event_publisher = SimpleNamespace(
            publish=lambda batch, events=events: events.append(batch.events)
        )
        for number in range(6):
            scene.add(f"r{number}", [number] * (19 + 5 * number), 40 + number)
        scene.run()
        histories.append(events)
    assert len(histories[0]) > 10
    assert histories[0] == histories[1]


@pytest.mark.parametrize(("slots", "more"), [(1, {}), (2, {}), (2, {"max_num_active_seqs": 2})])
@pytest.mark.parametrize("blocking", [False, True])
def test_a_plan_without_work_leaves_the_last_slot_to_a_chat(
    slots: int, more: dict[str, Any], blocking: bool
) -> None:
    """All sequences that may be active are parked plans. Another one that awaits no value decodes beside the chat."""
    scene = Scene(max_num_seqs=8 if more else slots, **more)
    for number in range(slots):
        scene.add(
            f"plan{number}", 20, 8, scene.plan((4, LONG_S, blocking), (4, 0.1), task_id=f"plan{number}")
        )
    scene.run(until=lambda: not scene.scheduler.has_requests())
    scene.add("chat", 20, 6)
    others = {} if blocking or slots == 1 else {"plan1": 1}
    assert scene.step() == {"chat": 20} | others
    scene.run(until=lambda: "chat" in scene.finished, most=12)


def vllm_core(scene: Scene) -> tuple[Any, list[str]]:
    """vLLM's engine core around the scheduler of a scene, and the calls of its executor."""
    import queue

    from vllm.v1.engine.core import EngineCoreProc

    calls: list[str] = []

    class Executor:
        is_sleeping = False

        def sleep(self, level: int) -> None:
            calls.append(f"level {level}")
            self.is_sleeping = True

        def wake_up(self, tags: Any) -> None:
            self.is_sleeping = False

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: None

    core = object.__new__(EngineCoreProc)
    core.__dict__.update(
        scheduler=scene.scheduler, model_executor=Executor(), output_queue=queue.Queue(), batch_queue=None,
        engines_running=False, mm_receiver_cache=None, _idle_state_callbacks=[],
    )  # fmt: skip
    return core, calls


def two_plans_and_a_chat(depth: int) -> Scene:
    """A parked plan, one that asks for a value, and a chat; vLLM's loop is between two steps."""
    scene = Scene(depth=depth)
    scene.add("parked", 50, 8, scene.plan((4, 0.5), (4, 0.1)))
    scene.add("asks", 50, 8, scene.plan((4, 0.5, True), (4, 0.1), task_id="asks"))
    scene.add("chat", 20, 30)
    scene.run(until=lambda: blocked(scene))
    while scene.in_flight:
        scene.update()
    return scene


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_plans_outlive_a_sleep_that_keeps_requests(depth: int, level: int) -> None:
    """vLLM discards the KV cache at level 1, and the weights at level 2 too; a value comes meanwhile."""
    scene = two_plans_and_a_chat(depth)
    core, calls = vllm_core(scene)
    assert core.sleep(level, "keep") is None, "the pause is complete"
    assert calls == [f"level {level}"]
    assert scene.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == scene.blocks
    give_values(scene)
    scene.clock.advance_to(100.0)
    assert not core.has_work()
    assert scene.scheduler.seconds_to_resume() is None
    assert core.wake_up(None)
    scene.run()
    assert [len(tokens) for tokens in scene.outputs.values()] == [8, 8, 30]
    assert [token - FIRST_TOKEN for token in scene.outputs["parked"]] == list(range(50, 58))
    scene.check_empty()


def test_a_sleep_that_waits_begins_after_the_last_parked_plan() -> None:
    scene = Scene()
    scene.add("parked", 50, 8, scene.plan((4, 0.5), (4, 0.1)))
    scene.run(until=lambda: not scene.scheduler.has_requests())
    core, calls = vllm_core(scene)
    asleep = core.sleep(2, "wait")
    core._notify_idle_state_callbacks()
    assert not asleep.done()
    scene.run()
    core._notify_idle_state_callbacks()
    assert asleep.done()
    assert calls == ["level 2"]
    assert len(scene.outputs["parked"]) == 8


def test_a_sleep_that_aborts_tells_the_clients_of_parked_plans() -> None:
    scene = two_plans_and_a_chat(1)
    core, calls = vllm_core(scene)
    asleep = core.sleep(2, "abort")
    _, outputs = core.output_queue.get_nowait()
    assert {str(output.finish_reason) for output in outputs.outputs} == {"abort"}
    assert {output.request_id for output in outputs.outputs} == {"parked", "asks", "chat"}
    while core.scheduler.has_requests():
        scene.schedule()
        scene.update()
    core._notify_idle_state_callbacks()
    assert asleep is None or asleep.done()
    assert calls == ["level 2"]
    scene.check_empty()


class Embeddings:
    """A connector to the engine that encodes images."""

    ready = False

    def ensure_cache_available(self, request: Any, computed_tokens: int) -> bool:
        return self.ready

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: {
            "take_unavailable_requests": set(),
            "request_finished": (False, None),
        }.get(name, False if name.startswith("has") else None)


def add_image(scene: Scene) -> Embeddings:
    """Add a request with an image that another engine encodes (``--ec-transfer-config``)."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    scene.scheduler.ec_connector = embeddings = Embeddings()
    scene.scheduler.max_num_encoder_input_tokens = 200
    cache = scene.scheduler.encoder_cache_manager
    cache.cache_size = cache.num_free_slots = cache.num_freeable_slots = 200
    request = scene.add("image", 60, 4)
    place = PlaceholderRange(offset=0, length=50)
    request.mm_features = [
        MultiModalFeatureSpec(data=None, modality="image", identifier="hash", mm_position=place)
    ]
    return embeddings


def test_images_that_another_engine_encodes_evict_no_plan() -> None:
    scene = Scene()
    scene.add("asks", 60, 8, scene.plan((4, LONG_S, True), (4, 0.1), task_id="asks"))
    scene.run(until=lambda: blocked(scene))
    embeddings = add_image(scene)
    for _ in range(8):
        scene.schedule()
        scene.update()
    assert not scene.outputs["image"]
    assert scene.scheduler.controller.evictions == 0
    embeddings.ready = True
    scene.run(until=lambda: "image" in scene.finished)
    assert len(scene.outputs["image"]) == 4


@pytest.mark.parametrize("depth", [1, 2])
def test_a_request_that_waits_for_embeddings_steps_as_under_vllms_own_scheduler(depth: int) -> None:
    """vLLM looks for embeddings at each step, and nothing else says that they are there."""
    histories = []
    for stock in (True, False):
        scene = Scene(stock=stock, depth=depth)
        embeddings = add_image(scene)
        polls = 0
        for _ in range(20):
            polls += bool(scene.scheduler.has_requests())
            scene.schedule()
            scene.update()
        embeddings.ready = True
        scene.run()
        histories.append((polls, scene.steps, scene.outputs))
    assert histories[0][0] == 20
    assert histories[0] == histories[1]


# ---------------------------------------------------------------------- what clients may say


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_nested_parameters_of_ours_are_refused_over_http(kind: str) -> None:
    from pydantic import ValidationError
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    body = {"prompt": "hi"} if kind == "completion" else {"messages": [{"role": "user", "content": "hi"}]}
    owner = CompletionRequest if kind == "completion" else ChatCompletionRequest
    with pytest.raises(ValidationError, match="vllm_xargs"):
        owner.model_validate({"model": "m", **body, "vllm_xargs": {"timely": {"arrival_s": 0.0}}})


def test_a_plan_from_embeddings_is_refused() -> None:
    from vllm.exceptions import VLLMValidationError

    from timely.engines.vllm.plugin import _validating_vllm_parameters

    accepted: list[str] = []
    process = _validating_vllm_parameters(
        lambda self, request_id, prompt, params: accepted.append(request_id)
    )
    prompt = {"type": "embeds", "prompt_embeds": object()}
    plan = SimpleNamespace(extra_args={"timely": {"skill_set": "drone"}})
    with pytest.raises(VLLMValidationError, match="needs a prompt of tokens"):
        process(None, "plan", prompt, plan)
    process(None, "ordinary", prompt, SimpleNamespace(extra_args={"timely": {"urgency": 1}}))
    process(None, "of tokens", {"type": "token", "prompt_token_ids": [1]}, plan)
    assert accepted == ["ordinary", "of tokens"]


@pytest.mark.parametrize(
    ("arguments", "blocking"),
    [({"timely": {"skill_set": "drone"}}, True), ({"timely_skill_set": "drone"}, False)],
    ids=["our server", "HTTP"],
)
def test_a_plan_over_vllms_own_http_waits_for_no_value(arguments: dict[str, Any], blocking: bool) -> None:
    """Reports go to tasks of our server. A segment that waited here would keep its client waiting for ever."""
    from timely.engines.vllm.params import parse_vllm_extra_args

    scene = Scene()
    intake, params = scene.scheduler._intake, parse_vllm_extra_args(arguments)
    assert params is not None
    boundaries, _ = intake._boundaries(scene.add("plan", 20, 4), params)
    assert boundaries is not None
    token_ids = intake.tokenizer.encode("mf(50);rp();", add_special_tokens=False)
    closed = [segment for token_id in token_ids for segment in boundaries.feed(token_id)]
    assert [(segment.text, segment.blocking) for segment in closed] == [
        ("mf(50);", False),
        ("rp();", blocking),
    ]


def test_the_token_endpoint_waits_for_no_value_either() -> None:
    from timely.engines.vllm.plugin import TOKEN_ENDPOINT, _validating_vllm_parameters

    process = _validating_vllm_parameters(lambda self, request_id, prompt, params: None)
    params = SimpleNamespace(extra_args={"timely": {"skill_set": "drone"}})
    process(None, "task-1", None, params)
    assert params.extra_args == {"timely": {"skill_set": "drone"}}
    process(None, f"{TOKEN_ENDPOINT}1", None, params)
    assert params.extra_args["timely"]["awaits_values"] is False
