"""What SageSched costs one scheduler of 1 to 64 engines: predicting a length, and choosing (Fig. 12)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.old_claims import Claim, claim, interval
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import setting, spec_of
from timely.bench.papers.sagesched.workloads import MAX_TOKENS, World
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.sagesched.discipline import SageSched
from timely.engines.step_time.learned import FixedSpeed

Argument = TypeVar("Argument")

REMEMBERED = 10_000
NODES = (1, 2, 4, 8, 16, 32, 64)
QUEUED = 1_000
"""Requests queued for each engine (section 4.4)."""


@lru_cache(maxsize=1)
def _full(seed: int) -> HistoryPredictor:
    """A history whose window is full."""
    made = setting(seed, sage.MAIN_RATE)
    predictor = made.history(window=REMEMBERED)
    for past in made.world.draw(REMEMBERED - len(predictor), np.random.default_rng([seed, 59])):
        vector = predictor.embedder.embed([past.text])[0]
        predictor.remember(vector, past.prompt_tokens, past.output_tokens)
    return predictor


def _prediction_ms(seed: int) -> list[float]:
    """Milliseconds of embedding a prompt, and of a whole prediction, medians of 1,000."""
    predictor = _full(seed)
    fresh = [spec_of(drawn) for drawn in World(seed).draw(1_000, np.random.default_rng([seed, 60]))]
    embedding = [_taken_ms(predictor.embedder.embed, [spec.text]) for spec in fresh]
    predicting = [_taken_ms(predictor.predict, spec) for spec in fresh]
    # Medians: on a machine with other work now and then one call waits for it.
    return [float(np.median(embedding)), float(np.median(predicting))]


def _taken_ms(call: Callable[[Argument], object], argument: Argument) -> float:
    begun = time.perf_counter()
    call(argument)
    return 1000.0 * (time.perf_counter() - begun)


def overhead(given: Evaluation) -> list[Claim]:
    """Fig. 12, and the predictor's latency of section 4.3.1: one scheduler for 1 to 64 engines."""
    seed = given.seeds[0]
    embed_ms, predict_ms = given.once("fig12-predict", _prediction_ms, seed)
    taken = [given.once("fig12", _scheduling_ms, nodes, seed) for nodes in NODES]
    arrive_ms, decide_ms = [pair[0] for pair in taken], [pair[1] for pair in taken]
    listed = ", ".join(f"{n}: {a + d:.2f}" for n, a, d in zip(NODES, arrive_ms, decide_ms, strict=True))
    given.say(f"fig12, ms by engines: {listed}")
    plots.lines(
        given.out / "fig12.png",
        "SageSched Fig12: overhead of one scheduler",
        NODES,
        {
            "predicting": [interval([v]) for v in arrive_ms],
            "scheduling": [interval([v]) for v in decide_ms],
        },
        "engines, 1,000 requests queued for each",
        "ms",
    )
    return [
        claim(
            "sec431.prediction",
            "time of one length prediction, 10,000 requests remembered",
            0.37,
            predict_ms,
            "ms",
            predict_ms <= 0.5,
            f"embedding {embed_ms:.3f} ms (paper 0.22), search and distribution {predict_ms - embed_ms:.3f} ms"
            " (paper 0.15); one CPU core; the claim is below 0.5 ms",
        ),
        claim(
            "fig12.overhead",
            "predicting and scheduling at 64 engines",
            100.0,
            arrive_ms[-1] + decide_ms[-1],
            "ms",
            arrive_ms[-1] + decide_ms[-1] <= 100.0,
            f"ms by engines: {listed}; {1000 * NODES[-1]} requests queued at the last",
        ),
    ]


def _scheduling_ms(nodes: int, seed: int) -> list[float]:
    """Milliseconds of an arrival and of a scheduling point with ``QUEUED`` requests queued for each engine."""
    queued = nodes * QUEUED
    discipline = SageSched(_full(seed))
    table = JobTable(capacity=queued + 200)
    rng = np.random.default_rng([queued, 61])
    pool = World(seed).draw(500, rng)
    for number in range(queued):
        drawn = pool[number % len(pool)]
        job = table.add(
            JobSpec(number, 0.0, prompt_tokens=drawn.prompt_tokens, max_tokens=MAX_TOKENS, text=drawn.text)
        )
        if number < 500:
            discipline.arrived(job, 0.0)
        else:
            table.rank[job.row] = table.rank[number % len(pool)]
    limits = StepLimits(0.0, 2048, 256, queued, 2048, 5_000, 16, FixedSpeed(0.04, 5e-5, 1e-4))
    decided = []
    for _ in range(15):
        begun = time.perf_counter()
        discipline.compose(table, limits)
        decided.append(time.perf_counter() - begun)
    arrived = []
    for number in range(queued, queued + 100):
        drawn = pool[number % len(pool)]
        job = table.add(
            JobSpec(number, 0.0, prompt_tokens=drawn.prompt_tokens, max_tokens=MAX_TOKENS, text=drawn.text)
        )
        begun = time.perf_counter()
        discipline.arrived(job, 0.0)
        arrived.append(time.perf_counter() - begun)
    return [1000.0 * float(np.median(arrived)), 1000.0 * float(np.median(decided))]
