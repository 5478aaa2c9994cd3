"""Profiles from timed steps: the formula is found again, the file reads back, too few steps are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from timely.cli.main import run_timely_command as timely
from timely.core.errors import InvalidInput
from timely.engines.step_time.fit import fit_steps, save_step_time_profile
from timely.engines.step_time.journal import TimedStep
from timely.engines.step_time.profile import (
    KvCache,
    ProfileLimits,
    StepTerms,
    StepTime,
    StepTimeProfile,
    load_step_profile,
)

TRUE = StepTerms(
    base=0.0144,
    per_sequence=0.00115,
    per_prefill_token=4.55e-4,
    per_prefill_token_sq=2e-7,
    per_context_token=1e-7,
)


def timed(noise: float, seed: int = 1) -> list[TimedStep]:
    """Decode steps of several sizes and prompts of several lengths, as a calibration would run them."""
    rng, model, steps = np.random.default_rng(seed), StepTime(TRUE), []
    for _ in range(6):
        for decodes in (1, 2, 4, 8, 16):
            context = decodes * int(rng.integers(100, 2000))
            time = model(decodes, 0, 0, 0.0, context)
            steps.append(TimedStep(decodes, 0, 0, 0.0, context, time * rng.normal(1.0, noise)))
        for tokens in (64, 128, 512, 1024):
            time = model(0, 1, tokens, float(tokens) ** 2, 0)
            steps.append(TimedStep(0, 1, tokens, float(tokens) ** 2, 0, time * rng.normal(1.0, noise)))
    return steps


def test_fit_finds_the_coefficients() -> None:
    terms, errors = fit_steps(timed(0.0))
    for name in ("base", "per_sequence", "per_prefill_token", "per_prefill_token_sq", "per_context_token"):
        assert getattr(terms, name) == pytest.approx(getattr(TRUE, name), rel=0.01)
    assert max(value for value in errors.values() if isinstance(value, float)) < 0.001


def test_fit_is_sound_under_noise_and_says_its_error() -> None:
    terms, errors = fit_steps(timed(0.05))
    assert terms.base == pytest.approx(TRUE.base, rel=0.15)
    assert 0.01 < float(errors["decode_median"]) < 0.08


def test_a_machine_whose_steps_bend_by_batch_size_is_told_by_a_curve() -> None:
    """Up to four sequences cost nothing more, the fifth a lot, each further one a little."""
    rng = np.random.default_rng(4)

    def true(sequences: int) -> float:
        return 0.02 + 0.01 * (sequences > 4) + 0.0005 * max(0, sequences - 5)

    steps = []
    for decodes in [1, 2, 3, 4, 5, 6, 8, 10, 12, 16] * 20:
        steps.append(TimedStep(decodes, 0, 0, 0.0, 0, true(decodes) * rng.normal(1.0, 0.02)))
    terms, errors = fit_steps(steps)
    model = StepTime(terms)
    assert terms.per_sequence == 0.0
    assert terms.sequences is not None
    for decodes in (1, 3, 4, 5, 8, 14, 20):
        assert model(decodes, 0, 0, 0.0, 0) == pytest.approx(true(decodes), rel=0.03)
    assert float(errors["decode_p90"]) < 0.05
    # Too few steps with many sequences: no bend there.
    few, _ = fit_steps([*steps, TimedStep(200, 0, 0, 0.0, 0, 5.0)])
    assert few.sequences is not None
    assert max(few.sequences.at) == 16.0


@pytest.mark.parametrize("seed", range(5))
def test_noise_bends_no_line(seed: int) -> None:
    terms, _ = fit_steps(timed(0.05, seed))
    assert terms.sequences is None
    assert terms.per_sequence == pytest.approx(TRUE.per_sequence, rel=0.3)


def test_coefficients_are_never_negative() -> None:
    steps = [TimedStep(n, 0, 0, 0.0, 0, 0.05 - 0.001 * n) for n in range(1, 20)]
    terms, _ = fit_steps(steps)
    assert terms.per_sequence == 0.0
    assert terms.base > 0.0


@pytest.mark.parametrize(
    ("steps", "said"), [([], "too few"), ([TimedStep(1, 0, 0, 0.0, 0, 0.0)] * 20, "no time")]
)
def test_useless_steps_are_refused(steps: list[TimedStep], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        fit_steps(steps)


def test_file_reads_back(tmp_path: Path) -> None:
    terms, errors = fit_steps(timed(0.02))
    profile = StepTimeProfile(
        name="mine", source="here", date="2026-01-01", fit_error=errors, step_s=terms,
        kv=KvCache(blocks=9, block_tokens=32, swap_s_per_token=1e-6),
        limits=ProfileLimits(max_batch=4, token_budget=512),
    )  # fmt: skip
    path = tmp_path / "mine.yaml"
    save_step_time_profile(path, profile)
    assert load_step_profile(path) == profile


def test_command_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "p.yaml")
    assert timely(["calibrate", "--out", out, "--from-kernels", str(tmp_path)]) == 2
    assert "--layers" in capsys.readouterr().err
    assert timely(["calibrate", "--out", out, "--from-kernels", str(tmp_path), "--layers", "2"]) == 2
    assert "dense.csv" in capsys.readouterr().err
    assert timely(["calibrate", "--out", out, "--from-kernels", str(tmp_path), "--layers", "9" * 400]) == 2
    assert "--layers" in capsys.readouterr().err
