"""Slots of the KV cache for decoded tokens: vLLM's manager is asked only where a block begins or ends.

vLLM asks its manager for a slot for each decoding request of each step, and behind the step for blocks that have become
full. Inside a block the answers are always the same: the request's last block has room, and none has become full. A
step has hundreds of such requests.
"""

from typing import Any

from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import RequestStatus

from timely.engines.vllm.prefix_cache import VllmPrefixView


def has_plain_vllm_blocks(scheduler: Any) -> bool:
    """Whether a decoding request fills its blocks one token at a time, in one group of full attention.

    False with speculative decoding, KV connectors and context parallelism. Sliding windows in a group of full attention
    keep the blocks of all tokens (``--disable-hybrid-kv-cache-manager``), so they change nothing.
    """
    if scheduler.num_spec_tokens or scheduler.connector is not None or not VllmPrefixView(scheduler).readable:
        return False
    spec = scheduler.kv_cache_config.kv_cache_groups[0].kv_cache_spec
    return type(spec) is FullAttentionSpec and spec.block_size == scheduler.block_size


def skip_vllm_slots_inside_blocks(scheduler: Any) -> None:
    """Let the scheduler's KV cache manager answer at once for a token inside a block; see ``has_plain_vllm_blocks``."""
    manager, block_tokens = scheduler.kv_cache_manager, scheduler.block_size
    allocate, no_blocks = manager.allocate_slots, manager.empty_kv_cache_blocks
    cache = manager.cache_blocks

    def allocate_slots(
        request: Any, num_new_tokens: int, *more: Any, num_lookahead_tokens: int = 0, **options: Any
    ) -> Any:
        if (
            num_new_tokens == 1
            and 0 < request.num_computed_tokens % block_tokens < block_tokens - 1
            and request.status is RequestStatus.RUNNING
            and not (more or options or num_lookahead_tokens)
        ):
            return no_blocks
        return allocate(request, num_new_tokens, *more, num_lookahead_tokens=num_lookahead_tokens, **options)

    def cache_blocks(request: Any, num_computed_tokens: int) -> None:
        if num_computed_tokens % block_tokens == 0:
            cache(request, num_computed_tokens)

    manager.allocate_slots = allocate_slots
    manager.cache_blocks = cache_blocks
