"""Theorem 1 in the simulator: delay against the fluid schedule, beside the bound.

The theorem bounds the delay by ``2 c_max + C_max / M``, where ``c_max`` and ``C_max`` are KV token-times.
The proof uses ``c_max`` as a time (Eq. 5): it assumes requests that hold one unit for their whole run.
Here KV grows with each token, prompts are computed, requests form chains, and costs may be mispredicted.
So ``c_max`` is read as the longest runtime of a request, which is the least number that Eq. 5 allows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from timely.bench.papers.claims import Claim, PaperRule, paper_claim
from timely.bench.papers.justitia import workloads as apps
from timely.bench.papers.justitia.setting import (
    MACHINE,
    ExactPaperCosts,
    make_paper_discipline,
    paper_completion_s,
)
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.seed_statistics import paper_mean
from timely.disciplines.justitia.constants import STEP_S
from timely.disciplines.predictors.app_cost import predictor_kv_token_time
from timely.engines.replay_types import PlannedTask

APPLICATIONS = 150

VARIANTS = {
    "plain": "growing KV and prefill, costs known",
    "chains": "and requests that wait for others",
    "predicted": "and costs predicted by the MLP",
}


def paper_fluid_completion_s(tasks: Sequence[PlannedTask]) -> dict[str, float]:
    """Completion of each application under generalised processor sharing of the KV cache, seconds."""
    arrival_s = {task.hints.app or "": task.arrival_s for task in tasks}
    cost = ExactPaperCosts(tasks).costs
    rate = MACHINE.kv.blocks * MACHINE.kv.block_tokens / STEP_S
    cost_left: dict[str, float] = {}
    completion_s: dict[str, float] = {}
    pending = sorted(arrival_s, key=lambda app: arrival_s[app])
    now = 0.0
    while pending or cost_left:
        if not cost_left:
            now = max(now, arrival_s[pending[0]])
        while pending and arrival_s[pending[0]] <= now:
            app = pending.pop(0)
            cost_left[app] = cost[app]
        share = rate / len(cost_left)
        until_s = min(cost_left.values()) / share
        if pending:
            until_s = min(until_s, arrival_s[pending[0]] - now)
        now += until_s
        for app in list(cost_left):
            cost_left[app] -= until_s * share
            if cost_left[app] <= 1e-6 * cost[app]:
                completion_s[app] = now - arrival_s[app]
                del cost_left[app]
    return completion_s


def measure_paper_theorem(variant: str, seed: int, discipline: str = "justitia") -> list[float]:
    """Largest delay, and the bound by runtimes and by token-times, seconds; share of applications within the first.

    Args:
        variant: one of ``VARIANTS``.
    """
    window_s = apps.WINDOWS_S["3x"] * APPLICATIONS / 300
    tasks = apps.paper_workload(seed, applications=APPLICATIONS, window_s=window_s)
    if variant == "plain":
        tasks = [replace(task, after=(), after_s=0.0) for task in tasks]
    exact = ExactPaperCosts(tasks)
    ends = paper_completion_s(
        tasks, make_paper_discipline(discipline, None if variant == "predicted" else exact)
    )
    fluid = paper_fluid_completion_s(tasks)
    delays = [ends[app] - fluid[app] for app in ends]
    capacity = MACHINE.kv.blocks * MACHINE.kv.block_tokens
    largest_s = max(exact.costs.values()) / capacity * STEP_S
    runtime_s = max(task.output_tokens for task in tasks) * STEP_S
    bound_s = 2.0 * runtime_s + largest_s
    longest = max(predictor_kv_token_time(task.prompt_tokens, task.output_tokens) for task in tasks)
    token_time_s = 2.0 * longest * STEP_S + largest_s
    return [max(delays), bound_s, token_time_s, paper_mean([float(delay <= bound_s) for delay in delays])]


def paper_theorem_1(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """The largest delay over the bound, as one assumption after the other is given up."""
    for variant, what in VARIANTS.items():
        runs = evaluation.each("theorem", measure_paper_theorem, variant)
        delay_s, bound_s, token_time_s, within = (paper_mean(column) for column in zip(*runs, strict=True))
        yield paper_claim(
            f"theorem1.{variant}", f"Theorem 1: largest delay against fluid over the bound; {what}", 1.0,
            [run[0] / run[1] for run in runs], "ratio", PaperRule.at_most(1.0),
            f"delay {delay_s:.0f} s, bound with runtimes {bound_s:.0f} s, {100 * within:.1f}% within it;"
            f" with token-times as printed the bound is {token_time_s:.0f} s",
        )  # fmt: skip
