"""KV memory of the simulated engine: which jobs hold blocks, find them again, or have them in host memory."""

import math
from collections.abc import Iterable

from timely.core.job import Job, JobTable
from timely.disciplines.base import StepPlan
from timely.engines.replay_types import JobRecord, PlannedTask, ReplayOptions
from timely.engines.scheduler_core import EngineController
from timely.engines.sim.kv import SimBlockPool, SimHolding, SimPrefix
from timely.engines.step_time.profile import StepTimeProfile


class SimTask:
    """A task in the engine: what the job table does not hold."""

    def __init__(self, task: PlannedTask, job: Job, record: JobRecord, holding: SimHolding) -> None:
        self.task = task
        self.job = job
        self.record = record
        self.holding = holding
        self.index = 0
        """Segment in generation."""
        self.boundary = task.plan[0].tokens
        """Output tokens at which it closes."""
        self.output = 0
        self.pending = 0
        """Output tokens in flight, with asynchronous scheduling."""
        self.target = task.output_tokens
        self.limit = task.limit_tokens
        """Output tokens at which it ends as far as the engine knows; a stop token ends it at ``target``."""
        self.computed_tokens = 0
        """Most context tokens that were ever in the KV cache: what is computed below is computed again."""
        self.swapped_tokens = 0
        """Context tokens kept in host memory: the last ones of what was evicted."""
        self.saved_from = 0
        """Position of the first of them."""
        self.loaded_tokens = 0
        """Of the context in the cache, tokens that came from the host and lie behind a gap still to be computed."""
        self.gap_end = 0
        """Position of the first of them: where the gap ends."""

    @property
    def tokens(self) -> int:
        """Prompt and output tokens so far; all but the newest must be in the cache to go on decoding."""
        return self.task.prompt_tokens + self.output


class SimMemory:
    """Block accounting between the job table, which disciplines read, and the block pool.

    Args:
        options: its ``eviction``, ``warm_prefixes`` and ``keep_prefixes``.
    """

    def __init__(
        self, capacity: int, profile: StepTimeProfile, options: ReplayOptions, controller: EngineController
    ) -> None:
        self.pool = SimBlockPool(capacity, profile.kv.block_tokens)
        self.block_tokens = profile.kv.block_tokens
        self._terms = profile.step_s
        self._rate = profile.kv.swap_s_per_token
        self._eviction = options.eviction
        self._keeps, self._warm = options.keep_prefixes, options.warm_prefixes
        self._warm_prefixes: set[SimPrefix] = set()
        self._controller = controller
        self._users: dict[SimPrefix, set[SimTask]] = {}
        self._evicted: set[SimTask] = set()
        """Those that have not been admitted again."""
        self.cached_tokens = 0
        self.swapped_tokens = 0
        self._moved_tokens = 0

    @property
    def swap_s_per_token(self) -> float:
        """Seconds to bring a token back; ``inf`` when nothing moves to the host."""
        return self._rate if self._rate > 0.0 and self._eviction != "recompute" else math.inf

    @property
    def table(self) -> JobTable:
        return self._controller.table

    def fits(self, tokens: int) -> bool:
        return -(-tokens // self.block_tokens) <= self.pool.capacity

    def holding(self, task: PlannedTask) -> tuple[SimHolding, int]:
        """An empty holding for a new job, and the prompt tokens it would find stored now."""
        # The blocks of an imported trace are of users' prompts: no server has them from the start, or keeps them.
        is_stored_prompt = not task.block_ids
        holding = self.pool.holding(
            task.prefix_path, task.prompt_tokens, keep=self._keeps and is_stored_prompt
        )
        if self._warm and is_stored_prompt and not self._warm_prefixes.issuperset(holding.path):
            self._warm_prefixes.update(holding.path)
            self.pool.warm(holding)
        return holding, self._cached_tokens(holding, task.prompt_tokens)

    def _cached_tokens(self, holding: SimHolding, tokens: int) -> int:
        # The last known token is always computed: its output is the next one.
        return min(self.pool.hit_blocks(holding) * self.block_tokens, tokens - 1)

    def arrive(self, live: SimTask) -> None:
        """Add a job, and note which blocks of its prompt other jobs hold too."""
        for part in live.holding.path:
            self._users.setdefault(part, set()).add(live)
        self._share((live,))

    def admit(self, live: SimTask, now: float) -> None:
        """Give a job its slot and whatever of its context is still stored, here or in host memory."""
        table, row, record, holding = self.table, live.job.row, live.record, live.holding
        self._evicted.discard(live)
        before = _sim_prefix_depths(holding)
        cached_tokens = min(self.pool.admit(holding), live.tokens - 1)
        if record.admitted_s != record.admitted_s:
            record.admitted_s = now
            record.cached_tokens = cached_tokens
            self.cached_tokens += cached_tokens
        cached_tokens += self._load(live, cached_tokens)
        tokens_left = live.tokens - cached_tokens
        table.context_tokens[row] = cached_tokens
        # A job of which only the newest token is missing simply decodes on.
        table.prefill_left[row] = 0 if tokens_left == 1 and live.output else tokens_left
        live.computed_tokens = max(live.computed_tokens, cached_tokens)
        self._share(self._users_of(live, before))

    def _load(self, live: SimTask, cached_tokens: int) -> int:
        """Bring back what was saved and is not found anyway; returns how many tokens.

        They are the last of the context: what has to be computed again are the first ones, which attend to few.
        """
        begin = max(cached_tokens, live.saved_from)
        tokens = live.saved_from + live.swapped_tokens - begin
        if (
            live.swapped_tokens == 0
            or tokens <= 0
            or not self.pool.grow(live.holding, cached_tokens + tokens)
        ):
            tokens = 0
        live.swapped_tokens = 0
        live.loaded_tokens = tokens if begin > cached_tokens else 0
        live.gap_end = begin
        self._moved_tokens += tokens
        return tokens

    def prefill(self, live: SimTask, begin: int, tokens: int) -> int:
        """``tokens`` of a prompt (or of a lost context) are computed on top of ``begin`` in the cache.

        Returns the growth of the squared context, tokens squared: ``end**2 - begin**2`` of what is computed, which is
        less where a gap before loaded tokens is filled.
        """
        position = begin - live.loaded_tokens
        end = position + tokens
        if not live.loaded_tokens or end < live.gap_end:
            self.publish(live, end)
            return end * end - position * position
        # The gap is closed: whatever follows attends to the loaded tokens too.
        squares = live.gap_end * live.gap_end - position * position
        behind = live.gap_end + live.loaded_tokens
        end += live.loaded_tokens
        live.loaded_tokens = 0
        self.publish(live, end)
        return squares + end * end - behind * behind

    def publish(self, live: SimTask, context_tokens: int) -> None:
        """``context_tokens`` of the job are computed: others may find more of their prefix stored."""
        grown = self.pool.publish(live.holding, context_tokens)
        if not grown:
            return
        table = self.table
        # All that go along a part go along the ones before it.
        users = self._users[grown[0]]
        for other in users:
            row = other.job.row
            if not table.resident[row] and not other.swapped_tokens:
                table.prefill_left[row] = other.tokens - self._cached_tokens(other.holding, other.tokens)
        self._share(users)

    def evict(self, plan: StepPlan, live_of: Iterable[SimTask], now: float) -> None:
        """Take KV caches away as the plan says."""
        table = self.table
        for live in live_of:
            row = live.job.row
            holding = live.holding
            context = int(table.context_tokens[row])
            saved_tokens = self._tokens_to_save(plan, live, context)
            before = _sim_prefix_depths(holding)
            # Behind a gap nothing can be found again by its beginning.
            self.pool.evict(holding, context - live.loaded_tokens)
            if saved_tokens:
                live.swapped_tokens = saved_tokens
                live.saved_from = (
                    live.gap_end + live.loaded_tokens if live.loaded_tokens else context
                ) - saved_tokens
                self._moved_tokens += saved_tokens
            self._evicted.add(live)
            self._controller.evict(live.job, self._tokens_left(live), now)
            live.loaded_tokens = 0
            self._share(self._users_of(live, before))

    def count_left(self, live: SimTask) -> None:
        """A job without KV cache has one more token, or finds less of its context."""
        self.table.prefill_left[live.job.row] = self._tokens_left(live)

    def note_reused(self) -> None:
        """Waiting jobs no longer find blocks that were taken for something else."""
        reused = self.pool.take_reused()
        if not reused:
            return
        resident = self.table.resident
        users = (self._users.get(owner, ()) for owner in reused if isinstance(owner, SimPrefix))
        for live in self._evicted.union(*users):
            if not resident[live.job.row] and not live.swapped_tokens:
                self.count_left(live)

    def _tokens_left(self, live: SimTask) -> int:
        """Tokens that a job without KV cache has to compute before its next one."""
        if not live.swapped_tokens:
            return live.tokens - self._cached_tokens(live.holding, live.tokens)
        tokens = live.tokens - live.swapped_tokens
        return 0 if tokens == 1 and live.output else tokens

    def _tokens_to_save(self, plan: StepPlan, live: SimTask, context: int) -> int:
        """Context tokens that go to host memory rather than being computed again."""
        if self._eviction == "recompute":
            return 0
        if self._eviction == "swap":
            return context
        saved_tokens = plan.keep.get(live.job.job_id, 0) if self._rate > 0.0 else 0
        if saved_tokens or self._eviction == "discipline":
            return min(saved_tokens, live.loaded_tokens or context)
        # Out and in again, or computed again (the semantic scheduling paper's Eq. 3, the right way round).
        again = self._terms.per_prefill_token * context + self._terms.per_prefill_token_sq * context * context
        if self._terms.tokens is not None:
            again += self._terms.tokens(context) - self._terms.tokens(1)
        return context if 0.0 < 2.0 * self._rate * context < again else 0

    def release(self, live: SimTask) -> None:
        """The job is over (and still in the table)."""
        holding = live.holding
        self._evicted.discard(live)
        before = _sim_prefix_depths(holding)
        self.pool.release(holding, int(self.table.context_tokens[live.job.row]) - live.loaded_tokens)
        users = self._users_of(live, before)
        for part in holding.path:
            self._users[part].discard(live)
            if not self._users[part]:
                del self._users[part]
        self._share(user for user in users if user is not live)

    def take_moved_tokens(self) -> int:
        """Tokens moved to or from host memory since the last call, which the next call does not count again."""
        tokens, self._moved_tokens = self._moved_tokens, 0
        self.swapped_tokens += tokens
        return tokens

    def _users_of(self, live: SimTask, before: list[tuple[int, int]]) -> Iterable[SimTask]:
        """The job, and all along the first part of its prefix that is held more or less deeply than ``before``."""
        for part, depths in zip(live.holding.path, before, strict=True):
            if part.depths != depths:
                return self._users[part]
        return (live,)

    def _share(self, lives: Iterable[SimTask]) -> None:
        """Count the blocks of each job that another job holds, too: they cost nothing, and its eviction frees none."""
        table = self.table
        for live in lives:
            holding, shared = live.holding, 0
            for part, depth in holding.depths(
                holding.shared_blocks if holding.holder else holding.prefix_blocks
            ):
                others = part.blocks_held_without(depth) if holding.holder else part.deepest
                shared += min(depth, others)
                if others < depth:
                    break
            table.shared_blocks[live.job.row] = shared


def _sim_prefix_depths(holding: SimHolding) -> list[tuple[int, int]]:
    """How deep jobs reach into each part of its prefix."""
    return [part.depths for part in holding.path]
