"""SageSched's evaluation in the simulator: its figures and its claims, with its own models and GPUs.

Here are the comparisons with its baselines (Fig. 7 and 8) and where their numbers come from; ``sagesched_parts`` takes
it apart (Fig. 1, 2, 4, 9, 10, 11, 13), ``sagesched_overhead`` times it (Fig. 12). ``sagesched_setting`` says what
machines, requests and predictions stand behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timely.bench.papers import plots
from timely.bench.papers.old_claims import Claim, claim, interval, mean, over_seeds
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.sagesched import ablation as parts
from timely.bench.papers.sagesched import overhead as scale
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import LLAMA, ORDER, QWEN, Latency, Told, setting
from timely.bench.papers.sagesched.workloads import DATASETS
from timely.disciplines.sagesched.baselines import Trail
from timely.disciplines.sagesched.discipline import SageSched


def run(given: Evaluation) -> list[Claim]:
    """Reproduce the evaluation: plots are drawn, claims come back."""
    errors = sage.errors_of_baselines()
    given.say(
        f"baselines: SSJF hits {100 * errors.hit_rate:.1f}% of buckets (no error: {100 * errors.best_hit_rate:.1f}%),"
        f" LTR tau {errors.tau:.2f}; sigmas {errors.ssjf:.2f}, {errors.ltr:.2f}, {errors.trail:.2f}"
    )
    return [
        *_end_to_end(given),
        *_why(given),
        *_datasets(given),
        *parts.uncertainty(given),
        *parts.similarity(given),
        *parts.ablations(given),
        *parts.sensitivity(given),
        *scale.overhead(given),
    ]


def _end_to_end(given: Evaluation) -> list[Claim]:
    """Fig. 7: all disciplines over the load, on both models."""
    found: list[Claim] = []
    best_everywhere, cells = 0, 0
    for model, rates in sage.RATES.items():
        curves: dict[str, list[list[Latency]]] = {name: [] for name in ORDER}
        for rate in rates:
            table = given.all("fig7", sage.latency, [(model, rate, "", name) for name in ORDER])
            for name, pairs in zip(ORDER, table, strict=True):
                curves[name].append([Latency(*pair) for pair in pairs])
            ttlt = {name: mean([x.ttlt_s for x in column[-1]]) for name, column in curves.items()}
            cells += 1
            # Without a queue there is nothing to decide and all are equal.
            best_everywhere += ttlt["sagesched"] <= 1.005 * min(ttlt.values())
            given.say(f"{model} {rate:g}/s: " + ", ".join(f"{n} {v:.1f} s" for n, v in ttlt.items()))
        short = "a" if model == LLAMA else "b"
        for measure_name, title in (("ttlt_s", "TTLT"), ("ttft_s", "TTFT")):
            plots.lines(
                given.out / f"fig7{short}_{title.lower()}.png",
                f"SageSched Fig7: {title}, {model}",
                rates,
                {n: [interval([getattr(x, measure_name) for x in v]) for v in c] for n, c in curves.items()},
                "requests a second",
                f"average {title} (s)",
            )
        if model == QWEN:
            found += _headline(curves)
        found.append(_over_load(model, rates, curves))
    found.append(
        claim(
            "fig7.best_ttlt",
            "loads and models at which SageSched has the least TTLT, to half a percent",
            100.0,
            100.0 * best_everywhere / cells,
            "%",
            best_everywhere == cells,
            "at the lightest loads there is no queue to order",
        )
    )
    return found


def _over_load(
    model: str, rates: Sequence[float], curves: Mapping[str, Sequence[Sequence[Latency]]]
) -> Claim:
    """Whether the gain grows with the load, and all times in the note."""
    gains = []
    times = []
    for place, rate in enumerate(rates):
        ttlt = {n: mean([x.ttlt_s for x in column[place]]) for n, column in curves.items()}
        gains.append(100.0 * (1.0 - ttlt["sagesched"] / min(v for n, v in ttlt.items() if n != "sagesched")))
        times.append(f"{rate:g}/s: " + ", ".join(f"{n} {v:.1f}" for n, v in ttlt.items()))
    return claim(
        f"fig7.grows.{model}",
        f"TTLT lower than the best baseline's at the heaviest load, over that at the lightest ({model})",
        None,
        gains[-1] - gains[0],
        "points",
        gains[-1] == max(gains),
        "; ".join(times)
        + "; holds means that the gain is largest at the heaviest load ('higher in cases with more"
        " intensive competitions')",
    )


def _headline(curves: Mapping[str, Sequence[Sequence[Latency]]]) -> list[Claim]:
    ttlt = {name: mean([x.ttlt_s for x in column[-1]]) for name, column in curves.items()}
    ttft = {name: mean([x.ttft_s for x in column[-1]]) for name, column in curves.items()}
    others = {name: value for name, value in ttlt.items() if name != "sagesched"}
    second = min(others, key=lambda name: others[name])
    gain = [100.0 * (1.0 - a.ttlt_s / b.ttlt_s)
            for a, b in zip(curves["sagesched"][-1], curves[second][-1], strict=True)]  # fmt: skip
    lowest = [100.0 * (1.0 - mean([x.ttlt_s for x in curves["sagesched"][i]])
                       / min(mean([x.ttlt_s for x in curves[n][i]]) for n in others))
              for i in range(len(curves["sagesched"]))]  # fmt: skip
    rates = sage.RATES[QWEN]
    by_rate = ", ".join(f"{rate:g}/s {value:.1f}%" for rate, value in zip(rates, lowest, strict=True))
    return [
        claim(
            "fig7.ttlt",
            f"TTLT lower than the best baseline's ({second}), {QWEN} at {sage.MAIN_RATE:g}/s",
            28.7,
            100.0 * (1.0 - ttlt["sagesched"] / others[second]),
            "%",
            ttlt["sagesched"] <= (1.0 - 0.287) * others[second],
            f"by seed {over_seeds(gain)}; {by_rate}",
        ),
        claim(
            "fig7.ttft",
            f"TTFT over the least of all but FastServe's, at {sage.MAIN_RATE:g}/s",
            1.0,
            ttft["sagesched"] / min(v for n, v in ttft.items() if n not in ("sagesched", "fastserve")),
            "ratio",
            all(ttft["sagesched"] <= v for n, v in ttft.items() if n != "fastserve"),
            ", ".join(f"{n} {v:.1f} s" for n, v in ttft.items()),
        ),
        claim(
            "fig7.fastserve",
            f"FastServe has the best TTFT and the worst TTLT, at {sage.MAIN_RATE:g}/s",
            None,
            ttlt["fastserve"] / max(v for n, v in ttlt.items() if n != "fastserve"),
            "ratio",
            ttft["fastserve"] == min(ttft.values()) and ttlt["fastserve"] == max(ttlt.values()),
            "its TTLT over the worst other's: " + ", ".join(f"{n} {v:.1f} s" for n, v in ttlt.items()),
        ),
    ]


TRAIL_FACTORS = (1.0, 1.5)
"""Times that TRAIL's renewed error is smaller than SSJF's, beside what its paper says."""

HEAVIER = (12.0,)


def _trail(factor: float, seed: int) -> float:
    made = setting(seed, sage.MAIN_RATE)
    discipline = Trail(made.history()) if factor == 0.0 else Trail(refiner=made.refiner(factor))
    return sage.measure(made.told("trail"), discipline, sage.PROFILES[QWEN]).ttlt_s


def _knowing(what: str, seed: int) -> float:
    made = setting(seed, sage.MAIN_RATE)
    discipline = SageSched(Told.of_length(made) if what == "length" else Told.of_family(made))
    return sage.measure(made.jobs, discipline, sage.PROFILES[QWEN]).ttlt_s


def _why(given: Evaluation) -> list[Claim]:
    """Where the headline number comes from: what TRAIL knows, what SageSched could know at most, and the load."""

    def ttlt(name: str, rate: float) -> float:
        return mean([pair[0] for pair in given.each("fig7", sage.latency, QWEN, rate, "", name)])

    def gain(ours: float, other: float) -> float:
        return 100.0 * (1.0 - ours / other)

    ours = ttlt("sagesched", sage.MAIN_RATE)
    best = ttlt("trail", sage.MAIN_RATE)
    trail = {f: mean(given.each("trail", _trail, f)) for f in TRAIL_FACTORS} | {sage.TRAIL_FACTOR: best}
    runnable = mean(given.each("trail", _trail, 0.0))
    knowing = {what: mean(given.each("knowing", _knowing, what)) for what in ("family", "length")}
    heavier = {rate: gain(ttlt("sagesched", rate), ttlt("trail", rate)) for rate in HEAVIER}
    listed = (
        "TTLT lower than TRAIL's, by how much smaller TRAIL's error is than SSJF's: "
        + ", ".join(f"{factor:g} times {gain(ours, value):.1f}%" for factor, value in trail.items())
        + f"; TRAIL as it can be run, on the same history: {gain(ours, runnable):.1f}%. SageSched knowing the true"
        f" distribution of each prompt {gain(knowing['family'], best):.1f}%, the true length"
        f" {gain(knowing['length'], best):.1f}%. At "
        + ", ".join(f"{rate:g}/s {value:.1f}%" for rate, value in heavier.items())
    )
    given.say(f"why: {listed}")
    return [
        claim(
            "fig7.why",
            "the headline against TRAIL on the same history, which is told nothing of the truth",
            28.7,
            gain(ours, runnable),
            "%",
            gain(ours, runnable) >= 28.7,
            listed,
        )
    ]


def _datasets(given: Evaluation) -> list[Claim]:
    """Fig. 8: each dataset by itself."""
    table: dict[str, dict[str, list[float]]] = {}
    names = (*ORDER, "trail-history")
    for dataset in DATASETS:
        asked = [(QWEN, sage.MAIN_RATE, dataset, name) for name in names]
        measured = given.all("fig8", sage.latency, asked)
        table[dataset] = {n: [pair[0] for pair in pairs] for n, pairs in zip(names, measured, strict=True)}
        given.say(f"{dataset}: " + ", ".join(f"{n} {mean(v):.1f} s" for n, v in table[dataset].items()))
    plots.bars(
        given.out / "fig8.png",
        f"SageSched Fig8: TTLT by dataset at {sage.MAIN_RATE:g}/s",
        list(table),
        {name: [interval(table[dataset][name]) for dataset in table] for name in ORDER},
        "average TTLT (s)",
    )
    gains = {
        dataset: 100.0 * (1.0 - mean(v["sagesched"]) / min(mean(v[n]) for n in ORDER if n != "sagesched"))
        for dataset, v in table.items()
    }
    listed = ", ".join(f"{dataset} {gain:.1f}%" for dataset, gain in gains.items())
    history = ", ".join(
        f"{dataset} {100.0 * (1.0 - mean(v['sagesched']) / mean(v['trail-history'])):.1f}%"
        for dataset, v in table.items()
    )
    return [
        claim(
            "fig8.best",
            "datasets on which SageSched has the least TTLT",
            3.0,
            float(sum(gain > 0.0 for gain in gains.values())),
            "of 3",
            all(gain > 0.0 for gain in gains.values()),
            f"TTLT lower than the best baseline's: {listed}; than that of TRAIL on the same history: {history}",
        ),
        claim(
            "fig8.alpaca",
            "the gain is largest on the dataset with long prompts",
            None,
            gains["alpaca"],
            "%",
            gains["alpaca"] == max(gains.values()),
            listed,
        ),
    ]
