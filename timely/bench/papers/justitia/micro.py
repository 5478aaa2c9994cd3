"""Justitia's smaller experiments: two applications in turn, what demands look like, starvation, what deciding costs."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, Claim, PaperRule, paper_claim
from timely.bench.papers.justitia import workloads as apps
from timely.bench.papers.justitia.setting import (
    MACHINE,
    ExactPaperCosts,
    make_paper_discipline,
    paper_completion_s,
    trained_paper_models,
)
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import paper_mean, paper_percent_lower, paper_ratios
from timely.bench.papers.serving import serve_paper_tasks, watch_paper_calls
from timely.core.job import JobTable
from timely.disciplines.base import StepLimits
from timely.engines.replay_types import PlannedTask

ELEPHANT_PARTS = 6
MICE = (100, 200, 300, 400, 500)

SAMPLES = 200
"""Points of a curve of blocks over steps."""

INSTANCES = 200
"""Of each class: what Fig. 4 shows, and what the cost models are judged by."""


# ---------------------------------------------------------------------- Fig. 3


def _paper_mergings(seed: int) -> list[PlannedTask]:
    rng = np.random.default_rng([seed, 3])
    both = [(0.0, apps.paper_application("DM", rng)) for _ in range(2)]
    return list(apps.justitia_paper_tasks(both, rng, length_error=0.0))


def _measure_two_paper_mergings(name: str, seed: int) -> dict[str, float]:
    return paper_completion_s(_paper_mergings(seed), make_paper_discipline(name))


def _paper_app_blocks(name: str, seed: int) -> dict[str, list[int]]:
    """Blocks held by each application, and the steps at which that was, ``SAMPLES`` of them."""
    blocks: list[dict[str, int]] = []

    def note(table: JobTable, limits: StepLimits) -> None:
        blocks.append({})
        for job in table.jobs:
            app = job.spec.hints.app or ""
            blocks[-1][app] = blocks[-1].get(app, 0) + int(table.blocks[job.row])

    discipline = make_paper_discipline(name)
    watch_paper_calls(discipline, "compose", note)
    serve_paper_tasks(_paper_mergings(seed), discipline, MACHINE, eviction="swap")
    steps = np.linspace(0, len(blocks) - 1, SAMPLES).astype(int).tolist()
    names = sorted({app for now in blocks for app in now})
    return {"steps": steps} | {app: [blocks[step].get(app, 0) for step in steps] for app in names}


def paper_saturation(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 3: two document mergings at once."""
    for part, name, title in (("a", "vtc", "shared"), ("b", "justitia", "in turn")):
        blocks = evaluation.once("fig3-blocks", _paper_app_blocks, name, evaluation.seeds[0])
        plots.paper_line_plot(
            evaluation.out / f"fig3{part}.png", f"Justitia Fig3{part}: two document mergings, {title}", blocks["steps"],
            {app: counts for app, counts in blocks.items() if app != "steps"}, "step", "KV blocks",
        )  # fmt: skip
    fair_s, in_turn_s, delays = [], [], 0
    for fair, mine in zip(
        evaluation.each("fig3", _measure_two_paper_mergings, "vtc"),
        evaluation.each("fig3", _measure_two_paper_mergings, "justitia"),
        strict=True,
    ):
        fair_s.append(paper_mean(list(fair.values())))
        in_turn_s.append(paper_mean(list(mine.values())))
        delays += sum(mine[app] > 1.02 * fair[app] for app in fair)
    lower = paper_percent_lower(in_turn_s, fair_s)
    yield paper_claim(
        "fig3.saturated", "Fig. 3: two document mergings served in turn: average completion lower than shared",
        100.0 * (1.0 - 166.0 / 210.0), lower, "%", PaperRule.near(100.0 * (1.0 - 166.0 / 210.0), neutral=0.0),
        f"{paper_mean(fair_s):.0f} s to {paper_mean(in_turn_s):.0f} s (paper 210 to 166); {delays} of"
        f" {2 * len(evaluation.seeds)} ended more than 2% later than shared",
    )  # fmt: skip


# ---------------------------------------------------------------------- Fig. 4


def paper_demands(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 4: tokens of two kinds of requests over many instances, as the generators of the workload draw them."""
    rng = np.random.default_rng(4)
    summaries = [
        r for _ in range(INSTANCES) for r in apps.paper_application("MRS", rng).requests if not r.after
    ]
    # The first request of a fact verification asks for queries, each of which is then made and checked.
    queries = [
        r for _ in range(INSTANCES) for r in apps.paper_application("FV", rng).requests if r.after == (0,)
    ]
    for part, title, requests in (("a", "summaries", summaries), ("b", "queries", queries)):
        prompts, answers = [r.prompt_tokens for r in requests], [r.output_tokens for r in requests]
        plots.paper_cumulative_plot(
            evaluation.out / f"fig4{part}.png", f"Justitia Fig4{part}: {title}",
            {"prompt": prompts, "completion": answers}, "tokens", x_max=max(*prompts, *answers),
        )  # fmt: skip

    def inside(
        requests: Sequence[apps.AppRequest], prompt: tuple[int, int], output: tuple[int, int]
    ) -> float:
        fits = [
            prompt[0] <= r.prompt_tokens <= prompt[1] and output[0] <= r.output_tokens <= output[1]
            for r in requests
        ]
        return 100.0 * float(np.mean(fits))

    ranges = (
        ("summaries", summaries, (0, 600), (0, 1000), "prompts up to 600 tokens, completions up to 1,000"),
        ("queries", queries, (360, 380), (10, 40), "prompts of 360 to 380 tokens, completions of 10 to 40"),
    )
    for name, requests, prompt, output, text in ranges:
        yield paper_claim(
            f"fig4.{name}", f"Fig. 4: requests for {name} within the ranges of the figure", 100.0,
            inside(requests, prompt, output), "%", BY_CONSTRUCTION, f"{text}; the workload is made to fit",
        )  # fmt: skip


# ---------------------------------------------------------------------- Fig. 11


def measure_paper_elephant(name: str, count: int, parts: int, seed: int) -> float:
    """Completion of the MRS among ``count`` mice, costs known, seconds."""
    tasks = apps.paper_starvation_workload(seed, count, parts=parts)
    return paper_completion_s(tasks, make_paper_discipline(name, ExactPaperCosts(tasks)))["MRS/0"]


def paper_starvation(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 11: an elephant among mice, with costs known.

    Beside an elephant of the usual size (12 to 36 parts) ``MICE`` are few: it ends with the last of them.
    So the figure is drawn with one of ``ELEPHANT_PARTS`` parts, and the bound is judged for both sizes.
    """

    def elephants(parts: int, counts: Sequence[int], name: str) -> list[list[float]]:
        return [evaluation.each("fig11", measure_paper_elephant, name, count, parts) for count in counts]

    times_s = {name: elephants(ELEPHANT_PARTS, MICE, name) for name in ("justitia", "srjf")}
    plots.paper_line_plot(
        evaluation.out / "fig11.png", "Justitia Fig. 11: one MRS among mice", MICE,
        times_s, "number of mice", "completion of the MRS (s)",
    )  # fmt: skip
    times_text = "; ".join(
        f"{name} {' '.join(f'{paper_mean(values):.0f}' for values in column)} s"
        for name, column in times_s.items()
    )
    evaluation.say(f"starvation: {times_text}")
    usual_s = {name: elephants(0, MICE[-2:], name) for name in times_s}
    usual_text = "; ".join(
        f"{name} {paper_mean(column[0]):.0f} to {paper_mean(column[1]):.0f} s"
        for name, column in usual_s.items()
    )
    for key, column, size, note in (
        ("bounded", times_s["justitia"], f"{ELEPHANT_PARTS} parts", times_text),
        ("bounded.usual", usual_s["justitia"], "the usual size", usual_text),
    ):
        yield paper_claim(
            f"fig11.{key}", f"Fig. 11: completion of the elephant at {MICE[-1]} mice over {MICE[-2]}, Justitia, {size}",
            1.0, paper_ratios(column[-1], column[-2]), "ratio", PaperRule.at_most(1.05), note,
        )  # fmt: skip
    yield paper_claim(
        "fig11.starves",
        f"Fig. 11: completion of the elephant at {MICE[-1]} mice over {MICE[0]}, SRJF, {ELEPHANT_PARTS} parts", 5.0,
        paper_ratios(times_s["srjf"][-1], times_s["srjf"][0]), "ratio", PaperRule.near(5.0, neutral=1.0),
        "the paper's number is read off its figure",
    )  # fmt: skip


# ---------------------------------------------------------------------- Tables II and III


def _judge_paper_predictors() -> dict[str, Any]:
    """The MLPs on instances that they were not trained on: error by class, and what training and predicting took."""
    predictors = trained_paper_models()
    errors: dict[str, float] = {}
    times_s: list[float] = []
    for kind in apps.KINDS:
        relative = []
        for sample in apps.paper_samples(kind, INSTANCES, seed=77):
            begin_s = time.perf_counter()
            cost = predictors.memory.models[kind].predict(sample.text, sample.prompt_tokens)
            times_s.append(time.perf_counter() - begin_s)
            relative.append(abs(cost - sample.cost) / sample.cost)
        errors[kind] = paper_mean(relative)
    return {"train_s": predictors.train_s, "predict_ms": 1000.0 * float(np.median(times_s)), "errors": errors}


def paper_average_error(errors: Mapping[str, float]) -> float:
    """Mean relative error over applications of the mix, from the mean of each class."""
    return math.fsum(apps.SHARES[kind] * error for kind, error in errors.items())


def paper_prediction(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Table II: how far off the predicted costs are, and what they cost.

    The paper does not say over what its error is averaged. The caption names the workload at 2x. So the mean is over
    applications, as that of the completion times beside it, and each class counts by its share of them.
    """
    judgement = evaluation.once("table2", _judge_paper_predictors)
    errors: dict[str, float] = judgement["errors"]
    percent = [100.0 * error for error in errors.values()]
    plots.paper_bars(
        evaluation.out / "table2_error.png", "Justitia Table II: error of the MLP's cost prediction", list(errors),
        {"MLP": percent}, "mean relative error, %",
    )  # fmt: skip
    evaluation.say("predicted costs: " + ", ".join(f"{k} {100 * v:.0f}%" for k, v in errors.items()))
    errors_text = ", ".join(f"{kind} {100 * error:.0f}" for kind, error in errors.items())
    yield paper_claim(
        "table2.error", "Table II: mean relative error of the MLP's cost prediction", 53.0,
        100.0 * paper_average_error(errors), "%", BY_CONSTRUCTION,
        f"{INSTANCES} new instances of each class, which counts by its share of the mix:"
        f" {errors_text}; with equal shares {paper_mean(percent):.1f}%;"
        " the synthetic texts hold words of their difficulty, which real texts need not",
    )  # fmt: skip
    yield paper_claim(
        "table2.overhead", "Table II: time of one cost prediction", 2.16, judgement["predict_ms"], "ms",
        PaperRule.at_most(2.16), "TF-IDF and MLP in numpy on one CPU core; the paper's MLP ran on a V100",
    )  # fmt: skip
    yield paper_claim(
        "table2.training", "Table II: training of all nine models", 60.0, judgement["train_s"], "s",
        PaperRule.at_most(60.0), "100 samples each, one CPU core",
    )  # fmt: skip


PAPER_OVERHEAD_MS = {15: 0.778, 20: 1.827, 30: 3.076, 50: 5.190, 100: 8.093}
"""Table III: applications a minute -> scheduling overhead."""

OVERHEAD_S = 120.0


def _paper_decision_ms(rate: int) -> list[float]:
    """Mean milliseconds of a step's decision, and of a request's arrival, with ``rate`` applications a minute."""
    discipline = make_paper_discipline("justitia")
    decisions_s, arrivals_s = (watch_paper_calls(discipline, method) for method in ("compose", "arrived"))
    tasks = apps.paper_workload(1, applications=round(rate * OVERHEAD_S / 60.0), window_s=OVERHEAD_S)
    serve_paper_tasks(tasks, discipline, MACHINE, eviction="swap")
    return [1000.0 * paper_mean(decisions_s), 1000.0 * paper_mean(arrivals_s)]


def justitia_paper_overhead(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Table III: the scheduling overhead at 15 to 100 applications a minute."""
    paper = PAPER_OVERHEAD_MS
    times_ms = {rate: evaluation.once("table3", _paper_decision_ms, rate) for rate in paper}
    both = {rate: pair[0] + pair[1] for rate, pair in times_ms.items()}
    plots.paper_line_plot(
        evaluation.out / "table3.png", "Justitia Table III: scheduling overhead", list(paper),
        {"paper": list(paper.values()), "a decision and an arrival": list(both.values())},
        "applications a minute", "ms",
    )  # fmt: skip
    yield paper_claim(
        "table3.overhead", "Table III: a decision and an arrival at 100 applications a minute", paper[100], both[100],
        "ms", PaperRule.at_most(paper[100]),
        "by rate: " + ", ".join(f"{rate}/min {both[rate]:.3f} (paper {paper[rate]})" for rate in paper),
    )  # fmt: skip
