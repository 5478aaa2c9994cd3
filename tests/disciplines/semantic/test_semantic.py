"""Semantic scheduling: order, stage-aware batches, eviction by priority, what is saved, robots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hints import with_hints
from hypothesis import given, settings
from hypothesis import strategies as st
from step_driver import Machine, StepDriver, Work

from examples import examples
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.base import StepLimits
from timely.disciplines.output_length import LengthEstimates
from timely.disciplines.semantic.cache_cost import SemanticCacheCostModel
from timely.disciplines.semantic.discipline import MERGE_PER_STEP, Semantic
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

SPEED = FixedSpeed(0.02, 0.0, 0.0003)


def limits(now: float = 1.0, **changes: Any) -> StepLimits:
    values = {
        "token_budget": 8192, "max_batch": 4, "max_resident": 100, "prefill_chunk": 8192, "free_blocks": 1000,
        "block_tokens": 16,
    } | changes  # fmt: skip
    return StepLimits(now=now, speed=SPEED, **values)


class Bench:
    """A table and a discipline that hears of everything."""

    def __init__(self, discipline: Semantic | None = None) -> None:
        self.table = JobTable()
        self.discipline = discipline or Semantic()

    def waits(self, name: object, level: int | None, tokens: float = 50.0, **spec: Any) -> Job:
        spec = {"arrival_s": 0.0, "prompt_tokens": 32, "segmented": False, "max_tokens": 4000} | spec
        job = self.table.add(
            JobSpec(name, **with_hints({"urgency": level, "expected_tokens": tokens, **spec}))
        )
        self.discipline.arrived(job, 0.0)
        return job

    def runs(self, name: object, level: int, tokens: float = 50.0, blocks: int = 4, **spec: Any) -> Job:
        """In the pool, decoding."""
        job = self.waits(name, level, tokens, **({"prompt_tokens": 16 * blocks - 8} | spec))
        table, row = self.table, job.row
        table.resident[row] = table.active[row] = True
        table.prefill_left[row], table.blocks[row] = 0, blocks
        table.context_tokens[row] = table.prompt_tokens[row]
        self.discipline.due_changed(job, 0.0)
        return job

    def parks(self, name: object, level: int, resume_s: float, **more: Any) -> Job:
        job = self.runs(name, level, segmented=True, **more)
        self.table.active[job.row] = False
        self.table.resume_s[job.row] = resume_s
        self.table.segment[job.row] = 1
        self.discipline.parked(job, 0.5)
        return job

    def plan(self, **changes: Any) -> tuple[list[object], list[object]]:
        plan = self.discipline.compose(self.table, limits(**changes))
        return list(plan.tokens), plan.evict


# ---------------------------------------------------------------- the order


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 1000), jobs=st.integers(1, 3 * MERGE_PER_STEP), batch=st.integers(1, 40),
    maintain=st.booleans(), stage_aware=st.booleans(),
)  # fmt: skip
def test_the_batch_is_the_best_of_all_wherever_they_stand(
    *, seed: int, jobs: int, batch: int, maintain: bool, stage_aware: bool
) -> None:
    """Buffer and heap together, in any mixture, against sorting everybody."""
    rng = np.random.default_rng(seed)
    bench = Bench(Semantic(stage_aware=stage_aware))
    for name in range(jobs):
        bench.waits(
            name, int(rng.integers(5)), float(rng.integers(1, 400)), prompt_tokens=int(rng.integers(1, 500))
        )
        if rng.random() < 0.01:
            bench.discipline.compose(bench.table, limits())
    if maintain:
        bench.discipline.maintain(bench.table, limits())
        assert bench.discipline._waiting.buffer == [], "the next step would merge it"
    table = bench.table

    def key(job: Job) -> tuple[int, float, int]:
        left = (
            job.spec.prompt_tokens * SPEED.prefill_token_s
            + float(job.spec.hints.expected_tokens or 0) * SPEED.token_s
        )
        return int(job.spec.hints.urgency or 0), left, int(table.sequence[job.row])

    expected = [job.job_id for job in sorted(table, key=key)[:batch]]
    for _ in range(3):
        running, _ = bench.plan(max_batch=batch, token_budget=10**6, free_blocks=10**6, max_resident=10**6)
        assert running == expected


def test_level_before_length_and_length_before_arrival() -> None:
    bench = Bench()
    for name, level, tokens in (
        ("a", 3, 10.0),
        ("b", 1, 300.0),
        ("c", 1, 20.0),
        ("d", 1, 20.0),
        ("e", 0, 999.0),
    ):
        bench.waits(name, level, tokens)
    assert bench.plan(max_batch=5)[0] == ["e", "c", "d", "b", "a"]


def test_what_is_done_counts_no_more() -> None:
    bench = Bench()
    long = bench.runs("long", 1, 300.0)
    bench.runs("short", 1, 100.0)
    assert bench.plan()[0] == ["short", "long"]
    bench.table.output_tokens[long.row] = 290
    assert bench.plan()[0] == ["long", "short"]


def test_a_more_urgent_newcomer_takes_the_place_of_a_running_one_at_once() -> None:
    bench = Bench()
    for name in range(4):
        bench.runs(name, 3)
    bench.waits("urgent", 0, 500.0)
    running, evicted = bench.plan(max_batch=4)
    assert running == ["urgent", 0, 1, 2]
    assert evicted == [], "the displaced one keeps its cache"


def test_a_changed_urgency_counts() -> None:
    bench = Bench()
    first, second = bench.waits("first", 2), bench.waits("second", 2)
    assert bench.plan(max_batch=1)[0] == ["first"]
    bench.table.urgency[second.row] = 0
    bench.discipline.due_changed(second, 1.0)
    assert bench.plan(max_batch=1)[0] == ["second"]
    bench.discipline.finished(second, 1.0)
    bench.table.remove("second")
    assert bench.plan(max_batch=1)[0] == ["first"]
    assert first.row == 0


def test_the_relative_constraint_of_eq2() -> None:
    """A request that finishes before another is no less urgent, or was done before the other came."""
    rng = np.random.default_rng(8)
    works = []
    for name in range(40):
        tokens = int(rng.integers(2, 30))
        spec = JobSpec(
            name, float(rng.uniform(0.0, 6.0)), prompt_tokens=int(rng.integers(1, 100)), segmented=False,
            hints=RequestHints(urgency=int(rng.integers(5)), expected_tokens=float(tokens)),
        )  # fmt: skip
        works.append(Work(spec, [(tokens, 0.0, False)]))
    driver = StepDriver("semantic", works, Machine(max_batch=1), twice=False).run()
    fates = list(driver.fates.values())
    violations = [
        (one, other)
        for one in fates
        for other in fates
        if one.end_s < other.end_s
        and one.end_s >= other.work.spec.arrival_s + 0.2  # a step or two that had begun
        and (one.work.spec.hints.urgency or 0) > (other.work.spec.hints.urgency or 0)
    ]
    assert not violations
    assert {fate.outcome for fate in fates} == {"complete"}


# ---------------------------------------------------------------- stages (Alg. 2)


def test_no_newcomer_prefills_while_the_most_important_decodes() -> None:
    bench = Bench()
    bench.runs("important", 1)
    bench.runs("other", 4)
    bench.waits("new", 2)
    assert bench.plan()[0] == ["important", "other"]


def test_all_join_while_the_most_important_prefills() -> None:
    bench = Bench()
    bench.runs("running", 2)
    bench.waits("most important", 1)
    bench.waits("another", 3)
    assert bench.plan()[0] == ["most important", "running", "another"]


def test_a_half_computed_prompt_waits_too_and_goes_on_afterwards() -> None:
    bench = Bench()
    important = bench.runs("important", 1)
    half = bench.runs("half", 2)
    bench.table.prefill_left[half.row] = 30
    assert bench.plan()[0] == ["important"]
    bench.discipline.finished(important, 1.0)
    bench.table.remove("important")
    assert bench.plan()[0] == ["half"]


def test_a_resumed_generation_decodes_and_joins_at_once() -> None:
    bench = Bench()
    bench.runs("important", 1)
    bench.parks("robot", 3, resume_s=0.9)
    bench.waits("new", 2)
    assert bench.plan(now=1.0)[0] == ["important", "robot"]


def test_without_stage_awareness_stages_mix() -> None:
    bench = Bench(Semantic(stage_aware=False))
    bench.runs("important", 1)
    bench.waits("new", 2)
    assert bench.plan()[0] == ["important", "new"]


# ---------------------------------------------------------------- memory (Alg. 3, 4)


def test_the_least_important_with_most_to_do_gives_way() -> None:
    bench = Bench()
    bench.runs("2 long", 2, 300.0)
    bench.runs("3 short", 3, 10.0)
    bench.runs("3 long", 3, 300.0)
    bench.waits("urgent", 0, prompt_tokens=16 * 3)
    assert bench.plan(free_blocks=0) == (["urgent", "2 long", "3 short"], ["3 long"])
    bench.waits("urgent too", 0, prompt_tokens=16 * 5)
    assert bench.plan(free_blocks=0) == (["urgent", "urgent too"], ["3 long", "3 short", "2 long"])


def test_nobody_takes_from_one_above() -> None:
    bench = Bench()
    bench.runs("running", 1)
    bench.parks("parked", 0, resume_s=9.0)
    bench.waits("new", 1, 400.0)
    bench.table.prefill_left[bench.table["running"].row] = 5  # so that stages do not matter
    assert bench.plan(free_blocks=1) == (["running"], [])


def test_parked_ones_go_before_running_ones_of_their_own_level() -> None:
    bench = Bench()
    bench.runs("running", 2, 300.0)
    bench.parks("parked", 2, resume_s=9.0)
    bench.waits("new", 1)
    assert bench.plan(free_blocks=0) == (["new", "running"], ["parked"])


def test_rather_a_more_urgent_parked_one_gives_way_than_that_nobody_runs() -> None:
    bench = Bench()
    bench.parks("waits for a value", 0, resume_s=math.inf)
    bench.parks("parked", 0, resume_s=9.0)
    bench.waits("new", 4)
    running, evicted = bench.plan(free_blocks=0)
    assert running == ["new"]
    assert len(evicted) == 1


def test_an_evicted_one_waits_with_its_new_remaining_time() -> None:
    bench = Bench()
    controller = EngineController(bench.discipline, SPEED)
    bench.table = controller.table
    job = bench.runs("evicted", 2, 20.0)
    bench.table.output_tokens[job.row] = 15
    bench.waits("waiting", 2, 12.0, prompt_tokens=16)
    assert bench.plan(max_batch=1)[0] == ["evicted"]
    controller.evict(job, 2000, 1.0)
    assert bench.plan(max_batch=1)[0] == ["waiting"]
    assert bench.plan(max_batch=2)[0] == ["waiting", "evicted"]


def test_evicted_while_parked_it_comes_back_when_due() -> None:
    bench = Bench()
    controller = EngineController(bench.discipline, SPEED)
    bench.table = controller.table
    job = bench.parks("robot", 1, resume_s=9.0)
    job.parked = True
    bench.table.due_s[job.row] = 10.0
    controller.evict(job, 100, 1.0)
    resume = float(bench.table.resume_s[job.row])
    assert 8.0 < resume < 10.0
    assert bench.plan(now=resume - 0.01) == ([], [])
    assert bench.plan(now=resume) == (["robot"], [])


@pytest.mark.parametrize(
    ("swap", "kept"), [(1e-5, 56), (1e-2, None), (math.inf, None)], ids=["cheap", "dear", "impossible"]
)
def test_a_cache_is_saved_when_loading_is_cheaper_than_computing(swap: float, kept: int | None) -> None:
    bench = Bench()
    bench.runs("victim", 4)
    bench.waits("urgent", 0)
    plan = bench.discipline.compose(bench.table, limits(free_blocks=0, swap_s_per_token=swap))
    assert plan.evict == ["victim"]
    assert plan.keep.get("victim") == kept


def test_one_by_one_prompt_and_output_are_decided_apart() -> None:
    cost = SemanticCacheCostModel(0.0, 1e-4, 3e-4, 1e-7, 0.02)  # prompts are cheap to compute, output is not
    bench = Bench(Semantic(cost, one_by_one=True))
    job = bench.runs("victim", 4)
    bench.table.context_tokens[job.row] += 7
    bench.waits("urgent", 0)
    assert bench.discipline.compose(bench.table, limits(free_blocks=0)).keep == {"victim": 7}


# ---------------------------------------------------------------- what is not known


def test_levels_are_guessed_from_haste_but_never_the_most_urgent() -> None:
    bench = Bench()
    bench.waits("plain", None)
    bench.waits("robot", None, segmented=True, utility=NORMAL, segment_tokens=4000)
    bench.waits("hurried robot", None, segmented=True, utility=URGENT, segment_tokens=4000)
    for level in range(5):
        bench.waits(level, level, 60.0)
    order = bench.plan(max_batch=8)[0]
    assert order == [0, "hurried robot", 1, 2, "robot", 3, "plain", 4]


@pytest.mark.parametrize("urgency", [-1, 5, 2.0, True, "1"])
def test_an_urgency_outside_the_levels_is_refused_at_the_door(urgency: Any) -> None:
    controller = EngineController(Semantic(), SPEED)
    with pytest.raises(InvalidInput, match="urgency must be 0") as caught:
        controller.arrive(JobSpec("a", 0.0, hints=RequestHints(urgency=urgency)))
    assert caught.value.where == "urgency"
    assert "a" not in controller.table


def test_lengths_are_learned_where_none_is_predicted() -> None:
    lengths, table = LengthEstimates(prior_tokens=100.0), JobTable()
    estimate = table.add(JobSpec("known", 0.0, hints=RequestHints(expected_tokens=7.0), segmented=False))
    unknown = table.add(JobSpec("unknown", 0.0, segmented=False))
    robot = table.add(JobSpec("robot", 0.0, hints=RequestHints(expected_tokens=40.0), segment_tokens=12))
    for job in (estimate, unknown, robot):
        lengths.arrived(job)
    table.output_tokens[robot.row], table.segment_tokens[robot.row] = 20, 5
    assert lengths.left(table, np.arange(3)).tolist() == [7.0, 100.0, 7.0]
    table.output_tokens[:] = 300
    assert lengths.left(table, np.arange(3)).tolist() == [1.0, 1.0, 1.0]
    for outcome in ["cancelled"] * 100 + ["complete"] * 300:
        estimate.outcome = outcome
        lengths.finished(estimate)
    assert lengths.mean_tokens == pytest.approx(300.0, rel=0.01)
    fresh = table.add(JobSpec("fresh", 0.0, segmented=False))
    lengths.arrived(fresh)
    assert lengths.left(table, np.array([fresh.row]))[0] == pytest.approx(lengths.mean_tokens)
