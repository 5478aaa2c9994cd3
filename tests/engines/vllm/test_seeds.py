"""Seeded requests on the real engine: what a draw depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from optional_packages import require_package

from tests.engines.vllm.conftest import SCHEDULER, LocalEngine
from timely.plans.robot_values import plan_value_text

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PROMPT = "Tell me a story about what the robot found under the table."
SEED = 7
ENGINES = ["sync_engine", "async_engine"]


def add(
    engine: LocalEngine, name: str, prompt: Any, tokens: int, timely: dict[str, Any] | None = None
) -> None:
    engine.add(name, prompt, tokens, timely, temperature=1.0, seed=SEED)


def tokens(engine: LocalEngine, name: str) -> list[int]:
    return list(engine.run()[name].outputs[0].token_ids)


def plan(name: str, *segments: tuple[int, float, bool]) -> dict[str, Any]:
    return {"task_id": name, "forced": [["go();", *segment] for segment in segments]}


@pytest.mark.parametrize("engine_name", ENGINES)
def test_behind_a_value_a_plan_draws_as_if_it_had_always_been_there(
    engine_name: str, request: pytest.FixtureRequest
) -> None:
    """The rest is also what a plan that was resumed behind the value after a restart would get."""
    engine: LocalEngine = request.getfixturevalue(engine_name)
    scheduler = engine.scheduler
    add(engine, "ask", PROMPT, 24, plan("ask", (6, 0.05, True), (18, 0.05, False)))
    engine.run(until=lambda: scheduler.control({"kind": "stats"})["blocked"] and not scheduler.has_requests())
    report = {"segment": 0, "kind": "value", "value": "red box"}
    assert scheduler.control({"kind": "report", "task_id": "ask", "report": report}) == {"known": True}
    answered = engine.run()["ask"]
    first, rest = list(answered.outputs[0].token_ids)[:6], list(answered.outputs[0].token_ids)[6:]
    value_ids = engine.llm.get_tokenizer().encode(plan_value_text("red box"), add_special_tokens=False)
    context = [*answered.prompt_token_ids, *first, *value_ids]
    add(engine, "fresh", {"prompt_token_ids": context}, 18, plan("fresh", (18, 0.05, False)))
    assert tokens(engine, "fresh") == rest
    assert len(set(rest)) > 6


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_plan_that_loses_its_blocks_draws_as_one_that_runs_through(
    engine_name: str, request: pytest.FixtureRequest
) -> None:
    engine: LocalEngine = request.getfixturevalue(engine_name)
    scheduler = engine.scheduler
    add(engine, "through", PROMPT, 24, plan("through", (24, 0.05, False)))
    expected = tokens(engine, "through")
    add(engine, "evicted", PROMPT, 24, plan("evicted", (6, 300.0, False), (18, 0.05, False)))
    engine.run(until=lambda: scheduler.control({"kind": "stats"})["parked"] and not scheduler.has_requests())
    (state,) = scheduler.live
    scheduler.blocks.evict(state, scheduler.clock())
    report = {"segment": 0, "kind": "done", "elapsed_s": 0.1}
    assert scheduler.control({"kind": "report", "task_id": "evicted", "report": report}) == {"known": True}
    ended = engine.run()["evicted"]
    assert list(ended.outputs[0].token_ids) == expected
    assert ended.kv_transfer_params["timely"]["preemptions"] == 1


@pytest.mark.parametrize("engine_name", ENGINES)
def test_seeds_and_positions_tell_draws_apart(engine_name: str, request: pytest.FixtureRequest) -> None:
    engine: LocalEngine = request.getfixturevalue(engine_name)
    for number in range(4):
        timely = plan(f"r{number}", (24, 0.05, False))
        engine.add(f"r{number}", PROMPT, 24, timely, temperature=1.0, seed=SEED + number % 3)
    texts = {name: tuple(output.outputs[0].token_ids) for name, output in engine.run().items()}
    assert texts["r0"] == texts["r3"]
    assert len(set(texts.values())) == 3


@pytest.mark.parametrize("engine_name", ENGINES)
def test_a_seeded_chat_with_hints_draws_as_one_without(
    engine_name: str, request: pytest.FixtureRequest
) -> None:
    """Every chat through our server carries hints."""
    engine: LocalEngine = request.getfixturevalue(engine_name)
    texts = []
    for timely in (None, {"task_id": "chat", "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0}}):
        add(engine, "chat", PROMPT, 24, timely)
        texts.append(tokens(engine, "chat"))
    assert texts[0] == texts[1]


def test_a_seeded_request_whose_prompt_is_cut_draws_as_under_vllms_own_scheduler(
    new_engine: Callable[..., LocalEngine], tiny_model: str
) -> None:
    """On CPUs vLLM's own rewind of a draw that it discards ended the engine."""
    texts = []
    for scheduler, budget in ((None, 256), (SCHEDULER, 256), (SCHEDULER, 32)):
        engine = new_engine(
            model=tiny_model,
            num_gpu_blocks_override=100,
            max_num_batched_tokens=budget,
            scheduler_cls=scheduler,
        )
        add(engine, "chat", {"prompt_token_ids": list(range(3, 103))}, 24)
        engine.add("beside", {"prompt_token_ids": list(range(103, 150))}, 8)
        texts.append(tokens(engine, "chat"))
    assert texts[0] == texts[1] == texts[2]
