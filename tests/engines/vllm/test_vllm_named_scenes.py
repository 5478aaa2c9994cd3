"""The scenes of vLLM's own scheduler tests, by name, on our scheduler and on vLLM's, with the same result.

Each function says which tests of ``tests/v1/core`` in vLLM's repository describe its scene. The further scenes of
``test_scheduler.py`` are elsewhere or need what our scheduler leaves to vLLM:

* ``test_stock_scenes.py`` and ``test_scenes.py``: stops, aborts, shared prefixes, resets, preemption, memory leaks.
* Not played: encoder-decoder models, hybrid Mamba caches, EAGLE's hashes, encoder-cache connectors, diffusion.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene, StubConnector

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def both(play: Callable[[Scene], Any], **options: Any) -> list[tuple[Any, Scene]]:
    """Play a scene on vLLM's scheduler, then on ours: what it returned, and the scene."""
    results = []
    for stock in (True, False):
        scene = Scene(stock=stock, **{"budget": 128, **options})
        results.append((play(scene), scene))
    return results


def same(play: Callable[[Scene], Any], **options: Any) -> Any:
    """The scene returns the same on both, and the same requests get the same tokens; what it returned."""
    (stock, first), (ours, second) = both(play, **options)
    assert ours == stock
    for scene in (first, second):
        scene.run()
        scene.check_empty()
    assert (second.outputs, second.finished) == (first.outputs, first.finished)
    return ours


def all_steps(scene: Scene) -> list[dict[str, int]]:
    scene.run()
    return scene.steps


# ---------------------------------------------------------------------- counts and order


def test_requests_are_counted_as_they_come_and_go() -> None:
    """``test_add_requests``, ``test_finish_request``, ``test_get_num_unfinished_requests``."""
    from vllm.v1.request import RequestStatus

    def play(scene: Scene) -> list[Any]:
        scheduler, counts = scene.scheduler, []
        for number in range(6):
            scene.add(f"r{number}")
            counts.append((len(scheduler.waiting), scheduler.get_num_unfinished_requests()))
        for number in range(6):
            scheduler.finish_requests(f"r{number}", RequestStatus.FINISHED_ABORTED)
            counts.append((len(scheduler.waiting), scheduler.get_num_unfinished_requests()))
        return counts

    assert same(play)[-1] == (0, 0)


def test_the_first_step_takes_all_prompts_that_fit() -> None:
    """``test_schedule``, ``test_schedule_concurrent_batches``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        for number in range(3):
            scene.add(f"r{number}", 20, 4)
        first = scene.schedule()
        scene.add("late", 60, 4)
        return [first, scene.schedule()]

    same(play, depth=2)


@pytest.mark.parametrize(("threshold", "adaptive"), [(50, False), (20, True)])
def test_long_prompts_are_computed_together(threshold: int, adaptive: bool) -> None:
    """``test_schedule_concurrent_partial_requests``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        scene.scheduler.scheduler_config.long_prefill_token_threshold = threshold
        scene.scheduler.adaptive_long_prefill_threshold = adaptive
        for number in range(3):
            scene.add(f"r{number}", 100, 4)
        return [step for step in all_steps(scene) if step]

    same(play)


def test_without_chunks_no_short_prompt_overtakes_a_long_one() -> None:
    """``test_schedule_order``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        scene.scheduler.scheduler_config.enable_chunked_prefill = False
        for number, tokens in enumerate((100, 100, 10, 10)):
            scene.add(f"r{number}", tokens, 3)
        return [list(step) for step in all_steps(scene)[:3]]  # type: ignore[misc]

    same(play, max_num_seqs=3)


def test_no_more_tokens_are_computed_than_asked_for() -> None:
    """``test_stop_by_max_tokens`` of the asynchronous scheduler."""

    def play(scene: Scene) -> int:
        for number, tokens in enumerate((1, 2, 3, 5)):
            scene.add(f"r{number}", 20, tokens)
        return sum(sum(step.values()) for step in all_steps(scene))

    assert same(play, depth=2) == 4 * 20 + 11 - 4


def test_aborts_while_steps_are_in_flight() -> None:
    """``test_abort`` and ``test_preempt`` of the asynchronous scheduler."""
    from vllm.v1.request import RequestStatus

    def play(scene: Scene) -> list[int]:
        for number in range(6):
            scene.add(f"r{number}", 10, 20)
        for number in (0, 4, 3, 1, 5, 2):
            scene.step()
            scene.scheduler.finish_requests(f"r{number}", RequestStatus.FINISHED_ABORTED)
        return [len(tokens) for tokens in scene.outputs.values()]

    same(play, depth=2)


# ---------------------------------------------------------------------- prefixes and statistics


def test_equal_prompts_share_blocks_in_their_first_step() -> None:
    """``test_prefix_caching_for_prefill_dedup``, ``test_prefix_caching_for_multi_turn``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        for name in "ab":
            scene.add(name, [5] * 50, 30)
        scene.run()
        scene.add("turn", [5] * 50 + scene.outputs["a"], 4)
        return all_steps(scene)

    steps = same(play, depth=2)
    assert steps[0] == {"a": 50, "b": 50 % BLOCK_TOKENS}
    assert steps[-4]["turn"] == 80 % BLOCK_TOKENS or 80 % BLOCK_TOKENS == 0


@pytest.mark.parametrize("drafts", [0, 3])
def test_statistics_are_those_of_vllm(drafts: int) -> None:
    """``test_scheduler_stats_waiting_queues``, ``test_schedule_spec_decoding_stats``, ``test_prefix_cache_stats_*``."""

    def play(scene: Scene) -> list[Any]:
        for number in range(5):
            scene.add(f"r{number}", [5] * 40 + [number], 8)
        scene.run()
        cached = [stats.prefix_cache_stats for stats in scene.stats]
        return [
            [(stats.num_running_reqs, stats.num_waiting_reqs) for stats in scene.stats],
            [(one.requests, one.queries, one.hits, one.preempted_requests) for one in cached],
            [stats.spec_decoding_stats for stats in scene.stats],
        ]

    same(play, drafts=drafts, accept=lambda name: 2, max_num_seqs=3, log_stats=True)


def test_a_preempted_request_is_looked_up_again() -> None:
    """``test_preemption_re_records_prefix_cache_query``."""

    def play(scene: Scene) -> list[int]:
        request = scene.add("r", 40, 8)
        scene.step()
        scene.scheduler.running.remove(request)
        scene.scheduler._preempt_request(request, 0.0)
        scene.run()
        cached = [stats.prefix_cache_stats for stats in scene.stats]
        return [sum(one.requests for one in cached), sum(one.preempted_requests for one in cached)]

    assert same(play, log_stats=True) == [1, 1]


def test_a_reset_returns_requests_in_their_order() -> None:
    """``test_scheduler_reset_prefix_cache``, ``test_reset_connector_cache_no_connector_is_no_op_success``."""

    def play(scene: Scene) -> Any:
        for number in range(4):
            scene.add(f"r{number}", 20, 4)
        scene.step()
        resets = scene.scheduler.reset_prefix_cache(), scene.scheduler.reset_prefix_cache(True)
        scene.run()
        return resets, scene.scheduler.reset_prefix_cache(reset_connector=True)

    assert same(play) == ((False, True), True)


# ---------------------------------------------------------------------- speculation


@pytest.mark.parametrize("depth", [1, 2])
def test_a_stop_among_accepted_drafts(depth: int) -> None:
    """``test_stop_via_update_from_output``, ``test_async_spec_placeholders_cleared_for_unscheduled_reqs``."""

    def play(scene: Scene) -> Any:
        for number in range(3):
            last = FIRST_TOKEN + 20 + 4 + number
            request = scene.add(f"stop{number}", 20, 12, stop_token_ids=[last], ignore_eos=False)
            request.sampling_params._all_stop_token_ids = {last}
            scene.add(f"length{number}", 20, 4 + number)
        scene.run()
        return scene.finished

    same(play, drafts=3, accept=lambda name: 3, depth=depth, budget=256)


def test_a_prompt_in_chunks_takes_no_drafts() -> None:
    """``test_no_spec_tokens_scheduled_for_prefill_chunks``."""
    from vllm.v1.outputs import DraftTokenIds

    def play(scene: Scene) -> list[dict[str, int]]:
        scene.add("r", 80, 8)
        scene.step()
        scene.scheduler.update_draft_token_ids(DraftTokenIds(["r"], [[1, 2, 3]]))
        return all_steps(scene)

    assert same(play, drafts=3, budget=50)[:2] == [{"r": 50}, {"r": 30}]


def test_a_cached_prompt_begins_with_a_full_round() -> None:
    """``test_spec_decode_padding_first_decode_step``, ``test_spec_decode_padding_skipped_with_prefill_in_batch``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        if (drafts := getattr(scene.scheduler, "_drafts", None)) is not None:
            drafts._on_cpu = False  # on a CPU ours takes out what vLLM pads for CUDA graphs
        scene.add("first", [5] * 33, 16)
        scene.step()
        scene.add("second", [5] * 33, 16)
        scene.step()
        scene.add("long", 200, 4)
        scene.step()
        scene.add("third", [5] * 33, 16)
        return all_steps(scene)

    assert same(play, drafts=3, accept=lambda name: 3, budget=64)[1]["second"] == 4


# ---------------------------------------------------------------------- balanced prompts of data parallelism


@pytest.mark.parametrize("running", [True, False])
def test_a_throttled_step_defers_new_prompts(running: bool) -> None:
    """``test_schedule_prefills_gating``, ``test_throttle_defers_inflight_prefill_chunk``."""

    def play(scene: Scene) -> list[dict[str, int]]:
        if running:
            scene.add("decodes", 8, 12)
            scene.step()
        scene.add("new", 180, 4)
        steps = [scene.schedule(throttle_prefills=True)]
        scene.update()
        scene.step()
        steps.append(scene.schedule(throttle_prefills=True))
        if not scene.stock:
            assert scene.scheduler._plan.tokens.keys() == steps[-1].keys()
        scene.update()
        return steps

    steps = same(play, budget=50)
    assert ("new" in steps[0]) is not running


def test_a_throttled_step_evicts_no_plan_for_a_prompt_and_the_next_one_takes_it() -> None:
    scene = Scene(blocks=20)
    scene.add("parked", 100, 8, scene.plan((4, 300.0), (4, 0.1)))
    scene.run(until=lambda: not scene.scheduler.has_requests())
    scene.add("new", 260, 2)
    assert scene.schedule(throttle_prefills=True) == {}
    scene.update()
    assert scene.scheduler.controller.evictions == 0
    assert scene.scheduler.has_requests()
    assert "new" in scene.schedule()
    scene.update()
    scene.run(until=lambda: "new" in scene.finished)


def test_a_prefill_interval_defers_new_prompts() -> None:
    """``test_local_prefill_cadence`` and its neighbours; without data parallelism vLLM 0.32 has no interval."""

    def play(scene: Scene) -> list[dict[str, int]]:
        scene.add("decodes", 8, 20)
        for number in range(3):
            scene.step()
            scene.add(f"new-{number}", 30, 4)
        return all_steps(scene)

    same(play, prefill_schedule_interval=4)


def test_prompts_left_over_end_the_throttle() -> None:
    """``test_throttle_capacity_bound_guard_admits``."""

    def play(scene: Scene) -> Any:
        scene.add("decodes", 8, 12)
        scene.step()
        scene.add("a", 100, 4)
        scene.add("b", 100, 4)
        scene.step()
        bound = scene.scheduler.prefill_capacity_bound
        step = scene.schedule(throttle_prefills=True)
        scene.update()
        return bound, sorted(step)

    assert same(play, budget=100)[0]


# ---------------------------------------------------------------------- connectors


@pytest.mark.parametrize("asynchronous", [False, True])
def test_only_what_was_not_loaded_is_computed(asynchronous: bool) -> None:
    """``test_kv_connector_basic``, ``test_external_prefix_cache_metrics``."""

    def play(scene: Scene) -> Any:
        for name in "ab":
            scene.add(name, 4 * BLOCK_TOKENS, 3)
        for _ in range(3):
            scene.step()
            scene.received |= scene.connector.loading if scene.connector else set()
            if scene.connector:
                scene.connector.loading = set()
            scene.schedule()
            scene.update()
        scene.run()
        return [step for step in scene.steps if step]

    steps = same_with_connector(play, {"a": 2 * BLOCK_TOKENS, "b": 2 * BLOCK_TOKENS}, asynchronous)
    assert steps[0] == {"a": 2 * BLOCK_TOKENS, "b": 2 * BLOCK_TOKENS}


def same_with_connector(
    play: Callable[[Scene], Any], external: dict[str, int], asynchronous: bool, **options: Any
) -> Any:
    """``same`` with a connector for each scheduler."""
    results = []
    for stock in (True, False):
        scene = Scene(
            stock=stock,
            budget=128,
            connector=StubConnector(external, asynchronous),
            log_stats=True,
            **options,
        )
        results.append((play(scene), scene.outputs, scene.finished))
        scene.check_empty()
    assert results[0] == results[1]
    return results[1][0]


def test_a_connector_that_does_not_know_yet_is_asked_again() -> None:
    """``test_prefix_cache_query_not_inflated_by_connector_defer``."""

    def play(scene: Scene) -> Any:
        assert scene.connector is not None
        scene.connector.undecided = 3
        scene.add("r", 40, 3)
        for _ in range(5):
            scene.schedule()
            scene.update()
        scene.run()
        return [step for step in scene.steps if step], sum(s.prefix_cache_stats.requests for s in scene.stats)

    assert same_with_connector(play, {}, False)[1] == 1


def test_a_loaded_prompt_that_does_not_fit_waits() -> None:
    """``test_kv_connector_unable_to_allocate``, ``test_kv_connector_handles_preemption``."""

    def play(scene: Scene) -> Any:
        for name in "ab":
            scene.add(name, 5 * BLOCK_TOKENS, BLOCK_TOKENS + 4)
        scene.run()
        return next(step for step in scene.steps if step)

    same_with_connector(play, {"a": 2 * BLOCK_TOKENS, "b": 2 * BLOCK_TOKENS}, False, blocks=8)


# ---------------------------------------------------------------------- grammars, sessions, priorities, images


def test_a_grammar_that_fails_ends_its_request_alone() -> None:
    """``test_grammar_compile_error_finishes_only_request``, ``test_abort_request_when_structured_output_fsm_*``."""
    from vllm.v1.request import RequestStatus

    def play(scene: Scene) -> Any:
        request = scene.add("compiles", 20, 4)
        scene.scheduler.waiting.remove_request(request)
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        request.structured_output_request = SimpleNamespace(grammar=RuntimeError("no grammar"))
        scene.scheduler.waiting.add_request(request)
        scene.scheduler.structured_output_manager.accept_tokens = lambda request, tokens: (
            request.request_id != "rejects"
        )
        scene.add("rejects", 20, 4)
        scene.add("goes", 20, 4)
        scene.run()
        return scene.finished

    assert same(play) == {"compiles": "error", "rejects": "error", "goes": "length"}


def test_priorities_decide_the_order_of_starts() -> None:
    """``test_priority_scheduling_*``: ordering, limited slots, the waiting queue, the heap."""

    def play(scene: Scene) -> list[str]:
        for number, priority in enumerate((5, 1, 8, 3, 2, 7, 4, 6)):
            scene.add(f"r{number}", 10, 2, priority=priority)
        scene.run()
        return list(dict.fromkeys(name for step in scene.steps for name in step))

    assert same(play, policy="priority", max_num_seqs=1)[:3] == ["r1", "r4", "r3"]


def test_blocks_run_out_under_priorities() -> None:
    """``test_priority_scheduling_preemption``, and its like with a resumption."""

    def play(scene: Scene) -> list[str]:
        scene.add("low", 2 * BLOCK_TOKENS, 40, priority=5)
        scene.step()
        scene.add("high", 2 * BLOCK_TOKENS, 40, priority=0)
        scene.run()
        return list(scene.finished)

    assert same(play, policy="priority", blocks=5) == ["high", "low"]


@pytest.mark.parametrize("drafts", [0, 1, 5])
def test_many_random_requests_with_priorities(drafts: int) -> None:
    """``test_priority_scheduling_blast``."""

    def play(scene: Scene) -> None:
        drawn = random.Random(42)
        for number in range(60):
            scene.add(
                f"r{number}", drawn.randint(1, 120), drawn.randint(1, 40), priority=drawn.randint(-3, 3)
            )
            for _ in range(drawn.randint(0, 3)):
                scene.step()
                scene.check()

    same(play, policy="priority", blocks=40, drafts=drafts, accept=lambda name: len(name) % 6)


def test_images_wait_for_the_encoder() -> None:
    """``test_schedule_multimodal_requests``, ``test_schedule_partial_requests``, ``test_no_mm_input_chunking``."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    def play(scene: Scene) -> list[dict[str, int]]:
        scene.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=100)
        scene.scheduler.max_num_encoder_input_tokens = 100
        for number in range(3):
            request = scene.add(f"r{number}", 80, 3)
            position = PlaceholderRange(offset=10, length=60)
            request.mm_features = [
                MultiModalFeatureSpec(
                    data=None, modality="image", identifier=f"image-{number}", mm_position=position
                )
            ]
        scene.add("text", 40, 3)
        return all_steps(scene)

    assert same(play)[0] == {"r0": 80, "r1": 10, "r2": 10, "text": 28}
