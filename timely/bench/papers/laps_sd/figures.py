"""LAPS-SD's figures: cost of a switch, acceptance over time, latency, number of queues, error of the estimate."""

from collections.abc import Iterator

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, CONTEXT, Claim, PaperRule, paper_claim
from timely.bench.papers.laps_sd.setting import (
    DATASETS,
    LENGTH_ERROR,
    SHOWN_TOKENS,
    SWAP_S,
    SYSTEMS,
    measure_laps_paper_latency,
    measure_paper_acceptance,
    measure_paper_alone_s,
    measure_paper_errors,
    paper_acceptance_settled,
)
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import paper_mean, paper_percent_lower

COUNTS = (10, 30, 50)
SWITCHED_TOKENS = (100, 200, 300, 400, 500)
CURVE_RATES = (0.3, 0.5, 0.7)
STEADY = 0.05
QUEUES = (2, 4, 6, 8, 10)
FIRST_S = (1.0, 0.1)
"""Sizes of the first queue, seconds of service; the paper gives none."""
STRICT = (6, 0.1), (16, 0.03), (24, 0.03)
"""Gamma and delta, which the paper does not give."""


def paper_figure_2(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """The cost of a switch as a share of a request's inference time."""
    shares = [
        [
            100.0 * 2.0 * SWAP_S * (DATASETS["CP"].prompt + tokens) / alone_s
            for alone_s in evaluation.each("alone", measure_paper_alone_s, tokens)
        ]
        for tokens in SWITCHED_TOKENS
    ]
    plots.paper_line_plot(
        evaluation.out / "fig2.png", "LAPS-SD Fig. 2: cost of a switch", SWITCHED_TOKENS,
        {"out and in again": shares}, "output tokens", "% of the inference time",
        paper={"paper, 500 tokens": (500.0, 14.21)},
    )  # fmt: skip
    yield paper_claim(
        "fig2.switch", "Fig. 2: a switch, of the inference time of a request with 500 output tokens", 14.21, shares[-1],
        "%", BY_CONSTRUCTION, "the speed of moving a cache is taken from this number",
    )  # fmt: skip


def paper_figure_3(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Acceptance so far, as a request goes on."""
    curves = {rate: evaluation.each("acceptance", measure_paper_acceptance, rate) for rate in CURVE_RATES}
    plots.paper_line_plot(
        evaluation.out / "fig3.png", "LAPS-SD Fig. 3: acceptance so far, three requests",
        [10.0 * (place + 1) for place in range(SHOWN_TOKENS // 10)],
        {f"{rate:g} in the end": curves[rate][0] for rate in CURVE_RATES}, "tokens", "acceptance so far",
    )  # fmt: skip
    tokens = [float(paper_acceptance_settled(curve, STEADY)) for runs in curves.values() for curve in runs]
    yield paper_claim(
        "fig3.steady", f"Fig. 3: tokens after which acceptance so far stays within {STEADY:g} of its end", 150.0,
        tokens, "tokens", BY_CONSTRUCTION,
        "rounds are independent here, so acceptance must settle; the paper's number is one request's",
    )  # fmt: skip


def paper_figure_5(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Average latency over the number of requests."""
    cells = {
        name: {
            system: [
                evaluation.each("latency", measure_laps_paper_latency, name, count, system, 4, 1.0)
                for count in COUNTS
            ]
            for system in SYSTEMS
        }
        for name in DATASETS
    }
    for name, by_system in cells.items():
        plots.paper_line_plot(
            evaluation.out / f"fig5_{name}.png", f"LAPS-SD Fig. 5: {name}", COUNTS,
            by_system, "requests", "average latency, s",
        )  # fmt: skip
        evaluation.say(
            f"fig5 {name}: " + ", ".join(f"{s} {paper_mean(row[-1]):.1f} s" for s, row in by_system.items())
        )

    def lower(system: str, other: str, name: str = "") -> list[float]:
        """Per cent lower by seed, averaged over numbers of requests and datasets."""
        datasets = [name] if name else list(cells)
        rows = [
            paper_percent_lower(mine, theirs)
            for dataset in datasets
            for mine, theirs in zip(cells[dataset][system], cells[dataset][other], strict=True)
        ]
        return [paper_mean(column) for column in zip(*rows, strict=True)]

    for other, paper in (("lp-sjf", 39.0), ("las", 31.0)):
        each = ", ".join(f"{name} {paper_mean(lower('laps-sd', other, name)):.1f}%" for name in DATASETS)
        yield paper_claim(
            f"fig5.{other}", f"Fig. 5: average latency lower than under {other}, 10 to 50 requests", paper,
            lower("laps-sd", other), "%", PaperRule.near(paper, neutral=0.0),
            f"{each}; non-preemptive order by true execution time: {paper_mean(lower('clairvoyant', other)):.1f}%."
            " About the bound of non-preemptive orders on these workloads; it says nothing of preemptive ones",
        )  # fmt: skip
    yield paper_claim(
        "fig5.fcfs", "Fig. 5: average latency lower than under fcfs, which is LAS with a quantum that never ends", None,
        lower("laps-sd", "fcfs"), "%", CONTEXT, ", ".join(
            f"{name} {paper_mean(lower('laps-sd', 'fcfs', name)):.1f}%" for name in DATASETS
        ),
    )  # fmt: skip
    leads = [
        paper_percent_lower(mine, theirs)
        for row in cells.values()
        for other in ("lp-sjf", "las", "fcfs")
        for mine, theirs in zip(row["laps-sd"], row[other], strict=True)
    ]
    yield paper_claim(
        "fig5.always", "Fig. 5: least lead over any baseline, dataset and number ('always outperforms others')", None,
        min(leads, key=paper_mean), "%", PaperRule.above(0.0),
        f"ahead in {sum(paper_mean(lead) > 0.0 for lead in leads)} of {len(leads)} cells",
    )  # fmt: skip
    quick = [row["laps-sd"][0] for row in cells.values()]
    yield paper_claim(
        "fig5.mbpp", "Fig. 5: MBPP's latency over the mean of the other two ('significantly shorter')", None,
        [b / ((a + c) / 2.0) for a, b, c in zip(*quick, strict=True)], "ratio", BY_CONSTRUCTION,
        "its answers are taken to be shorter and its drafts better",
    )  # fmt: skip
    yield paper_claim(
        "fig5.prior", "Average latency of laps-sd-prior lower than of laps-sd, 10 to 50 requests", None,
        lower("laps-sd-prior", "laps-sd"), "%", PaperRule.above(0.0), subject="ours",
    )  # fmt: skip


def paper_figure_6(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """The number of queues, for two sizes of the first."""
    for first_s in FIRST_S:
        inner, cells, texts = 0, 0, []
        for count in (10, 30):
            curves = {
                name: [
                    evaluation.each(
                        "latency", measure_laps_paper_latency, name, count, "laps-sd", queues, first_s
                    )
                    for queues in QUEUES
                ]
                for name in DATASETS
            }
            plots.paper_line_plot(
                evaluation.out / f"fig6_{count}_first{first_s:g}.png",
                f"LAPS-SD Fig. 6: queues, {count} requests, the first up to {first_s:g} s", QUEUES,
                curves, "queues K", "average latency, s",
            )  # fmt: skip
            for name, row in curves.items():
                means = [paper_mean(values) for values in row]
                best = means.index(min(means))
                # The paper's shape: down to a best number in between, then up by more than noise.
                inner += 0 < best < len(means) - 1 and min(means[0], means[-1]) > 1.005 * means[best]
                cells += 1
                texts.append(f"{name} {count}: best K={QUEUES[best]}")
        yield paper_claim(
            f"fig6.shape.{first_s:g}",
            f"Fig. 6: settings with a best number of queues in between, first queue {first_s:g} s", float(cells),
            float(inner), f"of {cells}", PaperRule.at_least(float(cells), neutral=0.0), ", ".join(texts),
        )  # fmt: skip


def paper_figure_7(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Error of the estimated execution time, when a request becomes perceptible."""
    for rounds, spread in STRICT:
        cells = [
            evaluation.each("errors", measure_paper_errors, name, rounds, spread, LENGTH_ERROR)
            for name in DATASETS
        ]
        errors = [100.0 * paper_mean([row[0] for row in seed]) for seed in zip(*cells, strict=True)]
        after = paper_mean([row[1] for cell in cells for row in cell])
        latency_s = paper_mean([row[3] for cell in cells for row in cell])
        yield paper_claim(
            f"fig7.error.{rounds}.{spread:g}",
            f"Fig. 7: error of the estimated execution time, gamma {rounds}, delta {spread:g}", 6.84, errors, "%",
            PaperRule.at_most(7.0), f"after {after:.0f} rounds, latency {latency_s:.1f} s; lengths err by"
            f" {100 * LENGTH_ERROR:.0f}%. The paper's 6.84% is below each of its datasets' 7.63, 11.21 and 8.51%",
        )  # fmt: skip
