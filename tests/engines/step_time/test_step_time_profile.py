"""Step-time profiles: the shipped ones load, a broken one is refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.core.errors import InvalidInput, UnknownName
from timely.engines.step_time.from_kernels import fit_step_kernels
from timely.engines.step_time.profile import (
    ProfileSpeed,
    StepTerms,
    StepTime,
    StepTimeCurve,
    load_step_profile,
    shipped_step_profiles,
)

UNIT = """\
name: mine
source: a test
step_s: {base: 0.01, per_sequence: 0.0, per_prefill_token: 0.0, per_prefill_token_sq: 0.0, per_context_token: 0.0}
kv: {blocks: 10, block_tokens: 16, swap_s_per_token: 0.0}
limits: {max_batch: 4, token_budget: 100}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", shipped_step_profiles())
def test_shipped_profiles_load_and_name_their_source(name: str) -> None:
    profile = load_step_profile(name)
    assert profile.name == name
    assert len(profile.source) > 10
    step = StepTime(profile.step_s)
    assert 0.005 < step(1, 0, 0, 0.0, 500) < 0.1
    # More of anything never takes less time.
    assert step(8, 0, 0, 0.0, 4000) >= step(1, 0, 0, 0.0, 500)
    assert step(0, 1, 1000, 1e6, 0) >= step(0, 1, 100, 1e4, 0)


def test_the_profiles_that_were_promised_are_there() -> None:
    assert {
        "unit", "rtx4090-llama3-8b", "timelyllm-4090", "cpu-smollm2", "a100-qwen1.5-4b", "a100-qwen1.5-7b",
        "a5000-qwen1.5-4b", "a5000-qwen1.5-7b",
    } <= set(shipped_step_profiles())  # fmt: skip


def test_papers_numbers_come_out() -> None:
    step = StepTime(load_step_profile("timelyllm-4090").step_s)
    # TimelyLLM Table 1: 2884 prompt tokens take 328.45 ms to the first token; section 4.1: 133.31 ms for 1300.
    assert step(0, 1, 2884, 2884.0**2, 0) == pytest.approx(0.32845, rel=1e-3)
    assert step(0, 1, 1300, 1300.0**2, 0) == pytest.approx(0.13331, rel=1e-3)


def test_own_file(tmp_path: Path) -> None:
    assert load_step_profile(write(tmp_path, UNIT)).limits.max_batch == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("per_sequence: 0.0, ", "", r"p\.yaml:3: step_s\.per_sequence: is missing"),
        ("base: 0.01", "base: -1", r"p\.yaml:3: step_s\.base: .*greater than or equal to 0"),
        ("base: 0.01", "base: fast", r"p\.yaml:3: step_s\.base: .*number"),
        ("blocks: 10", "blocks: 0", r"p\.yaml:4: kv\.blocks"),
        ("limits: {max_batch: 4, token_budget: 100}\n", "", r"p\.yaml:1: limits: is missing"),
        ("source: a test", "source: a test\nspeed: 9", r"p\.yaml:3: speed: .*not permitted"),
        ("name: mine", "name: [", r"p\.yaml:\d+: not valid YAML"),
        ("base: 0.01", "base: .nan", r"p\.yaml:3: step_s\.base"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        load_step_profile(write(tmp_path, UNIT.replace(old, new)))
    assert "\n" not in str(caught.value)


def test_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unit"):
        load_step_profile(tmp_path / "nothing.yaml")


def test_curve_is_linear_between_and_extended_after() -> None:
    curve = StepTimeCurve(at=(1.0, 3.0, 5.0), s=(1.0, 2.0, 6.0))
    assert [curve(x) for x in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0]
    with pytest.raises(ValueError, match="increase"):
        StepTimeCurve(at=(1.0, 1.0), s=(1.0, 2.0))


def test_profile_speed_tells_the_truth() -> None:
    terms = StepTerms(
        base=0.0144,
        per_sequence=0.00115,
        per_prefill_token=4.55e-4,
        per_prefill_token_sq=2e-9,
        per_context_token=0.0,
    )
    speed = ProfileSpeed(terms)
    assert speed.token_s == pytest.approx(0.01555)
    assert speed.prefill_token_s == pytest.approx(4.55e-4, rel=0.01)
    assert speed.step_s(4, 0) == pytest.approx(0.0144 + 4 * 0.00115)


def kernels(folder: Path) -> None:
    """Tables of a made-up machine whose steps follow a known formula, 2 layers."""
    dense = ["layer,tokens,time_us"]
    for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        dense += [f"mlp,{tokens},{100 + tokens}", f"embedding,{tokens},10"]
    heads = ["layer,sequences,time_us", *(f"lm_head,{n},{50 + n}" for n in (1, 2, 4, 8, 16, 32, 64))]
    attention = ["prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    for chunk in (0, 16, 64, 256):
        for cached in (0, 64, 512) if chunk else (0,):
            for n in (0, 1, 4, 16):
                for kv in (16, 256, 1024) if n else (0,):
                    if chunk or n:
                        time = 5 + 0.002 * n * kv + 0.01 * chunk + 1e-5 * ((chunk + cached) ** 2 - cached**2)
                        attention.append(f"{chunk},{cached},{n},{kv},{time}")
    for name, lines in (("dense", dense), ("per_sequence", heads), ("attention", attention)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def test_fit_finds_the_formula_again(tmp_path: Path) -> None:
    kernels(tmp_path)
    terms, errors = fit_step_kernels(tmp_path, layers=2)
    assert terms.base == pytest.approx(10e-6, rel=0.02)
    assert terms.per_context_token == pytest.approx(4e-9, rel=0.02)
    assert terms.per_prefill_token_sq == pytest.approx(2e-11, rel=0.02)
    assert terms.tokens is not None
    assert terms.tokens(100) == pytest.approx(2 * 200e-6 + 10e-6, rel=0.03)
    assert max(value for value in errors.values() if isinstance(value, float)) < 0.03


def test_fit_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"dense\.csv"):
        fit_step_kernels(tmp_path, layers=2)
    kernels(tmp_path)
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\nmlp,1,fast\n")
    with pytest.raises(InvalidInput, match=r"dense\.csv:2: time_us must be a number over 0, got 'fast'"):
        fit_step_kernels(tmp_path, layers=2)
    kernels(tmp_path)
    (tmp_path / "attention.csv").write_text("a,b\n")
    with pytest.raises(InvalidInput, match=r"attention\.csv:1: column 'prefill_chunk' is missing"):
        fit_step_kernels(tmp_path, layers=2)
    kernels(tmp_path)
    with pytest.raises(InvalidInput, match="layers"):
        fit_step_kernels(tmp_path, layers=0)


@pytest.mark.parametrize(
    ("table", "text", "said"),
    [
        ("dense", "layer,tokens,time_us\n", r"dense\.csv: needs rows of two sizes"),
        ("dense", "layer,tokens,time_us\nmlp,1,5\nmlp,1,6\n", r"dense\.csv: needs rows of two sizes"),
        ("dense", "layer,tokens,time_us\nmlp,nan,5\n", r"dense\.csv:2: tokens must be a number of 0 or more"),
        ("dense", "layer,tokens,time_us\nmlp,1,0\n", r"dense\.csv:2: time_us must be a number over 0"),
        ("per_sequence", "layer,sequences,time_us\nlm_head,inf,5\n", r"per_sequence\.csv:2: sequences must be"),
        ("per_sequence", "layer,sequences,time_us\nlm_head,1\n", r"per_sequence\.csv:2: expected 3 fields"),
        ("per_sequence", "\xff", r"per_sequence\.csv:1: not UTF-8"),
        ("attention", 'prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"1', r"attention\.csv:2: not valid CSV"),
        ("attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n-1,0,0,0,1\n", r"attention\.csv:2: pref"),
    ],
)  # fmt: skip
def test_broken_kernel_tables_are_named(tmp_path: Path, table: str, text: str, said: str) -> None:
    kernels(tmp_path)
    (tmp_path / f"{table}.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=said):
        fit_step_kernels(tmp_path, layers=2)
