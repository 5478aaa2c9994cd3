"""The reproduction of LAPS-SD, small: its workload and its measures are what they say they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timely.bench.papers.laps_sd import evaluation, figures, real_texts
from timely.bench.papers.laps_sd import setting as laps
from timely.bench.papers.run_context import PaperEvaluation
from timely.core.errors import EngineFailed
from timely.disciplines.basic import Fcfs
from timely.disciplines.laps_sd.baselines import Las
from timely.engines.replay_types import PlannedTask

pytestmark = pytest.mark.paper


def test_a_switch_costs_what_the_papers_fig_2_says() -> None:
    """A request with 500 output tokens, 60 of prompt and half its drafts accepted: 14.21% of its inference time."""
    inference_s = 500 / (laps.DRAFTS * 0.5 + 1) * (laps.VERIFY_S + laps.DRAFTS * laps.DRAFT_S)
    assert 2 * laps.SWAP_S * (500 + 60) / inference_s == pytest.approx(0.1421, rel=0.1)


def test_when_a_rate_has_settled() -> None:
    assert laps.paper_acceptance_settled([0.5, 0.5, 0.5], 0.05) == 10
    assert laps.paper_acceptance_settled([0.9, 0.2, 0.5, 0.52, 0.5], 0.05) == 30
    assert laps.paper_acceptance_settled([0.5, 0.5, 0.9, 0.5], 0.05) == 40


def test_acceptance_so_far_ends_where_the_request_s_is() -> None:
    curves = [laps.measure_paper_acceptance(0.7, seed) for seed in range(30)]
    assert {len(curve) for curve in curves} == {laps.SHOWN_TOKENS // 10}
    ends = [curve[-1] for curve in curves]
    assert np.mean(ends) == pytest.approx(0.7, abs=0.03)
    assert np.std([curve[0] for curve in curves]) > 2.0 * np.std(ends), "restless at first"


def test_the_workload_is_what_it_says() -> None:
    dataset = laps.DATASETS["MBPP"]
    tasks = [task for seed in range(20) for task in laps.paper_workload(dataset, 50, seed)]
    assert np.mean([task.output_tokens for task in tasks]) == pytest.approx(dataset.output, rel=0.02)
    acceptances = np.array([task.acceptance for task in tasks], float)
    assert acceptances.mean() == pytest.approx(dataset.acceptance, abs=0.03)
    assert acceptances.std() == pytest.approx(dataset.acceptance_spread, abs=0.03)
    errors = [abs((task.hints.expected_tokens or 0.0) / task.output_tokens - 1.0) for task in tasks]
    assert np.mean(errors) == pytest.approx(laps.LENGTH_ERROR, rel=0.1)


def test_latency_of_one_request_by_hand() -> None:
    (task,) = laps.paper_workload(laps.DATASETS["CP"], 1, 3)
    taken = laps.laps_paper_latency_s([task], Fcfs(), 3)
    rounds = (taken - 1.5e-4 * task.prompt_tokens - laps.VERIFY_S) / (
        laps.VERIFY_S + laps.DRAFTS * laps.DRAFT_S
    )
    assert rounds == pytest.approx(round(rounds), abs=1e-6)
    expected = (task.output_tokens - 1) / (laps.DRAFTS * (task.acceptance or 0.0) + 1.0)
    assert rounds == pytest.approx(expected, rel=0.25)


def test_the_clairvoyant_is_ahead_and_switching_hurts_las() -> None:
    tasks = laps.paper_workload(laps.DATASETS["CP"], 12, 5)
    latency_s = {
        name: laps.laps_paper_latency_s(tasks, laps.make_paper_discipline(name, tasks), 5)
        for name in ("clairvoyant", "laps-sd", "las", "las-fine", "fcfs")
    }
    assert latency_s["clairvoyant"] <= min(latency_s.values())
    assert latency_s["laps-sd"] < latency_s["las"] < latency_s["las-fine"]
    # No quantum is LAS's best: it does better with every longer one, up to first come, first served.
    long_s, endless_s = (laps.laps_paper_latency_s(tasks, Las(quantum_s), 5) for quantum_s in (4.0, 1e9))
    assert latency_s["las"] > long_s > endless_s == latency_s["fcfs"]


def test_what_was_not_served_is_no_latency() -> None:
    (task,) = laps.paper_workload(laps.LapsPaperDataset(100_000, 250, 0.1, 0.5), 1, 0)
    too_long = PlannedTask(job=0, arrival_s=0.0, plan=task.plan, prompt_tokens=1_000_000, acceptance=0.5)
    with pytest.raises(EngineFailed, match="not served"):
        laps.laps_paper_latency_s([too_long], Fcfs(), 0)


def test_estimates_are_noted_when_they_are_there() -> None:
    tasks = laps.paper_workload(laps.DATASETS["CP"], 10, 2)
    watched = laps.PaperRecordingLapsSd(rounds=12, spread=0.05)
    laps.laps_paper_latency_s(tasks, watched, 2)
    assert len(watched.errors) == len(watched.estimates) >= 8
    assert all(at >= 12 for _, at in watched.estimates.values())
    assert np.mean(watched.errors) < 0.3


def test_drafts_by_prompt_lookup_are_counted_by_hand() -> None:
    """The prompt holds "a b c d e": after "a b" the draft is "c d e", of which two are right."""
    prompt, answer = ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "x"]
    # Rounds: "a" and "b" without a draft, then "c d" accepted and "x" verified.
    assert real_texts.paper_draft_acceptance(prompt, answer) == pytest.approx(2 / (laps.DRAFTS * 3))
    assert real_texts.paper_draft_acceptance([], ["a"]) == 0.0


def test_the_packaged_model_s_answers_are_shipped() -> None:
    """``timely bench drafts`` measured them; drafts and n-grams are those of the evaluation."""
    samples = real_texts.paper_text_samples("")
    assert len(samples) > 50
    assert all(tokens >= real_texts.SHORTEST_TOKENS and 0.0 <= rate < 1.0 for _, tokens, rate in samples)
    assert 0.05 < np.mean([rate for _, _, rate in samples]) < 0.3
    assert real_texts.measure_paper_texts("", "lp-sjf", 1) > 0.0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_evaluation_runs_and_is_ahead_of_las(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(figures, "COUNTS", (6, 12))
    monkeypatch.setattr(figures, "QUEUES", (2, 4))
    rows = {row["id"]: row for row in evaluation.run_paper_evaluation(PaperEvaluation([1, 2], tmp_path))}
    assert rows["fig5.las"]["ours"] > 10.0
    assert rows["fig2.switch"]["verdict"] == "by construction"
    assert rows["real.lp-sjf"]["verdict"] == "not exercised", "no dataset at hand"
    assert rows["fig5.prior"]["subject"] == "ours"
