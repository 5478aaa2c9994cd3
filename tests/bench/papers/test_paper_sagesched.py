"""The reproduction of SageSched, small: predictions as good as stated, and the literal predictor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optional_packages import require_package

from timely.bench.papers.real_inputs import DIALOGUES, MOONCAKE
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched import ablation, evaluation, overhead, real_texts, resources, setting
from timely.bench.papers.sagesched.workloads import PaperPromptWorld
from timely.disciplines.sagesched.discipline import sagesched_discipline_history
from timely.engines.step_time.profile import load_step_profile

require_package("wordllama")

pytestmark = pytest.mark.paper


def test_kendall_tau() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert setting.paper_kendall_tau(a, a) == 1.0
    assert setting.paper_kendall_tau(a, -a) == -1.0
    assert setting.paper_kendall_tau(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(4 / 6)


def test_the_baselines_are_as_good_as_their_papers_say() -> None:
    errors = setting.calibrate_paper_errors(requests=800)
    assert errors.hit_rate == pytest.approx(setting.HIT_RATE, abs=0.01)
    assert errors.tau == pytest.approx(setting.TAU, abs=0.01)
    assert errors.trail > 0.0


def test_the_distance_of_samples_is_that_of_their_quantiles() -> None:
    a = np.arange(1000.0)
    assert ablation.paper_length_distance(a, a) == 0.0
    assert ablation.paper_length_distance(a, a + 50.0) == pytest.approx(50.0)
    assert ablation.paper_length_distance(a, 2.0 * a) == pytest.approx(499.5, rel=0.01)


def test_what_a_predictor_is_told_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting, "REQUESTS", 40)
    made = setting.paper_setting(5, 8.0)
    for drawn in made.requests:
        spec = setting.paper_job_spec(drawn)
        exact = setting.PaperLengthOracle.of_length(made).predict(spec)
        assert (exact.mean, exact.lengths.size) == (drawn.output_tokens, 1)
    family = setting.PaperLengthOracle.of_family(made).predict(setting.paper_job_spec(made.requests[0]))
    truth = made.requests[0].family.lengths(5_000, np.random.default_rng(0))
    assert family.mean == pytest.approx(truth.mean(), rel=0.25)


def test_real_texts_name_the_arrivals_that_they_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_texts, "PAST", 3)
    monkeypatch.setattr(real_texts, "SERVED_TEXTS", 5)
    monkeypatch.setattr(
        real_texts, "MAKERS", {name: real_texts.MAKERS[name] for name in ("fcfs", "sagesched")}
    )
    (tmp_path / DIALOGUES).parent.mkdir()
    rows = [f"topic {number},{'word ' * (number + 1)}" for number in range(8)]
    (tmp_path / DIALOGUES).write_text("\n".join(["dialogue,section_text", *rows, ""]))

    def note() -> str:
        (claim,) = real_texts.paper_real_texts(PaperEvaluation([0, 1], tmp_path, data=tmp_path))
        return str(claim["note"])

    assert note().endswith("arrivals of a Poisson process")
    (tmp_path / MOONCAKE).parent.mkdir()
    (tmp_path / MOONCAKE).write_text("".join(f'{{"timestamp": {100 * n}}}\n' for n in range(10)))
    assert note().endswith("arrivals of Mooncake's trace")


def test_the_literal_history_finds_a_prompts_family_and_nothing_else() -> None:
    """Sentence embeddings at the paper's 0.8: what counts as similar belongs to the same family."""
    world = PaperPromptWorld(3)
    drawn = world.draw(400, np.random.default_rng(3))
    history = sagesched_discipline_history()
    vectors = history.embedder.embed([request.text for request in drawn])
    cosines = vectors @ vectors.T
    pairs = [(a, b) for a in range(len(drawn)) for b in range(a) if cosines[a, b] >= history.threshold]
    assert len(pairs) > 100
    same = [drawn[a].family is drawn[b].family for a, b in pairs]
    assert np.mean(same) > 0.95


def test_a_stream_is_predicted_and_decided_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "PAST_REQUESTS", 60)
    monkeypatch.setattr(overhead, "QUEUE_LENGTH", 40)
    monkeypatch.setattr(overhead, "PREDICTIONS", 20)
    monkeypatch.setattr(setting, "REQUESTS", 40)
    monkeypatch.setattr(setting, "PAST", 30)
    stream_ms, together = overhead._paper_stream_ms(1, 3)
    assert stream_ms > 0.0
    assert together >= 1.0


def test_execution_alone_and_utilisation_by_hand() -> None:
    profile = setting.PROFILES[setting.QWEN]
    step = profile.step_s
    by_hand = (
        step.base
        + 100 * step.per_prefill_token
        + 10 * (step.base + step.per_sequence + 105 * step.per_context_token)
    )
    assert resources.paper_alone_s(np.array([[100.0, 10.0]]), profile)[0] == pytest.approx(by_hand)
    reached = resources.paper_utilisation(np.array([1.0, 40.0]), 1000, load_step_profile(resources.PROFILE))
    assert 0.0 < reached[0] < reached[1] < 1.0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_evaluation_runs_and_beats_first_come_first_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'report'")
    monkeypatch.setattr(setting, "REQUESTS", 120)
    monkeypatch.setattr(setting, "PAST", 400)
    monkeypatch.setattr(overhead, "NODES", (1, 2))
    monkeypatch.setattr(ablation, "PAST_REQUESTS", 2_000)
    claims = evaluation.run_paper_evaluation(PaperEvaluation([1], tmp_path))
    rows = {row["id"]: row for row in claims}
    assert len(rows) == len(claims)
    assert rows["fig5a"]["ours"] > 1.0
    assert rows["fig5b"]["verdict"] == rows["fig8.real"]["verdict"] == "not exercised", "no data at hand"
    assert rows["fig10.output_length"]["ours"] > 0.0
    assert rows["ours.smooth"]["subject"] == "ours"
