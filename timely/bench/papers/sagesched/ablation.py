"""SageSched taken apart: uncertain lengths (Fig. 1, 2, 4), what each part brings (Fig. 9 to 11), parameters (13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.old_claims import Claim, claim, interval, mean, over_seeds
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import Lengths, Setting, Told, setting
from timely.bench.papers.sagesched.workloads import DATASETS, World
from timely.disciplines.predictors.embedding import HashEmbedder, Vectors
from timely.disciplines.sagesched.discipline import SageSched

# ---------------------------------------------------------------------- Fig. 1a, 2a: one prompt, many lengths

PROMPTS = 10
TRIALS = 100
"""Answers to one prompt."""


def uncertainty(given: Evaluation) -> list[Claim]:
    """Fig. 1a and 2a: answers to one and the same prompt differ, so no single number predicts them."""
    rng = np.random.default_rng([given.seeds[0], 71])
    prompts = World(given.seeds[0], ("sharegpt",)).draw(PROMPTS, rng)
    lengths = [drawn.family.lengths(TRIALS, rng) for drawn in prompts]
    plots.cumulative(
        given.out / "fig1a.png",
        f"SageSched Fig1a: {TRIALS} answers to each of {PROMPTS} prompts",
        {f"prompt {number}": each.tolist() for number, each in enumerate(lengths, 1)},
        "output tokens",
        x_max=float(np.quantile(np.concatenate(lengths), 0.98)),
    )
    spread = [float(np.quantile(each, 0.9) / np.quantile(each, 0.1)) for each in lengths]
    errors = sage.errors_of_baselines()
    return [
        claim(
            "fig1a.uncertain",
            f"longest over shortest tenth of the answers to one prompt, median of {PROMPTS} prompts",
            None,
            float(np.median(spread)),
            "times",
            float(np.median(spread)) > 2.0,
            f"least {min(spread):.1f}, most {max(spread):.1f}; holds means more than twice",
        ),
        claim(
            "fig2a.one_number",
            f"a predicted length is in the right one of {sage.BUCKETS} buckets (SSJF)",
            34.1,
            100.0 * errors.hit_rate,
            "%",
            errors.best_hit_rate < 0.5,
            "SSJF's error is chosen for it; whoever knew each prompt's distribution and named its likeliest bucket"
            f" would be right in {100 * errors.best_hit_rate:.1f}%; holds means less than half",
        ),
    ]


# ---------------------------------------------------------------------- Fig. 4: similar prompts, similar lengths

BANDS = ("below 0.4", "0.4 to 0.7", "0.7 and more")
"""Cosines of hashed words; the last is what the predictor takes."""

REMEMBERED = 10_000
"""Past requests, the paper's window."""

TARGETS = 12
"""Prompts of each dataset, whose own distribution is known from ``TRIALS`` answers each."""


def distance(a: Lengths, b: Lengths) -> float:
    """Mean distance of two samples' quantiles (Wasserstein's), in the samples' unit."""
    places = (np.arange(200) + 0.5) / 200.0
    return float(np.abs(np.quantile(a, places) - np.quantile(b, places)).mean())


@lru_cache(maxsize=1)
def _past(seed: int, count: int) -> tuple[Lengths, Vectors]:
    """Output lengths and prompts' vectors of past requests."""
    past = World(seed).draw(count, np.random.default_rng([seed, 31]))
    vectors = HashEmbedder().embed([drawn.text for drawn in past])
    return np.array([drawn.output_tokens for drawn in past]), vectors


def _by_similarity(dataset: str, seed: int) -> list[list[Lengths]]:
    """For prompts of a dataset: their own lengths, then those of past requests in each band of similarity."""
    rng = np.random.default_rng([seed, 67])
    world, space = World(seed), HashEmbedder()
    lengths, vectors = _past(seed, REMEMBERED)
    targets = [drawn for drawn in world.draw(20 * TARGETS, rng) if drawn.family.dataset == dataset]
    found = []
    for drawn in targets[:TARGETS]:
        cosines = vectors @ space.embed([drawn.text])[0]
        band = np.digitize(cosines, (0.4, space.threshold))
        found.append([drawn.family.lengths(TRIALS, rng), *(lengths[band == place] for place in range(3))])
    return found


def _distances(dataset: str, seed: int) -> list[float]:
    """Mean distance of each band's lengths from a prompt's own, relative to the mean of these."""
    rows = []
    for own, *bands in _by_similarity(dataset, seed):
        if all(band.size >= 5 for band in bands):
            rows.append([distance(band, own) / own.mean() for band in bands])
    return np.mean(rows, axis=0).tolist() if rows else []


def similarity(given: Evaluation) -> list[Claim]:
    """Fig. 4: the more similar the past prompts, the closer their output lengths to the prompt's own."""
    seed = given.seeds[0]
    for part, dataset in (("a", "alpaca"), ("b", "write")):
        shown = [row for row in _by_similarity(dataset, seed) if row[3].size >= 20]
        if shown:
            named = zip(("its own", *BANDS), shown[0], strict=True)
            plots.cumulative(
                given.out / f"fig4{part}.png",
                f"SageSched Fig4{part}: lengths of similar prompts, {dataset}",
                {name: lengths.tolist() for name, lengths in named if lengths.size},
                "output tokens",
                x_max=float(np.quantile(shown[0][0], 0.99)),
            )
    table = {name: [row for row in given.each("fig4", _distances, name) if row] for name in DATASETS}
    means = {name: [mean([row[place] for row in rows]) for place in range(3)] for name, rows in table.items()}
    overall = [mean([row[place] for row in means.values()]) for place in range(3)]
    return [
        claim(
            "fig4.closer",
            "distance from a prompt's own lengths: of the most similar past prompts over that of the least similar",
            None,
            overall[2] / overall[0],
            "ratio",
            all(row[2] < row[0] and row[2] < row[1] for row in means.values()),
            f"relative distances {', '.join(BANDS)}: "
            + "; ".join(f"{name} {' '.join(f'{v:.2f}' for v in row)}" for name, row in means.items())
            + "; holds means the most similar are closest in every dataset",
        )
    ]


# ---------------------------------------------------------------------- Fig. 9, 10, 11: its parts


def _variant(what: str, seed: int) -> float:
    """TTLT of a variant of SageSched, named as ``VARIANTS`` and ``sensitivity`` name them."""
    made = setting(seed, sage.MAIN_RATE)
    kind, _, value = what.partition("=")
    if kind == "threshold":
        discipline = SageSched(made.history(threshold=float(value)))
    elif kind == "bucket":
        discipline = SageSched(made.history(), bucket_tokens=float(value))
    elif kind == "window":
        discipline = SageSched(made.history(window=int(value)))
    else:
        discipline = VARIANTS[what](made)
    return sage.measure(made.jobs, discipline, sage.PROFILES[sage.QWEN]).ttlt_s


VARIANTS: dict[str, Callable[[Setting], SageSched]] = {
    "history by length": lambda s: SageSched(s.history(by="length")),
    "fine-tuned model": lambda s: SageSched(Told.fine_tuned(s)),
    "output length": lambda s: SageSched(s.history(), cost="output"),
    "overall length": lambda s: SageSched(s.history(), cost="overall"),
    "Gittins": lambda s: SageSched(s.history(), bucket_tokens=np.inf),
    "Mean": lambda s: SageSched(s.history(), order="mean"),
    "SageSched, noise": lambda s: SageSched(s.history(), noise=0.2),
    "Gittins, noise": lambda s: SageSched(s.history(), noise=0.2, bucket_tokens=np.inf),
    "Mean, noise": lambda s: SageSched(s.history(), noise=0.2, order="mean"),
}
"""The ablations of section 4.3."""


def _itself(given: Evaluation) -> list[float]:
    """TTLT of SageSched as it is, a seed each."""
    pairs = given.each("fig7", sage.latency, sage.QWEN, sage.MAIN_RATE, "", "sagesched")
    return [pair[0] for pair in pairs]


def ablations(given: Evaluation) -> list[Claim]:
    """Fig. 9, 10 and 11: predictor, cost and policy, the last also with noise."""
    measured = given.all("variants", _variant, [(name,) for name in VARIANTS])
    ttlt = dict(zip(VARIANTS, measured, strict=True))
    full = _itself(given)
    predictors = {"semantic history": full}
    predictors |= {name: ttlt[name] for name in ("history by length", "fine-tuned model")}
    costs = {"resource-bound": full} | {name: ttlt[name] for name in ("output length", "overall length")}
    policies = {"SageSched": full, "Gittins": ttlt["Gittins"], "Mean": ttlt["Mean"]}
    noisy = {name: ttlt[f"{name}, noise"] for name in policies}
    for figure, groups in (("fig9", predictors), ("fig10", costs), ("fig11", policies)):
        given.say(f"{figure}: " + ", ".join(f"{name} {mean(v):.1f} s" for name, v in groups.items()))
        systems = {name: [interval(values)] for name, values in groups.items()}
        labels = ["clear"]
        if figure == "fig11":
            labels = ["clear", "with noise"]
            systems = {name: [interval(v), interval(noisy[name])] for name, v in groups.items()}
        plots.bars(
            given.out / f"{figure}.png", f"SageSched {figure.capitalize()}", labels, systems, "TTLT (s)"
        )
    worse = {name: 100.0 * (mean(noisy[name]) / mean(policies[name]) - 1.0) for name in policies}
    return [
        *_worse("fig9", "predictor", predictors),
        *_worse("fig10", "cost", costs),
        *_worse("fig11", "policy", policies),
        claim(
            "fig11.noise",
            "TTLT grows by noise (a uniform distribution mixed in, 1:4), SageSched",
            None,
            worse["SageSched"],
            "%",
            worse["SageSched"] <= worse["Mean"] + 0.5,
            ", ".join(f"{name} {value:+.1f}%" for name, value in worse.items()),
        ),
    ]


def _worse(figure: str, what: str, groups: Mapping[str, Sequence[float]]) -> list[Claim]:
    (first, ours), *rest = groups.items()
    found = []
    for name, values in rest:
        worse = 100.0 * (mean(values) / mean(ours) - 1.0)
        paired = [100.0 * (b / a - 1.0) for a, b in zip(ours, values, strict=True)]
        found.append(
            claim(
                f"{figure}.{name.replace(' ', '_').lower()}",
                f"TTLT worse with {what} '{name}' than with '{first}'",
                None,
                worse,
                "%",
                worse > 0.0,
                f"by seed {over_seeds(paired)}",
            )
        )
    return found


THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
HASHED = "; cosines are those of hashed words, whose 0.7 is as selective as 0.8 of sentence vectors"
BUCKET_SIZES = (50.0, 100.0, 200.0, 400.0, 800.0)
WINDOWS = (100.0, 400.0, 1600.0, 10_000.0)
STILL = "; what is asked and how long answers get does not change with time here, so nothing speaks for forgetting"


def sensitivity(given: Evaluation) -> list[Claim]:
    """Fig. 13: similarity threshold and bucket size; and the window of the history, which the paper does not vary."""
    found = []
    for part, kind, what, unit, values, paper, default, remark in (
        ("a", "threshold", "similarity threshold", "cosine", THRESHOLDS, 0.8, 0.7, HASHED),
        ("b", "bucket", "bucket size", "tokens", BUCKET_SIZES, 200.0, 200.0, ""),
        ("c", "window", "history window", "requests", WINDOWS, 10_000.0, 10_000.0, STILL),
    ):
        others = [value for value in values if value != default]
        varied = given.all("variants", _variant, [(f"{kind}={value:g}",) for value in others])
        by_value = dict(zip(others, varied, strict=True)) | {default: _itself(given)}
        measured = [by_value[value] for value in values]
        averages = [mean(v) for v in measured]
        best = values[int(np.argmin(averages))]
        chosen = averages[values.index(default)]
        given.say(
            f"fig13{part}: " + ", ".join(f"{x:g} {y:.1f} s" for x, y in zip(values, averages, strict=True))
        )
        plots.lines(
            given.out / f"fig13{part}.png",
            f"SageSched Fig13{part}: {what}",
            values,
            {"SageSched": [interval(v) for v in measured]},
            what,
            "average TTLT (s)",
        )
        found.append(
            claim(
                f"fig13{part}.{what.replace(' ', '_')}",
                f"best {what}",
                paper,
                best,
                unit,
                chosen <= 1.01 * min(averages),
                ", ".join(f"{x:g}: {y:.1f} s" for x, y in zip(values, averages, strict=True))
                + f"; holds means our default {default:g} is within 1% of the best{remark}",
            )
        )
    return found
