"""SageSched's motivation, Fig. 1b, 2b and 5: what requests need of memory and compute, and what binds a machine."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import CONTEXT, Claim, PaperRule, paper_claim
from timely.bench.papers.real_inputs import (
    ATTENTION,
    TRACES,
    Floats,
    paper_decode_attention,
    paper_token_counts,
)
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched.setting import PROFILES, QWEN, sagesched_paper_ttlt
from timely.bench.papers.seed_statistics import paper_mean, paper_percent_higher
from timely.engines.step_time.profile import StepTime, StepTimeProfile, load_step_profile

KV_BYTES = 256 * 1024
"""KV cache of a token of Qwen3-32B."""

PROFILE = "rtx4090-llama3-8b"
"""A profile from measured kernel times, and its model's parameters and peak."""
PARAMETERS, PEAK_FLOPS = 8.03e9, 165e12

LENGTHS = (50, 1000)
"""Tokens of each sequence in Fig. 5a."""


def paper_alone_s(counts: Floats, profile: StepTimeProfile) -> Floats:
    """Execution time of requests by themselves, seconds; ``counts`` are prompt and output tokens, shape ``(n, 2)``."""
    step, (prompt, output) = profile.step_s, counts.T
    each = step.base + step.per_sequence + step.per_context_token * (prompt + output / 2.0)
    result: Floats = step.base + step.per_prefill_token * prompt + output * each
    return result


def paper_figure_1b(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Execution time and peak memory of each request alone, of real traces."""
    points: dict[str, tuple[Floats, Floats]] = {}
    for name, file in TRACES.items():
        path = evaluation.input(file)
        if path is not None:
            counts = paper_token_counts(path)
            points[name] = (paper_alone_s(counts, PROFILES[QWEN]), counts.sum(axis=1) * KV_BYTES / 1e9)
    medians_text = "; ".join(
        f"{name} {np.median(time_s):.1f} s and {np.median(memory):.2f} GB, correlation"
        f" {np.corrcoef(time_s, memory)[0, 1]:.2f}"
        for name, (time_s, memory) in points.items()
    )
    values = None
    if points:
        time_s, memory = (np.concatenate(column) for column in zip(*points.values(), strict=True))
        values = float(np.corrcoef(time_s, memory)[0, 1])
    yield paper_claim(
        "fig1b", "Fig. 1b: correlation of a request's execution time with its peak memory, real traces", None, values,
        "", CONTEXT, f"medians: {medians_text}" if points else "needs real traces",
    )  # fmt: skip


def paper_figure_2b(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Shortest output first against the least cost first, lengths known, on a machine whose memory is short."""
    knowing, shortest = sagesched_paper_ttlt(
        evaluation, ("true length", "true length, shortest first")
    ).values()
    yield paper_claim(
        "fig2b", "Fig. 2b: TTLT worse with the shortest output first than by memory over time, lengths known", None,
        paper_percent_higher(shortest, knowing), "%", PaperRule.above(0.0),
        f"{paper_mean(knowing):.1f} to {paper_mean(shortest):.1f} s",
    )  # fmt: skip


def paper_utilisation(batch: Floats, length: int, profile: StepTimeProfile) -> Floats:
    """Share of the peak compute that a decoding step reaches, by its number of sequences of ``length`` tokens."""
    step_time = StepTime(profile.step_s)
    step_s = np.array([step_time(int(n), 0, 0, 0.0, float(n * length)) for n in batch])
    result: Floats = 2.0 * PARAMETERS * batch / step_s / PEAK_FLOPS
    return result


def paper_figure_5(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Utilisation against occupation of the KV cache (a), and attention against the context (b)."""
    profile = load_step_profile(PROFILE)
    capacity = profile.kv.blocks * profile.kv.block_tokens
    curves: dict[str, Any] = {}
    full = {}
    for length in LENGTHS:
        share = np.linspace(0.05, 1.0, 20)
        batch = np.maximum(1.0, np.floor(share * capacity / length))
        utilisation = paper_utilisation(batch, length, profile)
        curves[f"{length} tokens"] = (100.0 * utilisation).tolist()
        full[length] = 100.0 * float(utilisation[-1])
    plots.paper_line_plot(
        evaluation.out / "fig5a.png", "SageSched Fig. 5a: utilisation, Llama-3.1-8B on an RTX 4090",
        (100.0 * share).tolist(), curves, "% of the KV cache", "% of peak FLOP/s",
    )  # fmt: skip
    yield paper_claim(
        "fig5a", "Fig. 5a: utilisation with the KV cache full, sequences of 50 tokens over those of 1,000", None,
        full[50] / full[1000], "times", PaperRule.at_least(2.0),
        f"{full[50]:.0f}% and {full[1000]:.0f}%; measured kernel times of Llama-3.1-8B on an RTX 4090, not an H800",
    )  # fmt: skip
    yield _paper_attention_claim(evaluation)


def _paper_attention_claim(evaluation: PaperEvaluation) -> Claim:
    path, linear, note = evaluation.input(ATTENTION), None, "needs a table of measured kernels"
    if path is not None:
        context, taken_us = paper_decode_attention(path).T
        slope, constant = np.polyfit(context, taken_us, 1)
        linear = float(np.corrcoef(context, taken_us)[0, 1] ** 2)
        note = f"{constant:.1f} µs and {1000 * slope:.1f} µs for 1,000 tokens, a layer of Llama-3.1-8B on an RTX 4090"
        plots.paper_line_plot(
            evaluation.out / "fig5b.png", "SageSched Fig. 5b: attention of one request", context.tolist(),
            {"measured": taken_us.tolist()}, "context tokens", "µs a layer",
        )  # fmt: skip
    return paper_claim(
        "fig5b", "Fig. 5b: attention time is linear in the context: R² of the line, 16 to 16,384 tokens", 1.0, linear,
        "", PaperRule.at_least(0.95), note,
    )  # fmt: skip
