"""The reproduction of TimelyLLM: its parts by themselves, the bounds really bound, and one whole run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from timely.bench.bounds import (
    MAX_TASKS,
    IdleEngineResponses,
    bench_clairvoyant_bound,
    benchmark_min_token_s,
)
from timely.bench.checkpoints import BenchCheckpoints, BenchOutOfTime
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.timelyllm import drones, other_robots, runs
from timely.bench.papers.timelyllm import evaluation as paper
from timely.bench.papers.timelyllm.report import PaperReport, paper_difference
from timely.cli.bench.paper import cli_claim_row
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.utility import NORMAL, URGENT
from timely.disciplines import registry
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile

pytestmark = pytest.mark.paper

PROFILE = load_step_profile("rtx4090-llama3-8b")
VERDICTS = {"met", "direction only", "not met", "by construction", "not exercised", None}


def burst(count: int, new_tokens: int = 300) -> list[PlannedTask]:
    return [
        PlannedTask(
            job=k, arrival_s=0.0, plan=(PlannedSegment("a", 4 + k % 3, 1.0), PlannedSegment("b", 5, 1.0)),
            prompt_tokens=1200 + new_tokens, shared_prefix_tokens=1200, prefix="drone", 
            hints=RequestHints(utility=URGENT if k % 3 == 0 else NORMAL, network_s=0.008),
        )
        for k in range(count)
    ]  # fmt: skip


def reached(tasks: Sequence[PlannedTask], discipline: str) -> float:
    options = ReplayOptions(discipline=discipline, journal=False, warm_prefixes=True)
    run = Simulator(options, PROFILE).run(tasks)
    return sum(record.utility(run.end_s) for record in run.records)


def test_alone_is_a_bound_for_every_task() -> None:
    tasks, alone = burst(6), IdleEngineResponses(PROFILE)
    options = ReplayOptions(discipline="timely", journal=False, warm_prefixes=True)
    for record in Simulator(options, PROFILE).run(tasks).records:
        assert record.response_time_s >= alone.response_s(record.task) - 1e-9


def test_long_stories_fill_the_memory_and_no_reader_waits_for_it() -> None:
    """Parked readers hold the KV cache; later requests need it, and evicted ones are computed again."""
    records, _, _ = runs.paper_run_records(
        runs.TIMELY, "chat", 1, profile="timelyllm-4090-phi3", unit="sentence", longer=2.0
    )
    assert sum(record.waiting_time_s for record in records) / len(records) < 1.0
    assert sum(record.preemptions for record in records) < 0.2 * len(records)


@pytest.mark.parametrize("new_tokens", [50, 300, 600])
@pytest.mark.parametrize("discipline", ["timely", "pud", "fcfs", "edf", "priority"])
def test_no_discipline_beats_the_clairvoyant(discipline: str, new_tokens: int) -> None:
    tasks = burst(9, new_tokens)
    assert reached(tasks, discipline) <= bench_clairvoyant_bound(tasks, PROFILE) + 1e-9


def test_a_claim_s_interval_stands_beside_its_mean() -> None:
    row = {
        "what": "x", "paper": 2.0, "ours": 1.0, "unit": "s", "interval": None, "verdict": "not met", "note": "",
    }  # fmt: skip
    assert cli_claim_row(row)[2] == "1"
    cells = cli_claim_row(row | {"interval": [0.51234567, 1.5]})
    assert cells == ("x", "2", "1 (0.5123 to 1.5)", "s", "not met", "")


def test_clairvoyant_is_exact_for_a_case_by_hand() -> None:
    # Two tasks so long that the second is late whatever comes first: the urgent one goes first.
    tasks = burst(2, 2000)
    alone, token_s = IdleEngineResponses(PROFILE), benchmark_min_token_s(PROFILE)
    tokens = [2000 + task.plan[0].tokens - 1 for task in tasks]
    first = tasks[0].hints.utility.value(alone.response_s(tasks[0]))
    later = max(sum(tokens) * token_s + 0.008, alone.response_s(tasks[1]))
    assert bench_clairvoyant_bound(tasks, PROFILE) == pytest.approx(
        first + tasks[1].hints.utility.value(later)
    )


def test_too_many_for_the_clairvoyant() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        bench_clairvoyant_bound(burst(MAX_TASKS + 1), PROFILE)


def test_an_interval_of_ten_seeds_holds_the_truth_in_95_of_100_cases() -> None:
    """A bootstrap of ten seeds holds it in 90."""
    rng = np.random.default_rng(5)
    samples = rng.standard_normal((2000, 10)).tolist()
    intervals = [paper_difference(sample, [0.0] * 10) for sample in samples]
    assert 0.94 <= sum(low <= 0.0 <= high for _, low, high in intervals) / len(intervals) <= 0.96


def test_crossing() -> None:
    assert runs.paper_crossing([0, 10, 20], [1.0, 0.8, 0.4], 0.6) == pytest.approx(15.0)
    assert math.isnan(runs.paper_crossing([0, 10, 20], [1.0, math.nan, 0.4], 0.6))
    assert runs.paper_crossing([0, 10, 20], [1.0, 1.5, 2.5], 2.0) == pytest.approx(15.0)
    assert math.isnan(runs.paper_crossing([0, 10], [1.0, 0.9], 0.5))


def test_an_outcome_comes_back_from_its_piece() -> None:
    outcome = runs.PaperOutcome.of(*runs.paper_run_records(runs.VLLM, "wid3", 1))
    entry = json.dumps(runs.OUTCOMES.dump_python(outcome, mode="json"), allow_nan=False)
    again = runs.OUTCOMES.validate_python(json.loads(entry))
    assert again.utility == pytest.approx(outcome.utility, abs=1e-8)
    assert set(again.types) == {9, 10, 11}
    assert math.isnan(again.share["urgent"])  # arms have no urgent tasks
    assert again.types[9] == pytest.approx(outcome.types[9], abs=1e-8)


def test_runs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "pieces.jsonl"

    def outcomes(seeds: list[int], budget_s: float | None = None) -> list[runs.PaperOutcome]:
        evaluation = PaperEvaluation(seeds, tmp_path, checkpoints=BenchCheckpoints(path, budget_s))
        return PaperReport(evaluation).outcomes(runs.FCFS, "wid1")

    first = outcomes([1, 2])
    kept = path.read_text()
    assert outcomes([1, 2]) == first
    assert path.read_text() == kept
    with pytest.raises(BenchOutOfTime):
        outcomes([1, 2, 3], budget_s=0.0)


def test_longer_plans_repeat_their_segments() -> None:
    task = burst(1)[0]
    assert [segment.text for segment in runs.lengthened_paper_trace(task, 2.5).plan] == [
        "a",
        "b",
        "a",
        "b",
        "a",
    ]
    assert runs.lengthened_paper_trace(task, 1.0) is task


def test_systems_are_what_they_say() -> None:
    tasks = burst(6)
    for system in runs.BY_NAME.values():
        options = ReplayOptions(discipline="given", mode=system.mode, journal=False)
        run = Simulator(options, PROFILE, discipline=system.make()).run(tasks)
        assert all(record.outcome == "complete" for record in run.records), system.name
    assert type(runs.TIMELY.make()) is registry.load_discipline("timely")


def test_a_factor_and_a_gain_are_told_for_figure_9(tmp_path: Path) -> None:
    """Section 7.4.1 says 'increases utility by 1.97': with vLLM below zero that has to be a difference."""
    report = PaperReport(PaperEvaluation([1], tmp_path))
    rows = other_robots.paper_figure_9(report, "fcfs", 262, [other_robots.MODELS["Llama3"]])
    claims = {row["id"]: row for row in rows}
    assert claims["fig9-utility-fcfs-table1"]["verdict"] == "not exercised"
    gain = claims["fig9-gain-fcfs-table1"]
    assert gain["paper"] == 1.97
    assert gain["ours"] == pytest.approx(2.04, abs=0.1)


def test_figure_8_s_order_holds_under_load() -> None:
    """Section 7.3.2: TimelyLLM above EDF above FCFS for urgent tasks, and EDF below the others for normal ones."""
    outcome = {
        system.name: runs.PaperOutcome.of(*runs.paper_run_records(system, "wid2", 1, new_tokens=300))
        for system in (runs.FCFS, runs.EDF, runs.PUD)
    }
    urgent = {name: value.share["urgent"] for name, value in outcome.items()}
    assert urgent[runs.PUD.name] > urgent[runs.EDF.name] > urgent[runs.FCFS.name]
    assert outcome[runs.EDF.name].share["normal"] <= outcome[runs.FCFS.name].share["normal"]


def test_the_literal_algorithm_has_what_the_papers_constants_give() -> None:
    """WID 2 with 100 new tokens: nearly all of the urgent maximum, and all of the normal one."""
    outcome = runs.PaperOutcome.of(*runs.paper_run_records(runs.PUD, "wid2", 1))
    assert outcome.share["urgent"] > 0.93
    assert outcome.share["normal"] > 0.995


def test_timely_is_above_the_papers_algorithm_under_load() -> None:
    ours = runs.PaperOutcome.of(*runs.paper_run_records(runs.TIMELY, "wid2", 3, new_tokens=300))
    theirs = runs.PaperOutcome.of(*runs.paper_run_records(runs.PUD, "wid2", 3, new_tokens=300))
    assert ours.share["urgent"] > theirs.share["urgent"] + 0.1
    assert ours.share["normal"] > theirs.share["normal"] - 0.02, "a little is the price"
    assert ours.utility > theirs.utility


def _outcome(waits_s: dict[int, float]) -> runs.PaperOutcome:
    """Every task answered after 0.1 s."""
    types = {number: (1.0, 0.1, wait_s) for number, wait_s in waits_s.items()}
    return runs.PaperOutcome(
        {"urgent": 1.0, "normal": 1.0}, 1.0, 1.0, {"urgent": 0.1, "normal": 0.1}, 0.1, types
    )


def test_figure_5c_excepts_the_task_type_that_the_paper_excepts(tmp_path: Path) -> None:
    """The paper finds waiting nearly equal to response but for task type 1, whose skills take a millisecond."""
    outcomes = [_outcome({number: 0.3 if number == 2 else 0.102 for number in range(1, 9)})] * 3
    by_load = {(load, system.name): outcomes for load in ("LW", "HW") for system in (runs.VLLM, runs.PUD)}
    claims = drones._paper_figure_5_claims(
        PaperReport(PaperEvaluation([1, 2, 3], tmp_path)), "vllm", 42, by_load
    )
    rows = {row["id"]: row for row in claims}
    assert rows["fig5c-most-vllm"]["ours"] == pytest.approx(1.02)
    assert rows["fig5c-most-vllm"]["verdict"] == "met"
    assert rows["fig5c-brief-vllm"]["ours"] == pytest.approx(3.0)
    assert rows["fig5c-brief-vllm"]["verdict"] == "by construction"


def test_figure_6_takes_every_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        drones, "_measure_paper_pairs", lambda new_tokens, seed: None if seed == 5 else seed / 10
    )
    monkeypatch.setattr(drones, "_plot_first_paper_pair", lambda report, label, new_tokens: None)
    (row,) = drones.paper_figure_6(PaperReport(PaperEvaluation([1, 2, 3, 4, 5], tmp_path)), "vllm", 42)
    assert row["ours"] == pytest.approx(0.25)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_whole_reproduction_with_one_seed(tmp_path: Path) -> None:
    rows = paper.run_paper_evaluation(PaperEvaluation([1], tmp_path))
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids))
    assert {row["verdict"] for row in rows} <= VERDICTS
    assert {row["subject"] for row in rows} == {"literal", "ours"}
    assert (tmp_path / "numbers.csv").read_text().count("\n") > 100
    assert len(list(tmp_path.glob("*.png"))) >= 15
