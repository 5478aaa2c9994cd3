"""Processor time of our scheduler beside vLLM's own, on the same queue and without a model.

A stub takes the place of the executor: it returns a token for every request that decodes.
``schedule`` and ``update_from_output`` are measured, the scheduler's share of every step of the engine, and what a
request that arrives takes.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

BLOCK_TOKENS = 32
MAX_RUNNING = 256
TOKEN_BUDGET = 2048
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 48
WARM_UP_STEPS = 60
"""Steps before the measured ones: requests have come to different positions of their answers."""
TURNS, STEPS_A_TURN = 50, 4
"""The two schedulers take turns, so that a machine that drifts hurts both."""


def measure_vllm_steps(waiting: int) -> dict[str, float]:
    """The cost of a step with a full batch and ``waiting`` queued requests, each finished one replaced.

    Returns:
        ``{"stock_us", "timely_us", "stock_schedule_us", "timely_schedule_us", "ratio", "stock_arrival_us",
        "timely_arrival_us"}``: medians, microseconds a step, and a request.
    """
    queues = {
        name: _VllmQueue(name == "stock", MAX_RUNNING, waiting, time.thread_time)
        for name in ("stock", "timely")
    }
    gc.collect()
    gc.freeze()
    try:
        for queue in queues.values():
            queue.run(WARM_UP_STEPS)
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in queues}
        for turn in range(TURNS):
            for name in sorted(queues, reverse=bool(turn % 2)):
                costs[name] += queues[name].run(STEPS_A_TURN)
    finally:
        gc.unfreeze()
    result = {}
    for name, steps in costs.items():
        result[f"{name}_us"] = 1e6 * statistics.median(schedule + update for schedule, update in steps)
        result[f"{name}_schedule_us"] = 1e6 * statistics.median(schedule for schedule, _ in steps)
        result[f"{name}_arrival_us"] = 1e6 * statistics.median(queues[name].arrivals_s)
    return {**result, "ratio": result["timely_us"] / result["stock_us"]}


class _VllmQueue:
    """One of vLLM's schedulers with a full batch and a queue behind it."""

    def __init__(self, stock: bool, running: int, waiting: int, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._scheduler, self._hasher = _make_vllm_scheduler(stock, running)
        self._arrivals = 0
        self.arrivals_s: list[float] = []
        """What each request took as it arrived, seconds."""
        for _ in range(running + waiting):
            self._arrive()

    def _arrive(self) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        number = self._arrivals
        self._arrivals += 1
        # The answers of the first batch end at different steps.
        tokens = OUTPUT_TOKENS if number >= MAX_RUNNING else 1 + number % OUTPUT_TOKENS
        request = Request(
            str(number),
            [1000 + number] * PROMPT_TOKENS,
            SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
            None,
            arrival_time=float(number),
            block_hasher=self._hasher,
        )
        begin_s = self._timer()
        self._scheduler.add_request(request)
        self.arrivals_s.append(self._timer() - begin_s)

    def run(self, steps: int) -> list[tuple[float, float]]:
        """Do some steps; the seconds of ``schedule`` and of ``update_from_output`` in each."""
        return [self._step() for _ in range(steps)]

    def _step(self) -> tuple[float, float]:
        from vllm.v1.outputs import ModelRunnerOutput

        scheduler, timer = self._scheduler, self._timer
        begin_s = timer()
        step = scheduler.schedule()
        schedule_s = timer() - begin_s
        # Not measured: vLLM calls it while the accelerator computes.
        scheduler.get_grammar_bitmask(step)
        names = list(step.num_scheduled_tokens)
        sampled_ids: Sequence[list[int]] = [
            [] if scheduler.requests[name].is_prefill_chunk else [1000] for name in names
        ]
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=list(sampled_ids),
        )
        before = len(scheduler.requests)
        begin_s = timer()
        scheduler.update_from_output(step, output)
        update_s = timer() - begin_s
        for _ in range(before - len(scheduler.requests)):
            self._arrive()
        return schedule_s, update_s


def _make_vllm_scheduler(stock: bool, running: int) -> tuple[Any, Any]:
    """vLLM's scheduler or ours, with room for the batch, and the hasher of its requests' blocks."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from timely.engines.vllm.model import default_vllm_model
    from timely.engines.vllm.plugin import register_vllm_plugin
    from timely.engines.vllm.scheduler import TimelyScheduler

    register_vllm_plugin()
    config = copy(
        EngineArgs(
            model=str(default_vllm_model()),
            dtype="float32",
            enforce_eager=True,
            block_size=BLOCK_TOKENS,
            max_model_len=1024,
            max_num_seqs=running,
            max_num_batched_tokens=TOKEN_BUDGET,
        ).create_engine_config()
    )
    blocks = 1 + running * -(-(PROMPT_TOKENS + OUTPUT_TOKENS) // BLOCK_TOKENS)
    config.cache_config = copy(config.cache_config)
    config.cache_config.num_gpu_blocks = blocks
    layer = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=8, dtype=torch.float32)
    cache = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)]
    )
    kind = AsyncScheduler if stock else TimelyScheduler
    init_none_hash(sha256)
    scheduler = kind(config, cache, StructuredOutputManager(config), block_size=BLOCK_TOKENS, log_stats=False)
    return scheduler, get_request_block_hasher(BLOCK_TOKENS, sha256)
