"""Semantic scheduling, Figures 2 and 4: wrong predictions, and spikes of requests."""

from collections.abc import Iterator, Sequence

from timely.bench.papers import plots
from timely.bench.papers.claims import Claim, PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import paper_mean, paper_ratios
from timely.bench.papers.semantic.spikes import (
    GAP_S,
    MAIN,
    SCRIPT_GAP_S,
    WORKLOADS_A_SEED,
    Levels,
    measure_paper_spike,
    measure_paper_urgent_alone,
    measure_paper_wrong,
)
from timely.disciplines.semantic.constants import (
    BASELINE_BATCH,
    BATCH,
    CONCURRENT_REQUESTS,
    SMALL_BATCH,
    SPIKE_REQUESTS,
    URGENCY_LEVELS,
)

CONCURRENCY = (5, 20, 100)
BASELINES = ("hpjf", "sjf", "fcfs")
HEADLINE = {"hpjf": 1.7, "sjf": 6.1, "fcfs": 8.7}
"""Times faster for urgency 0, gap 0.1 s, up to 100 at once (section 4.1)."""
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)

SPIKE_PAPER: dict[tuple[str, float], tuple[float | None, float]] = {
    (MAIN, 1.0): (None, 9.1),
    ("A100-7B", 0.1): (0.18, 6.5),
    ("A100-7B", 1.0): (0.16, 6.6),
    ("A5000-4B", 0.1): (0.37, 6.8),
    ("A5000-4B", 1.0): (0.32, 7.0),
}
"""Machine and gap -> waiting of urgency 0, seconds a token, and times faster, at most (section 4.1, appendix A.1)."""


def paper_level_waiting(runs: Sequence[Levels], level: int, each: bool = False) -> list[float]:
    """Waiting of a level, a seed each; pooled, or as the mean over requests."""
    return [run[level + (URGENCY_LEVELS + 1) * each] for run in runs]


def paper_slowdown(
    runs: Sequence[Levels], base: Sequence[Levels], level: int = 0, each: bool = False
) -> list[float]:
    """How many times as long a level waits, seed by seed."""
    return paper_ratios(paper_level_waiting(runs, level, each), paper_level_waiting(base, level, each))


def paper_headline(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 2c at 100 requests at once."""

    def runs(system: str, places: int = BATCH) -> list[Levels]:
        return evaluation.each("spike", measure_paper_spike, MAIN, 0.1, SPIKE_REQUESTS, system, places)

    literal, mixed = runs("semantic"), runs("semantic-mixed")
    alone = evaluation.each("urgent-alone", measure_paper_urgent_alone, SPIKE_REQUESTS)
    yield paper_claim(
        "fig2c.semantic", "Fig. 2c: waiting of urgency 0, gap 0.1 s, up to 100 at once", 0.08,
        paper_level_waiting(literal, 0, each=True), "s a token", PaperRule.near(0.08),
        f"mean over requests; pooled {paper_mean(paper_level_waiting(literal, 0)):.3f}",
    )  # fmt: skip
    for name, paper in HEADLINE.items():
        fewer, staged, plain = runs(f"staged-{name}", BASELINE_BATCH), runs(f"staged-{name}"), runs(name)
        for key, other, what in (
            ("", fewer, "as published: 16 places, the baseline 12"),
            (".equal", staged, "with 16 places for both"),
            (".plain", plain, "the baseline as engines have it, with chunked prompts"),
        ):
            yield paper_claim(
                f"fig2c.{name}{key}", f"Fig. 2c: urgency 0 faster than {name}, {what}", paper,
                paper_slowdown(other, literal), "times", PaperRule.near(paper, neutral=1.0),
                f"pooled; as means over requests {paper_mean(paper_slowdown(other, literal, each=True)):.1f};"
                f" the urgent alone on the machine {paper_mean(paper_slowdown(other, alone)):.1f}",
            )  # fmt: skip
        evaluation.say(
            f"spikes, {name}: {paper_mean(paper_slowdown(fewer, literal)):.2f}"
            f" {paper_mean(paper_slowdown(staged, literal)):.2f}"
        )
    for level, who in ((0, "urgency 0"), (URGENCY_LEVELS, "all")):
        yield paper_claim(
            f"ours.mixed.{level}", f"waiting of {who} under semantic-mixed over semantic, up to 100 at once", None,
            paper_slowdown(mixed, literal, level, each=True), "ratio", PaperRule.below(1.0), subject="ours",
        )  # fmt: skip


def paper_spikes_over_concurrency(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 2d and 4: waiting of urgency 0 over concurrency, for both gaps and all machines."""
    for (machine, gap_s), (wait_s, faster) in SPIKE_PAPER.items():
        places = BATCH if machine == MAIN else SMALL_BATCH
        cells = {
            system: [
                evaluation.each("spike", measure_paper_spike, machine, gap_s, count, system, places)
                for count in CONCURRENCY
            ]
            for system in ("semantic", *(f"staged-{name}" for name in BASELINES))
        }
        figure = "fig2d" if machine == MAIN else "fig4"
        plots.paper_line_plot(
            evaluation.out / f"{figure}_{machine}_gap{gap_s:g}.png",
            f"Semantic {figure}: urgency 0, {machine}, gap {gap_s:g} s", CONCURRENCY,
            {s.removeprefix("staged-"): [paper_level_waiting(cell, 0) for cell in row] for s, row in cells.items()},
            "most requests at once", "normalized waiting, s a token",
        )  # fmt: skip
        literal = cells["semantic"]
        factors = [
            paper_slowdown(cell, literal[place])
            for name in BASELINES
            for place, cell in enumerate(cells[f"staged-{name}"])
        ]
        where = f"{machine}, gap {gap_s:g} s, {places} places"
        yield paper_claim(
            f"{figure}.{machine}.gap{gap_s:g}.faster",
            f"Urgency 0 faster than the slowest baseline, at most over concurrency ({where})", faster,
            max(factors, key=paper_mean), "times", PaperRule.near(faster, neutral=1.0), "pooled, equal places",
        )  # fmt: skip
        if wait_s is not None:
            yield paper_claim(
                f"{figure}.{machine}.gap{gap_s:g}.waiting", f"Waiting of urgency 0, at most ({where})", wait_s,
                max((paper_level_waiting(cell, 0, each=True) for cell in literal), key=paper_mean), "s a token",
                PaperRule.near(wait_s),
            )  # fmt: skip
        evaluation.say(f"{figure} {where}: {paper_mean(max(factors, key=paper_mean)):.1f} times")


WRONG = {
    "levels": ("fig2a", {0: (0.02, 0.07), 1: (0.03, 0.22), URGENCY_LEVELS: (0.13, 0.12)}),
    "lengths": (
        "fig2b",
        {0: (0.01, 0.01), 1: (0.03, 0.04), 2: (0.08, 0.11), 3: (0.18, 0.21), 4: (0.30, 0.33)},
    ),
}
"""Wrong predictions -> figure, and waiting of each level at errors of 0.1 and of 0.9, seconds a token (section 4.1)."""


def paper_wrong_predictions(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 2a and 2b, at five requests at once, also with the gap of the published scripts."""
    names = [f"urgency {level}" for level in range(URGENCY_LEVELS)] + ["all"]

    def runs(what: str, rate: float, gap_s: float) -> list[Levels]:
        return evaluation.each("wrong", measure_paper_wrong, what, rate, CONCURRENT_REQUESTS, gap_s)

    for what, (figure, paper_waits_s) in WRONG.items():
        cells = [runs(what, rate, GAP_S) for rate in RATES]
        plots.paper_line_plot(
            evaluation.out / f"{figure}.png", f"Semantic Fig. {figure[3:]}: errors of predicted {what}", RATES,
            {
                name: [paper_level_waiting(cell, level, True) for cell in cells]
                for level, name in enumerate(names)
            },
            "error rate", "normalized waiting, s a token",
        )  # fmt: skip
        script = [runs(what, rate, SCRIPT_GAP_S) for rate in (RATES[0], RATES[-1])]
        terms = (("", "", cells), (".script", f", {SCRIPT_GAP_S:g} s between arrivals", script))
        for key, where, curve in terms:
            first, last = curve[0], curve[-1]
            for level, (low_s, high_s) in paper_waits_s.items():
                name, paper = names[level], high_s / low_s
                yield paper_claim(
                    f"{figure}.{name.replace(' ', '')}{key}",
                    f"Fig. {figure[3:]}: {name}, waiting at an error of 0.9 over that at 0.1{where}", paper,
                    paper_slowdown(last, first, level, each=True), "times",
                    PaperRule.near(paper, neutral=None if paper == 1.0 else 1.0),
                    f"{paper_mean(paper_level_waiting(first, level, True)):.3f} and"
                    f" {paper_mean(paper_level_waiting(last, level, True)):.3f} s a token"
                    f" (paper {low_s:.2f} and {high_s:.2f}); up to {CONCURRENT_REQUESTS} at once,"
                    f" {WORKLOADS_A_SEED} workloads a seed",
                )  # fmt: skip
