"""How far LAPS-SD is ahead of LP-SJF and LAS as one part of the setting changes, and with real texts."""

from collections.abc import Iterator

from timely.bench.papers import plots
from timely.bench.papers.claims import CONTEXT, Claim, PaperRule, paper_claim
from timely.bench.papers.laps_sd import real_texts
from timely.bench.papers.laps_sd.setting import (
    LENGTH_ERROR,
    SPAN_S,
    SWAP_S,
    SYSTEMS,
    VARIATION_REQUESTS,
    measure_paper_variation,
)
from timely.bench.papers.real_inputs import DIALOGUES
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import Measured, paper_mean, paper_percent_lower

BASE = (0.15, 0.3, LENGTH_ERROR, SPAN_S, SWAP_S)
"""Spread of lengths and of acceptances, error of predicted lengths, span of arrivals, cost of a switch."""

SETTINGS = {
    "as in the figures": BASE,
    "acceptances alike (deviation 0.1)": (0.15, 0.1, *BASE[2:]),
    "acceptances far apart (0.4)": (0.15, 0.4, *BASE[2:]),
    "lengths as in chats (sigma 0.8)": (0.8, *BASE[1:]),
    "lengths predicted to 50%": (0.15, 0.3, 0.5, *BASE[3:]),
    "chats, predicted to 100%": (0.8, 0.3, 1.0, *BASE[3:]),
    "arrivals over 60 s": (*BASE[:3], 60.0, SWAP_S),
    "switches at no cost": (*BASE[:4], 0.0),
}


def paper_settings(evaluation: PaperEvaluation) -> Iterator[Claim]:
    shares: dict[str, list[Measured | None]] = {}
    for number, (label, values) in enumerate(SETTINGS.items()):
        latency_s = {
            system: evaluation.each("varied", measure_paper_variation, *values, system) for system in SYSTEMS
        }
        evaluation.say(f"{label}: " + ", ".join(f"{s} {paper_mean(v):.1f}" for s, v in latency_s.items()))
        for system in ("laps-sd", "laps-sd-prior", "las", "clairvoyant"):
            share = 100.0 * paper_mean(latency_s[system]) / paper_mean(latency_s["lp-sjf"])
            shares.setdefault(system, []).append(share)
        yield from _laps_paper_rows(f"sensitivity.{number}", label, latency_s)
    plots.paper_bars(
        evaluation.out / "sensitivity.png", "LAPS-SD: average latency against LP-SJF, by setting",
        list(SETTINGS), shares, "latency, % of LP-SJF's",
    )  # fmt: skip


def _laps_paper_rows(name: str, label: str, latency_s: dict[str, list[float]]) -> Iterator[Claim]:
    lower = {s: paper_percent_lower(values, latency_s["lp-sjf"]) for s, values in latency_s.items()}
    yield paper_claim(
        name, f"LAPS-SD lower than LP-SJF, {VARIATION_REQUESTS} requests, {label}", 39.0, lower["laps-sd"], "%",
        PaperRule.near(39.0, neutral=0.0) if "figures" in label or "texts" in label else CONTEXT,
        f"lower than las {paper_mean(paper_percent_lower(latency_s['laps-sd'], latency_s['las'])):.1f}%;"
        f" true execution time first {paper_mean(lower['clairvoyant']):.1f}%",
    )  # fmt: skip
    yield paper_claim(
        f"{name}.prior", f"laps-sd-prior lower than laps-sd, {VARIATION_REQUESTS} requests, {label}", None,
        paper_percent_lower(latency_s["laps-sd-prior"], latency_s["laps-sd"]), "%", PaperRule.above(0.0),
        subject="ours",
    )  # fmt: skip


def paper_real_texts(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Lengths and acceptances of real texts: answers of the packaged model, and written ones where they are at hand."""
    path = evaluation.input(DIALOGUES)
    yield from _laps_paper_real_text_claims(evaluation, "model", "answers of the packaged model", "")
    if path is None:
        name = "real.lp-sjf"
        yield paper_claim(
            name, "LAPS-SD lower than LP-SJF, written answers", 39.0, None, "%", PaperRule.near(39.0),
        )  # fmt: skip
        return
    yield from _laps_paper_real_text_claims(evaluation, "real", "written answers", str(path))


def _laps_paper_real_text_claims(
    evaluation: PaperEvaluation, name: str, answers: str, data: str
) -> Iterator[Claim]:
    latency_s = {
        system: evaluation.each("real", real_texts.measure_paper_texts, data, system) for system in SYSTEMS
    }
    samples = real_texts.paper_text_samples(data)
    tokens, rates = (sorted(sample[place] for sample in samples) for place in (1, 2))
    spread = [[column[int(share * len(column))] for share in (0.1, 0.9)] for column in (tokens, rates)]
    yield from _laps_paper_rows(
        f"{name}.lp-sjf", f"{answers} to real texts (MTS-Dialog), n-gram drafts", latency_s
    )
    yield paper_claim(
        f"{name}.acceptance", f"Acceptance of n-gram drafts, {answers}, mean over {len(samples)} texts", None,
        paper_mean(rates), "share", CONTEXT, f"tenth to ninetieth percentile {spread[1][0]:.2f} to {spread[1][1]:.2f};"
        f" answers of {spread[0][0]:.0f} to {spread[0][1]:.0f} tokens",
    )  # fmt: skip
