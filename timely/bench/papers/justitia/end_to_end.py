"""Justitia's end-to-end experiments: completion times (Fig. 8), fairness (Fig. 10), cost models (Fig. 12), Table II."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import CONTEXT, NOT_EXERCISED, Claim, PaperRule, paper_claim
from timely.bench.papers.justitia import workloads as apps
from timely.bench.papers.justitia.setting import (
    NAMES,
    ORDER,
    ExactPaperCosts,
    NoisyPaperCosts,
    make_paper_discipline,
    paper_completion_s,
)
from timely.bench.papers.real_inputs import MOONCAKE, paper_trace_arrivals
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import (
    paper_mean,
    paper_percent_higher,
    paper_percent_lower,
    paper_ratios,
)
from timely.disciplines.base import Discipline
from timely.disciplines.predictors.app_cost import AppCosts, predictor_weighted_tokens
from timely.engines.replay_types import PlannedTask

BLUR = 4.52
"""Mean relative error of the fine-tuned DistilBERT of Table II."""

APPLICATIONS = 300

Completion = Mapping[str, float]
"""Completion times by application, seconds."""

Results = dict[str, dict[str, list[Completion]]]
"""Intensity -> discipline -> completion times, one entry a seed."""


def measure_paper_completion(arrivals: str, intensity: str, name: str, seed: int) -> Completion:
    """Completion times of one workload.

    ``arrivals`` is a trace, of which each seed takes a stretch scaled to the window; without it they are Poisson.
    A name may end in ``-exact``: all costs are known. ``justitia-blurred`` errs by 452%.
    """
    window_s = apps.WINDOWS_S[intensity]
    arrival_s = None
    if arrivals:
        arrival_s = paper_trace_arrivals(Path(arrivals), APPLICATIONS, window_s, skip=APPLICATIONS * seed)
    tasks = apps.paper_workload(seed, applications=APPLICATIONS, window_s=window_s, arrival_s=arrival_s)
    return paper_completion_s(tasks, _justitia_paper_discipline(name, tasks, seed))


def _paper_completions_by_seed(evaluation: PaperEvaluation, intensity: str, name: str) -> list[Completion]:
    arrivals = str(evaluation.input(MOONCAKE) or "")
    return evaluation.each("end-to-end", measure_paper_completion, arrivals, intensity, name)


def _paper_inputs_note(evaluation: PaperEvaluation) -> str:
    arrivals = "Poisson" if evaluation.input(MOONCAKE) is None else "those of Mooncake's trace"
    return f"texts and token counts are synthetic, and texts hold words of their difficulty; arrivals are {arrivals}"


def _justitia_paper_discipline(name: str, tasks: Sequence[PlannedTask], seed: int) -> Discipline:
    base = name.removesuffix("-exact").removesuffix("-blurred")
    costs: AppCosts | None = None
    if name == "justitia-c-exact":
        costs = ExactPaperCosts(tasks, predictor_weighted_tokens)
    elif name.endswith("-exact"):
        costs = ExactPaperCosts(tasks)
    elif name.endswith("-blurred"):
        costs = NoisyPaperCosts(tasks, BLUR, np.random.default_rng([seed, 452]))
    return make_paper_discipline(base, costs)


def paper_averages(runs: Iterable[Completion]) -> list[float]:
    """Average completion of each run, seconds."""
    return [paper_mean(list(run.values())) for run in runs]


def paper_completion_p90s(runs: Iterable[Completion]) -> list[float]:
    return [float(np.percentile(list(run.values()), 90)) for run in runs]


FIGURE_PARTS = (("a", paper_averages, "average"), ("b", paper_completion_p90s, "90th percentile"))


def paper_fair_ratios(runs: Sequence[Completion], reference: Sequence[Completion]) -> list[float]:
    """Finish-time fair ratios (section V-A): completion under a discipline over completion under VTC, all seeds."""
    return [run[app] / ref[app] for run, ref in zip(runs, reference, strict=True) for app in run]


def paper_completions(evaluation: PaperEvaluation) -> Results:
    """Completion times under each discipline, at three intensities of arrivals."""
    results: Results = {}
    for intensity in apps.WINDOWS_S:
        cell = results[intensity] = {
            name: _paper_completions_by_seed(evaluation, intensity, name) for name in NAMES
        }
        evaluation.say(
            f"{intensity}: " + ", ".join(f"{n} {paper_mean(paper_averages(cell[n])):.0f} s" for n in NAMES)
        )
    return results


def paper_efficiency(results: Results, evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 8; Fig. 9 is not run."""
    for part, measure, title in FIGURE_PARTS:
        plots.paper_bars(
            evaluation.out / f"fig8{part}.png", f"Justitia Fig. 8: {title} of completion, LLaMA-7B", list(results),
            {name: [measure(cell[name]) for cell in results.values()] for name in ORDER},
            "completion time (s)",
        )  # fmt: skip
    for other, paper in (("vtc", 57.5), ("parrot", 61.1)):
        by = {
            i: paper_percent_lower(paper_averages(cell["justitia"]), paper_averages(cell[other]))
            for i, cell in results.items()
        }
        overall = [paper_mean(column) for column in zip(*by.values(), strict=True)]
        means_text = ", ".join(f"{i} {paper_mean(values):.1f}%" for i, values in by.items())
        yield paper_claim(
            f"fig8.average.{other}", f"Fig. 8: average completion lower than under {other}", paper, overall, "%",
            PaperRule.at_least(paper, neutral=0.0), f"by intensity: {means_text}; {_paper_inputs_note(evaluation)}",
        )  # fmt: skip
    near_srjf = {
        i: paper_ratios(paper_averages(c["justitia"]), paper_averages(c["srjf"])) for i, c in results.items()
    }
    yield paper_claim(
        "fig8.near_srjf", "Fig. 8: average completion over that under SRJF ('very close')", 1.0,
        [paper_mean(column) for column in zip(*near_srjf.values(), strict=True)], "ratio", PaperRule.near(1.0),
        "by intensity: " + ", ".join(f"{i} {paper_mean(v):.2f}" for i, v in near_srjf.items()),
    )  # fmt: skip
    yield paper_claim(
        "fig9", "Fig. 9: LLaMA-13B on four V100", None, None, "", NOT_EXERCISED,
        "the paper gives neither step times nor KV blocks for it",
    )  # fmt: skip


def paper_fairness(results: Results, evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 10 at 3x."""
    cell = results["3x"]
    plots.paper_cumulative_plot(
        evaluation.out / "fig10.png", "Justitia Fig. 10: fairness at 3x",
        {name: paper_fair_ratios(cell[name], cell["vtc"]) for name in ORDER}, "finish-time fair ratio", x_max=10,
    )  # fmt: skip

    def by_seed(runs: Sequence[Completion]) -> list[list[float]]:
        return [paper_fair_ratios([run], [fair]) for run, fair in zip(runs, cell["vtc"], strict=True)]

    mine = by_seed(cell["justitia"])
    exact = by_seed(_paper_completions_by_seed(evaluation, "3x", "justitia-exact"))
    others = {
        n: paper_mean([100.0 * (max(r) - 1.0) for r in by_seed(cell[n])])
        for n in ("vllm", "vllm-sjf", "parrot")
    }
    yield paper_claim(
        "fig10.no_later", "Fig. 10: applications that end no later than under VTC, 3x", 92.0,
        [100.0 * float(np.mean(np.asarray(r) <= 1.0 + 1e-9)) for r in mine], "%", PaperRule.at_least(92.0),
        _paper_inputs_note(evaluation),
    )  # fmt: skip
    yield paper_claim(
        "fig10.worst", "Fig. 10: largest delay of an application against VTC, 3x", 26.0,
        [100.0 * (max(r) - 1.0) for r in mine], "%", PaperRule.at_most(26.0),
        f"with costs known {paper_mean([100.0 * (max(r) - 1.0) for r in exact]):.0f}%; others: "
        + ", ".join(f"{n} {v:.0f}%" for n, v in others.items()),
    )  # fmt: skip


def measure_paper_agreement(seed: int) -> float:
    """Percent of pairs of applications that both cost models put in the same order."""
    tasks = apps.paper_workload(seed, applications=APPLICATIONS)
    memory, compute = ExactPaperCosts(tasks).costs, ExactPaperCosts(tasks, predictor_weighted_tokens).costs
    costs = np.array([[memory[app], compute[app]] for app in memory])
    first, second = np.triu_indices(len(costs), 1)
    signs = np.sign(costs[first] - costs[second])
    return 100.0 * float(np.mean(signs[:, 0] == signs[:, 1]))


def paper_cost_models(results: Results, evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 12, and why the cost model matters little at 1x."""
    for part, measure, title in FIGURE_PARTS:
        plots.paper_bars(
            evaluation.out / f"fig12{part}.png", "Justitia Fig. 12: cost models", list(results),
            {n: [measure(cell[n]) for cell in results.values()] for n in ("justitia", "justitia-c")},
            f"{title} of completion (s)",
        )  # fmt: skip
    yield paper_claim(
        "fig12.agree", "Fig. 12: pairs of applications that both cost models order alike", None,
        evaluation.each("fig12-agree", measure_paper_agreement), "%", CONTEXT,
        "only the others can change places, and only where both wait at the same time",
    )  # fmt: skip
    for intensity, cell in results.items():
        present = paper_mean(paper_averages(cell["justitia"])) * APPLICATIONS / apps.WINDOWS_S[intensity]
        worse = paper_percent_higher(paper_averages(cell["justitia-c"]), paper_averages(cell["justitia"]))
        exact, exact_c = (
            paper_averages(_paper_completions_by_seed(evaluation, intensity, f"{name}-exact"))
            for name in ("justitia", "justitia-c")
        )
        by_cost = paper_percent_higher(exact_c, exact)
        yield paper_claim(
            f"fig12.{intensity}", f"Fig. 12: average completion worse with compute-centric cost, {intensity}",
            42.3 if intensity == "3x" else None, worse, "%",
            PaperRule.near(42.3, neutral=0.0) if intensity == "3x" else PaperRule.above(0.0),
            f"with both costs known {paper_mean(by_cost):+.1f}%,"
            f" so {paper_mean(worse) - paper_mean(by_cost):+.1f} points are the predictors';"
            " the paper's 42.3% is the most over its intensities",
        )  # fmt: skip
        yield paper_claim(
            f"fig12.{intensity}.exact", f"The same with both costs known, {intensity}", None, by_cost, "%", CONTEXT,
            f"{present:.0f} applications are present on average",
        )  # fmt: skip


def paper_predictor_claims(results: Results, evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Table II's completion times: with the MLP, and with a predictor that errs as the DistilBERT did there."""
    mlp = paper_averages(results["2x"]["justitia"])
    noisy = paper_averages(_paper_completions_by_seed(evaluation, "2x", "justitia-blurred"))
    plots.paper_bars(
        evaluation.out / "table2_completion.png", "Justitia Table II: average completion at 2x", ["2x"],
        {"MLP": [mlp], "errs by 452%": [noisy]}, "average completion (s)",
    )  # fmt: skip
    yield paper_claim(
        "table2.mlp", "Table II: average completion with the MLP, 2x", 151.1, mlp, "s", CONTEXT,
        "the applications' token counts are ours",
    )  # fmt: skip
    yield paper_claim(
        "table2.jct", "Table II: average completion with a predictor that errs by 452% over that with the MLP",
        366.7 / 151.1, paper_ratios(noisy, mlp), "ratio", PaperRule.near(366.7 / 151.1, neutral=1.0),
        "DistilBERT is not run: its stand-in is the truth times a log-normal factor of that error",
    )  # fmt: skip
