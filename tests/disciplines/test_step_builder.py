"""The step builder: budgets, slots and blocks are never exceeded, and nobody is evicted in vain or upwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import EncoderInput, StepLimits
from timely.disciplines.step_builder import StepBuilder, discipline_next_wake_s
from timely.engines.step_time.learned import FixedSpeed


def limits(**changes: Any) -> StepLimits:
    values: dict[str, Any] = {
        "token_budget": 100, "max_batch": 4, "max_resident": 6, "prefill_chunk": 50, "free_blocks": 20,
        "block_tokens": 16,
    } | changes  # fmt: skip
    return StepLimits(now=0.0, speed=FixedSpeed(), **values)


def resident(table: JobTable, name: object, blocks: int, *, full: bool = False) -> int:
    """A decoding job that holds ``blocks`` blocks; ``full``: the next token needs one more."""
    row = table.add(JobSpec(name, 0.0, prompt_tokens=16 * blocks - (0 if full else 4))).row
    table.resident[row] = True
    table.blocks[row], table.prefill_left[row] = blocks, 0
    table.context_tokens[row] = table.prompt_tokens[row]
    return row


def waiting(table: JobTable, name: object, prompt: int) -> int:
    return table.add(JobSpec(name, 0.0, prompt_tokens=prompt)).row


def ladder(table: JobTable) -> list[int]:
    """Rows from the least important: the last arrived."""
    return sorted(range(len(table)), key=lambda row: -int(table.sequence[row]))


def builder_for(table: JobTable, **changes: Any) -> StepBuilder:
    return StepBuilder(table, limits(**changes), lambda: iter(ladder(table)))


def test_a_prompt_is_cut_to_chunk_and_budget() -> None:
    table = JobTable()
    rows = [waiting(table, name, 80) for name in "abc"]
    builder = builder_for(table)
    assert [builder.add(row) for row in rows] == [True, True, False]
    assert builder.plan.tokens == {"a": 50, "b": 50}
    assert builder.full
    assert builder.prefill_tokens == 100


def test_a_cap_on_the_chunk() -> None:
    table = JobTable()
    row = waiting(table, "a", 80)
    builder = builder_for(table)
    assert builder.add(row, tokens=7)
    assert builder.plan.tokens == {"a": 7}


def test_a_row_joins_once() -> None:
    table = JobTable()
    row = resident(table, "a", 1)
    builder = builder_for(table)
    assert builder.add(row)
    assert not builder.add(row)


def test_an_admission_needs_room_for_the_whole_context_not_the_chunk() -> None:
    table = JobTable()
    row = waiting(table, "a", 16 * 20)
    assert not builder_for(table, free_blocks=20).add(row), "the next token has no block"
    assert builder_for(table, free_blocks=21).add(row)


def test_an_admission_leaves_the_headroom_and_growth_may_take_it() -> None:
    table = JobTable()
    row, grows = waiting(table, "a", 16 * 5), resident(table, "grows", 2, full=True)
    assert not StepBuilder(table, limits(free_blocks=8, headroom_blocks=3)).add(row)
    assert StepBuilder(table, limits(free_blocks=9, headroom_blocks=3)).add(row)
    assert StepBuilder(table, limits(free_blocks=1, headroom_blocks=3)).add(grows)


def test_growth_takes_a_block_only_when_the_last_one_is_full() -> None:
    table = JobTable()
    roomy, tight = resident(table, "roomy", 2), resident(table, "tight", 2, full=True)
    builder = builder_for(table, free_blocks=0)
    assert builder.add(roomy)
    builder = StepBuilder(table, limits(free_blocks=0))
    assert not builder.add(tight)


def test_only_rows_ranked_below_are_evicted_and_only_as_many_as_it_takes() -> None:
    table = JobTable()
    high = resident(table, "high", 4)
    asks = waiting(table, "asks", 16 * 5)
    for name in ("low1", "low2", "low3"):
        resident(table, name, 3)
    builder = builder_for(table, free_blocks=0)
    assert builder.add(asks)
    assert builder.plan.evict == ["low3", "low2"]
    assert builder.free == 0
    assert builder.add(high)


def test_nobody_is_evicted_in_vain() -> None:
    table = JobTable()
    resident(table, "high", 10)
    asks = waiting(table, "asks", 16 * 12)
    low = resident(table, "low", 3)
    builder = builder_for(table, free_blocks=1)
    assert not builder.add(asks), "even with low's blocks it would not fit"
    assert builder.plan.evict == []
    assert builder.add(low)


def test_who_is_in_the_step_or_already_gone_is_not_evicted() -> None:
    table = JobTable()
    first, low = waiting(table, "first", 16 * 2), resident(table, "low", 3)
    second = waiting(table, "second", 16 * 5)
    resident(table, "last", 3)
    builder = builder_for(table, free_blocks=0)
    assert builder.add(first)
    assert builder.plan.evict == ["last"]
    assert builder.add(low)
    assert not builder.add(second)
    assert builder.plan.evict == ["last"]


def test_a_slot_is_a_reason_to_evict() -> None:
    table = JobTable()
    asks = waiting(table, "asks", 8)
    for name in range(6):
        resident(table, name, 1)
    builder = builder_for(table)
    assert builder.add(asks)
    assert builder.plan.evict == [5]


def test_an_evicted_row_does_not_run_in_the_same_step() -> None:
    table = JobTable()
    asks, low = waiting(table, "asks", 16 * 3), resident(table, "low", 5)
    builder = builder_for(table, free_blocks=0)
    assert builder.add(asks)
    assert not builder.add(low)
    assert builder.plan.tokens == {"asks": 48}


def test_rows_that_end_take_a_slot_but_neither_tokens_nor_blocks() -> None:
    table = JobTable()
    rows = [resident(table, name, 1, full=name == "ends") for name in ("ends", "b", "c")]
    prompt = waiting(table, "prompt", 30)
    for together in (False, True):
        builder = builder_for(table, token_budget=10, free_blocks=2, ending_rows=frozenset({rows[0]}))
        if together:
            assert builder.add_decoding(np.array(rows))
        else:
            assert all(builder.add(row) for row in rows)
        assert (builder.budget, builder.slots, builder.free) == (8, 1, 2)
        assert builder.add(prompt)
        assert builder.plan.tokens == {"ends": 1, "b": 1, "c": 1, "prompt": 8}


class Images:
    """An encoder of 100 embeddings a step and in its cache; each job has images at these places."""

    budget = cache = 100

    def __init__(
        self, places: dict[str, list[tuple[int, int]]], stored: str = "", whole: bool = False
    ) -> None:
        self.places, self.stored, self.whole = places, stored, whole

    def inputs(self, job: Job) -> list[EncoderInput]:
        name = str(job.job_id)
        places = self.places.get(name, [])
        return [EncoderInput(*place, 60, f"{name}{place}", name == self.stored) for place in places]


def test_a_prompt_stops_before_an_image_that_the_encoder_has_no_room_for() -> None:
    table = JobTable()
    rows = [waiting(table, name, 50) for name in ("first", "second", "text")]
    builder = builder_for(table, encoder=Images({"first": [(0, 40)], "second": [(10, 40)]}))
    assert builder.tokens_for(rows[1]) == 50
    assert all(builder.add(row) for row in rows)
    assert builder.plan.tokens == {"first": 50, "second": 10, "text": 40}


def test_a_prompt_that_begins_with_such_an_image_stays_out() -> None:
    table = JobTable()
    rows = [waiting(table, name, 50) for name in ("first", "second")]
    builder = builder_for(table, encoder=Images({"first": [(0, 40)], "second": [(-5, 40)]}))
    assert builder.add(rows[0])
    assert builder.is_barred(rows[1])
    assert not builder.add(rows[1])
    stored = Images({"first": [(0, 40)], "second": [(-5, 40)]}, stored="second")
    stored.cache = 120
    builder = builder_for(table, encoder=stored)
    assert [builder.add(row) for row in rows] == [True, True], "the cache holds its image"


def test_a_chunk_does_not_end_inside_an_image_that_must_not_be_cut() -> None:
    table = JobTable()
    row = waiting(table, "first", 200)
    for begin, share in ((30, 30), (0, 60), (-20, 50), (-5, 55)):
        builder = builder_for(table, encoder=Images({"first": [(begin, begin + 60)]}, whole=True))
        assert builder.add(row)
        assert builder.plan.tokens == {"first": share}
    full = builder_for(table, token_budget=50, encoder=Images({"first": [(0, 60)]}, whole=True))
    assert not full.add(row), "it waits for a step that has room for all of it"


@settings(max_examples=examples(200))
@given(
    jobs=st.lists(
        st.tuples(st.booleans(), st.integers(1, 12), st.booleans(), st.integers(0, 60)), min_size=1, max_size=14
    ),
    free=st.integers(0, 30), budget=st.integers(1, 120), batch=st.integers(1, 8), slots=st.integers(1, 10),
    shuffler=st.randoms(use_true_random=False),
)  # fmt: skip
def test_budgets_hold_whatever_is_asked(
    *,
    jobs: list[tuple[bool, int, bool, int]],
    free: int,
    budget: int,
    batch: int,
    slots: int,
    shuffler: random.Random,
) -> None:
    table = JobTable()
    for name, (holds, size, full, prefill) in enumerate(jobs):
        if holds and int(table.resident.sum()) < slots:
            row = resident(table, name, size, full=full)
            table.prefill_left[row] = prefill
            table.context_tokens[row] = max(0, int(table.context_tokens[row]) - prefill)
        else:
            waiting(table, name, 16 * size)
    builder = builder_for(table, free_blocks=free, token_budget=budget, max_batch=batch, max_resident=slots)
    order = list(range(len(table)))
    shuffler.shuffle(order)
    joined = {row for row in order if builder.add(row)}
    plan = builder.plan
    assert {table[name].row for name in plan.tokens} == joined
    assert len(plan.tokens) <= batch
    assert sum(plan.tokens.values()) <= budget
    assert not set(plan.tokens) & set(plan.evict)
    held = set(range(len(table))) & {row for row in range(len(table)) if table.resident[row]}
    left = free + sum(int(table.blocks[table[name].row]) for name in plan.evict)
    for job_id, tokens in plan.tokens.items():
        row = table[job_id].row
        if row in held:
            left -= max(0, -(-(int(table.context_tokens[row]) + tokens) // 16) - int(table.blocks[row]))
        else:
            left -= -(-(int(table.prompt_tokens[row]) + 1) // 16)
    assert left >= 0
    gone = {table[name].row for name in plan.evict}
    assert gone <= held
    assert len((held - gone) | joined) <= slots or not joined - held
    for victim in gone:
        assert any(table.sequence[row] < table.sequence[victim] for row in joined), "evicted for a lesser one"


def test_the_next_wake_is_the_first_resume_still_to_come() -> None:
    table = JobTable()
    assert discipline_next_wake_s(table, 0.0) == float("inf")
    for name, resume in enumerate((5.0, 2.0, float("inf"), 1.0)):
        row = table.add(JobSpec(name, 0.0)).row
        table.resume_s[row] = resume
    assert [discipline_next_wake_s(table, now) for now in (0.0, 1.0, 1.5, 2.0, 5.0)] == [
        1.0,
        2.0,
        2.0,
        5.0,
        float("inf"),
    ]


def test_no_victims_no_evictions() -> None:
    table = JobTable()
    asks = waiting(table, "asks", 16 * 9)
    resident(table, "low", 9)

    def none() -> Iterator[int]:
        return iter(())

    for builder in (
        StepBuilder(table, limits(free_blocks=2)),
        StepBuilder(table, limits(free_blocks=2), none),
    ):
        assert not builder.add(asks)
        assert builder.plan.evict == []


@pytest.mark.parametrize("budget", [0, 1])
def test_an_empty_budget_runs_nobody(budget: int) -> None:
    table = JobTable()
    row = resident(table, "a", 1)
    assert builder_for(table, token_budget=budget).add(row) is bool(budget)


def test_blocks_that_others_hold_anyway_cost_nothing_and_are_not_won() -> None:
    table = JobTable()
    asks, low = waiting(table, "asks", 16 * 6), resident(table, "low", 5)
    table.shared_blocks[asks] = 3
    assert builder_for(table, free_blocks=4).add(asks), "seven blocks, three of them there"
    table.shared_blocks[low] = 4
    assert not builder_for(table, free_blocks=2).add(asks), "low's leaving would free one block only"
    table.shared_blocks[low] = 3
    builder = builder_for(table, free_blocks=2)
    assert builder.add(asks)
    assert builder.plan.evict == ["low"]


def test_a_victim_that_is_named_twice_frees_its_blocks_once() -> None:
    table = JobTable()
    asks = waiting(table, "asks", 16 * 9)
    victims = [resident(table, name, 4) for name in ("first", "second")]

    def named(*rows: int) -> StepBuilder:
        return StepBuilder(table, limits(free_blocks=2), lambda: iter(rows))

    assert not named(victims[0], victims[0], asks).add(asks)
    builder = named(victims[0], victims[0], victims[1], asks)
    assert builder.add(asks)
    assert builder.plan.evict == ["first", "second"]


def test_each_row_takes_its_own_drafts_of_the_budget() -> None:
    table = JobTable()
    rows = np.array([resident(table, name, 1) for name in "abc"])
    table.draft_tokens[rows] = [2, 0, 4]
    builder = builder_for(table, token_budget=7)
    assert builder.decode_tokens(rows) == 9
    assert builder.decoding_room(rows) == 2
    assert builder.decoding_room(rows[1:]) == 2
    assert not builder.add_decoding(rows)
    assert builder.add_decoding(rows[:2])
    assert builder.budget == 3
    assert builder_for(table, token_budget=7, max_batch=1).decoding_room(rows) == 1


@given(seed=st.integers(0, 10_000))
@settings(max_examples=examples(150))
def test_prompts_that_join_together_join_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    table = JobTable()
    for name in range(rng.randrange(3)):
        resident(table, f"r{name}", rng.randrange(1, 4))
    rows = [waiting(table, f"w{name}", rng.randrange(1, 70)) for name in range(rng.randrange(9))]
    for row in rows:
        table.shared_blocks[row] = rng.randrange(2)
    room = {
        "token_budget": rng.choice([60, 100, 400]), "max_batch": rng.randrange(1, 9),
        "max_resident": rng.randrange(1, 9), "free_blocks": rng.randrange(24), "headroom_blocks": rng.randrange(3),
        "drafter_tokens": rng.randrange(3),
    }  # fmt: skip
    together, alone = (StepBuilder(table, limits(**room)) for _ in range(2))
    count = together.add_prompts(np.array(rows, dtype=np.int64))
    assert all(alone.add(row) for row in rows[:count])
    next_prompt = int(table.prefill_left[rows[count]]) if count < len(rows) else 0
    for column in ("budget", "slots", "free", "prefill_tokens", "_residents", "rows", "_members"):
        assert getattr(together, column) == getattr(alone, column)
    assert list(together.plan.tokens.items()) == list(alone.plan.tokens.items())
    # The next one would have been cut or refused.
    assert count == len(rows) or alone.tokens_for(rows[count]) < next_prompt or not alone.add(rows[count])
