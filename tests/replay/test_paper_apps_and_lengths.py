"""The reproductions of Justitia and SageSched, small: their claims are of the agreed form and their parts hold."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from timely.core.job import JobSpec
from timely.replay import claims, paper_justitia, paper_sagesched

pytest.importorskip("sklearn", reason="needs the extra 'predict'")
pytest.importorskip("matplotlib", reason="needs the extra 'report'")

FIELDS = {"id", "what", "paper", "ours", "unit", "holds", "note"}


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
    trace = paper_justitia.workload(1, applications=40, window_s=10.0)
    exact = paper_justitia.Exact(trace)
    blurred = paper_justitia.Blurred(exact, 4.52, np.random.default_rng(0))
    spec = JobSpec("x", 0.0, app=trace[0]["app"])
    truth = exact.predict("", spec)
    errors = [abs(blurred.predict("", spec) / truth - 1.0) for _ in range(20_000)]
    assert np.mean(errors) == pytest.approx(4.52, rel=0.2)


def test_kendall_tau() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert paper_sagesched.kendall_tau(a, a) == 1.0
    assert paper_sagesched.kendall_tau(a, -a) == -1.0
    assert paper_sagesched.kendall_tau(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(4 / 6)


def test_the_baselines_are_as_good_as_their_papers_say() -> None:
    errors = paper_sagesched.calibrate(requests=800)
    assert errors.hit_rate == pytest.approx(paper_sagesched.HIT_RATE, abs=0.01)
    assert errors.tau == pytest.approx(paper_sagesched.TAU, abs=0.01)
    assert errors.trail > 0.0


def test_fair_ratios_compare_the_same_application() -> None:
    assert paper_justitia.fair_ratios([{"a": 2.0, "b": 3.0}], [{"b": 6.0, "a": 1.0}]) == [2.0, 0.5]


@pytest.mark.slow
def test_justitia_s_evaluation_runs_and_beats_parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = paper_justitia.workload
    # The same density of arrivals with a tenth of the applications.
    monkeypatch.setattr(
        paper_justitia, "workload",
        lambda seed, *, applications=30, window_s: real(seed, applications=applications, window_s=window_s / 10),
    )  # fmt: skip
    monkeypatch.setattr(paper_justitia, "MICE", (40, 80, 120))
    told: list[str] = []
    found = check(paper_justitia.run([1], tmp_path, told.append))
    assert found["fig8.average.parrot"]["ours"] > 0.0
    assert found["table3.overhead"]["holds"]
    assert found["table2.error"]["holds"]
    for figure in ("fig8a", "fig8b", "fig9a", "fig9b", "fig10", "fig11", "fig12"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
    assert told


@pytest.mark.slow
def test_sagesched_s_evaluation_runs_and_beats_first_come_first_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_sagesched, "REQUESTS", 120)
    monkeypatch.setattr(paper_sagesched, "PAST", 400)
    monkeypatch.setattr(paper_sagesched, "NODES", (1, 2))
    monkeypatch.setattr(paper_sagesched, "RATES", {"Qwen3-32B": (30.0,), "Llama3.1-8B": (30.0,)})
    monkeypatch.setattr(paper_sagesched, "MAIN_RATE", 30.0)
    found = check(paper_sagesched.run([1], tmp_path))
    assert found["fig12.overhead"]["holds"]
    assert found["fig10.output_length"]["ours"] > 0.0
    for figure in ("fig7a_ttlt", "fig7b_ttft", "fig8", "fig9", "fig10", "fig11", "fig12", "fig13a", "fig13b"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
