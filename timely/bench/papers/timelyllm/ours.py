"""``timely`` against the paper's literal algorithm: side by side, its ideas one by one, and bounds."""

import math
from collections.abc import Callable, Iterator

from timely.bench.papers import plots
from timely.bench.papers.claims import CONTEXT, Claim, PaperRule, paper_claim
from timely.bench.papers.seed_statistics import Interval, paper_interval, paper_ratio_of_means
from timely.bench.papers.timelyllm.report import PaperReport, paper_difference, paper_shares
from timely.bench.papers.timelyllm.runs import (
    ADDED_SYSTEMS,
    ALONE,
    NEW_TOKENS,
    PREFIX_TOKENS,
    PROFILE,
    PUD,
    SYSTEMS,
    TIMELY,
    PaperOutcome,
    measure_paper_alone,
    measure_paper_bursts,
)

CPU_PROFILE = "cpu-smollm2"
HEAVY_NEW_TOKENS = 400

MEASURES: tuple[tuple[str, Callable[[PaperOutcome], float]], ...] = (
    ("urgent, share of the maximum", lambda outcome: outcome.share["urgent"]),
    ("normal, share of the maximum", lambda outcome: outcome.share["normal"]),
    ("response of urgent, s", lambda outcome: outcome.response_s["urgent"]),
    ("response of normal, s", lambda outcome: outcome.response_s["normal"]),
    ("waiting, s", lambda outcome: outcome.waiting_s),
    ("served", lambda outcome: outcome.served),
)


def compare_paper_systems(report: PaperReport) -> Iterator[Claim]:
    """All systems on WID 1 and 2 as ``comparison.md``, and ``timely`` against ``pud`` as claims."""
    lines: list[str] = []
    for profile in (PROFILE, CPU_PROFILE):
        for name in ("wid1", "wid2"):
            lines += _paper_comparison_table(report, name, profile)
    (report.out / "comparison.md").write_text("\n".join(lines), encoding="utf-8")
    points = {NEW_TOKENS, HEAVY_NEW_TOKENS, *report.calibrations.values()}
    for name in ("wid1", "wid2"):
        for new_tokens in sorted(points):
            yield from _paper_claims_against_pud(report, name, PROFILE, new_tokens)
    yield from _paper_claims_against_pud(report, "wid2", CPU_PROFILE, NEW_TOKENS)


def _paper_comparison_table(report: PaperReport, name: str, profile: str) -> list[str]:
    lines = [
        f"{name}, {len(report.evaluation.seeds)} seeds, profile `{profile}`, {NEW_TOKENS} new prompt tokens of"
        f" {PREFIX_TOKENS + NEW_TOKENS}",
        "",
        "| system | " + " | ".join(measure for measure, _ in MEASURES) + " |",
        "|---" * (len(MEASURES) + 1) + "|",
    ]
    for system in SYSTEMS:
        outcomes = report.outcomes(system, name, profile=profile)
        cells = []
        for measure, of in MEASURES:
            value = paper_interval([of(outcome) for outcome in outcomes])
            report.row(f"comparison, {name}, {profile}", system.name, measure, value)
            spread = f" ({value[1]:.3f} to {value[2]:.3f})" if value[2] - value[1] >= 0.001 else ""
            cells.append(f"{value[0]:.3f}{spread}")
        lines.append(f"| {system.name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _paper_claims_against_pud(
    report: PaperReport, name: str, profile: str, new_tokens: int
) -> Iterator[Claim]:
    mine, theirs = (
        report.outcomes(system, name, profile=profile, new_tokens=new_tokens) for system in (TIMELY, PUD)
    )
    where = f"{name}, {profile}, {new_tokens} new tokens"
    for kind in ("urgent", "normal"):
        yield paper_claim(
            f"ours-{name}-{profile}-{new_tokens}-{kind}", f"{kind} share of timely less that of pud; {where}", None,
            paper_difference(paper_shares(mine, kind), paper_shares(theirs, kind)), "share", PaperRule.at_least(-0.005),
            f"{paper_interval(paper_shares(theirs, kind))[0]:.3f} to {paper_interval(paper_shares(mine, kind))[0]:.3f}",
            subject="ours",
        )  # fmt: skip
    yield paper_claim(
        f"ours-{name}-{profile}-{new_tokens}-waiting", f"waiting of timely over that of pud; {where}", None,
        paper_ratio_of_means([o.waiting_s for o in mine], [o.waiting_s for o in theirs]), "ratio", PaperRule.below(1.0),
        subject="ours",
    )  # fmt: skip


def paper_ablation(report: PaperReport) -> Iterator[Claim]:
    """Ideas of ``timely`` added one by one, and each alone, WID 2."""
    for new_tokens in (NEW_TOKENS, HEAVY_NEW_TOKENS):
        values: dict[str, list[Interval | None]] = {}
        for number, system in enumerate((*ADDED_SYSTEMS, *ALONE)):
            outcomes = report.outcomes(system, "wid2", new_tokens=new_tokens)
            pair = [paper_interval(paper_shares(outcomes, kind)) for kind in ("urgent", "normal")]
            values[system.name] = list(pair)
            for kind, value in zip(("urgent", "normal"), pair, strict=True):
                report.row(f"ablation, {new_tokens} new tokens", system.name, kind, value)
                yield paper_claim(
                    f"ablation-{new_tokens}-{number}-{kind}",
                    f"Ablation, {new_tokens} new tokens: {system.name}, {kind} share of the maximum", None, value,
                    "share", CONTEXT, f"waiting {paper_interval([o.waiting_s for o in outcomes])[0]:.3f} s",
                    subject="ours",
                )  # fmt: skip
        for name, systems in (("ablation", ADDED_SYSTEMS), ("ablation-each", (*ALONE, ADDED_SYSTEMS[-1]))):
            plots.paper_bars(
                report.out / f"{name}-{new_tokens}.png",
                f"Ablation: share of the maximum, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"],
                {system.name: values[system.name] for system in systems}, "share of maximum", floor=-1.0,
            )  # fmt: skip


def paper_bounds(report: PaperReport) -> Iterator[Claim]:
    """How far ``timely`` is from what no schedule can exceed."""
    for new_tokens in (NEW_TOKENS, HEAVY_NEW_TOKENS):
        outcomes = report.outcomes(TIMELY, "wid2", new_tokens=new_tokens)
        alone = report.evaluation.each("alone", measure_paper_alone, new_tokens)
        yield paper_claim(
            f"bound-alone-{new_tokens}", f"timely over the bound 'every task alone', WID 2, {new_tokens} new tokens",
            None, paper_ratio_of_means([o.utility for o in outcomes], alone), "share", CONTEXT, subject="ours",
        )  # fmt: skip
        arguments = [(new_tokens, seed) for seed in report.evaluation.seeds[:3]]
        bursts = report.evaluation.checkpoints.map("bursts", measure_paper_bursts, arguments)
        possible, ours, theirs = (math.fsum(column) for column in zip(*bursts, strict=True))
        yield paper_claim(
            f"bound-clairvoyant-{new_tokens}",
            f"timely over the clairvoyant bound, single events of WID 2, {new_tokens} new tokens", None,
            ours / possible if possible > 0 else math.nan, "share", CONTEXT,
            f"{ours:.1f} of {possible:.1f}; the paper's algorithm {theirs:.1f}", subject="ours",
        )  # fmt: skip
