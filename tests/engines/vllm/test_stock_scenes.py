"""Ordinary requests fare on our scheduler as on vLLM's own.

vLLM's scheduler tests play scenes of these kinds without a model: chunked prompts, stops, aborts in flight, shared
prefixes. Others are resets of the cache, preemption and full queues. Not all of vLLM's scenes are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LONG_S = 300.0
"""An execution time beyond every test."""


def abort(scene: Scene, *names: str) -> None:
    from vllm.v1.request import RequestStatus

    scene.scheduler.finish_requests(list(names), RequestStatus.FINISHED_ABORTED)


def aborts_in_flight(scene: Scene) -> None:
    """One request is aborted while it waits, one while a step of it is computed."""
    for number in range(6):
        scene.add(f"r{number}", 30, 12)
    scene.step()
    scene.schedule()
    abort(scene, "r1", "r5")
    scene.update()


def aborts_all(scene: Scene) -> None:
    for number in range(6):
        scene.add(f"r{number}", 30, 12)
    scene.step()
    abort(scene, *(f"r{number}" for number in range(6)))


def shared_prefixes(scene: Scene) -> None:
    for number in range(6):
        scene.add(f"r{number}", [5] * (3 * BLOCK_TOKENS) + [number] * 9, 10)
        scene.step()


def stop_tokens(scene: Scene) -> None:
    for number in range(4):
        last = FIRST_TOKEN + 20 + 3 + number
        request = scene.add(f"r{number}", 20, 12, stop_token_ids=[last], ignore_eos=False)
        request.sampling_params._all_stop_token_ids = {last}


def fewest_tokens(scene: Scene) -> None:
    """A stop token before ``min_tokens`` is not heeded."""
    for number in range(3):
        last = FIRST_TOKEN + 22
        request = scene.add(
            f"r{number}", 20, 12, stop_token_ids=[last], ignore_eos=False, min_tokens=5 * number
        )
        request.sampling_params._all_stop_token_ids = {last}


def cache_reset(scene: Scene) -> None:
    for number in range(4):
        scene.add(f"r{number}", 40, 12)
    while not all(scene.outputs.values()):
        scene.step()
    while scene.in_flight:
        scene.update()
    assert scene.scheduler.reset_prefix_cache(reset_running_requests=True)


def partial_prompts(scene: Scene) -> None:
    scene.scheduler.scheduler_config.long_prefill_token_threshold = 40
    for number in range(4):
        scene.add(f"r{number}", 150, 6)


def long_queue(scene: Scene) -> None:
    for number in range(40):
        scene.add(f"r{number}", 10 + number, 3 + number % 5)


def prompt_logprobs(scene: Scene) -> None:
    for number in range(2):
        scene.add(f"r{number}", [5] * 50, 6, prompt_logprobs=1)
        scene.run()


SCENES = (
    aborts_in_flight, aborts_all, shared_prefixes, stop_tokens, fewest_tokens, cache_reset, partial_prompts,
    long_queue, prompt_logprobs,
)  # fmt: skip


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"depth": 2}, {"depth": 2, "pipeline": True}, {"blocks": 16, "policy": "priority"}],
    ids=["plain", "ahead", "pipeline", "few blocks"],
)
def test_ordinary_requests_fare_as_under_vllms_own_scheduler(
    play: Callable[[Scene], None], options: dict[str, Any]
) -> None:
    results = []
    for stock in (True, False):
        scene = Scene(stock=stock, budget=128, **options)
        play(scene)
        scene.run()
        scene.check_empty()
        results.append((scene.outputs, scene.finished))
    assert results[0] == results[1]


def test_ordinary_requests_start_in_vllms_order() -> None:
    """A full queue: the same requests start in the same steps, and none is evicted."""
    starts = []
    for stock in (True, False):
        scene = Scene(stock=stock, max_num_seqs=4, budget=128)
        for number in range(16):
            scene.add(f"r{number}", 20 + 40 * (number % 3), 4 + number % 7)
        scene.run()
        starts.append(
            {name: next(at for at, step in enumerate(scene.steps) if name in step) for name in scene.outputs}
        )
        if not stock:
            assert scene.scheduler.controller.evictions == 0
    assert starts[0] == starts[1]


@pytest.mark.parametrize(
    "options",
    [{}, {"depth": 2}, {"depth": 2, "pipeline": True}, {"drafts": 2}, {"depth": 2, "drafts": 2}],
    ids=["plain", "ahead", "pipeline", "drafts", "drafts ahead"],
)
def test_requests_and_the_prefix_cache_get_the_same_blocks_at_the_same_steps(options: dict[str, Any]) -> None:
    histories = []
    for stock in (True, False):
        scene = Scene(stock=stock, accept=lambda name: len(name) % 3, **options)
        for number in range(6):
            scene.add(f"r{10**number}", [number] * (19 + 5 * number), 40 + number)
        manager = scene.scheduler.kv_cache_manager
        cache = manager.block_pool.cached_block_hash_to_block
        history = []
        while scene.held:
            scene.step()
            blocks = {name: manager.get_block_ids(name) for name in scene.held}
            history.append((set(cache._cache), blocks))
        histories.append(history)
        assert len(cache._cache) > 12
    assert histories[0] == histories[1]


# ---------------------------------------------------------------------- rows of the matrix in docs/vllm.md


@pytest.mark.parametrize("budget", [128, 1024])
def test_chats_in_a_closed_loop_get_the_steps_of_vllms_own_scheduler(budget: int) -> None:
    """The load of ``timely bench plain``: 96 requests, 24 at once; every step computes the same tokens."""
    results = []
    for stock in (True, False):
        scene = Scene(stock=stock, blocks=400, depth=2, max_num_seqs=64, budget=budget)

        def submit(scene: Scene = scene) -> bool:
            while scene.arrivals < min(96, 24 + len(scene.finished)):
                scene.add(f"r{scene.arrivals}", 64, 48)
            return len(scene.finished) == 96

        scene.run(until=submit)
        results.append(scene.steps)
    assert results[0] == results[1]


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_step_in_flight_leaves_its_requests_tokens_to_a_prompt(steps: int, pipeline: bool) -> None:
    """With a pipeline every request waits for its token in flight, else those whose last token it is."""

    def play(*, stock: bool) -> list[dict[str, int]]:
        scene = Scene(stock=stock, depth=2, pipeline=pipeline)
        scene.add("short", 20, 4)
        for _ in range(steps):
            scene.step()
        scene.add("long", 600, 2)
        scene.run()
        return scene.steps

    assert play(stock=False) == play(stock=True)


def test_a_prompt_waits_for_the_block_of_its_second_token() -> None:
    """vLLM admits it to the last blocks and takes them back in the next step. What is not cached it computes twice."""

    def prompt_steps(max_tokens: int, *, stock: bool) -> list[int]:
        scene = Scene(stock=stock, blocks=12, enable_prefix_caching=False)
        scene.add("chat", BLOCK_TOKENS + 1, BLOCK_TOKENS - 1)
        scene.step()
        scene.add("prompt", 10 * BLOCK_TOKENS, max_tokens)
        scene.run()
        scene.check_empty()
        return [number for number, tokens in enumerate(scene.steps) if tokens.get("prompt", 0) > 1]

    assert prompt_steps(1, stock=False) == prompt_steps(1, stock=True) == [1]
    again = prompt_steps(4, stock=True)
    assert again[0] == 1
    assert len(again) > 1
    assert prompt_steps(4, stock=False) == again[-1:]


def test_prompt_logprobs_read_no_cached_prefix() -> None:
    scene = Scene()
    scene.add("first", [5] * 50, 2)
    scene.run()
    scene.add("asks", [5] * 50, 2, prompt_logprobs=1)
    (job,) = scene.scheduler.controller.table
    assert job.table.prefill_left[job.row] == 50
    scene.run()
    assert next(step["asks"] for step in scene.steps if "asks" in step) == 50


def test_several_sequences_of_a_request_run_and_reports_go_to_the_first() -> None:
    """With ``n`` > 1 vLLM makes a request of each sequence; a beam search sends requests of its own."""
    scene = Scene()
    for number in range(3):
        scene.add(f"{number}_task", 20, 8, scene.plan((4, 0.5), (4, 0.1), task_id="task"))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 3)
    assert scene.report("task", 0) == {"known": True}
    table = scene.scheduler.controller.table
    resumes = [float(table.resume_s[table[f"{number}_task"].row]) for number in range(3)]
    assert resumes[0] < resumes[1] == resumes[2]
    scene.run()
    assert [len(tokens) for tokens in scene.outputs.values()] == [8, 8, 8]
    scene.check_empty()


@pytest.mark.parametrize("flat", [None, {"timely_agent": "a"}])
def test_an_ordinary_answer_carries_no_account(flat: dict[str, Any] | None) -> None:
    """vLLM's HTTP server would show it in its answer, and send it on to the engine that decodes."""
    scene = Scene()
    scene.add("chat", 20, 4, extra=flat)
    scene.add("task", 20, 4, {"task_id": "task"})
    scene.run()
    assert scene.accounts.keys() == {"task"}
    assert scene.accounts["task"]["tokens"] == 4
    scene.check_empty()


def test_a_pooling_request_is_scheduled_in_vllms_order_beside_a_plan() -> None:
    from vllm.pooling_params import PoolingParams
    from vllm.v1.request import Request

    scene = Scene()
    scene.add("plan", 20, 8, scene.plan((4, 0.5), (4, 0.1)))
    request = Request("pools", [3] * 30, None, PoolingParams(task="embed"), block_hasher=scene.hasher)
    scene.scheduler.add_request(request)
    assert scene.schedule() == {"pools": 30, "plan": 20}
    abort(scene, "pools")
    scene.update()
    scene.run()
    assert len(scene.outputs["plan"]) == 8
    scene.check_empty()


def test_blocks_run_out_under_pooling_requests_with_priorities() -> None:
    """No plan orders them, so vLLM's last resort takes the least important one."""
    from vllm.pooling_params import PoolingParams
    from vllm.v1.request import Request

    def steps(*, stock: bool) -> list[dict[str, int]]:
        options: dict[str, Any] = {"scheduler_reserve_full_isl": False, "long_prefill_token_threshold": 16}
        scene = Scene(stock=stock, blocks=14, budget=32, policy="priority", runner="pooling", **options)
        for name, priority in (("background", 5), ("urgent", 0)):
            request = Request(
                name, [priority] * 160, None, PoolingParams(task="embed"),
                priority=priority, block_hasher=scene.hasher,
            )  # fmt: skip
            scene.scheduler.add_request(request)
            scene.schedule()
            scene.update()
        while scene.held:
            scene.schedule()
            ends = [name for name in scene.held if scene.scheduler.requests[name].num_computed_tokens == 160]
            abort(scene, *ends)
            scene.update()
        return scene.steps

    assert steps(stock=False) == steps(stock=True)


def test_the_lockstep_of_data_parallel_moe_engines_goes_on_while_all_plans_are_parked() -> None:
    """Such an engine asks for unfinished requests; it computes a dummy batch when its own step is empty."""
    scene = Scene()
    scene.add("parked", 20, 8, scene.plan((4, LONG_S), (4, 0.1)))
    scene.run(until=lambda: scene.scheduler.control({"kind": "stats"})["parked"] == 1)
    assert scene.scheduler.has_unfinished_requests()
    assert scene.schedule() == {}
    scene.update()
    scene.clock.advance_to(2 * LONG_S)
    scene.run()
    scene.check_empty()
