"""The reproductions of Justitia and SageSched, small: their claims are of the agreed form and their parts hold."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from timely.bench.checkpoints import Checkpoints
from timely.bench.papers import old_claims as claims
from timely.bench.papers.justitia import evaluation as justitia
from timely.bench.papers.justitia import micro, workloads
from timely.bench.papers.justitia.setting import Blurred, Exact
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.sagesched import ablation, overhead, setting
from timely.bench.papers.sagesched import evaluation as sagesched
from timely.core.hints import RequestHints
from timely.core.job import JobSpec
from timely.disciplines.basic import Fcfs

pytest.importorskip("sklearn", reason="needs the extra 'predict'")
pytest.importorskip("matplotlib", reason="needs the extra 'report'")

FIELDS = {"id", "what", "paper", "ours", "unit", "holds", "note", "interval", "verdict", "subject"}


def check(found: list[claims.Claim]) -> dict[str, claims.Claim]:
    for row in found:
        assert set(row) == FIELDS
        assert row["what"]
        assert row["holds"] in (True, False)
        assert type(row["holds"]) is bool, "JSON knows no numpy"
        for number in (row["paper"], row["ours"]):
            assert number is None or (type(number) is float and math.isfinite(number))
    names = [row["id"] for row in found]
    assert len(set(names)) == len(names)
    return {row["id"]: row for row in found}


def test_claims_keep_only_finite_numbers() -> None:
    row = claims.claim("a", "b", float("nan"), math.inf, "s", False)
    assert (row["paper"], row["ours"]) == (None, None)


def test_intervals_are_student_s() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    # 3.182 for three degrees of freedom; the deviation of the mean is sqrt(5/3)/2.
    assert claims.half_width(values) == pytest.approx(3.18 * math.sqrt(5 / 3) / 2)
    assert claims.interval([2.0]) == (2.0, 2.0, 2.0)
    assert claims.over_seeds([2.0]) == "2.0 over 1 seeds"


def test_the_blurred_oracle_errs_as_much_as_asked() -> None:
    trace = workloads.workload(1, applications=40, window_s=10.0)
    exact = Exact(trace)
    blurred = Blurred(exact, 4.52, np.random.default_rng(0))
    spec = JobSpec("x", 0.0, RequestHints(app=trace[0]["app"]))
    truth = exact.predict("", spec)
    errors = [abs(blurred.predict("", spec) / truth - 1.0) for _ in range(20_000)]
    assert np.mean(errors) == pytest.approx(4.52, rel=0.2)


def test_kendall_tau() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert setting.kendall_tau(a, a) == 1.0
    assert setting.kendall_tau(a, -a) == -1.0
    assert setting.kendall_tau(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(4 / 6)


def test_the_baselines_are_as_good_as_their_papers_say() -> None:
    errors = setting.calibrate(requests=800)
    assert errors.hit_rate == pytest.approx(setting.HIT_RATE, abs=0.01)
    assert errors.tau == pytest.approx(setting.TAU, abs=0.01)
    assert errors.trail > 0.0


def test_fair_ratios_compare_the_same_application() -> None:
    assert justitia.fair_ratios([{"a": 2.0, "b": 3.0}], [{"b": 6.0, "a": 1.0}]) == [2.0, 0.5]


def test_two_applications_in_turn_hold_the_cache_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fig. 3 without a cost model: what is watched is what the table says, and it never is more than there is."""
    monkeypatch.setattr(micro, "make", lambda name: Fcfs())
    blocks = micro._blocks("fcfs", 1)
    assert set(blocks) == {"steps", "DM/0", "DM/1"}
    assert len(blocks["steps"]) == micro.SAMPLED
    assert blocks["steps"] == sorted(blocks["steps"])
    held = [a + b for a, b in zip(blocks["DM/0"], blocks["DM/1"], strict=True)]
    assert 200 < max(held) <= 459
    # First come, first served: when the first has almost ended the second has all of it.
    assert blocks["DM/0"][-1] <= blocks["DM/1"][-1]


def test_the_workload_s_demands_lie_where_fig_4_has_them(tmp_path: Path) -> None:
    found = check(micro.demands(Evaluation([1], tmp_path)))
    assert found["fig4.queries"]["holds"]
    assert found["fig4.summaries"]["holds"]
    for part in "ab":
        assert (tmp_path / f"fig4{part}.png").stat().st_size > 5_000


def test_the_distance_of_samples_is_that_of_their_quantiles() -> None:
    a = np.arange(1000.0)
    assert ablation.distance(a, a) == 0.0
    assert ablation.distance(a, a + 50.0) == pytest.approx(50.0)
    assert ablation.distance(a, 2.0 * a) == pytest.approx(499.5, rel=0.01)


def test_one_prompt_gets_answers_of_many_lengths(tmp_path: Path) -> None:
    found = check(ablation.uncertainty(Evaluation([1], tmp_path)))
    assert found["fig1a.uncertain"]["holds"]
    assert found["fig2a.one_number"]["ours"] == pytest.approx(34.1, abs=1.0)
    assert (tmp_path / "fig1a.png").stat().st_size > 5_000


def test_similar_prompts_have_similar_lengths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "REMEMBERED", 4_000)
    monkeypatch.setattr(ablation, "TARGETS", 6)
    found = check(ablation.similarity(Evaluation([1], tmp_path)))
    assert found["fig4.closer"]["holds"]
    assert found["fig4.closer"]["ours"] < 0.7
    assert (tmp_path / "fig4a.png").stat().st_size > 5_000


def test_what_a_predictor_is_told_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "REQUESTS", 40)
    made = setting.setting(5, 8.0)
    for drawn in made.drawn:
        spec = setting.spec_of(drawn)
        exact = setting.Told.of_length(made).predict(spec)
        assert (exact.mean, exact.lengths.size) == (drawn.output_tokens, 1)
    family = setting.Told.of_family(made).predict(setting.spec_of(made.drawn[0]))
    truth = made.drawn[0].family.lengths(5_000, np.random.default_rng(0))
    assert family.mean == pytest.approx(truth.mean(), rel=0.25)


def test_a_figure_is_measured_seed_by_seed_and_once(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def piece(name: str, seed: int) -> float:
        asked.append((name, seed))
        return seed + len(name) / 10.0

    given = Evaluation([1, 2], tmp_path, checkpoints=Checkpoints(tmp_path / "p.jsonl"))
    assert given.all("x", piece, [("a",), ("bb",)]) == [[1.1, 2.1], [1.2, 2.2]]
    assert asked == [("a", 1), ("bb", 1), ("a", 2), ("bb", 2)]
    assert given.each("x", piece, "bb") == [1.2, 2.2]
    assert given.once("x", piece, "a", 2) == 2.1
    assert len(asked) == 4
    assert Evaluation([1], tmp_path).checkpoints is not Evaluation([1], tmp_path).checkpoints


@pytest.mark.paper
def test_justitia_s_evaluation_runs_and_beats_parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = workloads.workload
    # The same density of arrivals with a tenth of the applications.
    monkeypatch.setattr(
        workloads, "workload",
        lambda seed, *, applications=30, window_s: real(seed, applications=applications, window_s=window_s / 10),
    )  # fmt: skip
    monkeypatch.setattr(micro, "MICE", (40, 80, 120))
    monkeypatch.setattr(micro, "PAPER_OVERHEAD_MS", {15: 0.778, 30: 3.076, 100: 8.093})
    monkeypatch.setattr(micro, "OVERHEAD_S", 30.0)
    told: list[str] = []
    found = check(justitia.run(Evaluation([1], tmp_path, told.append)))
    assert found["fig8.average.parrot"]["ours"] > 0.0
    assert found["table3.overhead"]["holds"]
    assert found["table2.error"]["holds"]
    figures = "fig3a fig3b fig4a fig4b fig8a fig8b fig9a fig9b fig10 fig11 fig12a fig12b"
    for figure in (*figures.split(), "table2_completion", "table2_error", "table3"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
    assert told


@pytest.mark.paper
def test_sagesched_s_evaluation_runs_and_beats_first_come_first_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting, "REQUESTS", 120)
    monkeypatch.setattr(setting, "PAST", 400)
    monkeypatch.setattr(overhead, "NODES", (1, 2))
    monkeypatch.setattr(setting, "RATES", {"Qwen3-32B": (30.0,), "Llama3.1-8B": (30.0,)})
    monkeypatch.setattr(setting, "MAIN_RATE", 30.0)
    found = check(sagesched.run(Evaluation([1], tmp_path)))
    assert found["fig12.overhead"]["holds"]
    assert found["fig10.output_length"]["ours"] > 0.0
    figures = "fig4a fig4b fig7a_ttlt fig7b_ttft fig8 fig9 fig10 fig11 fig12 fig13a fig13b fig13c"
    for figure in figures.split():
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
