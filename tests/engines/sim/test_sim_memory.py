"""KV cache of the simulator: prefix sharing, eviction with recomputation, swap, and the books in any case."""

from __future__ import annotations

import random

import pytest
from sim_cases import profile, random_tasks, run, task

from examples import examples
from lrtrace.importers.public_traces import MOONCAKE_BLOCK_TOKENS
from lrtrace.job import TraceJob, TraceSegment
from timely.engines.replay_types import BLOCK_ID_TOKENS, PlannedTask
from timely.engines.sim.kv import SimBlockPool
from timely.replay.trace import replay_task_from_job

approx = pytest.approx


def tokens_due(tasks: list[PlannedTask]) -> int:
    """Tokens a cacheless engine computes once: every prompt, and every output token but the last as input."""
    return sum(t.prompt_tokens + t.output_tokens - 1 for t in tasks)


def test_every_token_is_computed_once_without_pressure() -> None:
    tasks = random_tasks(3, 60)
    for discipline in ("fcfs", "edf", "pud", "timely"):
        counters = run(tasks, discipline=discipline).counters
        assert counters["evictions"] == counters["recomputed_tokens"] == 0
        assert counters["computed_tokens"] + counters["cached_tokens"] == tokens_due(tasks)


def test_prefix_is_computed_once() -> None:
    tasks = [task(k, 1.0 * k, prompt_tokens=100, shared_prefix_tokens=80, prefix="drone") for k in range(3)]
    records = run(tasks, discipline="fcfs").records
    assert [r.cached_tokens for r in records] == [0, 80, 80]


def test_prefix_is_shared_by_tasks_that_arrive_together() -> None:
    # The second finds what the first computes in the very same step, as in vLLM.
    tasks = [task(k, prompt_tokens=100, shared_prefix_tokens=80, prefix="drone") for k in range(4)]
    run_ = run(tasks, discipline="fcfs")
    assert sum(r.cached_tokens for r in run_.records) == 3 * 80


def test_prefixes_of_different_names_are_apart() -> None:
    tasks = [task(k, prompt_tokens=100, shared_prefix_tokens=80, prefix=f"p{k}") for k in range(3)]
    assert all(r.cached_tokens == 0 for r in run(tasks, discipline="fcfs").records)


def conversations(*prompts: tuple[float, int, list[int]]) -> list[PlannedTask]:
    """Tasks of an imported trace: arrival, tokens of the prompt, and its blocks."""
    return [
        replay_task_from_job(
            TraceJob(number, arrival_s, tokens, (TraceSegment("", 4),), extra={"hash_ids": block_ids})
        )
        for number, (arrival_s, tokens, block_ids) in enumerate(prompts)
    ]


def test_conversations_of_an_imported_trace_share_the_blocks_that_they_name() -> None:
    """All were taken for one conversation, and the first request of each stored nothing."""
    tasks = conversations(
        (0.0, 1200, [0, 1, 2]),
        (1.0, 1100, [0, 1, 7]),
        (2.0, 600, [0, 5]),
        (3.0, 600, [9, 5]),
        (4.0, 2000, [0, 1, 2, 3]),
        (5.0, 600, [0, 5]),
    )
    run_ = run(tasks, discipline="fcfs")
    assert [r.cached_tokens for r in run_.records] == [0, 1024, 512, 0, 1184, 592]
    assert BLOCK_ID_TOKENS == MOONCAKE_BLOCK_TOKENS


def test_prompts_of_a_trace_are_not_warm_from_the_start() -> None:
    tasks = conversations((0.0, 1200, [0, 1, 2]), (1.0, 900, [4, 5]), (2.0, 1200, [0, 1, 2]))
    warm = run(tasks, discipline="fcfs", warm_prefixes=True)
    assert [r.cached_tokens for r in warm.records] == [0, 0, 1184]


@pytest.mark.parametrize("discipline", ["fcfs", "timely", "las"])
@pytest.mark.parametrize("block_tokens", [16, 24, 700])
def test_branching_conversations_keep_the_books(discipline: str, block_tokens: int) -> None:
    draw = random.Random(7)
    prompts: list[list[int]] = []
    rows = []
    for number in range(60):
        stem = draw.choice(prompts)[: draw.randrange(6)] if prompts else []
        prompts.append([*stem, *range(10 * number, 10 * number + draw.randrange(1, 4))])
        tokens = 512 * len(prompts[-1]) - draw.randrange(512)
        rows.append((0.05 * number, tokens, prompts[-1]))
    blocks = 9000 // block_tokens
    run_ = run(conversations(*rows), profile(blocks=blocks, block_tokens=block_tokens), discipline=discipline)
    assert all(record.outcome == "complete" for record in run_.records)
    assert run_.counters["cached_tokens"] > 0


def test_a_prompt_that_is_all_prefix_still_computes_its_last_token() -> None:
    tasks = [task(k, 1.0 * k, prompt_tokens=32, shared_prefix_tokens=32, prefix="p") for k in range(2)]
    run_ = run(tasks, discipline="fcfs")
    assert run_.records[1].cached_tokens == 16
    assert run_.records[1].outcome == "complete"


def test_shared_blocks_let_more_jobs_in() -> None:
    # 8 jobs of 7 blocks each, 6 of them shared: 14 blocks in all instead of 56.
    tasks = [
        task(k, prompt_tokens=100, shared_prefix_tokens=96, prefix="p", plan=((5, 1.0),)) for k in range(8)
    ]
    run_ = run(tasks, profile(blocks=20), discipline="fcfs")
    assert run_.counters["evictions"] == 0
    assert max(r.last_token_s for r in run_.records) < 0.10


def test_eviction_recomputes_and_everything_finishes() -> None:
    tasks = [task(k, plan=((30, 1.0),), prompt_tokens=30) for k in range(4)]
    run_ = run(tasks, profile(blocks=10), discipline="fcfs", mode="whole")
    assert run_.counters["evictions"] > 0
    assert run_.counters["computed_tokens"] == tokens_due(tasks) + run_.counters["recomputed_tokens"] - sum(
        r.cached_tokens for r in run_.records
    )
    assert all(r.outcome == "complete" and r.output_tokens == 30 for r in run_.records)
    # The first come is never the victim under first come, first served.
    assert run_.records[0].preemptions == 0


def test_newcomers_do_not_overtake_the_evicted() -> None:
    tasks = [task(k, plan=((40, 1.0),), prompt_tokens=30) for k in range(2)]
    tasks.append(task(2, 0.3, plan=((3, 1.0),), prompt_tokens=8))
    records = run(tasks, profile(blocks=7), discipline="fcfs", mode="whole").records
    assert records[1].preemptions >= 1
    assert records[2].admitted_s >= records[0].last_token_s


def test_swap_moves_instead_of_recomputing() -> None:
    tasks = [task(k, plan=((30, 1.0),), prompt_tokens=30) for k in range(4)]
    shape = profile(blocks=10, swap=1e-3)
    moved = run(tasks, shape, discipline="fcfs", mode="whole", eviction="swap")
    assert moved.counters["evictions"] > 0
    assert moved.counters["recomputed_tokens"] == 0
    assert moved.counters["swapped_tokens"] > 0
    free = run(tasks, profile(blocks=10), discipline="fcfs", mode="whole", eviction="swap")
    # The same decisions, but each token that moves costs a millisecond.
    gap = moved.records[-1].last_token_s - free.records[-1].last_token_s
    assert gap == approx(1e-3 * moved.counters["swapped_tokens"])


def test_auto_swaps_only_where_it_is_cheaper() -> None:
    tasks = [task(k, plan=((30, 1.0),), prompt_tokens=30) for k in range(4)]
    dear = profile(blocks=10, swap=1e-3, per_prefill_token=1e-4)
    cheap = profile(blocks=10, swap=1e-6, per_prefill_token=1e-4)
    options = {"discipline": "fcfs", "mode": "whole", "eviction": "auto"}
    assert run(tasks, dear, **options).counters["swapped_tokens"] == 0
    assert run(tasks, cheap, **options).counters["recomputed_tokens"] == 0


@pytest.mark.parametrize("seed", range(examples(6)))
@pytest.mark.parametrize("discipline", ["fcfs", "edf", "pud", "timely", "priority"])
def test_books_balance_under_pressure(seed: int, discipline: str) -> None:
    tasks = random_tasks(seed, 50)
    for mode in ("segmented", "stream"):
        run_ = run(tasks, profile(blocks=16), discipline=discipline, mode=mode, token_budget=64, max_batch=5)
        for record in run_.records:
            assert record.outcome == "complete"
            assert record.output_tokens == record.task.output_tokens
            assert len(record.ready_s) == len(record.task.plan)
            assert record.ready_s == sorted(record.ready_s)
            assert record.start_s == sorted(record.start_s)
        counters = run_.counters
        assert counters["tokens"] == sum(t.output_tokens for t in tasks)
        found_again = tokens_due(tasks) + counters["recomputed_tokens"] - counters["computed_tokens"]
        # What was not computed was found: at first admission, or again after an eviction.
        assert found_again >= counters["cached_tokens"] * (counters["evictions"] == 0)
        if counters["evictions"] == 0:
            assert found_again == counters["cached_tokens"]


def test_pool_reuses_the_longest_idle_first_and_tails_before_heads() -> None:
    pool = SimBlockPool(10, 16)
    first, second = pool.holding((), 64), pool.holding((), 64)
    assert pool.grow(first, 64)
    assert pool.grow(second, 64)
    pool.evict(first, 64)
    pool.evict(second, 64)
    third = pool.holding((), 80)
    assert pool.grow(third, 80)  # two blocks never used, then three of the first's four, its tail
    assert (pool.hit_blocks(first), pool.hit_blocks(second)) == (1, 4)
    assert pool.admit(first) == 16
    assert pool.used_blocks == 6


def test_blocks_that_are_not_complete_are_reused_first() -> None:
    """They hold nothing that a prompt could find: vLLM puts them before all others, the simulator put them behind."""
    pool = SimBlockPool(8, 16)
    first, second = pool.holding((), 64), pool.holding((), 64)
    assert pool.grow(first, 64)
    assert pool.grow(second, 64)
    pool.evict(first, 64)
    pool.release(second, 40)
    third = pool.holding((), 64)
    assert pool.grow(third, 32)
    assert pool.hit_blocks(first) == 4
    assert pool.grow(third, 48)
    assert pool.hit_blocks(first) == 3


def test_pool_refuses_what_it_does_not_have() -> None:
    pool = SimBlockPool(2, 16)
    holding = pool.holding((), 64)
    assert not pool.grow(holding, 64)
    assert pool.free == 2


def test_prefix_stays_findable_until_its_blocks_are_needed() -> None:
    pool = SimBlockPool(6, 16)
    first = pool.holding([("p", 64)], 70)
    pool.admit(first)
    assert pool.grow(first, 70)
    assert pool.publish(first, 70)
    pool.release(first, 70)
    again = pool.holding([("p", 64)], 70)
    assert pool.hit_blocks(again) == 4
    other = pool.holding((), 48)
    assert pool.grow(other, 48)
    assert pool.hit_blocks(again) == 3


def test_a_prefix_is_held_only_as_deep_as_somebody_reaches() -> None:
    pool = SimBlockPool(6, 16)
    deep, shallow = pool.holding([("p", 64)], 70), pool.holding([("p", 16)], 20)
    pool.admit(deep)
    assert pool.grow(deep, 70)
    assert pool.publish(deep, 70)
    assert pool.admit(shallow) == 16
    assert [part.depths for part in deep.path] == [(4, 1)]
    assert pool.used_blocks == 5, "four of the prefix and one of its own"
    pool.release(deep, 70)
    assert (pool.used_blocks, pool.free) == (1, 5)
    # What nobody reaches is still found until it is taken, the deepest blocks first; what is held stays.
    other = pool.holding((), 64)
    assert pool.grow(other, 64)
    assert pool.hit_blocks(pool.holding([("p", 64)], 70)) == 2
    assert pool.grow(other, 80)
    assert pool.hit_blocks(pool.holding([("p", 64)], 70)) == 1
    assert not pool.grow(other, 96)


def test_branches_share_their_stem_and_are_reused_before_it() -> None:
    pool = SimBlockPool(12, 16)
    stem, left, right = ("stem", 32), ("left", 64), ("right", 64)
    first, second = pool.holding([stem, left], 70), pool.holding([stem, right], 70)
    for branch, cached_tokens in ((first, 0), (second, 32)):
        assert pool.admit(branch) == cached_tokens
        assert pool.grow(branch, 70)
        assert pool.publish(branch, 70)
    assert pool.used_blocks == 8, "two of the stem, two of each branch, and one of each job"
    # A name says nothing without those before it.
    assert pool.hit_blocks(pool.holding([("other", 32), left], 70)) == 0
    pool.release(first, 70)
    pool.release(second, 70)
    assert pool.hit_blocks(first) == pool.hit_blocks(second) == 4
    other = pool.holding((), 128)
    assert pool.grow(other, 112)
    assert (pool.hit_blocks(first), pool.hit_blocks(second)) == (3, 4)
    assert pool.grow(other, 160)
    assert pool.hit_blocks(first) == pool.hit_blocks(second) == 2, "the stem outlives its branches"


@pytest.mark.parametrize(("keeps", "cached_tokens"), [(False, 0), (True, 64)])
def test_kept_prefixes_are_reused_last(keeps: bool, cached_tokens: int) -> None:
    pool = SimBlockPool(10, 16)
    first = pool.holding([("drone", 64)], 80, keep=keeps)
    pool.admit(first)
    assert pool.grow(first, 80)
    assert pool.publish(first, 80)
    pool.release(first, 80)
    for _ in range(3):
        chat = pool.holding((), 96)
        pool.admit(chat)
        assert pool.grow(chat, 96)
        pool.release(chat, 96)
    assert pool.admit(pool.holding([("drone", 64)], 80)) == cached_tokens


def test_warm_prefixes_are_there_from_the_start() -> None:
    tasks = [task(k, 1.0 * k, prompt_tokens=100, shared_prefix_tokens=80, prefix="drone") for k in range(2)]
    assert [r.cached_tokens for r in run(tasks, discipline="fcfs", warm_prefixes=True).records] == [80, 80]
    # No room for the prefix beside anything else: it is simply not there.
    tight = run(tasks, profile(blocks=8), discipline="fcfs", warm_prefixes=True)
    assert all(r.outcome == "complete" for r in tight.records)
