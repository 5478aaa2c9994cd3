"""Kinds of models and of engines, run for real: tiny folder models on vLLM's CPU build, its scheduler beside ours.

Each kind has an engine with vLLM's own scheduler, whose tokens are the reference, and one with ours. The same prompts
then run as plain requests, and as parked plans beside an urgent newcomer. They run beside a plan that is aborted while
parked, and as plans that lose their KV blocks while parked.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from optional_packages import require_package
from tiny_models import WORDS, write_adapter, write_draft, write_tiny_model

from tests.engines.vllm.conftest import LocalEngine, make_engine, shut_down, without_groups

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(600)]

SEGMENTS, SEGMENT_TOKENS = 4, 6
TOKENS = SEGMENTS * SEGMENT_TOKENS
PLANS = 3
LENGTHS = (5, 40, 97, 70)
"""Tokens of the prompts: those of the plans, and behind them that of the newcomer."""

URGENT = {"tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 4.0}}
LONG_S = 300.0
"""A robot that is not done before the test says so."""

BRIEF_S = 0.05

Prompt = dict[str, Any]


def words(number: int) -> Prompt:
    """Token ids without a pattern; the first prompts share nothing."""
    first, last = WORDS[0], WORDS[-1]
    length = LENGTHS[number]
    return {
        "prompt_token_ids": [
            first + (37 * n * n + 11 * n + 53 * number) % (last - first) for n in range(length)
        ]
    }


def sound(number: int) -> Prompt:
    """A tone for the encoder, and the first tokens of the decoder."""
    import numpy as np

    times = np.arange(16000) / 16000
    return {
        "encoder_prompt": {
            "prompt_token_ids": [],
            "multi_modal_data": {"audio": (np.sin(2000 * (1 + number) * times).astype(np.float32), 16000)},
        },
        "decoder_prompt": words(number),
    }


@dataclass(frozen=True)
class Kind:
    """A model and options of vLLM.

    Attributes:
        draft, adapters, stored: folders beside the model's: of a draft model, of LoRA adapters, of stored KV caches.
        alone: one sequence a step, where the CPU build gives other texts to several under vLLM's own scheduler, too.
    """

    model: str = "llama"
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt: Callable[[int], Prompt] = words
    draft: bool = False
    adapters: int = 0
    stored: bool = False
    alone: bool = False

    def request(self, folder: Path, number: int) -> dict[str, Any]:
        """Further arguments of request ``number``."""
        if not self.adapters:
            return {}
        from vllm.lora.request import LoRARequest

        adapter = 1 + number % self.adapters
        return {"lora_request": LoRARequest(f"a{adapter}", adapter, str(folder / f"adapter-{adapter}"))}


NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 1}

KINDS: dict[str, Kind] = {
    "llama": Kind(),
    "tensor-parallel": Kind(options={"tensor_parallel_size": 2}),
    # Without a compilation vLLM leaves out the warm-up that makes room for what goes from worker to worker.
    "pipeline-parallel": Kind(
        options={
            "pipeline_parallel_size": 2,
            "enforce_eager": False,
            "compilation_config": {"mode": 2, "backend": "eager"},
        }
    ),
    "adapters": Kind(
        adapters=2, options={"enable_lora": True, "max_loras": 1, "max_cpu_loras": 2, "max_lora_rank": 8}
    ),
    "n-gram": Kind(options={"speculative_config": NGRAM}),
    "draft-model": Kind(draft=True),
    "connector": Kind(stored=True),
    "sliding-window": Kind("mistral"),
    "sliding-and-full": Kind("gemma3"),
    "experts": Kind("qwen3_moe"),
    "mamba2": Kind("mamba2"),
    "mamba2-and-attention": Kind("falcon_h1", {"enable_prefix_caching": False}),
    "mamba2-then-attention": Kind("granite_hybrid", {"enable_prefix_caching": False}),
    "delta-net": Kind("qwen3_next", {"dtype": "bfloat16"}),
    "short-convolutions": Kind("lfm2", {"enable_prefix_caching": False}, alone=True),
    "encoder-decoder": Kind("whisper", prompt=sound),
}


def plan(number: int, execution_s: float) -> dict[str, Any]:
    return {
        "task_id": f"task-{number}",
        "agent": f"robot-{number}",
        "forced": [["go();", SEGMENT_TOKENS, execution_s]] * SEGMENTS,
    }


class Pair:
    """The engine with our scheduler, and the tokens that vLLM's own gives."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        write_tiny_model(folder / "model", kind.model)
        for number in range(1, 1 + kind.adapters):
            write_adapter(folder / f"adapter-{number}", seed=number)
        options = dict(kind.options)
        if kind.draft:
            draft = write_draft(folder / "draft", folder / "model")
            options["speculative_config"] = {"model": str(draft), "num_speculative_tokens": 3}
        if kind.stored:
            from vllm.config import KVTransferConfig

            options["kv_transfer_config"] = KVTransferConfig(
                kv_connector="ExampleConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"shared_storage_path": str(folder / "stored")},
            )
        self.options = options
        stock = self.start(scheduler_cls=None, **({"max_num_seqs": 1} if kind.alone else {}))
        try:
            for number in range(PLANS + 1):
                self.add(stock, number)
            self.expected = tokens(stock.run())
        finally:
            shut_down(stock)
            gc.collect()
        self.engine = self.start(additional_config={"timely": {"max_batch": 1}} if kind.alone else {})

    def start(self, **more: Any) -> LocalEngine:
        with mock.patch.dict(os.environ), ExitStack() as stack:
            if self.options.keys() & {"tensor_parallel_size", "pipeline_parallel_size"}:
                # By default vLLM wants a memory node for each of several workers.
                cores = sorted(os.sched_getaffinity(0))
                os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"{cores[0]}|{cores[-1]}"
                stack.enter_context(without_groups())
            return make_engine(model=str(self.folder / "model"), **{**self.options, **more})

    def add(self, engine: LocalEngine, number: int, timely: dict[str, Any] | None = None) -> None:
        engine.add(
            f"r{number}", self.kind.prompt(number), TOKENS, timely, **self.kind.request(self.folder, number)
        )


def tokens(outputs: Mapping[str, Any]) -> dict[str, list[int]]:
    return {name: list(output.outputs[0].token_ids) for name, output in outputs.items()}


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(KINDS[request.param], tmp_path_factory.mktemp(request.param))
    yield pair
    shut_down(pair.engine)
    gc.collect()


def parked(pair: Pair) -> int:
    return int(pair.engine.scheduler.control({"kind": "stats"})["parked"])


def requests(pair: Pair, task_id: str) -> list[str]:
    """Ids of the requests of a task in the engine."""
    answer = pair.engine.scheduler.control({"kind": "requests", "task_id": task_id})
    return list(answer["requests"])


def play_robots(pair: Pair) -> dict[str, Any]:
    """Run to the end; each robot reports its segments as done once the engine is idle."""
    scheduler, reported, done = pair.engine.scheduler, Counter[int](), dict[str, Any]()
    while pair.engine.llm.llm_engine.has_unfinished_requests():
        done |= pair.engine.run(until=lambda: not scheduler.has_requests())
        for number in range(PLANS):
            for request_id in requests(pair, f"task-{number}"):
                for segment in range(reported[number], len(scheduler.live[request_id].segments)):
                    report = {"segment": segment, "kind": "done", "elapsed_s": 0.1}
                    event = {"kind": "report", "task_id": f"task-{number}", "report": report}
                    assert scheduler.control(event) == {"known": True}
                    reported[number] += 1
    return done


@contextmanager
def no_free_blocks(scheduler: Any) -> Iterator[None]:
    """Another takes all blocks of the KV cache that are free."""
    pool = scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks())
    yield
    pool.free_blocks(taken)


def check_empty(pair: Pair) -> None:
    scheduler = pair.engine.scheduler
    assert len(scheduler.controller.table) == 0
    assert len(scheduler.live) == 0
    assert scheduler.seconds_to_resume() is None
    assert scheduler.kv_cache_manager.usage == 0.0


def test_plain_requests_get_the_tokens_of_vllms_own_scheduler(pair: Pair) -> None:
    assert all(len(set(text)) > TOKENS // 4 for text in pair.expected.values()), "a text that says little"
    assert len({tuple(text) for text in pair.expected.values()}) == PLANS + 1
    for number in range(PLANS + 1):
        pair.add(pair.engine, number)
    assert tokens(pair.engine.run()) == pair.expected
    check_empty(pair)


def test_parked_plans_beside_an_urgent_newcomer_get_the_same_tokens(pair: Pair) -> None:
    for number in range(PLANS):
        pair.add(pair.engine, number, plan(number, BRIEF_S))
    done = pair.engine.run(until=lambda: parked(pair) > 0)
    pair.add(pair.engine, PLANS, URGENT)
    done |= pair.engine.run()
    assert tokens(done) == pair.expected
    for number in range(PLANS):
        account = done[f"r{number}"].kv_transfer_params["timely"]
        assert account["suspensions"] == SEGMENTS - 1
        assert account["recomputed_tokens"] == account["preemptions"] == 0
    check_empty(pair)


def test_a_plan_aborted_while_parked_leaves_the_others_their_tokens(pair: Pair) -> None:
    for number in range(PLANS):
        pair.add(pair.engine, number, plan(number, LONG_S))
    pair.engine.run(until=lambda: parked(pair) == PLANS)
    pair.engine.llm.llm_engine.abort_request(["r1"])
    pair.add(pair.engine, PLANS, URGENT)
    assert tokens(play_robots(pair)) == {name: text for name, text in pair.expected.items() if name != "r1"}
    check_empty(pair)


def test_plans_that_lost_their_blocks_while_parked_get_the_same_tokens(pair: Pair) -> None:
    for number in range(PLANS):
        pair.add(pair.engine, number, plan(number, LONG_S))
    pair.engine.run(until=lambda: parked(pair) == PLANS)
    with no_free_blocks(pair.engine.scheduler):
        pair.add(pair.engine, PLANS, {**URGENT, "task_id": "newcomer"})
        done = pair.engine.run(until=lambda: not requests(pair, "newcomer"))
    assert "r3" in done
    done |= play_robots(pair)
    assert tokens(done) == pair.expected
    accounts = [done[f"r{number}"].kv_transfer_params["timely"] for number in range(PLANS)]
    assert sum(account["preemptions"] for account in accounts) > 0
    check_empty(pair)
