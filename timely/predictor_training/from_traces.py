"""Trains predictor files from traces: costs of applications, and lengths of answers by prompt."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lrtrace.job import TraceJob
from lrtrace.trace import Trace
from timely.core.errors import InvalidInput
from timely.disciplines.justitia.app_groups import discipline_app_type
from timely.disciplines.predictors.app_cost import (
    COSTS,
    LEAST_SAMPLES,
    CostSample,
    OnlineAppCosts,
    TrainedAppCosts,
    predictor_app_cost_model,
)
from timely.disciplines.predictors.embedding import prompt_embedder
from timely.disciplines.predictors.history import HistoryPredictor


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Result of the training for an application type.

    Attributes:
        applications: number of instances in the traces.
        error: mean relative error on a held-out fifth of them; None with too few instances.
        train_s: duration of the training, seconds.
    """

    kind: str
    applications: int
    error: float | None
    train_s: float


def _predictor_training_jobs(traces: Iterable[Path]) -> Iterable[tuple[int, TraceJob]]:
    for number, path in enumerate(traces):
        for job in Trace(path).jobs_by_arrival():
            yield number, job


def predictor_samples_from_traces(traces: Iterable[Path], unit: str) -> dict[str, list[CostSample]]:
    """Applications by type: the text and prompt of the first request, and the cost of all, in ``unit``.

    Raises:
        BadInput: a trace cannot be read.
    """
    cost = COSTS[unit]
    first: dict[tuple[int, str], TraceJob] = {}
    total: dict[tuple[int, str], float] = {}
    for number, job in _predictor_training_jobs(traces):
        if job.app is None:
            continue
        key = (number, job.app)
        first.setdefault(key, job)
        total[key] = total.get(key, 0.0) + cost(job.prompt_tokens, job.tokens)
    samples: dict[str, list[CostSample]] = {}
    for key, job in first.items():
        samples.setdefault(discipline_app_type(key[1]), []).append(
            CostSample(job.task, job.prompt_tokens, total[key])
        )
    return samples


def train_predictor_costs(
    traces: Iterable[Path], target: Path, *, unit: str = "kv", seed: int = 0
) -> tuple[list[TrainingResult], list[str]]:
    """Train a cost model for every application type of some traces and write them to one file.

    Returns: what was trained, and the types with too few instances.

    Raises:
        InvalidInput: no type has enough instances, or ``unit`` is unknown. BadInput: a trace cannot be read.
        Unsupported: scikit-learn is not installed.
    """
    if unit not in COSTS:
        raise InvalidInput(f"unknown cost {unit!r}; known: {', '.join(COSTS)}", where="cost")
    samples = predictor_samples_from_traces(traces, unit)
    enough = {kind: group for kind, group in samples.items() if len(group) >= LEAST_SAMPLES}
    if not enough:
        counts = ", ".join(f"{kind or '-'}: {len(group)}" for kind, group in sorted(samples.items()))
        raise InvalidInput(
            f"no application type has {LEAST_SAMPLES} instances or more ({counts or 'no job has an app'})",
            where="trace",
        )
    report, models = [], {}
    for kind, group in sorted(enough.items()):
        begin_s = time.perf_counter()
        models[kind] = predictor_app_cost_model(group, seed=seed)
        spent_s = time.perf_counter() - begin_s
        report.append(
            TrainingResult(kind, len(group), _predictor_training_held_out_error(group, seed), spent_s)
        )
    TrainedAppCosts(models, unit, OnlineAppCosts(COSTS[unit])).save(target)
    return report, sorted(set(samples) - set(enough))


def _predictor_training_held_out_error(samples: list[CostSample], seed: int) -> float | None:
    order = np.random.default_rng(seed).permutation(len(samples))
    test_count = len(samples) // 5
    if len(samples) - test_count < LEAST_SAMPLES or test_count < 2:
        return None
    model = predictor_app_cost_model([samples[i] for i in order[test_count:]], seed=seed)
    test_samples = [samples[i] for i in order[:test_count]]
    return float(
        np.mean([abs(model.predict(s.text, s.prompt_tokens) - s.cost) / s.cost for s in test_samples])
    )


def predictor_history_from_traces(traces: Iterable[Path], target: Path, *, space: str = "hash") -> int:
    """Write the latest requests of some traces, in their order, as a history; returns their number.

    Raises:
        InvalidInput: there is no request with a text. BadInput: a trace cannot be read.
        UnknownName, Unsupported: no such embedder, or it is not installed.
    """
    history = HistoryPredictor(prompt_embedder(space))
    for _, job in _predictor_training_jobs(traces):
        if job.task:
            vector = history.embedder.embed([job.task])[0]
            history.remember(vector, job.prompt_tokens, job.tokens)
    if not len(history):
        raise InvalidInput("no job has a task in words", where="trace")
    history.save(target)
    return len(history)
