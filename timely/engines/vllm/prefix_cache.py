"""What vLLM's prefix cache holds of a request's context before admission, and which of its blocks are shared.

vLLM looks a prefix up when it admits a request. The discipline needs the answer earlier. A prompt whose fixed part
is cached costs a fraction. Evicting a job frees only the blocks that no other request holds.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.kv_cache_interface import FullAttentionSpec


class VllmPrefixView:
    """Looks into a scheduler's KV cache without touching it.

    Only models of full attention in one group are looked into. For others nothing counts as cached or shared, and
    vLLM's admission corrects that.
    """

    def __init__(self, scheduler: Any) -> None:
        manager = scheduler.kv_cache_manager
        groups = scheduler.kv_cache_config.kv_cache_groups
        self._manager = manager
        self._pool = manager.block_pool
        self._block_tokens = int(scheduler.block_size)
        self.readable = (
            len(groups) == 1
            and isinstance(groups[0].kv_cache_spec, FullAttentionSpec)
            and scheduler.hash_block_size == scheduler.block_size
        )
        """False for a model that is not looked into."""

    def cached_blocks(self, request: Any, estimate: int = 0) -> int:
        """Leading whole blocks of the request's tokens that an admission would find cached, all but one token at most.

        Args:
            estimate: an earlier count, mostly still the right one. Then two looks are enough, else a few more. The last
                blocks are reused first, so those that are cached come before the others.
        """
        if not self.readable or not self._manager.prefix_cache_lookup_enabled(request):
            return 0
        hashes = request.block_hashes
        most: int = min(len(hashes), (request.num_tokens - 1) // self._block_tokens)

        def is_missing(block_hash: bytes) -> bool:
            return not self._pool.get_cached_block(block_hash, [0])

        count = min(estimate, most)
        if count and is_missing(hashes[count - 1]):
            return bisect_left(hashes, True, hi=count - 1, key=is_missing)
        if count == most or is_missing(hashes[count]):
            return count
        return bisect_left(hashes, True, count + 1, most, key=is_missing)

    def holds_last(self, request: Any, blocks: int) -> bool:
        """Whether the last of so many first blocks of the request's tokens is cached."""
        return blocks == 0 or bool(self._pool.get_cached_block(request.block_hashes[blocks - 1], [0]))

    def missing_block(self, request: Any, cached_blocks: int) -> bytes | None:
        """Key of the block behind the first ``cached_blocks``; None without a further whole block."""
        if not self.readable or cached_blocks >= len(request.block_hashes):
            return None
        return bytes(make_block_hash_with_group_id(request.block_hashes[cached_blocks], 0))

    def holds(self, block: bytes) -> bool:
        return self._pool.cached_block_hash_to_block.get_one_block(block) is not None

    def unheld(self, block_hashes: Iterable[bytes]) -> list[Any]:
        """Those of the blocks with these hashes that the prefix cache holds and no request does."""
        cached_blocks = (self._pool.get_cached_block(block_hash, [0]) for block_hash in block_hashes)
        return [blocks[0] for blocks in cached_blocks if blocks and blocks[0].ref_cnt == 0]

    def held_by_others(self, request: Any, cached_blocks: int) -> int:
        """Of the ``cached_blocks`` of a waiting request, those that running ones hold: they cost no free block.

        A request that holds a block holds all blocks before it, so these come first. Copies of one block may differ.
        """
        hashes = request.block_hashes[:cached_blocks]

        def is_free(block_hash: bytes) -> bool:
            blocks = self._pool.get_cached_block(block_hash, [0])
            return not blocks or blocks[0].ref_cnt == 0

        return 0 if not hashes or is_free(hashes[0]) else bisect_left(hashes, True, key=is_free)

    def shared_blocks(self, request: Any, estimate: int = 0) -> int:
        """Of the blocks of a running request, those that others hold too: its eviction would not free them.

        A request that holds a block holds all blocks before it, so references only fall along the context.

        Args:
            estimate: an earlier count. The search starts there and mostly ends there.
        """
        if not self.readable:
            return 0
        blocks = self._manager.get_blocks(request.request_id).blocks[0]
        count = min(estimate, len(blocks))
        while count and blocks[count - 1].ref_cnt < 2:
            count -= 1
        while count < len(blocks) and blocks[count].ref_cnt >= 2:
            count += 1
        return count
