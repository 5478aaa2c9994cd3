"""KV blocks of the simulated engine, counted as vLLM counts them: shared prefixes, references, LRU reuse.

Blocks are counted, not named. A prompt's shared prefix is stored once; each job that uses it references it as deep as
its own prompt goes. Blocks without a reference keep their content until they are needed for something else. The
longest unused go first, and of one owner the last blocks first. So an evicted job finds again what was not reused.
"""

from collections import OrderedDict
from collections.abc import Hashable


class Prefix:
    """A shared beginning of prompts: how many of its blocks are stored, and how deep resident jobs reach into it."""

    __slots__ = ("_depths", "blocks", "deepest", "key", "second")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.blocks = 0
        self._depths: dict[int, int] = {}
        self.deepest = 0
        """Blocks that some resident job holds: the depth of the one that reaches deepest."""
        self.second = 0
        """The depth of the next one: what would stay held without the deepest."""

    @property
    def is_referenced(self) -> bool:
        """A resident job counts on it, if only to store it."""
        return bool(self._depths)

    @property
    def depths(self) -> tuple[int, int]:
        """``deepest`` and ``second``: all that a job's share of the prefix depends on."""
        return self.deepest, self.second

    def enter(self, depth: int) -> None:
        """One more resident job reaches so deep."""
        self._depths[depth] = self._depths.get(depth, 0) + 1
        self._deepest()

    def leave(self, depth: int) -> None:
        """One job less reaches so deep."""
        jobs_left = self._depths[depth] - 1
        if jobs_left:
            self._depths[depth] = jobs_left
        else:
            del self._depths[depth]
        self._deepest()

    def blocks_held_without(self, depth: int) -> int:
        """Blocks that other jobs hold, if a job that reaches so deep leaves."""
        return self.second if depth == self.deepest else self.deepest

    def _deepest(self) -> None:
        self.deepest = max(self._depths, default=0)
        if self._depths.get(self.deepest, 0) > 1:
            self.second = self.deepest
        else:
            self.second = max((depth for depth in self._depths if depth != self.deepest), default=0)


class Holding:
    """The blocks of one job: ``shared_blocks`` from its prefix, ``private`` its own."""

    __slots__ = ("holder", "idle", "idle_shared", "prefix", "prefix_blocks", "private", "shared_blocks")

    def __init__(self, prefix: Prefix | None, prefix_blocks: int) -> None:
        self.prefix = prefix
        self.prefix_blocks = prefix_blocks
        """Whole blocks of its prompt that belong to the prefix."""
        self.shared_blocks = 0
        self.private = 0
        self.holder = False
        """It counts among the prefix's references."""
        self.idle = 0
        """Own blocks that outlived an eviction and are not reused yet."""
        self.idle_shared = 0
        """How deep into the prefix the job's own blocks began when it was evicted."""

    @property
    def blocks(self) -> int:
        return self.shared_blocks + self.private


class BlockPool:
    """All KV blocks of the engine.

    Args:
        capacity: blocks in all.
        block_tokens: tokens a block holds.
        keep_prefixes: prefixes are reused last.
    """

    __slots__ = (
        "_idle", "_idle_blocks", "_keeps_prefixes", "_prefixes", "_unused_blocks", "block_tokens", "capacity",
    )  # fmt: skip

    def __init__(self, capacity: int, block_tokens: int, *, keep_prefixes: bool = False) -> None:
        self.capacity = capacity
        self._keeps_prefixes = keep_prefixes
        self.block_tokens = block_tokens
        self._unused_blocks = capacity
        # Owner -> blocks, longest idle first. An owner is a Prefix, a Holding (evicted), or an object(). The blocks
        # of the last kind hold nothing of use, but they wait in the same queue.
        self._idle: OrderedDict[object, int] = OrderedDict()
        self._idle_blocks = 0
        self._prefixes: dict[Hashable, Prefix] = {}

    @property
    def free(self) -> int:
        """Blocks that can be taken without an eviction."""
        return self._unused_blocks + self._idle_blocks

    @property
    def used_blocks(self) -> int:
        return self.capacity - self._unused_blocks - self._idle_blocks

    def holding(self, prefix_key: Hashable, prefix_tokens: int, prompt_tokens: int) -> Holding:
        """An empty holding for a new job. As in vLLM at least the prompt's last token is always computed."""
        whole = min(prefix_tokens, max(0, prompt_tokens - 1)) // self.block_tokens
        if whole == 0:
            return Holding(None, 0)
        prefix = self._prefixes.get(prefix_key)
        if prefix is None:
            prefix = self._prefixes[prefix_key] = Prefix(prefix_key)
        return Holding(prefix, whole)

    def warm(self, holding: Holding) -> None:
        """Store the job's prefix as if an earlier job had left it, unless some of it is stored or room is short."""
        prefix = holding.prefix
        if (
            prefix is None
            or prefix.blocks
            or prefix.is_referenced
            or holding.prefix_blocks > self._unused_blocks
        ):
            return
        prefix.blocks = holding.prefix_blocks
        self._unused_blocks -= prefix.blocks
        self._settle(prefix)

    def hit_blocks(self, holding: Holding) -> int:
        """Blocks that an admission of this job would find stored now."""
        prefix = holding.prefix
        shared_blocks = min(holding.prefix_blocks, prefix.blocks) if prefix is not None else 0
        return shared_blocks + (holding.idle if shared_blocks == holding.idle_shared else 0)

    def admit(self, holding: Holding) -> int:
        """Reference what is stored of the job's context; returns the tokens found."""
        prefix = holding.prefix
        if prefix is not None:
            holding.shared_blocks = min(holding.prefix_blocks, prefix.blocks)
            holding.holder = True
            prefix.enter(holding.shared_blocks)
            self._settle(prefix)
        if holding.idle and holding.shared_blocks == holding.idle_shared:
            # Its own blocks are still there and join on to the prefix it found.
            holding.private = holding.idle
            self._idle_blocks -= self._idle.pop(holding)
        elif holding.idle:
            self._idle[object()] = self._idle.pop(holding)
        holding.idle = 0
        return holding.blocks * self.block_tokens

    def grow(self, holding: Holding, context_tokens: int) -> bool:
        """Give the job blocks up to ``context_tokens``; False (nothing changed) when they are not there."""
        new_blocks = -(-context_tokens // self.block_tokens) - holding.shared_blocks - holding.private
        if new_blocks <= 0:
            return True
        if new_blocks > self._unused_blocks + self._idle_blocks:
            return False
        self._take(new_blocks)
        holding.private += new_blocks
        return True

    def publish(self, holding: Holding, context_tokens: int) -> bool:
        """``context_tokens`` of the job are computed: whole blocks of its prefix become usable by others.

        Only the job at the frontier publishes; what others compute of the same prefix meanwhile stays their own.
        Returns whether more of the prefix is stored than before.
        """
        prefix = holding.prefix
        if prefix is None or holding.shared_blocks != prefix.blocks:
            return False
        whole = min(holding.prefix_blocks, context_tokens // self.block_tokens)
        new_blocks = whole - holding.shared_blocks
        if new_blocks <= 0:
            return False
        # No job holds more of the prefix than this one: every stored block is pinned before and after.
        prefix.leave(holding.shared_blocks)
        prefix.enter(whole)
        prefix.blocks = holding.shared_blocks = whole
        holding.private -= new_blocks
        return True

    def evict(self, holding: Holding, context_tokens: int) -> int:
        """Take the job's blocks away; its whole blocks stay findable until reused. Returns blocks freed."""
        before = self.free
        whole = context_tokens // self.block_tokens - holding.shared_blocks
        idle_blocks = max(0, min(holding.private, whole))
        self._discard(holding.private - idle_blocks)
        if idle_blocks:
            self._idle[holding] = idle_blocks
            self._idle_blocks += idle_blocks
        holding.idle, holding.idle_shared = idle_blocks, holding.shared_blocks
        holding.private = 0
        self._unreference(holding)
        return self.free - before

    def release(self, holding: Holding) -> None:
        """Free the blocks of a job that has ended; its own blocks are never looked for again."""
        self._discard(holding.private)
        holding.private = 0
        if holding.idle:
            self._idle[object()] = self._idle.pop(holding)
            holding.idle = 0
        self._unreference(holding)

    def _discard(self, blocks: int) -> None:
        if blocks:
            self._idle[object()] = blocks
            self._idle_blocks += blocks

    def _settle(self, prefix: Prefix) -> None:
        """What is stored of a prefix beyond its deepest job waits for reuse."""
        idle, before = prefix.blocks - prefix.deepest, self._idle.get(prefix, 0)
        if idle == before:
            return
        self._idle_blocks += idle - before
        if not idle:
            del self._idle[prefix]
            return
        self._idle[prefix] = idle
        if idle > before:
            self._idle.move_to_end(prefix)

    def _unreference(self, holding: Holding) -> None:
        depth, holding.shared_blocks = holding.shared_blocks, 0
        if not holding.holder:
            return
        holding.holder = False
        prefix = holding.prefix
        if prefix is None:
            return
        prefix.leave(depth)
        self._settle(prefix)

    def _take(self, blocks: int) -> None:
        fresh = min(blocks, self._unused_blocks)
        self._unused_blocks -= fresh
        blocks -= fresh
        self._idle_blocks -= blocks
        if blocks and self._keeps_prefixes:
            for prefix in self._prefixes.values():
                if prefix in self._idle:
                    self._idle.move_to_end(prefix)
        while blocks:
            owner, idle_blocks = next(iter(self._idle.items()))
            reused_blocks = min(blocks, idle_blocks)
            blocks -= reused_blocks
            blocks_left = idle_blocks - reused_blocks
            if blocks_left:
                self._idle[owner] = blocks_left
            else:
                del self._idle[owner]
            if isinstance(owner, Prefix):
                owner.blocks -= reused_blocks
            elif isinstance(owner, Holding):
                owner.idle = blocks_left
