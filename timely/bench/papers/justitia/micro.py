"""Justitia's smaller experiments: two applications in turn, what demands look like, starvation, what deciding costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.justitia import workloads as apps
from timely.bench.papers.justitia.setting import MODELS, Exact, Jobs, completion_s, make, tasks, trained
from timely.bench.papers.old_claims import Claim, Timed, claim, interval, mean, simulate
from timely.bench.papers.run_context import Evaluation
from timely.core.job import JobTable
from timely.disciplines.base import StepLimits, StepPlan

ELEPHANT_PARTS = 6
MICE = (100, 200, 300, 400, 500)

SAMPLED = 200
"""Points of a curve of blocks over steps."""

INSTANCES = 200
"""Of each class: what Fig. 4 shows, and what the cost models are judged by."""


# ---------------------------------------------------------------------- Fig. 3


@dataclass(slots=True)
class _Blocks(Timed):
    """A discipline watched: KV blocks that each application holds before every step."""

    held: list[dict[str, int]] = field(default_factory=list)

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        """See ``Discipline``."""
        now: dict[str, int] = {}
        for job in table.jobs:
            app = job.spec.hints.app or ""
            now[app] = now.get(app, 0) + int(table.blocks[job.row])
        self.held.append(now)
        return self.inner.compose(table, limits)


def _mergings(seed: int) -> Jobs:
    rng = np.random.default_rng([seed, 3])
    return list(apps.jobs([(0.0, apps.application("DM", rng)), (0.0, apps.application("DM", rng))], rng, 0.0))


def _two_mergings(name: str, seed: int) -> dict[str, float]:
    return completion_s(_mergings(seed), make(name), MODELS["LLaMA-7B"])


def _blocks(name: str, seed: int) -> dict[str, list[int]]:
    """Blocks held by each application, and the steps at which that was, ``SAMPLED`` of them."""
    watched = _Blocks(make(name))
    simulate(tasks(_mergings(seed)), watched, MODELS["LLaMA-7B"])
    steps = np.linspace(0, len(watched.held) - 1, SAMPLED).astype(int).tolist()
    names = sorted({app for held in watched.held for app in held})
    return {"steps": steps} | {app: [watched.held[step].get(app, 0) for step in steps] for app in names}


def saturated(given: Evaluation) -> list[Claim]:
    """Fig. 3: two document mergings at once."""
    for part, name, title in (("a", "vtc", "shared"), ("b", "justitia", "in turn")):
        blocks = given.once("fig3-blocks", _blocks, name, given.seeds[0])
        plots.lines(
            given.out / f"fig3{part}.png",
            f"Justitia Fig3{part}: two document mergings, {title}",
            blocks["steps"],
            {app: [(v, v, v) for v in held] for app, held in blocks.items() if app != "steps"},
            "step",
            "KV blocks",
        )
    shared, in_turn, delayed = [], [], 0
    for fair, mine in zip(
        given.each("fig3", _two_mergings, "vtc"), given.each("fig3", _two_mergings, "justitia"), strict=True
    ):
        shared.append(mean(list(fair.values())))
        in_turn.append(mean(list(mine.values())))
        delayed += sum(mine[app] > 1.02 * fair[app] for app in fair)
    lower = [100.0 * (1.0 - b / a) for a, b in zip(shared, in_turn, strict=True)]
    return [
        claim(
            "fig3.saturated",
            "two document mergings served in turn rather than shared: lower average completion",
            100.0 * (1.0 - 166.0 / 210.0),
            mean(lower),
            "%",
            mean(lower) >= 100.0 * (1.0 - 166.0 / 210.0),
            f"{mean(shared):.0f} s to {mean(in_turn):.0f} s (paper 210 to 166); {delayed} of {2 * len(given.seeds)}"
            " ended more than 2% later than shared",
        )
    ]


# ---------------------------------------------------------------------- Fig. 4


def demands(given: Evaluation) -> list[Claim]:
    """Fig. 4: tokens of two kinds of requests over many instances, as the generators of the workload draw them."""
    rng = np.random.default_rng(4)
    summaries = [r for _ in range(INSTANCES) for r in apps.application("MRS", rng).requests if not r.after]
    # The first request of a fact verification asks for queries, each of which is then made and checked.
    queries = [r for _ in range(INSTANCES) for r in apps.application("FV", rng).requests if r.after == (0,)]
    for part, title, drawn in (
        ("a", "summaries", summaries),
        ("b", "queries", queries),
    ):
        prompts, answers = [r.prompt_tokens for r in drawn], [r.output_tokens for r in drawn]
        plots.cumulative(
            given.out / f"fig4{part}.png",
            f"Justitia Fig4{part}: {title}",
            {"prompt": prompts, "completion": answers},
            "tokens",
            x_max=max(*prompts, *answers),
        )

    def inside(drawn: Sequence[apps.Request], prompt: tuple[int, int], output: tuple[int, int]) -> float:
        held = [
            prompt[0] <= r.prompt_tokens <= prompt[1] and output[0] <= r.output_tokens <= output[1]
            for r in drawn
        ]
        return 100.0 * float(np.mean(held))

    ranges = (
        ("summaries", summaries, (0, 600), (0, 1000), "prompts up to 600 tokens, completions up to 1,000"),
        ("queries", queries, (360, 380), (10, 40), "prompts of 360 to 380 tokens, completions of 10 to 40"),
    )
    return [
        claim(
            f"fig4.{name}",
            f"requests for {name} within the ranges of Fig. 4",
            100.0,
            inside(drawn, prompt, output),
            "%",
            inside(drawn, prompt, output) >= 85.0,
            f"{text}; {len(drawn)} requests of {INSTANCES} instances. The workload is made to fit: a check of it",
        )
        for name, drawn, prompt, output, text in ranges
    ]


# ---------------------------------------------------------------------- Fig. 11


def _elephant(name: str, count: int, parts: int, seed: int) -> float:
    """Completion of the MRS among ``count`` mice, costs known, seconds."""
    trace = apps.starvation(seed, count, parts=parts)
    return completion_s(trace, make(name, Exact(trace)), MODELS["LLaMA-7B"])["MRS/0"]


def starvation(given: Evaluation) -> list[Claim]:
    """Fig. 11: an elephant among mice, with costs known.

    Mice of one a second are about what the machine can do. An elephant of the usual size is served no sooner by fair
    sharing itself then, so it shows nothing; one of ``ELEPHANT_PARTS`` parts shows what the paper's figure shows.
    """

    def elephants(parts: int, counts: Sequence[int], name: str) -> list[list[float]]:
        return [given.each("fig11", _elephant, name, count, parts) for count in counts]

    found = {name: elephants(ELEPHANT_PARTS, MICE, name) for name in ("justitia", "srjf")}
    usual = {name: elephants(0, (MICE[0], MICE[-1]), name) for name in ("justitia", "srjf", "vtc")}
    given.say(f"starvation, {MICE[0]} to {MICE[-1]} mice: " + ", ".join(
        f"{name} {mean(column[0]):.0f} to {mean(column[-1]):.0f} s" for name, column in found.items()))  # fmt: skip
    plots.lines(
        given.out / "fig11.png",
        "Justitia Fig11: one MRS among mice",
        MICE,
        {name: [interval(values) for values in column] for name, column in found.items()},
        "number of mice",
        "completion of the MRS (s)",
    )
    large = "; ".join(
        f"{name} {mean(column[0]):.0f} to {mean(column[1]):.0f} s" for name, column in usual.items()
    )
    last = mean(found["justitia"][-1]) / mean(found["justitia"][-2])
    growth = {name: mean(values[-1]) / mean(values[0]) for name, values in found.items()}
    return [
        claim(
            "fig11.justitia_bounded",
            f"completion of the elephant at {MICE[-1]} mice over that at {MICE[-2]}, Justitia",
            1.0,
            last,
            "ratio",
            last <= 1.05,
            f"{MICE[0]} to {MICE[-1]} mice: {mean(found['justitia'][0]):.0f} s to {mean(found['justitia'][-1]):.0f} s;"
            f" {len(given.seeds)} seeds. An MRS of the usual size, whom fair sharing itself serves no sooner: {large}",
        ),
        claim(
            "fig11.srjf_starves",
            f"completion of the elephant at {MICE[-1]} mice over that at {MICE[0]}, SRJF",
            5.0,
            growth["srjf"],
            "ratio",
            growth["srjf"] >= 3.0 and growth["srjf"] > 1.5 * growth["justitia"],
            f"SRJF: {mean(found['srjf'][0]):.0f} s to {mean(found['srjf'][-1]):.0f} s: it ends when the mice do;"
            " the paper's number is read off its figure",
        ),
    ]


# ---------------------------------------------------------------------- Tables II and III


def _judged() -> dict[str, Any]:
    """The MLPs on instances that they were not trained on: error by class, and what training and predicting took."""
    predictors = trained()
    errors: dict[str, float] = {}
    spent: list[float] = []
    for kind in apps.KINDS:
        wrong = []
        for sample in apps.samples(kind, INSTANCES, seed=77):
            begun = time.perf_counter()
            predicted = predictors.memory.models[kind].predict(sample.text, sample.prompt_tokens)
            spent.append(time.perf_counter() - begun)
            wrong.append(abs(predicted - sample.cost) / sample.cost)
        errors[kind] = mean(wrong)
    return {
        "train_s": predictors.train_s,
        "predict_ms": 1000.0 * float(np.median(spent)),
        "errors": errors,
    }


def prediction(given: Evaluation) -> list[Claim]:
    """Table II: how far off the predicted costs are, and what they cost."""
    judged = given.once("table2", _judged)
    errors: dict[str, float] = judged["errors"]
    percent = [100.0 * error for error in errors.values()]
    plots.bars(
        given.out / "table2_error.png",
        "Justitia Table II: error of the MLP's cost prediction",
        list(errors),
        {"MLP": [(v, v, v) for v in percent]},
        "mean relative error, %",
    )
    given.say("predicted costs: " + ", ".join(f"{k} {100 * v:.0f}%" for k, v in errors.items()))
    return [
        claim(
            "table2.error",
            "mean relative error of the MLP's cost prediction",
            53.0,
            mean(percent),
            "%",
            mean(percent) <= 53.0,
            f"{INSTANCES} instances of each class, none trained on: "
            + ", ".join(f"{kind} {100 * error:.0f}" for kind, error in errors.items()),
        ),
        claim(
            "table2.overhead",
            "time of one cost prediction",
            2.16,
            judged["predict_ms"],
            "ms",
            judged["predict_ms"] <= 2.16,
            "TF-IDF and MLP in numpy on one CPU core; the paper's MLP ran on a V100",
        ),
        claim(
            "table2.training",
            "training of all nine models",
            60.0,
            judged["train_s"],
            "s",
            judged["train_s"] <= 60.0,
            "100 samples each, one CPU core",
        ),
    ]


PAPER_OVERHEAD_MS = {15: 0.778, 20: 1.827, 30: 3.076, 50: 5.190, 100: 8.093}
"""Table III: applications a minute -> scheduling overhead."""

OVERHEAD_S = 120.0


def _decision_ms(rate: int) -> list[float]:
    """Mean milliseconds of a step's decision, and of a request's arrival, with ``rate`` applications a minute."""
    timed = Timed(make("justitia"))
    trace = apps.workload(1, applications=round(rate * OVERHEAD_S / 60.0), window_s=OVERHEAD_S)
    simulate(tasks(trace), timed, MODELS["LLaMA-7B"])
    return [1000.0 * mean(timed.decisions_s), 1000.0 * mean(timed.arrivals_s)]


def overhead(given: Evaluation) -> list[Claim]:
    """Table III: the scheduling overhead at 15 to 100 applications a minute."""
    paper = PAPER_OVERHEAD_MS
    taken = {rate: given.once("table3", _decision_ms, rate) for rate in paper}
    decide = {rate: found[0] for rate, found in taken.items()}
    arrive = {rate: found[1] for rate, found in taken.items()}
    given.say("overhead: " + ", ".join(f"{rate}/min {value:.3f} ms" for rate, value in decide.items()))
    plots.lines(
        given.out / "table3.png",
        "Justitia Table III: scheduling overhead",
        list(paper),
        {
            "paper": [(v, v, v) for v in paper.values()],
            "a decision": [(v, v, v) for v in decide.values()],
            "an arrival": [(v, v, v) for v in arrive.values()],
        },
        "applications a minute",
        "ms",
    )
    return [
        claim(
            "table3.overhead",
            "scheduling decision at 100 applications a minute",
            paper[100],
            decide[100],
            "ms",
            all(decide[rate] + arrive[rate] <= paper[rate] for rate in paper),
            "by rate: "
            + ", ".join(f"{rate}/min {decide[rate]:.3f} (paper {paper[rate]})" for rate in paper)
            + f"; processor time, every step's decision counts. A request's arrival, prediction included, at most"
            f" {max(arrive.values()):.3f} ms; holds means both together are less",
        )
    ]
