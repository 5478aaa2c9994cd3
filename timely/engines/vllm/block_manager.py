"""KV blocks of requests: what the prefix cache holds of those that wait, and evictions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request, RequestStatus

from timely.engines.scheduler_core import EngineController
from timely.engines.vllm.prefix_cache import VllmPrefixView
from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState

SHORTAGE = 0.25
"""Share of free blocks below which shared blocks are counted: evictions may be near."""

PREFIX_LOOK_UPS = 16
"""So many of the first waiting requests have their prefix looked up anew before each step; all have at arrival."""

LATER_LOOK_UPS = 48
"""Of so many behind them a third, in turn."""

SHARED_COUNTS = 64
"""Most resident requests whose shared blocks are counted anew before a step."""

STALLED_STEPS = 3
"""Steps in a row that refuse a chosen request, after which a parked one gives up its KV cache."""


class VllmBlockManager:
    """Keeps the table's view of KV blocks in line with vLLM's.

    Args:
        scheduler: vLLM's, of which queues and the KV cache are read and changed.
    """

    def __init__(self, scheduler: Any, live: VllmLiveRequests) -> None:
        self._scheduler = scheduler
        self._live = live
        self._prefix = VllmPrefixView(scheduler)
        self._block_tokens = int(scheduler.block_size)
        self.block_tokens = _vllm_tokens_per_block(scheduler)
        """Tokens of context that take one block of the pool."""
        self._pool = scheduler.kv_cache_manager.block_pool
        self.all_blocks = int(self._pool.num_gpu_blocks) - 1
        """Blocks that requests can hold: one of the pool is vLLM's null block."""
        self._stalled_steps = 0
        self._any_cached = False
        """Whether the prefix cache has ever held a block of a waiting request: otherwise none is shared."""
        self._is_short = False
        """Whether shared blocks were counted before the last step."""
        self._turn = 0
        self._count_place = 0
        """Running requests whose shared blocks have been counted in this turn."""

    @property
    def free_blocks(self) -> int:
        return int(self._pool.get_num_free_blocks())

    def cached_blocks(self, request: Request) -> int:
        """Leading whole blocks of a waiting request that the prefix cache holds."""
        blocks = self._prefix.cached_blocks(request)
        self._any_cached |= blocks > 0
        return blocks

    def count_held(self, state: VllmRequestState) -> None:
        """Count the cached blocks of a request that has just come which others hold, while memory is short."""
        if self._is_short and state.cached_blocks:
            held_blocks = self._prefix.held_by_others(state.request, state.cached_blocks)
            state.job.table.shared_blocks[state.job.row] = held_blocks

    def look_up_prefixes(self, free_blocks: int) -> None:
        """Refresh what waiting requests would find cached, and while memory is short, how many blocks are shared.

        It is short, too, while there is no room for the first waiting ones with all of their blocks.
        """
        table = self._controller.table
        self._is_short = short = free_blocks < SHORTAGE * self._pool.num_gpu_blocks
        if not short and bool(table.resident.all()):
            return
        waiting = self._scheduler.waiting.first(PREFIX_LOOK_UPS + LATER_LOOK_UPS)
        # Taken for whole prompts, the next to come would seem to need an eviction.
        tokens = sum(request.num_tokens + self.block_tokens for request in waiting[:PREFIX_LOOK_UPS])
        self._is_short = short = short or tokens > free_blocks * self.block_tokens
        if short and self._any_cached:
            self._count_shared()
        get, holds = self._live.get, self._prefix.holds
        self._turn = (self._turn + 1) % 3
        for request in waiting[:PREFIX_LOOK_UPS] + waiting[PREFIX_LOOK_UPS + self._turn :: 3]:
            state = get(request.request_id)
            if state is None or not state.job.ready:
                continue
            row, cached_blocks = state.job.row, state.cached_blocks
            if (
                state.missing_block is None
                or holds(state.missing_block)
                or not self._prefix.holds_last(request, cached_blocks)
            ):
                cached_blocks = self._prefix.cached_blocks(request, cached_blocks)
                state.missing_block = self._prefix.missing_block(request, cached_blocks)
            elif not self._any_cached:
                continue
            if cached_blocks != state.cached_blocks:
                state.cached_blocks = cached_blocks
                self._any_cached = True
                table.prefill_left[row] = request.num_tokens - cached_blocks * self._block_tokens
            if self._any_cached:
                table.shared_blocks[row] = self._prefix.held_by_others(request, cached_blocks) if short else 0

    def _count_shared(self) -> None:
        """Count the shared blocks of some resident requests, of each in turn."""
        table = self._controller.table
        requests = [*self._scheduler.running, *self._scheduler.kv_holding_waiting]
        if self._count_place >= len(requests):
            self._count_place = 0
        end = self._count_place + SHARED_COUNTS
        for request in requests[self._count_place : end]:
            state = self._live.get(request.request_id)
            if state is not None and table.resident[state.job.row]:
                state.shared_blocks = self._prefix.shared_blocks(request, state.shared_blocks)
                table.shared_blocks[state.job.row] = state.shared_blocks
        self._count_place = end

    def sync_context(self, state: VllmRequestState) -> None:
        """Bring the table in line with a context that changed outside a step."""
        request, table, row = state.request, state.job.table, state.job.row
        table.end_tokens[row] = request.num_prompt_tokens + request.max_tokens
        # Values of robots and further input count as prompt: an admission needs room for them, too.
        table.prompt_tokens[row] = request.num_tokens - table.output_tokens[row]
        computed_tokens = request.num_computed_tokens
        if request.status != RequestStatus.RUNNING:
            cached_tokens = state.cached_blocks * self._block_tokens
            table.prefill_left[row] = request.num_tokens - max(computed_tokens, cached_tokens)
        table.context_tokens[row] = computed_tokens
        table.blocks[row] = -(-computed_tokens // self.block_tokens)
        table.resident[row] = computed_tokens > 0

    def evict(self, state: VllmRequestState, now: float) -> None:
        """Free the request's blocks, if that can be done now.

        Running requests are preempted as vLLM does it. A request that waits with blocks, because a value was appended
        or its KV cache was loaded, goes back to the queue of those without.
        """
        scheduler, request = self._scheduler, state.request
        if not scheduler._request_blocks_can_be_freed(request):
            return
        if request.status == RequestStatus.RUNNING:
            scheduler.running.remove(request)
            scheduler._preempt_request(request, now, drop_stale_output=scheduler.requires_kv_delivery)
        elif (
            request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED) and request.num_computed_tokens
        ):
            state.evicted_context_tokens = max(state.evicted_context_tokens, request.num_computed_tokens)
            scheduler.kv_holding_waiting.remove_request(request)
            scheduler.deferred_waiting.discard(request)
            if (auxiliary := getattr(scheduler, "aux_output_connector", None)) is not None:
                auxiliary.request_finished(request)
            scheduler._free_request_blocks(request)
            scheduler.encoder_cache_manager.free(request)
            scheduler._inflight_prefills.discard(request)
            request.num_computed_tokens = 0
            # Workers free its slot, and connectors end what they do with its blocks.
            scheduler.reset_preempted_req_ids.add(request.request_id)
            scheduler.waiting.add_request(request)
            self.record_eviction(state, now)

    def evict_waiting(self, now: float) -> None:
        """Free the blocks of all requests that wait with a value or a loaded KV cache."""
        for state in self._live.select([r.request_id for r in self._scheduler.kv_holding_waiting]):
            self.evict(state, now)

    def forget_cached(self) -> None:
        """The prefix cache was emptied."""
        for state in self._live:
            if state.cached_blocks and state.request.status != RequestStatus.RUNNING:
                state.cached_blocks, state.missing_block = 0, None
                self.sync_context(state)

    def take_back_failed_load(self, state: VllmRequestState, invalid_block_ids: set[int]) -> None:
        """A running request computes again, from the first of these blocks on, what a connector could not load.

        It keeps its blocks. In vLLM only the first of the requests that share a block computes it, since the next
        step holds all of them. Here the next step may hold any.
        """
        request, table, row = state.request, state.job.table, state.job.row
        if request.status != RequestStatus.RUNNING:
            return
        block_ids = self._scheduler.kv_cache_manager.get_block_ids(request.request_id)[0]
        valid_blocks = next(
            index for index, block_id in enumerate(block_ids) if block_id in invalid_block_ids
        )
        request.num_computed_tokens = valid_blocks * self._block_tokens
        # vLLM drops the tokens of one step only, and keeps their placeholders.
        request.num_output_placeholders = 0
        request.num_stale_output_tokens = request.num_in_flight_tokens
        request.drop_stale_output = True
        table.context_tokens[row] = request.num_computed_tokens
        table.prefill_left[row] = request.num_tokens - request.num_computed_tokens

    def record_eviction(self, state: VllmRequestState, now: float) -> None:
        request = state.request
        state.cached_blocks, state.missing_block = self._prefix.cached_blocks(request), None
        state.shared_blocks = 0
        context_tokens = request.num_tokens - state.cached_blocks * self._block_tokens
        self._controller.evict(state.job, context_tokens, now)

    def check_admissions(
        self,
        newcomers: Sequence[Request],
        plan_tokens: Mapping[str, int],
        scheduled_tokens: int,
        now: float,
        *,
        final: bool,
    ) -> None:
        """Look after a step whether vLLM admitted what the plan chose, or needs more blocks than the plan counted.

        After a few steps that refuse a request, the parked one that resumes last gives up its blocks.

        Args:
            newcomers: requests of the plan that waited.
            plan_tokens: request id -> tokens in the step.
            final: the refusal is not one that ends by itself.
        """
        if not self._has_refused(newcomers, plan_tokens, scheduled_tokens):
            if scheduled_tokens:
                self._stalled_steps = 0
        elif final:
            self._make_room(plan_tokens, now)

    def _has_refused(
        self, newcomers: Sequence[Request], plan_tokens: Mapping[str, int], scheduled_tokens: int
    ) -> bool:
        """Whether vLLM refused a chosen request for want of blocks.

        vLLM stops at the first request that it refuses; those that it passes over for another reason are deferred.
        """
        scheduler = self._scheduler
        refusals = (
            request
            for request in newcomers
            if request.status not in (RequestStatus.RUNNING, RequestStatus.WAITING_FOR_REMOTE_KVS)
            and request not in scheduler.deferred_waiting
        )
        request = next(refusals, None)
        if request is None or not scheduled_tokens:
            return request is not None
        # Beside other requests it may also lack a slot, tokens or room in the encoder.
        # A cached prompt is admitted with a full round of drafts.
        room_tokens = scheduler.max_num_scheduled_tokens - scheduled_tokens - scheduler.num_spec_tokens
        slots = scheduler.max_num_active_reqs - scheduler.num_waiting_for_streaming_input
        return (
            len(scheduler.running) < slots
            and room_tokens >= plan_tokens[request.request_id]
            and scheduler.scheduler_config.enable_chunked_prefill
            and not request.has_encoder_inputs
        )

    def _make_room(self, plan_tokens: Mapping[str, int], now: float) -> None:
        self._stalled_steps += 1
        if self._stalled_steps < STALLED_STEPS:
            return
        self._stalled_steps = 0
        table = self._controller.table
        candidates = [
            state
            for state in self._live
            if table.resident[state.job.row] and state.request.request_id not in plan_tokens
        ]
        if candidates:
            self.evict(max(candidates, key=lambda state: float(table.resume_s[state.job.row])), now)

    @property
    def _controller(self) -> EngineController:
        controller: EngineController = self._scheduler.controller
        return controller


def _vllm_tokens_per_block(scheduler: Any) -> int:
    """Tokens of context that take one block, in all groups of full attention together.

    Sliding windows and Mamba states are not counted: a longer context takes no more of their blocks. Where vLLM
    refuses an admission, ``check_admissions`` makes room. Too high a count would keep long contexts out for ever.
    """
    specs = (group.kv_cache_spec for group in scheduler.kv_cache_config.kv_cache_groups)
    sizes = [
        spec.block_size * scheduler.dcp_world_size for spec in specs if isinstance(spec, FullAttentionSpec)
    ]
    return math.ceil(1 / sum(1 / size for size in sizes)) if sizes else int(scheduler.max_model_len)
