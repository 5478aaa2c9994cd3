"""The fixed parts of our server's prompts stay in vLLM's prefix cache (TimelyLLM section 4.1, "pre-stored").

vLLM reuses the blocks that no request holds in the order of their last use. Chats between two tasks of a robot push the
fixed part of its prompt out, and the next urgent task computes a thousand tokens anew. So these blocks are put at the
end of that order again and again. They are never held: a request that needs the last block gets it, and resetting the
prefix cache works as ever.
"""

from typing import Any

from timely.engines.vllm.prefix_cache import VllmPrefixView

REFRESH_S = 0.5
"""Time between two refreshes, seconds; ordinary requests take seconds to fill a cache."""

MOST_SHARE = 0.25
"""Share of all blocks that may be kept; what a further prompt would add is left to vLLM's own order."""


class VllmKeptPrefixes:
    """Prompts whose blocks are reused last.

    Args:
        scheduler: vLLM's. Models that ``VllmPrefixView`` does not look into keep nothing.
    """

    def __init__(self, scheduler: Any) -> None:
        self._prefix = VllmPrefixView(scheduler)
        self._pool = scheduler.kv_cache_manager.block_pool
        self._block_tokens = int(scheduler.block_size)
        self._hashes: dict[bytes, None] = {}
        """Of each block, in the order of the prompts."""
        self._next_s = 0.0

    def keep(self, request: Any) -> None:
        """Keep the whole blocks of the request's prompt from now on."""
        if not self._prefix.readable:
            return
        hashes = request.block_hashes[: request.num_prompt_tokens // self._block_tokens]
        new = [block_hash for block_hash in hashes if block_hash not in self._hashes]
        if len(self._hashes) + len(new) <= MOST_SHARE * self._pool.num_gpu_blocks:
            self._hashes.update(dict.fromkeys(new))

    def refresh(self, now: float) -> None:
        """Put what is stored and not in use behind all other blocks, at most every ``REFRESH_S``."""
        if not self._hashes or now < self._next_s:
            return
        self._next_s = now + REFRESH_S
        blocks = self._prefix.unheld(self._hashes)
        # The pool's ``touch`` would count as a use of the block in vLLM's metrics.
        queue = self._pool.free_block_queue
        for block in blocks:
            queue.remove(block)
        # The end of a prompt goes first: without its beginning it is of no use.
        queue.append_n(blocks[::-1])
