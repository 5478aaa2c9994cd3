"""Cache or recompute in the simulator: what a plan keeps of an evicted cache is moved, the rest is computed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim_cases import CheckedSimulator, profile, random_tasks, task

from examples import examples
from timely.core.job import JobTable
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.semantic.cache_cost import SemanticCacheCostModel
from timely.disciplines.semantic.discipline import Semantic
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.step_time.profile import StepTimeProfile

approx = pytest.approx


def machine(swap: float = 2e-4, blocks: int = 11) -> StepTimeProfile:
    return profile(base=0.01, blocks=blocks, swap=swap, per_prefill_token=1e-4, per_prefill_token_sq=2e-6)


class Keeping(Semantic):
    """Semantic scheduling that saves as many tokens as it is told."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    def _save(self, table: JobTable, limits: StepLimits, plan: StepPlan) -> None:
        plan.keep.update({job_id: self.kept for job_id in plan.evict if self.kept})


def displaced() -> list[PlannedTask]:
    """A long request of no urgency loses its cache to an urgent one, and comes back."""
    return [
        task(0, 0.0, ((9, 0.0),), prompt_tokens=150, urgency=4),
        task(1, 0.06, ((3, 0.0),), prompt_tokens=160, urgency=0),
    ]


def serve(discipline: Semantic, swap: float = 2e-4, tasks: list[PlannedTask] | None = None) -> BackendRun:
    options = ReplayOptions(mode="whole", journal=False)
    return CheckedSimulator(options, machine(swap), discipline=discipline).run(tasks or displaced())


def test_every_split_takes_what_moving_and_computing_take() -> None:
    """All numbers of tokens kept, one run each, against the sum by hand; and the closed form is the best of them."""
    lost = int(serve(Keeping(0)).counters["recomputed_tokens"])
    assert lost >= 150
    nothing_computed = serve(Keeping(lost)).end_s
    ends = {}
    for kept in range(1, lost + 1):
        result = serve(Keeping(kept))
        again = lost - kept
        assert result.counters["evictions"] == 1
        assert result.counters["swapped_tokens"] == 2 * kept
        assert result.counters["recomputed_tokens"] == again
        ends[kept] = result.end_s
        # The first ``again`` tokens attend to themselves only; then the newest one, on top of all.
        squares = again**2 + (lost + 1) ** 2 - lost**2
        computing_s = 1e-4 * (again + 1) + 2e-6 * squares if again else 0.0
        assert result.end_s - nothing_computed == approx(computing_s - 2 * 2e-4 * again, abs=1e-9)
    best = SemanticCacheCostModel(2e-6, 1e-4, 2e-4, 0.0, 0.01, 2e-4).keep_context(lost)
    assert 1 < best < lost, "a real split: neither all nor nothing"
    assert ends[best] == approx(min(ends.values()), abs=1e-9)


@pytest.mark.parametrize("swap", [5e-5, 1e-4, 2e-4, 3e-4])
def test_semantic_with_the_machines_coefficients_keeps_what_brute_force_would(swap: float) -> None:
    result = serve(Semantic(SemanticCacheCostModel(2e-6, 1e-4, swap, 0.0, 0.01, swap)), swap)
    lost = int(serve(Keeping(0), swap).counters["recomputed_tokens"])
    best = min(serve(Keeping(kept), swap).end_s for kept in range(1, lost + 1))
    # What the model leaves out: the newest token is computed with the gap, or decoded where there is none.
    newest_s = 1e-4 + 2e-6 * ((lost + 1) ** 2 - lost**2)
    assert best - 1e-9 <= result.end_s <= best + newest_s


def test_saved_tokens_are_not_moved_when_their_blocks_are_found_again() -> None:
    """The urgent one needs little: most of the blocks that the victim lost are still there."""
    tasks = [
        task(0, 0.0, ((20, 0.0),), prompt_tokens=150, urgency=4),
        task(1, 0.06, ((3, 0.0),), prompt_tokens=60, urgency=0),
    ]
    all_kept = serve(Keeping(10_000), tasks=tasks)
    assert all_kept.counters["evictions"] == 1
    assert all_kept.counters["recomputed_tokens"] == 0
    # Out went all of the context, some 150 tokens; in came only what the urgent one's four blocks had overwritten.
    assert 150 <= all_kept.counters["swapped_tokens"] <= 150 + 2 + 4 * 16


@pytest.mark.process
@settings(max_examples=examples(40))
@example(269, 1, 14, 100_000)
@given(
    st.integers(0, 1000), st.integers(0, 140), st.sampled_from([14, 20, 60]), st.sampled_from([24, 100_000])
)
def test_books_balance_whatever_is_kept(seed: int, kept: int, blocks: int, budget: int) -> None:
    """Gaps filled in chunks, evicted again half-way, prefixes shared: everything is served, nothing is lost."""
    tasks = random_tasks(seed, 25)
    for mode in ("segmented", "whole"):
        options = ReplayOptions(mode=mode, journal=False, token_budget=budget, max_batch=4)
        result = CheckedSimulator(options, machine(blocks=blocks), discipline=Keeping(kept)).run(tasks)
        assert all(record.outcome == "complete" for record in result.records)
        assert all(record.output_tokens == record.task.output_tokens for record in result.records)
        assert result.counters["swapped_tokens"] <= 2 * kept * result.counters["evictions"]
