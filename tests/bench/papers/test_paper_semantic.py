"""The reproduction of semantic scheduling, small: its workload and its measures are what they say they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.semantic import evaluation, figures, tables
from timely.bench.papers.semantic import spikes as semantic
from timely.disciplines.basic import Fcfs
from timely.disciplines.semantic.constants import BUCKET_TOKENS, SMALL_BATCH, SPIKE_REQUESTS
from timely.engines.step_time.profile import load_step_profile

pytestmark = pytest.mark.paper


def test_spikes_are_those_of_the_published_simulation() -> None:
    tasks = [task for seed in range(20) for task in semantic.paper_spikes(seed, 20, 0.1)]
    assert {task.hints.urgency for task in tasks} == set(range(5))
    assert {round(task.arrival_s, 6) for task in tasks} <= {round(0.1 * k, 6) for k in range(20)}
    assert len(tasks) / 20 == pytest.approx(20 * 10, rel=0.1)
    tokens = [task.output_tokens for task in tasks]
    assert (min(tokens), max(tokens)) == (1, 499)
    assert np.mean(tokens) == pytest.approx(250, rel=0.05)
    for task in tasks:
        assert task.hints.expected_tokens is not None
        assert abs(task.hints.expected_tokens - task.output_tokens) <= BUCKET_TOKENS


def test_normalized_waiting_by_hand() -> None:
    """Two requests one after the other: 12 ms a step, prompts in a step of their own."""
    tasks = semantic.paper_spikes(1, 3, 1.0)[:2]
    waits_by_level = semantic.paper_waiting(tasks, Fcfs())
    each, pooled = waits_by_level[11], waits_by_level[5]
    total = sum(task.output_tokens for task in tasks)
    waits = []
    for level in range(5):
        mine = [task for task in tasks if task.hints.urgency == level]
        if mine:
            waits.append(
                (
                    waits_by_level[level] * sum(t.output_tokens for t in mine),
                    waits_by_level[6 + level],
                    len(mine),
                )
            )
    assert sum(wait for wait, _, _ in waits) / total == pytest.approx(pooled)
    assert sum(mean * count for _, mean, count in waits) / 2 == pytest.approx(each)
    assert pooled > 0.0119


def test_waiting_counts_from_the_true_arrival_and_by_the_true_level() -> None:
    tasks = semantic.paper_spikes(2, 6, 0.1)
    late = semantic.with_paper_predictions(
        tasks, levels=[4] * len(tasks), ready_s=[task.arrival_s + 5.0 for task in tasks]
    )
    assert [task.arrival_s for task in late] == sorted(task.arrival_s for task in late)
    plain, delayed = (
        semantic.paper_waiting(tasks, Fcfs()),
        semantic.paper_waiting(tasks, Fcfs(), annotated_tasks=late),
    )
    tokens = sum(task.output_tokens for task in tasks)
    assert delayed[5] - plain[5] == pytest.approx(5.0 * len(tasks) / tokens)
    for level in {task.hints.urgency for task in tasks}:
        assert level is not None
        assert delayed[level] > plain[level]


def test_figure_4_runs_on_the_papers_machines_and_batches() -> None:
    """The A5000 of Fig. 4 has the 4B model and 8 places; it was judged with the 7B model and 16."""
    assert {machine for machine, _ in figures.SPIKE_PAPER} == {"A100-4B", "A100-7B", "A5000-4B"}
    levels = semantic.measure_paper_spike("A5000-4B", 0.1, SPIKE_REQUESTS, "semantic", SMALL_BATCH, 1)
    assert figures.paper_level_waiting([levels], 0, each=True) == [pytest.approx(0.37, rel=0.15)]


def test_orders_on_the_papers_batches() -> None:
    tasks = semantic.paper_spikes(3, 20, 0.1)
    waits_by_level = {
        name: semantic.paper_waiting(tasks, semantic.make_paper_discipline(name))
        for name in ("semantic", "staged-hpjf", "staged-fcfs")
    }
    assert waits_by_level["semantic"][0] < waits_by_level["staged-hpjf"][0] < waits_by_level["staged-fcfs"][0]
    # No system serves the urgent sooner than a machine that serves only them.
    urgent = [task for task in tasks if task.hints.urgency == 0]
    alone = semantic.paper_waiting(urgent, semantic.make_paper_discipline("semantic-mixed"))
    mixed = semantic.paper_waiting(tasks, semantic.make_paper_discipline("semantic-mixed"))
    assert alone[0] <= mixed[0] * 1.001
    assert mixed[0] < waits_by_level["semantic"][0]


def test_memory_tight_settings_evict_and_serve_all() -> None:
    by_cost, off = (semantic.measure_paper_tight("A100-4B", variant, 1) for variant in ("cost", "off"))
    assert by_cost[2] > 20.0
    assert off[2] < by_cost[2]


@pytest.mark.parametrize("context", [16, 200, 400])
def test_what_is_kept_of_a_cache_costs_least_in_the_simulator_s_own_terms(context: int) -> None:
    """Section 3.3 with saving and loading: no other split of the context takes less time."""
    profile = load_step_profile(semantic.MACHINES["A100-4B"])
    step, swap_s = profile.step_s, profile.kv.swap_s_per_token

    def taken_s(kept: int) -> float:
        again = context - kept
        return step.per_prefill_token_sq * again**2 + step.per_prefill_token * again + 2.0 * swap_s * kept

    best = min(range(context + 1), key=taken_s)
    assert taken_s(semantic.paper_quadratic_cost("A100-4B").keep_context(context)) == pytest.approx(
        taken_s(best), rel=1e-3
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_evaluation_runs_and_measures_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(figures, "CONCURRENCY", (5, 20))
    monkeypatch.setattr(figures, "SPIKE_REQUESTS", 20)
    monkeypatch.setattr(figures, "RATES", (0.1, 0.9))
    monkeypatch.setattr(semantic, "WORKLOADS_A_SEED", 1)
    checkpoints = BenchCheckpoints()
    rows = evaluation.run_paper_evaluation(PaperEvaluation([1, 2], tmp_path, checkpoints=checkpoints))
    by_name = {row["id"]: row for row in rows}
    assert len(by_name) == len(rows)
    for name in figures.BASELINES:
        assert by_name[f"fig2c.{name}"]["ours"] > 1.0
    assert by_name["fig3"]["verdict"] == "not exercised"
    assert len(tables.PAPER_1["full"]) == len(tables.PAPER_2["full"]) == len(tables.NAMES)
    kept = len(checkpoints)
    assert evaluation.run_paper_evaluation(PaperEvaluation([1, 2], tmp_path, checkpoints=checkpoints)) == rows
    assert len(checkpoints) == kept
