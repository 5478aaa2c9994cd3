"""KV blocks of the simulated engine, counted as vLLM counts them: shared prefixes, references, LRU reuse.

Blocks are counted, not named. A prompt's shared prefix is stored once; each job that uses it references it as deep as
its own prompt goes. Prefixes may branch: then a prompt goes along a path of parts, each with the ones before it.
Complete blocks without a reference keep their content until they are needed for something else. Blocks that are not
complete are reused before them. Then the longest unused go first, and of one owner the last blocks first, behind all
parts that follow it. So an evicted job finds again what was not reused.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from weakref import WeakValueDictionary

PrefixPath = Sequence[tuple[Hashable, int]]
"""The beginning of a prompt in parts: name, and position of the end, tokens."""


class SimPrefix:
    """A shared part of prompts: how many of its blocks are stored, and how deep resident jobs reach into it."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        """Blocks of the parts before it."""
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


class SimLeftover:
    """Complete blocks that a job left: evicted, it may find them again."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        """Those that are not reused yet."""


class SimHolding:
    """The blocks of one job: ``shared_blocks`` from its prefix, ``private`` its own."""

    def __init__(self, path: tuple[SimPrefix, ...], prefix_blocks: int) -> None:
        self.path = path
        """The parts of its prefix, each complete but the last one."""
        ends = [*(part.begin for part in path[1:]), prefix_blocks]
        self._spans = [(part, part.begin, end - part.begin) for part, end in zip(path, ends, strict=False)]
        self.prefix_blocks = prefix_blocks
        """Whole blocks of its prompt that belong to the prefix."""
        self.shared_blocks = 0
        self.private = 0
        self.holder = False
        """It counts among the prefix's references."""
        self.leftover: SimLeftover | None = None
        """Own blocks that outlived an eviction."""
        self.leftover_begin = 0
        """How deep into the prefix they began."""

    @property
    def blocks(self) -> int:
        return self.shared_blocks + self.private

    def depths(self, blocks: int) -> list[tuple[SimPrefix, int]]:
        """The parts of its prefix, and how deep so many of its blocks from the first on reach into each."""
        return [(part, min(max(0, blocks - begin), length)) for part, begin, length in self._spans]

    def leftover_blocks(self, shared_blocks: int) -> int:
        """Own blocks that outlived an eviction and join on to so many blocks of its prefix."""
        if self.leftover is None or shared_blocks != self.leftover_begin:
            return 0
        return self.leftover.blocks

    @property
    def stored_blocks(self) -> int:
        """Blocks of its prefix that are stored, from the first on."""
        for part, begin, length in self._spans:
            if part.blocks < length:
                return begin + part.blocks
        return self.prefix_blocks


class SimBlockPool:
    """All KV blocks of the engine."""

    def __init__(self, capacity: int, block_tokens: int) -> None:
        self.capacity = capacity
        self.block_tokens = block_tokens
        self._unused_blocks = capacity
        self._idle: OrderedDict[SimPrefix | SimLeftover, int] = OrderedDict()
        """Owner -> complete blocks without a reference, longest idle first."""
        self._idle_blocks = 0
        self._parts: WeakValueDictionary[tuple[SimPrefix | None, Hashable], SimPrefix] = WeakValueDictionary()
        """By the part before it, and its name. One that is neither stored nor referenced is forgotten."""
        self._kept_parts: dict[SimPrefix, None] = {}
        """Prefixes that are reused last, in the order in which they came."""
        self._reused: set[SimPrefix | SimLeftover] = set()

    @property
    def free(self) -> int:
        """Blocks that can be taken without an eviction."""
        return self._unused_blocks + self._idle_blocks

    @property
    def used_blocks(self) -> int:
        return self.capacity - self._unused_blocks - self._idle_blocks

    def holding(self, path: PrefixPath, prompt_tokens: int, *, keep: bool = False) -> SimHolding:
        """An empty holding for a new job. As in vLLM at least the prompt's last token is always computed.

        Args:
            keep: the prefix is reused last.
        """
        parts: list[SimPrefix] = []
        most, end = max(0, prompt_tokens - 1) // self.block_tokens, 0
        before: SimPrefix | None = None
        for name, end_tokens in path:
            if end >= most:
                break
            part = self._parts.get((before, name))
            if part is None:
                part = self._parts[before, name] = SimPrefix(end)
            parts.append(part)
            before, end = part, end_tokens // self.block_tokens
        whole = min(end, most)
        while parts and parts[-1].begin == whole:
            parts.pop()
        if keep:
            self._kept_parts.update(dict.fromkeys(parts))
        return SimHolding(tuple(parts), whole)

    def warm(self, holding: SimHolding) -> None:
        """Store the job's prefix as if an earlier job had left it, unless some of it is stored or room is short."""
        if holding.prefix_blocks > self._unused_blocks or any(
            part.blocks or part.is_referenced for part in holding.path
        ):
            return
        for part, depth in holding.depths(holding.prefix_blocks):
            part.blocks = depth
        self._unused_blocks -= holding.prefix_blocks
        self._settle(holding)

    def hit_blocks(self, holding: SimHolding) -> int:
        """Blocks that an admission of this job would find stored now."""
        shared_blocks = holding.stored_blocks
        return shared_blocks + holding.leftover_blocks(shared_blocks)

    def admit(self, holding: SimHolding) -> int:
        """Reference what is stored of the job's context; returns the tokens found."""
        holding.shared_blocks = holding.stored_blocks
        holding.holder = True
        for part, depth in holding.depths(holding.shared_blocks):
            part.enter(depth)
        self._settle(holding)
        holding.private = holding.leftover_blocks(holding.shared_blocks)
        if holding.private and holding.leftover is not None:
            self._idle_blocks -= self._idle.pop(holding.leftover)
        holding.leftover = None
        return holding.blocks * self.block_tokens

    def grow(self, holding: SimHolding, context_tokens: int) -> bool:
        """Give the job blocks up to ``context_tokens``; False (nothing changed) when they are not there."""
        new_blocks = -(-context_tokens // self.block_tokens) - holding.shared_blocks - holding.private
        if new_blocks <= 0:
            return True
        if new_blocks > self._unused_blocks + self._idle_blocks:
            return False
        self._take(new_blocks)
        holding.private += new_blocks
        return True

    def publish(self, holding: SimHolding, context_tokens: int) -> list[SimPrefix]:
        """``context_tokens`` of the job are computed: whole blocks of its prefix become usable by others.

        Only the job at the frontier publishes; what others compute of the same prefix meanwhile stays their own.
        Returns the parts of which more is stored than before.
        """
        before = holding.shared_blocks
        whole = min(holding.prefix_blocks, context_tokens // self.block_tokens)
        if whole <= before or holding.stored_blocks != before:
            return []
        grown = []
        # No job holds more of these parts than this one: every stored block is pinned before and after.
        for (part, old), (_, depth) in zip(holding.depths(before), holding.depths(whole), strict=True):
            if depth > old:
                part.leave(old)
                part.enter(depth)
                part.blocks = depth
                grown.append(part)
        holding.shared_blocks = whole
        holding.private -= whole - before
        return grown

    def evict(self, holding: SimHolding, context_tokens: int) -> int:
        """Take the job's blocks away; its whole blocks stay findable until reused. Returns blocks freed."""
        before = self.free
        holding.leftover_begin = holding.shared_blocks
        holding.leftover = self._leave(holding, context_tokens)
        return self.free - before

    def release(self, holding: SimHolding, context_tokens: int) -> None:
        """Free the blocks of a job that has ended; its own blocks are never looked for again."""
        self._leave(holding, context_tokens)
        holding.leftover = None

    def _leave(self, holding: SimHolding, context_tokens: int) -> SimLeftover | None:
        """Reference nothing any more. ``context_tokens`` fill the blocks that are complete, if there are any."""
        whole = context_tokens // self.block_tokens - holding.shared_blocks
        complete = max(0, min(holding.private, whole))
        self._unused_blocks += holding.private - complete
        leftover = SimLeftover(complete) if complete else None
        if leftover is not None:
            self._idle[leftover] = complete
            self._idle_blocks += complete
        holding.private = 0
        if holding.holder:
            for part, depth in holding.depths(holding.shared_blocks):
                part.leave(depth)
            self._settle(holding)
        holding.holder, holding.shared_blocks = False, 0
        return leftover

    def _settle(self, holding: SimHolding) -> None:
        """What is stored of its prefix beyond the deepest job waits for reuse, its last part first."""
        for part in reversed(holding.path):
            idle, before = part.blocks - part.deepest, self._idle.get(part, 0)
            if idle == before:
                continue
            self._idle_blocks += idle - before
            if not idle:
                del self._idle[part]
                continue
            self._idle[part] = idle
            if idle > before:
                self._idle.move_to_end(part)

    def _take(self, blocks: int) -> None:
        fresh = min(blocks, self._unused_blocks)
        self._unused_blocks -= fresh
        blocks -= fresh
        self._idle_blocks -= blocks
        if blocks:
            for part in self._kept_parts:
                if part in self._idle:
                    self._idle.move_to_end(part)
        while blocks:
            owner, idle_blocks = next(iter(self._idle.items()))
            reused_blocks = min(blocks, idle_blocks)
            blocks -= reused_blocks
            blocks_left = idle_blocks - reused_blocks
            if blocks_left:
                self._idle[owner] = blocks_left
            else:
                del self._idle[owner]
            owner.blocks -= reused_blocks
            self._reused.add(owner)

    def take_reused(self) -> set[SimPrefix | SimLeftover]:
        """Whose blocks have been reused since the last call."""
        reused, self._reused = self._reused, set()
        return reused
