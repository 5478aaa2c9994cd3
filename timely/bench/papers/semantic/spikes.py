"""Semantic scheduling's simulated experiments: the workload, the systems compared, and what a run measures.

Machines are those of appendix B, and for Fig. 4 the A5000 with Qwen1.5-4B, whose times the published simulation has.
The workload follows the text and the simulation that its authors published:

* twenty points of arrival, ``gap`` seconds apart, with 0 to ``C`` requests at each, all counts alike;
* urgency uniform over five levels, prompt and output uniform over 1 to 499 tokens;
* lengths predicted in ten buckets of 50 tokens.
  Section 4.1 also names five buckets of about 10 tokens, for the emergency dataset; they cannot hold 500 tokens;
* outside of spikes the paper states no gap; it is 0.1 s here.
  Where the terms of its scripts are meant it is 1 s, the default that they leave;
* a batch of 16, but of 12 for the baselines, and all systems on stage-aware, preemptive batches (Alg. 2);
* a batch of 8 on the machines of Fig. 4.

Normalized waiting time is "the average waiting time per generated token".
*Pooled* is all waiting over all tokens; *each* is the mean over requests of a request's own.
A request waits from its arrival at the predictor until its last token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from timely.bench.papers.serving import serve_paper_tasks
from timely.core.hints import RequestHints
from timely.core.job import JobTable
from timely.disciplines.base import Discipline, Floats, Rows, StepLimits
from timely.disciplines.predictors.batching import PredictorStage, predictor_ready_times_s
from timely.disciplines.predictors.error_injection import (
    inject_predictor_level_errors,
    inject_predictor_token_errors,
)
from timely.disciplines.registry import create_discipline
from timely.disciplines.semantic.cache_cost import SemanticCacheCostModel
from timely.disciplines.semantic.constants import BATCH, BUCKET_TOKENS, URGENCY_LEVELS
from timely.disciplines.semantic.discipline import Semantic, SemanticMixed
from timely.disciplines.semantic.heap import Key
from timely.engines.replay_types import PlannedSegment, PlannedTask
from timely.engines.step_time.profile import load_step_profile

POINTS = 20
LONGEST = 499

GAP_S = 0.1
"""Between points of arrival outside of spikes; the paper states none, and with 1 s there is hardly a queue."""

SCRIPT_GAP_S = 1.0
"""The default of the published simulation; its scripts for wrong predictions and Table 1 name no other."""

MACHINES = {
    "A100-4B": "a100-qwen1.5-4b",
    "A100-7B": "a100-qwen1.5-7b",
    "A5000-4B": "a5000-qwen1.5-4b",
    "A5000-7B": "a5000-qwen1.5-7b",
}
MAIN = "A100-4B"
Levels = list[float]
"""Normalized waiting of urgency 0..4 and of all, pooled, then the same as means over requests, seconds a token."""


class _Steady(Semantic):
    """The discipline with the profile's own step times, which do not vary, as in the paper."""

    clearly = 1.0


class _SteadyMixed(SemanticMixed):
    """The same without Alg. 2."""

    clearly = 1.0


class _PaperStagedHpjf(_Steady):
    """By urgency level, then by arrival; on stage-aware and preemptive batches, as the published baselines are."""

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        level, _ = super().order(table, rows, limits)
        return level, table.sequence[rows].astype(np.float64)


class _PaperStagedSjf(_Steady):
    """By estimated time left, without regard to urgency."""

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        _, left = super().order(table, rows, limits)
        return np.zeros(len(rows), dtype=np.int64), left


class _PaperStagedFcfs(_Steady):
    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        return np.zeros(len(rows), dtype=np.int64), table.sequence[rows].astype(np.float64)


ON_BATCHES: dict[str, type[Semantic]] = {
    "semantic": _Steady,
    "semantic-mixed": _SteadyMixed,
    "staged-hpjf": _PaperStagedHpjf,
    "staged-sjf": _PaperStagedSjf,
    "staged-fcfs": _PaperStagedFcfs,
}


def make_paper_discipline(system: str) -> Discipline:
    """A discipline by its registered name; ``staged-NAME`` is a baseline on Alg. 2."""
    return ON_BATCHES[system]() if system in ON_BATCHES else create_discipline(system)


def paper_spikes(seed: int, concurrency: int, gap_s: float) -> list[PlannedTask]:
    """The workload, in order of arrival; lengths are predicted to the nearest bucket below or above."""
    rng = np.random.default_rng([seed, concurrency, round(1000 * gap_s)])
    tasks: list[PlannedTask] = []
    for point in range(POINTS):
        for _ in range(int(rng.integers(0, concurrency + 1))):
            tokens = int(rng.integers(1, LONGEST + 1))
            bucket = (
                np.ceil(tokens / BUCKET_TOKENS) if rng.random() < 0.5 else np.floor(tokens / BUCKET_TOKENS)
            )
            tasks.append(
                PlannedTask(
                    job=len(tasks),
                    arrival_s=point * gap_s,
                    plan=(PlannedSegment("", tokens, 0.0),),
                    prompt_tokens=int(rng.integers(1, LONGEST + 1)),
                    hints=RequestHints(
                        urgency=int(rng.integers(URGENCY_LEVELS)),
                        expected_tokens=max(1.0, float(bucket * BUCKET_TOKENS)),
                    ),
                    max_tokens=LONGEST + 1,
                )
            )
    return tasks


def with_paper_predictions(
    tasks: Sequence[PlannedTask],
    levels: Sequence[int] | None = None,
    lengths: Sequence[float] | None = None,
    ready_s: Sequence[float] | None = None,
) -> list[PlannedTask]:
    """The tasks as the scheduler sees them: predicted levels and lengths, and at the queue when that is done."""
    annotated_tasks = [
        replace(
            task,
            hints=replace(
                task.hints,
                urgency=task.hints.urgency if levels is None else levels[place],
                expected_tokens=task.hints.expected_tokens if lengths is None else lengths[place],
            ),
            arrival_s=task.arrival_s if ready_s is None else ready_s[place],
        )
        for place, task in enumerate(tasks)
    ]
    return sorted(annotated_tasks, key=lambda task: task.arrival_s)


def paper_waiting(
    tasks: Sequence[PlannedTask],
    discipline: Discipline,
    machine: str = MAIN,
    places: int = BATCH,
    annotated_tasks: Sequence[PlannedTask] | None = None,
) -> Levels:
    """Serve ``annotated_tasks`` (the tasks themselves unless given); measure by the tasks' true arrivals and levels."""
    profile = load_step_profile(MACHINES[machine])
    run = serve_paper_tasks(
        annotated_tasks or tasks, discipline, profile, max_batch=places, learned_speed=False
    )
    latencies_s, tokens, each = ([0.0] * (URGENCY_LEVELS + 1) for _ in range(3))
    counts = [0] * (URGENCY_LEVELS + 1)
    truth = {task.job: task for task in tasks}
    for record in run.records:
        task = truth[record.task.job]
        latency_s = record.last_token_s - task.arrival_s
        for place in (task.hints.urgency or 0, URGENCY_LEVELS):
            latencies_s[place] += latency_s
            tokens[place] += task.output_tokens
            each[place] += latency_s / task.output_tokens
            counts[place] += 1
    pooled_s = [w / max(1.0, t) for w, t in zip(latencies_s, tokens, strict=True)]
    return pooled_s + [e / max(1, c) for e, c in zip(each, counts, strict=True)]


# ---------------------------------------------------------------------- measurements


def measure_paper_spike(
    machine: str, gap_s: float, concurrency: int, system: str, places: int, seed: int
) -> Levels:
    return paper_waiting(
        paper_spikes(seed, concurrency, gap_s), make_paper_discipline(system), machine, places
    )


def measure_paper_urgent_alone(concurrency: int, seed: int) -> Levels:
    """Only the requests of level 0 on an otherwise idle machine: no system can serve them sooner."""
    tasks = [task for task in paper_spikes(seed, concurrency, 0.1) if task.hints.urgency == 0]
    return paper_waiting(tasks, make_paper_discipline("semantic-mixed"))


def _paper_waiting_with_predictions(tasks: Sequence[PlannedTask], **predictions: Sequence[Any]) -> Levels:
    annotated_tasks = with_paper_predictions(tasks, **predictions)
    return paper_waiting(tasks, make_paper_discipline("semantic"), annotated_tasks=annotated_tasks)


WORKLOADS_A_SEED = 8
"""At five at once a workload has some fifty requests, so a seed of Fig. 2a and 2b averages over several."""


def measure_paper_wrong(what: str, rate: float, concurrency: int, gap_s: float, seed: int) -> Levels:
    """Semantic scheduling where a share of the predicted ``levels``, or of the ``lengths``, is wrong."""

    def run(part: int) -> Levels:
        tasks = paper_spikes(part, concurrency, gap_s)
        if what == "levels":
            levels = [task.hints.urgency or 0 for task in tasks]
            wrong_levels = inject_predictor_level_errors(levels, rate, np.random.default_rng([part, 1]))
            return _paper_waiting_with_predictions(tasks, levels=wrong_levels)
        lengths = [task.hints.expected_tokens or 1.0 for task in tasks]
        wrong_lengths = inject_predictor_token_errors(
            lengths, rate, np.random.default_rng([part, 2]), most=LONGEST + 1.0
        )
        return _paper_waiting_with_predictions(tasks, lengths=wrong_lengths)

    mean: Levels = np.mean([run(seed + 1000 * part) for part in range(WORKLOADS_A_SEED)], axis=0).tolist()
    return mean


def measure_paper_predicted(
    latency_s: float, batch: int, batching: str, concurrency: int, gap_s: float, seed: int
) -> Levels:
    """A predictor in front of the scheduler; a batch that does not fill is taken after two seconds."""
    tasks = paper_spikes(seed, concurrency, gap_s)
    stage: PredictorStage[int] = PredictorStage(latency_s, batch, batching, max_wait_s=2.0)  # type: ignore[arg-type]
    ready_s = predictor_ready_times_s([task.arrival_s for task in tasks], stage)
    return _paper_waiting_with_predictions(tasks, ready_s=ready_s)


# ---------------------------------------------------------------------- memory-tight settings

TIGHT_BLOCKS = 300
"""KV blocks of the memory-tight setting: 4,800 tokens, where a full batch of average requests needs 6,400."""


class PaperNoEviction(_Steady):
    """Nothing is evicted for a more urgent request; only where no request could run at all."""

    def _victims(
        self, table: JobTable, limits: StepLimits, keys: dict[int, Key], least: int
    ) -> Iterator[int]:
        return super()._victims(table, limits, keys, least) if least else iter(())


def paper_quadratic_cost(machine: str) -> SemanticCacheCostModel:
    """The cost of computing again and of moving (section 3.3) with the coefficients of appendix B.

    The simulator lets a step wait for saving as well as for loading, so both count.
    """
    profile = load_step_profile(MACHINES[machine])
    step, load_s = profile.step_s, profile.kv.swap_s_per_token
    return SemanticCacheCostModel(
        step.per_prefill_token_sq,
        step.per_prefill_token,
        load_s,
        step.per_context_token,
        step.base,
        save=load_s,
    )


def measure_paper_tight(machine: str, variant: str, seed: int) -> list[float]:
    """Waiting of urgency 0 and of all (means over requests), and evictions, where memory is short.

    ``variant``: ``cost`` decides by Eq. 3 to 6 what to keep, ``recompute`` and ``swap`` always do the same,
    ``off`` does not evict.
    """
    discipline = PaperNoEviction() if variant == "off" else _Steady(paper_quadratic_cost(machine))
    run = serve_paper_tasks(
        paper_spikes(seed, 20, 0.1), discipline, load_step_profile(MACHINES[machine]), max_batch=BATCH,
        learned_speed=False, kv_blocks=TIGHT_BLOCKS,
        eviction=variant if variant in ("recompute", "swap") else "discipline",
    )  # fmt: skip
    each = [(r.last_token_s - r.task.arrival_s) / r.task.output_tokens for r in run.records]
    urgent = [value for value, r in zip(each, run.records, strict=True) if r.task.hints.urgency == 0]
    return [float(np.mean(urgent)), float(np.mean(each)), float(run.counters["evictions"])]
