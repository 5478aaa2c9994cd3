"""vLLM's real scheduler, ours or the stock one, on a stub executor and a virtual clock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from manual_clock import ManualClock

BLOCK_TOKENS = 16
STEP_S = 2.0**-6
FIRST_TOKEN = 1000
"""The stub samples this plus the position: a token that is lost, repeated or out of order shows."""


@cache
def model_folder() -> str:
    """The packaged model; to check its files takes 0.2 s, in each of some 30 configurations."""
    from timely.engines.vllm.model import default_vllm_model

    return str(default_vllm_model())


@cache
def base_config(**options: Any) -> Any:
    """vLLM's configuration of a small engine; cached, so copy what is changed."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm.engine.arg_utils import EngineArgs

    from timely.engines.vllm.plugin import register_vllm_plugin

    register_vllm_plugin()
    return EngineArgs(
        model=model_folder(), dtype="float32", enforce_eager=True, block_size=BLOCK_TOKENS * 2,
        max_model_len=2048, scheduler_cls="timely.engines.vllm.scheduler.TimelyScheduler", **options,
    ).create_engine_config()  # fmt: skip


@dataclass
class Worker:
    """What a model runner keeps of a request."""

    computed: int
    length: int


@dataclass
class StubConnector:
    """A KV connector; loads take until the worker reports them, or no time if they are synchronous."""

    external_tokens: Mapping[str, int] = field(default_factory=dict)
    asynchronous: bool = True
    undecided: int = 0
    """So many look-ups are answered with "ask again"."""
    loading: set[str] = field(default_factory=set)
    looked_up: list[str] = field(default_factory=list)

    supports_divergent_local_hybrid_hits = False

    def get_num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int | None, bool]:
        self.looked_up.append(request.request_id)
        if self.undecided:
            self.undecided -= 1
            return None, False
        more = self.external_tokens.get(request.request_id, 0) - computed
        return (more, self.asynchronous) if more > 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, tokens: int) -> None:
        if tokens and self.asynchronous:
            self.loading.add(request.request_id)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def build_connector_meta(self, output: Any) -> None:
        return None

    def on_new_request(self, request: Any) -> None: ...

    def update_connector_output(self, output: Any) -> None: ...

    def take_events(self) -> tuple[()]:
        return ()

    def get_kv_connector_stats(self) -> None:
        return None

    def has_pending_block_frees(self) -> bool:
        return False

    def has_pending_push_work(self) -> bool:
        return False

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[()]:
        return ()

    def shutdown(self) -> None: ...


class Scene:
    """Requests, steps and robots; the test says what happens when.

    Args:
        stock: vLLM's own scheduler instead of ours.
        depth: most steps in flight; 2 as with asynchronous scheduling.
        pipeline: they are those of pipeline parallelism, with synchronous scheduling.
        drafts: most draft tokens of speculative decoding; ``accept`` says how many of them are right.
        propose: how many the drafter makes for a request after a step; all by default.
        timely: options of our scheduler.
        windows: further groups of KV blocks, with sliding windows of ``window_tokens`` (a hybrid model).
        mamba: vLLM's cache mode of a further group of Mamba states; none by default.
        cross_attention: a further group for the states of an encoder.
        attention: False for a model of the further groups alone.
        context_parallel: decode context parallelism; a block of the manager holds so many times its tokens.
        prefill_parallel: prefill context parallelism.
        watermark_blocks: blocks that vLLM leaves free when it admits.
    """

    def __init__(
        self,
        *,
        stock: bool = False,
        blocks: int = 200,
        depth: int = 1,
        pipeline: bool = False,
        max_num_seqs: int = 16,
        budget: int = 256,
        drafts: int = 0,
        accept: Callable[[str], int] = lambda request_id: 0,
        propose: Callable[[str], int] | None = None,
        policy: str = "fcfs",
        timely: Mapping[str, Any] | None = None,
        connector: StubConnector | None = None,
        log_stats: bool = False,
        windows: int = 0,
        window_tokens: int = 4096,
        mamba: str = "",
        cross_attention: bool = False,
        attention: bool = True,
        context_parallel: int = 1,
        prefill_parallel: int = 1,
        watermark_blocks: int = 0,
        **options: Any,
    ) -> None:
        import torch
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import (
            get_request_block_hasher,
            init_none_hash,
            resolve_kv_cache_block_sizes,
        )
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import (
            CrossAttentionSpec,
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
            MambaSpec,
            SlidingWindowSpec,
        )
        from vllm.v1.structured_output import StructuredOutputManager

        from timely.engines.vllm.scheduler import TimelyScheduler

        if drafts:
            options["speculative_config"] = _Hashable(
                method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=2, prompt_lookup_min=1
            )
        config = copy(base_config(**options))
        config.cache_config = copy(config.cache_config)
        config.scheduler_config = copy(config.scheduler_config)
        config.parallel_config = copy(config.parallel_config)
        config.parallel_config.decode_context_parallel_size = context_parallel
        config.parallel_config.prefill_context_parallel_size = prefill_parallel
        config.cache_config.num_gpu_blocks = blocks + 1  # one is vLLM's null block
        config.cache_config.mamba_cache_mode = mamba or "none"
        config.scheduler_config.max_num_seqs = max_num_seqs
        config.scheduler_config.max_num_batched_tokens = budget
        config.scheduler_config.max_num_scheduled_tokens = budget
        config.scheduler_config.policy = policy
        config.scheduler_config.async_scheduling = depth > 1 and not pipeline
        config.parallel_config.pipeline_parallel_size = depth if pipeline else 1
        config.additional_config = {"timely": dict(timely or {})}
        layer: dict[str, Any] = {
            "block_size": BLOCK_TOKENS, "num_kv_heads": 1, "head_size": 8, "dtype": torch.float32,
        }  # fmt: skip
        window = SlidingWindowSpec(**layer, sliding_window=window_tokens)
        groups = [KVCacheGroupSpec(["layer"], FullAttentionSpec(**layer))] if attention else []
        groups += [KVCacheGroupSpec([f"window-{number}"], window) for number in range(windows)]
        if cross_attention:
            groups.append(KVCacheGroupSpec(["cross"], CrossAttentionSpec(**layer)))
        if mamba:
            length = BLOCK_TOKENS if mamba == "align" else config.model_config.max_model_len
            state = MambaSpec(
                block_size=length, shapes=((8,),), dtypes=(torch.float32,), mamba_cache_mode=mamba
            )
            groups.append(KVCacheGroupSpec(["state"], state))
        cache_config = KVCacheConfig(num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=groups)
        config.cache_config.block_size = groups[0].kv_cache_spec.block_size
        block_tokens, hash_tokens = resolve_kv_cache_block_sizes(cache_config, config)
        self.ahead: bool = config.scheduler_config.async_scheduling
        owner = (AsyncScheduler if self.ahead else Scheduler) if stock else TimelyScheduler
        self.scheduler: Any = owner(
            config,
            cache_config,
            StructuredOutputManager(config),
            block_size=block_tokens,
            hash_block_size=hash_tokens,
            log_stats=log_stats,
        )
        self.scheduler.kv_cache_manager.watermark_blocks = watermark_blocks
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(hash_tokens, sha256)
        self.stock, self.depth, self.drafts, self.accept = stock, depth, drafts, accept
        self.propose = propose or (lambda request_id: drafts)
        self.clock = ManualClock()
        self.scheduler.clock = self.clock.now
        if connector is not None:
            self.scheduler.connector = connector
        self.connector = connector
        self.received: set[str] = set()
        """Loads that the worker will report with its next step."""
        self.failed_blocks: set[int] = set()
        """Blocks of loads that the worker will report as failed with its next step."""
        self.blocks = blocks
        self.workers: dict[str, Worker] = {}
        self.slots: set[str] = set()
        """Requests that hold one of the model runner's slots, of which there are ``max_num_seqs``."""
        self.in_flight: deque[tuple[Any, dict[str, list[int]]]] = deque()
        self.steps: list[dict[str, int]] = []
        self.outputs: dict[str, list[int]] = {}
        self.finished: dict[str, str] = {}
        self.over: set[str] = set()
        """Requests whose last output has come."""
        self.errors: dict[str, Any] = {}
        """What vLLM says of requests that it ended with an error; since 0.33."""
        self.accounts: dict[str, dict[str, Any]] = {}
        self.stats: list[Any] = []
        """vLLM's statistics of each step, with ``log_stats``."""
        self.arrivals = 0

    # ------------------------------------------------------------------ requests

    def add(
        self,
        request_id: str,
        prompt: int | list[int] = 20,
        max_tokens: int = 8,
        timely: Mapping[str, Any] | None = None,
        *,
        priority: int = 0,
        adapter: int = 0,
        **sampling: Any,
    ) -> Any:
        """Queue a request; ``prompt`` is its token ids, or how many of its own."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.v1.request import Request

        resumable = sampling.pop("resumable", False)
        extra = sampling.pop("extra", None)
        self.arrivals += 1
        ids = [10 * self.arrivals + 7] * prompt if isinstance(prompt, int) else list(prompt)
        parameters = SamplingParams(
            temperature=0.0, max_tokens=max_tokens, **{"ignore_eos": True, **sampling},
            extra_args={"timely": dict(timely)} if timely is not None else extra,
        )  # fmt: skip
        lora = LoRARequest(f"adapter-{adapter}", adapter, "/nowhere") if adapter else None
        request = Request(
            request_id, ids, parameters, None, arrival_time=float(self.arrivals), priority=priority,
            lora_request=lora, block_hasher=self.hasher, resumable=resumable,
        )  # fmt: skip
        self.outputs.setdefault(request_id, [])
        self.over.discard(request_id)
        self.scheduler.add_request(request)
        return self.scheduler.requests.get(request_id, request)

    def plan(self, *segments: tuple[int, float] | tuple[int, float, bool], **more: Any) -> dict[str, Any]:
        """Parameters of a plan: (tokens, execution_s, blocking) of each segment."""
        return {"forced": [["go();", *segment] for segment in segments], **more}

    def report(self, task_id: str, segment: int, kind: str = "done", **more: Any) -> dict[str, Any]:
        """A robot's report."""
        report = {"segment": segment, "kind": kind, **more}
        answer: dict[str, Any] = self.scheduler.control(
            {"kind": "report", "task_id": task_id, "report": report}
        )
        return answer

    # ------------------------------------------------------------------ steps

    def schedule(self, *, throttle_prefills: bool = False) -> dict[str, int]:
        """Compose one step and launch it."""
        output = self.scheduler.schedule(throttle_prefills)
        scheduled = dict(output.num_scheduled_tokens)
        self.steps.append(scheduled)
        sampled: dict[str, list[int]] = {}
        begun = {
            *(new.req_id for new in output.scheduled_new_reqs),
            *output.scheduled_cached_reqs.resumed_req_ids,
        }
        for request_id in begun:
            self._place(request_id)
        self.slots = (self.slots - output.finished_req_ids - (output.preempted_req_ids or set())) | begun
        assert len(self.slots) <= self.scheduler.max_num_running_reqs, "the model runner has no slot left"
        for request_id, tokens in scheduled.items():
            request, worker = self.scheduler.requests[request_id], self.workers[request_id]
            drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            assert self.ahead or request.num_computed_tokens - drafts <= request.num_tokens, (
                "an input is unknown"
            )
            worker.computed += tokens
            self._check_slots(request_id, request.num_computed_tokens)
            if request.is_prefill_chunk:
                sampled[request_id] = []
                continue
            count = 1 + min(drafts, self.accept(request_id) if drafts else 0)
            sampled[request_id] = [FIRST_TOKEN + worker.length + n for n in range(count)]
            worker.length += count
            worker.computed = worker.length - 1
        self.in_flight.append((output, sampled))
        return scheduled

    def _check_slots(self, request_id: str, tokens: int) -> None:
        """Each token has a slot in the blocks of each group of full attention."""
        from vllm.v1.kv_cache_interface import FullAttentionSpec

        for manager in self.scheduler.kv_cache_manager.coordinator.single_type_managers:
            if isinstance(manager.kv_cache_spec, FullAttentionSpec):
                slots = len(manager.req_to_blocks[request_id]) * manager.block_size
                assert slots >= tokens, f"{request_id} has {slots} slots for {tokens} tokens"

    def _place(self, request_id: str) -> None:
        request = self.scheduler.requests[request_id]
        tokens = self.steps[-1][request_id]
        self.workers[request_id] = Worker(request.num_computed_tokens - tokens, request.num_tokens)

    def update(self) -> None:
        """The oldest step in flight ends."""
        from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

        output, sampled = self.in_flight.popleft()
        self.clock.advance_to(self.clock.now() + STEP_S)
        names = list(sampled)
        received, self.received = self.received, set()
        failed, self.failed_blocks = self.failed_blocks, set()
        blocks_of = self.scheduler.kv_cache_manager.get_block_ids
        readers = [
            request for request in self.scheduler.running if failed & set(blocks_of(request.request_id)[0])
        ]
        loads = KVConnectorOutput(finished_recving=received or None, invalid_block_ids=failed)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[list(sampled[name]) for name in names],
            kv_connector_output=loads if received or failed else None,
        )
        for outputs in self.scheduler.update_from_output(output, result).values():
            if outputs.scheduler_stats is not None:
                self.stats.append(outputs.scheduler_stats)
            for one in outputs.outputs:
                self.outputs[one.request_id].extend(one.new_token_ids)
                if one.kv_transfer_params and "timely" in one.kv_transfer_params:
                    self.accounts[one.request_id] = one.kv_transfer_params["timely"]
                if error := getattr(one, "error", None):
                    self.errors[one.request_id] = error
                assert one.request_id not in self.over, "an output behind the last one"
                if one.finish_reason is not None:
                    self.finished[one.request_id] = str(one.finish_reason)
                    if one.request_id not in self.scheduler.requests:
                        self.over.add(one.request_id)
        for request in readers:
            # Tokens of steps that read the invalid blocks are dropped.
            self.workers[request.request_id].length = request.num_tokens
        if self.drafts and not self.ahead:
            live = [name for name in names if sampled[name] and name in self.scheduler.requests]
            drafts = [
                [FIRST_TOKEN + self.workers[name].length + n for n in range(self.propose(name))]
                for name in live
            ]
            self.scheduler.update_draft_token_ids(DraftTokenIds(live, drafts))

    def step(self) -> dict[str, int]:
        """Compose until the pipeline is full, end the oldest step; what was scheduled first in this call."""
        first: dict[str, int] = {}
        while len(self.in_flight) < self.depth and self.scheduler.has_requests():
            scheduled = self.schedule()
            first = first or scheduled
            if not scheduled:
                break
        if self.in_flight:
            self.update()
        return first

    def run(self, until: Callable[[], bool] | None = None, most: int = 2000) -> None:
        """Step, and sleep while nothing is runnable, until all is done or ``until`` holds.

        Raises:
            AssertionError: nothing will ever happen, or it took too many steps.
        """
        for _ in range(most):
            if until is not None and until():
                return
            if self.in_flight or self.scheduler.has_requests():
                self.step()
                continue
            wait_s = None if self.stock else self.scheduler.seconds_to_resume()
            if wait_s is None:
                assert until is None, "nothing will happen"
                assert not self.held, f"nothing will happen; held: {self.held}"
                return
            self.clock.advance_to(self.clock.now() + wait_s)
        raise AssertionError(f"did not end in {most} steps; held: {self.held}")

    @property
    def held(self) -> list[str]:
        """Requests that are not finished."""
        return [name for name, request in self.scheduler.requests.items() if not request.is_finished()]

    def check(self) -> None:
        """What holds at any time: queues agree with statuses, tokens stand at their positions."""
        from vllm.v1.request import RequestStatus

        scheduler = self.scheduler
        running = [request.request_id for request in scheduler.running]
        waiting = [r.request_id for queue in (scheduler.waiting, scheduler.kv_holding_waiting) for r in queue]
        everywhere = running + waiting
        assert len(everywhere) == len(set(everywhere)), f"a request is in two places: {everywhere}"
        assert set(everywhere) == set(self.held), f"a request is lost: {set(self.held) ^ set(everywhere)}"
        for request in scheduler.running:
            assert request.status == RequestStatus.RUNNING

    def check_empty(self) -> None:
        """After the last request: every block is free and nothing is left behind."""
        assert not self.held
        assert self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == self.blocks
        if not self.stock:
            assert len(self.scheduler.controller.table) == 0
            assert len(self.scheduler.live) == 0
            assert not self.scheduler.has_requests()
            left = (self.scheduler._names._plans, self.scheduler._values._held_states)
            assert not any((*left, self.scheduler._grammar_prefixes)), "of requests that are over"


class _Hashable(dict[str, Any]):
    """A dictionary as an argument of a cached function."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


LONG_S = 300.0
"""An execution time beyond every test."""


def positions(scene: Scene, request_id: str) -> list[int]:
    """Where the request's tokens stand, as the stub numbered them."""
    return [token - FIRST_TOKEN for token in scene.outputs[request_id]]


def give_value(scene: Scene, task_id: str, segment: int) -> None:
    answer = scene.report(task_id, segment, "value", value="box")
    assert answer == {"known": True}
