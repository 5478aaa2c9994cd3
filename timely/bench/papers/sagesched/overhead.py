"""What SageSched costs one scheduler of 1 to 64 engines: predicting a length, and choosing (Fig. 12)."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import Claim, at_most, claim, interval, mean
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


def overhead(evaluation: Evaluation) -> list[Claim]:
    """Fig. 12, and the predictor's latency of section 4.3.1: one scheduler for 1 to 64 engines."""
    seed = evaluation.seeds[0]
    embed_ms, predict_ms = evaluation.once("fig12-predict", _prediction_ms, seed)
    taken = [evaluation.once("fig12", _scheduling_ms, nodes, seed) for nodes in NODES]
    arrive_ms, decide_ms = [pair[0] for pair in taken], [pair[1] for pair in taken]
    listed = ", ".join(f"{n}: {a + d:.2f}" for n, a, d in zip(NODES, arrive_ms, decide_ms, strict=True))
    evaluation.say(f"fig12, ms by engines: {listed}")
    plots.lines(
        evaluation.out / "fig12.png",
        "SageSched Fig12: overhead of one scheduler",
        NODES,
        {
            "predicting": [interval([v]) for v in arrive_ms],
            "scheduling": [interval([v]) for v in decide_ms],
        },
        "engines, 1,000 requests queued for each",
        "ms",
    )
    stream_ms, load = evaluation.once("fig12-stream", _stream_ms, NODES[-1], seed)
    return [
        claim(
            "sec431.prediction", "Section 4.3.1: time of one length prediction, 10,000 requests remembered", 0.37,
            predict_ms, "ms", at_most(0.5),
            f"embedding {embed_ms:.3f} ms (paper 0.22), search and distribution {predict_ms - embed_ms:.3f} ms"
            " (paper 0.15); one CPU core",
        ),
        claim(
            "fig12.single", f"Fig. 12: predicting and scheduling at {NODES[-1]} engines, one request by itself", 100.0,
            arrive_ms[-1] + decide_ms[-1], "ms", at_most(100.0), f"ms by engines: {listed}",
        ),
        claim(
            "fig12.stream",
            f"Fig. 12: added latency in a stream of {RATE * NODES[-1]:.0f} requests a second", 100.0,
            stream_ms, "ms", at_most(100.0),
            f"a decision for each; one core is busy {100 * load:.0f}% of the time; above 100% the queue grows",
        ),
    ]  # fmt: skip


RATE = 8.0
"""Requests a second of each engine (section 4.4)."""

STREAM_S = 5.0


def _stream_ms(nodes: int, seed: int) -> list[float]:
    """Mean added latency of a request in a Poisson stream, milliseconds, and the load of the scheduler's core.

    Each request is predicted, queued and decided about by one scheduler, first come, first served.
    """
    arrive_ms, decide_ms = _scheduling_ms(nodes, seed)
    service_s = (arrive_ms + decide_ms) / 1000.0
    rng = np.random.default_rng([seed, 83])
    gaps_s = rng.exponential(1.0 / (RATE * nodes), int(RATE * nodes * STREAM_S))
    wait_s, waits = 0.0, []
    for gap_s in gaps_s:
        wait_s = max(0.0, wait_s + service_s - gap_s)
        waits.append(wait_s)
    return [1000.0 * (mean(waits) + service_s), service_s * RATE * nodes]


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
