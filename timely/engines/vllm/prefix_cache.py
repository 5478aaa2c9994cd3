"""What vLLM's prefix cache holds of a request's context before it is admitted, and which of its blocks are shared.

vLLM looks when it admits. The discipline has to know before: a prompt whose fixed part is cached costs a fraction of
one that is not, and evicting a job frees only the blocks that nobody else holds.
"""

from __future__ import annotations

from typing import Any


class PrefixView:
    """Looks into a scheduler's KV cache without touching it.

    Models with several kinds of KV cache, whose blocks differ in size, are not looked into: then nothing is known to
    be cached or shared, which is what vLLM's admission corrects.
    """

    def __init__(self, scheduler: Any) -> None:
        manager = scheduler.kv_cache_manager
        groups = scheduler.kv_cache_config.kv_cache_groups
        self._manager = manager
        self._pool = manager.block_pool
        self._block = int(scheduler.block_size)
        self._plain = len(groups) == 1 and scheduler.hash_block_size == scheduler.block_size

    def found(self, request: Any, known: int = 0) -> int:
        """Leading whole blocks of the request's tokens that an admission would find now, of at most all but one token.

        Args:
            known: blocks found before; the search goes on from there, so that a waiting request costs one look.
        """
        if not self._plain or not self._manager.prefix_cache_lookup_enabled(request):
            return 0
        hashes = request.block_hashes
        most: int = min(len(hashes), (request.num_tokens - 1) // self._block)
        while known < most and self._pool.get_cached_block(hashes[known], [0]):
            known += 1
        return min(known, most)

    def held_by_others(self, request: Any, found: int) -> int:
        """Of the ``found`` blocks of a request that waits, those that running ones hold: they cost no free block."""
        held = 0
        for block_hash in request.block_hashes[:found]:
            blocks = self._pool.get_cached_block(block_hash, [0])
            if not blocks or blocks[0].ref_cnt == 0:
                break
            held += 1
        return held

    def shared(self, request: Any) -> int:
        """Of the blocks of a running request, those that others hold too: its eviction would not free them."""
        if not self._plain:
            return 0
        shared = 0
        for block in self._manager.get_blocks(request.request_id).blocks[0]:
            if block.ref_cnt < 2:
                break
            shared += 1
        return shared
