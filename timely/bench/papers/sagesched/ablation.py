"""SageSched by its parts: uncertain lengths (Fig. 1, 2, 4), ablations (Fig. 9 to 11), parameters (Fig. 13)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, Claim, PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import Lengths
from timely.bench.papers.sagesched.workloads import DATASETS, PaperPromptWorld
from timely.bench.papers.seed_statistics import paper_mean, paper_percent_higher
from timely.disciplines.predictors.embedding import Vectors, WordLlamaEmbedder
from timely.disciplines.sagesched.constants import BUCKET_TOKENS, SIMILARITY

# ---------------------------------------------------------------------- Fig. 1a, 2a: one prompt, many lengths

PROMPTS = 10
TRIALS = 100
"""Answers to one prompt."""


def paper_uncertainty(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 1a and 2a: answers to one and the same prompt differ, so no single number predicts them."""
    rng = np.random.default_rng([evaluation.seeds[0], 71])
    prompts = PaperPromptWorld(evaluation.seeds[0], ("sharegpt",)).draw(PROMPTS, rng)
    lengths = [request.family.lengths(TRIALS, rng) for request in prompts]
    plots.paper_cumulative_plot(
        evaluation.out / "fig1a.png", f"SageSched Fig1a: {TRIALS} answers to each of {PROMPTS} prompts",
        {f"prompt {number}": each.tolist() for number, each in enumerate(lengths, 1)}, "output tokens",
        x_max=float(np.quantile(np.concatenate(lengths), 0.98)),
    )  # fmt: skip
    spread = [float(np.quantile(each, 0.9) / np.quantile(each, 0.1)) for each in lengths]
    errors = sage.calibrate_paper_errors()
    yield paper_claim(
        "fig1a.uncertain", "Fig. 1a: longest over shortest tenth of the answers to one prompt, median", None,
        float(np.median(spread)), "times", BY_CONSTRUCTION, "the families of the synthetic world are drawn so",
    )  # fmt: skip
    yield paper_claim(
        "fig2a.one_number", f"Fig. 2a: a predicted length is in the right one of {sage.BUCKETS} buckets (SSJF)", 34.1,
        100.0 * errors.hit_rate, "%", BY_CONSTRUCTION,
        f"SSJF's error is chosen for it; the likeliest bucket of each family is right in"
        f" {100 * errors.best_hit_rate:.1f}%",
    )  # fmt: skip


# ---------------------------------------------------------------------- Fig. 4: similar prompts, similar lengths

BANDS = ("below 0.4", "0.4 to 0.8", "0.8 and more")
"""Cosines of sentence embeddings; the last is what the predictor takes."""

PAST_REQUESTS = 10_000
"""Past requests, the paper's window."""

TARGETS = 12
"""Prompts of each dataset, whose own distribution is known from ``TRIALS`` answers each."""


def paper_length_distance(a: Lengths, b: Lengths) -> float:
    """Mean distance of two samples' quantiles (Wasserstein's), in the samples' unit."""
    places = (np.arange(200) + 0.5) / 200.0
    return float(np.abs(np.quantile(a, places) - np.quantile(b, places)).mean())


@lru_cache(maxsize=1)
def _paper_past_requests(seed: int, count: int) -> tuple[Lengths, Vectors]:
    """Output lengths and prompts' vectors of past requests."""
    past = PaperPromptWorld(seed).draw(count, np.random.default_rng([seed, 31]))
    vectors = WordLlamaEmbedder().embed([request.text for request in past])
    return np.array([request.output_tokens for request in past]), vectors


def _paper_lengths_by_similarity(dataset: str, seed: int) -> list[list[Lengths]]:
    """For prompts of a dataset: their own lengths, then those of past requests in each band of similarity."""
    rng = np.random.default_rng([seed, 67])
    world, space = PaperPromptWorld(seed), WordLlamaEmbedder()
    lengths, vectors = _paper_past_requests(seed, PAST_REQUESTS)
    targets = [target for target in world.draw(20 * TARGETS, rng) if target.family.dataset == dataset]
    rows = []
    for target in targets[:TARGETS]:
        cosines = vectors @ space.embed([target.text])[0]
        band = np.digitize(cosines, (0.4, SIMILARITY))
        rows.append([target.family.lengths(TRIALS, rng), *(lengths[band == place] for place in range(3))])
    return rows


def _paper_length_distances(dataset: str, seed: int) -> list[float]:
    """Mean distance of each band's lengths from a prompt's own, relative to the mean of these."""
    rows = []
    for own, *bands in _paper_lengths_by_similarity(dataset, seed):
        if all(band.size >= 5 for band in bands):
            rows.append([paper_length_distance(band, own) / own.mean() for band in bands])
    return np.mean(rows, axis=0).tolist() if rows else []


def paper_prompt_similarity(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 4: the more similar the past prompts, the closer their output lengths to the prompt's own."""
    seed = evaluation.seeds[0]
    for part, dataset in (("a", "alpaca"), ("b", "write")):
        similarity_rows = [row for row in _paper_lengths_by_similarity(dataset, seed) if row[3].size >= 20]
        if similarity_rows:
            columns = zip(("its own", *BANDS), similarity_rows[0], strict=True)
            plots.paper_cumulative_plot(
                evaluation.out / f"fig4{part}.png", f"SageSched Fig4{part}: lengths of similar prompts, {dataset}",
                {name: lengths.tolist() for name, lengths in columns if lengths.size}, "output tokens",
                x_max=float(np.quantile(similarity_rows[0][0], 0.99)),
            )  # fmt: skip
    table = {
        name: [row for row in evaluation.each("fig4", _paper_length_distances, name) if row]
        for name in DATASETS
    }
    means = {
        name: [paper_mean([row[place] for row in rows]) for place in range(3)] for name, rows in table.items()
    }
    overall = [paper_mean([row[place] for row in means.values()]) for place in range(3)]
    yield paper_claim(
        "fig4.closer", "Fig. 4: distance of the most similar past prompts' lengths over the least similar", None,
        overall[2] / overall[0], "ratio", BY_CONSTRUCTION,
        f"families share words and lengths by design; relative distances {', '.join(BANDS)}: "
        + "; ".join(f"{name} {' '.join(f'{v:.2f}' for v in row)}" for name, row in means.items()),
    )  # fmt: skip


# ---------------------------------------------------------------------- Fig. 9, 10, 11: its parts


def paper_ablations(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 9, 10 and 11: predictor, cost and policy, the last also with noise."""
    ttlt = sage.sagesched_paper_ttlt(evaluation, ("sagesched", *sage.VARIANTS))
    full = ttlt["sagesched"]
    predictors = {"semantic history": full}
    predictors |= {name: ttlt[name] for name in ("history by length", "fine-tuned model")}
    costs = {"resource-bound": full} | {name: ttlt[name] for name in ("output length", "overall length")}
    policies = {"SageSched": full, "Gittins": ttlt["Gittins"], "Mean": ttlt["Mean"]}
    noisy = {name: ttlt[f"{name}, noise"] for name in policies}
    for figure, groups in (("fig9", predictors), ("fig10", costs), ("fig11", policies)):
        evaluation.say(
            f"{figure}: " + ", ".join(f"{name} {paper_mean(v):.1f} s" for name, v in groups.items())
        )
        systems = {name: [values] for name, values in groups.items()}
        labels = ["clear"]
        if figure == "fig11":
            labels = ["clear", "with noise"]
            systems = {name: [v, noisy[name]] for name, v in groups.items()}
        plots.paper_bars(
            evaluation.out / f"{figure}.png", f"SageSched {figure.capitalize()}", labels, systems, "TTLT (s)"
        )
    worse = {name: paper_percent_higher(noisy[name], policies[name]) for name in policies}
    yield from _paper_ablation_claims("fig9", "predictor", predictors)
    yield from _paper_ablation_claims("fig10", "cost", costs)
    yield from _paper_ablation_claims("fig11", "policy", policies)
    yield paper_claim(
        "fig11.noise", "Fig. 11: growth of TTLT by noise under SageSched less that under Mean", None,
        [a - b for a, b in zip(worse["SageSched"], worse["Mean"], strict=True)], "points", PaperRule.below(0.0),
        ", ".join(f"{name} {paper_mean(value):+.1f}%" for name, value in worse.items()),
    )  # fmt: skip


def _paper_ablation_claims(figure: str, what: str, groups: Mapping[str, Sequence[float]]) -> Iterator[Claim]:
    (first, ours), *rest = groups.items()
    for name, values in rest:
        yield paper_claim(
            f"{figure}.{name.replace(' ', '_').lower()}",
            f"Fig. {figure[3:]}: TTLT worse with {what} '{name}' than with '{first}'", None,
            paper_percent_higher(values, ours), "%", PaperRule.above(0.0),
        )  # fmt: skip


THRESHOLDS = (0.6, 0.7, 0.8, 0.9)
BUCKET_SIZES = (50.0, 200.0, 800.0)
"""Values of Fig. 13; the paper's best are ``SIMILARITY`` and ``BUCKET_TOKENS``."""


def paper_sensitivity(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 13: similarity threshold and bucket size; each value against the paper's best, seed by seed."""
    for part, kind, what, values, default in (
        ("a", "threshold", "similarity threshold", THRESHOLDS, SIMILARITY),
        ("b", "bucket", "bucket size", BUCKET_SIZES, float(BUCKET_TOKENS)),
    ):
        names = ["sagesched" if value == default else f"{kind}={value:g}" for value in values]
        times_s = sage.sagesched_paper_ttlt(evaluation, names).values()
        by_value = dict(zip(values, times_s, strict=True))
        plots.paper_line_plot(
            evaluation.out / f"fig13{part}.png", f"SageSched Fig. 13{part}: {what}", values,
            {"SageSched": [by_value[value] for value in values]}, what, "average TTLT (s)",
        )  # fmt: skip
        for value in values:
            if value != default:
                worse = paper_percent_higher(by_value[value], by_value[default])
                yield paper_claim(
                    f"fig13{part}.{value:g}",
                    f"Fig. 13{part}: TTLT worse with a {what} of {value:g} than of {default:g}", None, worse, "%",
                    PaperRule.above(0.0), "the paper's curve is lowest there",
                )  # fmt: skip
