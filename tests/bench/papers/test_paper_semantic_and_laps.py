"""The reproductions of semantic scheduling and LAPS-SD, small: workloads and measures are what they say they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from timely.bench.checkpoints import Checkpoints
from timely.bench.papers import old_claims as claims
from timely.bench.papers.laps_sd import evaluation as laps
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.semantic import evaluation as semantic
from timely.core.errors import EngineFailed
from timely.disciplines.basic import Fcfs

FIELDS = {"id", "what", "paper", "ours", "unit", "holds", "note", "interval", "verdict", "subject"}


def check(found: list[claims.Claim]) -> dict[str, claims.Claim]:
    for row in found:
        assert set(row) == FIELDS
        assert row["what"]
        assert row["holds"] is None or type(row["holds"]) is bool, "JSON knows no numpy"
        for number in (row["paper"], row["ours"]):
            assert number is None or (type(number) is float and math.isfinite(number))
    names = [row["id"] for row in found]
    assert len(set(names)) == len(names)
    return {row["id"]: row for row in found}


# ---------------------------------------------------------------- semantic scheduling


def test_spikes_are_those_of_the_published_simulation() -> None:
    tasks = [task for seed in range(20) for task in semantic.spikes(seed, 20, 0.1)]
    assert {task.hints.urgency for task in tasks} == set(range(5))
    assert {round(task.arrival_s, 6) for task in tasks} <= {round(0.1 * k, 6) for k in range(20)}
    assert len(tasks) / 20 == pytest.approx(20 * 10, rel=0.1)
    tokens = [task.output_tokens for task in tasks]
    assert (min(tokens), max(tokens)) == (1, 499)
    assert np.mean(tokens) == pytest.approx(250, rel=0.05)
    for task in tasks:
        assert task.hints.expected_tokens is not None
        assert abs(task.hints.expected_tokens - task.output_tokens) <= semantic.BUCKET


def test_normalized_waiting_by_hand() -> None:
    """Two requests one after the other: 12 ms a step, prompts in a step of their own."""
    tasks = semantic.spikes(1, 3, 1.0)[:2]
    found = semantic.waiting(tasks, Fcfs())
    each, pooled = found[11], found[5]
    total = sum(task.output_tokens for task in tasks)
    waits = []
    for level in range(5):
        mine = [task for task in tasks if task.hints.urgency == level]
        if mine:
            waits.append((found[level] * sum(t.output_tokens for t in mine), found[6 + level], len(mine)))
    assert sum(wait for wait, _, _ in waits) / total == pytest.approx(pooled)
    assert sum(mean * count for _, mean, count in waits) / 2 == pytest.approx(each)
    assert pooled > 0.0119


def test_waiting_counts_from_the_true_arrival_and_by_the_true_level() -> None:
    tasks = semantic.spikes(2, 6, 0.1)
    late = semantic.with_predictions(
        tasks, levels=[4] * len(tasks), ready_s=[task.arrival_s + 5.0 for task in tasks]
    )
    assert [task.arrival_s for task in late] == sorted(task.arrival_s for task in late)
    plain, delayed = semantic.waiting(tasks, Fcfs()), semantic.waiting(tasks, Fcfs(), seen=late)
    tokens = sum(task.output_tokens for task in tasks)
    assert delayed[5] - plain[5] == pytest.approx(5.0 * len(tasks) / tokens)
    for level in {task.hints.urgency for task in tasks}:
        assert level is not None
        assert delayed[level] > plain[level]


def test_orders_on_the_papers_batches() -> None:
    tasks = semantic.spikes(3, 20, 0.1)
    found = {
        name: semantic.waiting(tasks, semantic.make(name))
        for name in ("semantic", "staged-hpjf", "staged-fcfs")
    }
    assert found["semantic"][0] < found["staged-hpjf"][0] < found["staged-fcfs"][0]
    # Nobody serves the urgent sooner than a machine that serves nobody else.
    urgent = [task for task in tasks if task.hints.urgency == 0]
    alone = semantic.waiting(urgent, semantic.make("semantic-mixed"))
    mixed = semantic.waiting(tasks, semantic.make("semantic-mixed"))
    assert alone[0] <= mixed[0] * 1.001
    assert mixed[0] < found["semantic"][0]


@pytest.mark.paper
def test_semantics_evaluation_runs_and_is_ahead_of_its_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(semantic, "CONCURRENCY", (5, 20))
    monkeypatch.setattr(semantic, "RATES", (0.1, 0.9))
    monkeypatch.setattr(semantic, "BATCHES", (4, 64))
    monkeypatch.setattr(semantic, "MOST", 20)
    told: list[str] = []
    pieces = Checkpoints()
    found = check(semantic.run(Evaluation([1, 2], tmp_path, told.append, pieces)))
    for name in semantic.BASELINES:
        assert found[f"fig2c.{name}"]["ours"] > 1.0
        assert found[f"fig2c.{name}.equal"]["ours"] > 1.0
    assert found["fig2a.urgency0"]["holds"]
    assert found["table1.quick"]["holds"]
    for figure in (
        "fig2a",
        "fig2b",
        "fig2c_A100-4B_gap0.1",
        "fig2d_A100-4B_gap1",
        "table1_caption",
        "table2",
    ):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
    assert told
    kept = len(pieces)
    assert check(semantic.run(Evaluation([1, 2], tmp_path, checkpoints=pieces))) == found
    assert len(pieces) == kept, "nothing is measured twice"


# ---------------------------------------------------------------- LAPS-SD


def test_a_switch_costs_what_the_papers_fig_2_says() -> None:
    """A request with 500 output tokens, 60 of prompt and half its drafts accepted: 14.21% of its inference time."""
    inference_s = 500 / (laps.DRAFTS * 0.5 + 1) * (laps.VERIFY_S + laps.DRAFTS * laps.DRAFT_S)
    assert 2 * laps.SWAP_S * (500 + 60) / inference_s == pytest.approx(0.1421, rel=0.1)


def test_when_a_rate_has_settled() -> None:
    assert laps.settled([0.5, 0.5, 0.5], 0.05) == 10
    assert laps.settled([0.9, 0.2, 0.5, 0.52, 0.5], 0.05) == 30
    assert laps.settled([0.5, 0.5, 0.9, 0.5], 0.05) == 40


def test_acceptance_so_far_ends_where_the_request_s_is() -> None:
    curves = [laps._acceptance_so_far(0.7, seed) for seed in range(30)]
    assert {len(curve) for curve in curves} == {laps.SHOWN_TOKENS // 10}
    ends = [curve[-1] for curve in curves]
    assert np.mean(ends) == pytest.approx(0.7, abs=0.03)
    assert np.std([curve[0] for curve in curves]) > 2.0 * np.std(ends), "restless at first"


def test_the_workload_is_what_it_says() -> None:
    dataset = laps.DATASETS["MBPP"]
    tasks = [task for seed in range(20) for task in laps.workload(dataset, 50, seed)]
    assert np.mean([task.output_tokens for task in tasks]) == pytest.approx(dataset.output, rel=0.02)
    assert np.mean([task.acceptance for task in tasks]) == pytest.approx(dataset.acceptance, abs=0.03)
    assert np.std([task.acceptance for task in tasks]) == pytest.approx(dataset.acceptance_spread, abs=0.03)
    errors = [abs((task.hints.expected_tokens or 0.0) / task.output_tokens - 1.0) for task in tasks]
    assert np.mean(errors) == pytest.approx(laps.LENGTH_ERROR, rel=0.1)


def test_latency_of_one_request_by_hand() -> None:
    (task,) = laps.workload(laps.DATASETS["CP"], 1, 3)
    taken = laps.latency_s([task], Fcfs(), 3)
    rounds = (taken - 1.5e-4 * task.prompt_tokens - laps.VERIFY_S) / (
        laps.VERIFY_S + laps.DRAFTS * laps.DRAFT_S
    )
    assert rounds == pytest.approx(round(rounds), abs=1e-6)
    expected = (task.output_tokens - 1) / (laps.DRAFTS * (task.acceptance or 0.0) + 1.0)
    assert rounds == pytest.approx(expected, rel=0.25)


def test_the_clairvoyant_is_ahead_and_switching_hurts_las() -> None:
    tasks = laps.workload(laps.DATASETS["CP"], 12, 5)
    found = {
        name: laps.latency_s(tasks, laps.make(name, tasks), 5)
        for name in ("clairvoyant", "laps-sd", "las", "las-fine", "fcfs")
    }
    assert found["clairvoyant"] <= min(found.values())
    assert found["laps-sd"] < found["las"] < found["las-fine"]


def test_what_was_not_served_is_no_latency() -> None:
    (task,) = laps.workload(laps.Dataset(100_000, 250, 0.1, 0.5), 1, 0)
    too_long = laps.PlannedTask(job=0, arrival_s=0.0, plan=task.plan, prompt_tokens=1_000_000, acceptance=0.5)
    with pytest.raises(EngineFailed, match="not served"):
        laps.latency_s([too_long], Fcfs(), 0)


def test_estimates_are_noted_when_they_are_there() -> None:
    tasks = laps.workload(laps.DATASETS["CP"], 10, 2)
    watched = laps.Watched(rounds=12, spread=0.05)
    laps.latency_s(tasks, watched, 2)
    assert len(watched.errors) == len(watched.estimates) >= 8
    assert all(at >= 12 for _, at in watched.estimates.values())
    assert np.mean(watched.errors) < 0.3


@pytest.mark.paper
def test_laps_sds_evaluation_runs_and_is_ahead_of_las(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(laps, "COUNTS", (6, 12))
    monkeypatch.setattr(laps, "QUEUES", (2, 4))
    monkeypatch.setattr(laps, "VARIED", 8)
    found = check(laps.run(Evaluation([1, 2], tmp_path)))
    assert found["fig5.las"]["ours"] > 10.0
    assert found["fig7.error"]["ours"] < 12.0
    for figure in ("fig2", "fig3", "fig5_CP", "fig6_10_first1", "fig7", "sensitivity"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
