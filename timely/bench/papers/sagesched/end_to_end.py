"""SageSched against its baselines: over the load (Fig. 7), by dataset (Fig. 8), and with better knowledge."""

from collections.abc import Iterator, Mapping, Sequence

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, CONTEXT, Claim, PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched import resources
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import MAIN_RATE, ORDER, QWEN, Latency
from timely.bench.papers.sagesched.workloads import DATASETS
from timely.bench.papers.seed_statistics import Measured, paper_mean, paper_percent_lower, paper_ratios

SYNTHETIC = "requests are synthetic; SSJF, LTR and TRAIL receive predictions made from the truth"

Curves = Mapping[str, Sequence[Sequence[Latency]]]
"""Discipline -> rate -> seed."""


def paper_over_load(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 7: all disciplines over the load, on both models."""
    for model, rates in sage.RATES.items():
        curves: dict[str, list[list[Latency]]] = {name: [] for name in ORDER}
        for rate in rates:
            table = evaluation.all(
                "fig7", sage.sagesched_paper_latency, [(model, rate, "", name) for name in ORDER]
            )
            for name, pairs in zip(ORDER, table, strict=True):
                curves[name].append([Latency(*pair) for pair in pairs])
            evaluation.say(
                f"{model} {rate:g}/s: "
                + ", ".join(f"{n} {paper_mean(_paper_ttlt(c[-1])):.1f} s" for n, c in curves.items())
            )
        for measure, title in (("ttlt_s", "TTLT"), ("ttft_s", "TTFT")):
            plots.paper_line_plot(
                evaluation.out / f"fig7_{model}_{title.lower()}.png", f"SageSched Fig. 7: {title}, {model}", rates,
                {n: [[getattr(x, measure) for x in v] for v in c] for n, c in curves.items()},
                "requests a second", f"average {title} (s)",
            )  # fmt: skip
        yield from _paper_headline_claims(model, rates, curves)
        if model == QWEN:
            yield from _paper_fastserve_claims(evaluation, curves)


def _paper_ttlt(values: Sequence[Latency]) -> list[float]:
    return [value.ttlt_s for value in values]


def _best_other_paper_system(curves: Curves, place: int) -> str:
    others = [name for name in curves if name != "sagesched"]
    return min(others, key=lambda name: paper_mean(_paper_ttlt(curves[name][place])))


def _paper_headline_claims(model: str, rates: Sequence[float], curves: Curves) -> Iterator[Claim]:
    seconds = [_best_other_paper_system(curves, place) for place in range(len(rates))]
    gains = [
        paper_percent_lower(_paper_ttlt(curves["sagesched"][place]), _paper_ttlt(curves[name][place]))
        for place, name in enumerate(seconds)
    ]
    second = seconds[-1]
    by_rate = ", ".join(
        f"{rate:g}/s {paper_mean(gain):.1f}%" for rate, gain in zip(rates, gains, strict=True)
    )
    times = ", ".join(
        f"{name} {paper_mean(_paper_ttlt(column[-1])):.1f} s" for name, column in curves.items()
    )
    main = model == QWEN
    yield paper_claim(
        f"fig7.ttlt.{model}", f"Fig. 7: TTLT lower than the best baseline's ({second}), {model} at {rates[-1]:g}/s",
        28.7 if main else None, gains[-1], "%", PaperRule.at_least(28.7, neutral=0.0) if main else PaperRule.above(0.0),
        f"{by_rate}; {times}; {SYNTHETIC}",
    )  # fmt: skip
    if not main:
        return
    ttft = {name: [value.ttft_s for value in column[-1]] for name, column in curves.items()}
    others = [name for name in ttft if name not in ("sagesched", "fastserve")]
    best = min(others, key=lambda name: paper_mean(ttft[name]))
    yield paper_claim(
        "fig7.grows", "Fig. 7: gain at the heaviest load less that at the lightest ('higher ... more intensive')", None,
        [b - a for a, b in zip(gains[0], gains[-1], strict=True)], "points", PaperRule.above(0.0),
    )  # fmt: skip
    yield paper_claim(
        "fig7.ttft", f"Fig. 7: TTFT over the least of all but FastServe's ({best})", None,
        paper_ratios(ttft["sagesched"], ttft[best]), "ratio", PaperRule.below(1.0),
        ", ".join(f"{name} {paper_mean(values):.1f} s" for name, values in ttft.items()),
    )  # fmt: skip


def _paper_fastserve_claims(evaluation: PaperEvaluation, curves: Curves) -> Iterator[Claim]:
    """What the paper says of FastServe, at its own default; elsewhere it runs with the best quantum."""
    pairs = evaluation.each("fig7", sage.sagesched_paper_latency, QWEN, MAIN_RATE, "", "fastserve-default")
    mine = [Latency(*pair) for pair in pairs]
    others = {name: column[-1] for name, column in curves.items() if name != "fastserve"}
    worst = max(others, key=lambda name: paper_mean(_paper_ttlt(others[name])))
    yield paper_claim(
        "fig7.fastserve.ttft", "Fig. 7: FastServe (default) has the best TTFT: over SageSched's", None,
        paper_ratios([x.ttft_s for x in mine], [x.ttft_s for x in others["sagesched"]]), "ratio", PaperRule.below(1.0),
    )  # fmt: skip
    yield paper_claim(
        "fig7.fastserve.ttlt", f"Fig. 7: FastServe (default) has the worst TTLT: over the next worst ({worst})", None,
        paper_ratios(_paper_ttlt(mine), _paper_ttlt(others[worst])), "ratio", PaperRule.above(1.0),
    )  # fmt: skip


def paper_by_dataset(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 8: each dataset by itself."""
    names = (*ORDER, "trail-history")
    gains: dict[str, list[float]] = {}
    bars: dict[str, list[Measured | None]] = {name: [] for name in ORDER}
    for dataset in DATASETS:
        table = evaluation.all(
            "fig8", sage.sagesched_paper_latency, [(QWEN, MAIN_RATE, dataset, name) for name in names]
        )
        ttlt = {n: [pair[0] for pair in pairs] for n, pairs in zip(names, table, strict=True)}
        evaluation.say(f"{dataset}: " + ", ".join(f"{n} {paper_mean(v):.1f} s" for n, v in ttlt.items()))
        for name in ORDER:
            bars[name].append(ttlt[name])
        second = min((n for n in ORDER if n != "sagesched"), key=lambda n: paper_mean(ttlt[n]))
        gains[dataset] = paper_percent_lower(ttlt["sagesched"], ttlt[second])
        history = paper_mean(paper_percent_lower(ttlt["sagesched"], ttlt["trail-history"]))
        yield paper_claim(
            f"fig8.{dataset}", f"Fig. 8: TTLT lower than the best baseline's ({second}), {dataset}", None,
            gains[dataset], "%", PaperRule.above(0.0), f"than TRAIL's on the same history {history:.1f}%; {SYNTHETIC}",
        )  # fmt: skip
    plots.paper_bars(
        evaluation.out / "fig8.png", f"SageSched Fig. 8: TTLT by dataset at {MAIN_RATE:g}/s", list(DATASETS), bars,
        "average TTLT (s)",
    )  # fmt: skip
    rest = [max(pair) for pair in zip(gains["sharegpt"], gains["write"], strict=True)]
    yield paper_claim(
        "fig8.long_prompts", "Fig. 8: gain on Alpaca (long prompts) less the larger of the other two", None,
        [a - b for a, b in zip(gains["alpaca"], rest, strict=True)], "points", PaperRule.above(0.0),
    )  # fmt: skip


def paper_knowledge(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Our smoothed history against the paper's, and what better knowledge would be worth."""
    literal, smooth, family, length = sage.sagesched_paper_ttlt(
        evaluation, ("sagesched", "sagesched-smooth", "true family", "true length")
    ).values()
    yield paper_claim(
        "ours.smooth", "TTLT of sagesched-smooth lower than that of sagesched", None,
        paper_percent_lower(smooth, literal), "%", PaperRule.above(0.0),
        "hashed words, a kernel around each length, few similar requests filled up", subject="ours",
    )  # fmt: skip
    for what, values in (("family", family), ("length", length)):
        yield paper_claim(
            f"knowing.{what}", f"TTLT of SageSched lower with each prompt's true {what}", None,
            paper_percent_lower(values, literal), "%", CONTEXT,
        )  # fmt: skip
    yield from resources.paper_figure_2b(evaluation)


def paper_tuning(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """The baseline's own parameter, chosen on a seed that no figure uses."""
    ttlt = {q: evaluation.once("tuning", sage.measure_paper_quantum, float(q)) for q in sage.FASTSERVE_QUANTA}
    yield paper_claim(
        "tuning.fastserve", "FastServe's first quantum with the least TTLT, on a seed of its own", None,
        float(min(ttlt, key=lambda quantum: ttlt[quantum])), "tokens", BY_CONSTRUCTION,
        f"used: {sage.FASTSERVE_QUANTUM}; " + ", ".join(f"{q}: {value:.1f} s" for q, value in ttlt.items()),
    )  # fmt: skip
