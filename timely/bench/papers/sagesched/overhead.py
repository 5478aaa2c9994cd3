"""What SageSched costs one scheduler of 1 to 64 engines: predicting a length, and choosing (Fig. 12)."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.claims import Claim, PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.bench.papers.sagesched import setting as sage
from timely.bench.papers.sagesched.setting import paper_job_spec, paper_setting
from timely.bench.papers.sagesched.workloads import MAX_TOKENS, PaperPromptWorld, SyntheticRequest
from timely.bench.papers.seed_statistics import paper_mean
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.predictors.history import HistoryPredictor
from timely.disciplines.sagesched.discipline import SageSched
from timely.engines.step_time.learned import FixedSpeed

Argument = TypeVar("Argument")

PAST_REQUESTS = 10_000
NODES = (1, 2, 4, 8, 16, 32, 64)
QUEUE_LENGTH = 1_000
"""Requests queued for each engine (section 4.4)."""
PREDICTIONS = 500
"""Queued requests that were really predicted; the others have their ranks."""


@lru_cache(maxsize=1)
def _full_paper_history(seed: int) -> HistoryPredictor:
    """A history whose window is full."""
    setting = paper_setting(seed, sage.MAIN_RATE)
    predictor = setting.history(window=PAST_REQUESTS)
    for past in setting.world.draw(PAST_REQUESTS - len(predictor), np.random.default_rng([seed, 59])):
        vector = predictor.embedder.embed([past.text])[0]
        predictor.remember(vector, past.prompt_tokens, past.output_tokens)
    return predictor


def _paper_prediction_ms(seed: int) -> list[float]:
    """Milliseconds of embedding a prompt, and of a whole prediction, medians of 1,000."""
    predictor = _full_paper_history(seed)
    fresh = [
        paper_job_spec(request)
        for request in PaperPromptWorld(seed).draw(1_000, np.random.default_rng([seed, 60]))
    ]
    embedding = [_paper_processor_ms(predictor.embedder.embed, [spec.words]) for spec in fresh]
    predicting = [_paper_processor_ms(predictor.predict, spec) for spec in fresh]
    return [float(np.median(embedding)), float(np.median(predicting))]


def _paper_processor_ms(call: Callable[[Argument], object], argument: Argument) -> float:
    """Milliseconds of the processor, all threads: other work on the machine does not count."""
    begin_s = time.process_time()
    call(argument)
    return 1000.0 * (time.process_time() - begin_s)


def sagesched_paper_overhead(evaluation: PaperEvaluation) -> Iterator[Claim]:
    """Fig. 12, and the predictor's latency of section 4.3.1: one scheduler for 1 to 64 engines."""
    seed = evaluation.seeds[0]
    embed_ms, predict_ms = evaluation.once("fig12-predict", _paper_prediction_ms, seed)
    times_ms = [evaluation.once("fig12", _paper_scheduling_ms, nodes, seed) for nodes in NODES]
    arrive_ms, decide_ms = [pair[0] for pair in times_ms], [pair[1] for pair in times_ms]
    sums_text = ", ".join(f"{n}: {a + d:.2f}" for n, a, d in zip(NODES, arrive_ms, decide_ms, strict=True))
    evaluation.say(f"fig12, ms by engines: {sums_text}")
    plots.paper_line_plot(
        evaluation.out / "fig12.png", "SageSched Fig12: overhead of one scheduler", NODES,
        {"predicting": arrive_ms, "scheduling": decide_ms}, "engines, 1,000 requests queued for each", "ms",
    )  # fmt: skip
    stream_ms, together = evaluation.once("fig12-stream", _paper_stream_ms, NODES[-1], seed)
    yield paper_claim(
        "sec431.prediction", "Section 4.3.1: time of one length prediction, 10,000 requests remembered", 0.37,
        predict_ms, "ms", PaperRule.at_most(0.5),
        f"embedding {embed_ms:.3f} ms (paper 0.22), search and distribution {predict_ms - embed_ms:.3f} ms"
        " (paper 0.15); one CPU core",
    )  # fmt: skip
    yield paper_claim(
        "fig12.single", f"Fig. 12: predicting and scheduling at {NODES[-1]} engines, one request by itself", 100.0,
        arrive_ms[-1] + decide_ms[-1], "ms", PaperRule.at_most(100.0), f"ms by engines: {sums_text}",
    )  # fmt: skip
    yield paper_claim(
        "fig12.stream", f"Fig. 12: added latency in a stream of {RATE * NODES[-1]:.0f} requests a second, end to end",
        100.0, stream_ms, "ms", PaperRule.at_most(100.0),
        f"{NODES[-1] * QUEUE_LENGTH:,} queued; requests that arrive during a decision share the next,"
        f" {together:.0f} on average; one CPU core",
    )  # fmt: skip


RATE = 8.0
"""Requests a second of each engine (section 4.4)."""

STREAM_S = 5.0
OUTPUT_TOKENS = 1_000
"""Output of every request (section 4.4)."""


@dataclass(slots=True)
class _PaperOverheadScheduler:
    """One scheduler with ``QUEUE_LENGTH`` queued requests for each engine, of which ``PREDICTIONS`` were predicted."""

    discipline: SageSched
    table: JobTable
    pool: list[SyntheticRequest]
    limits: StepLimits
    count: int = 0

    @classmethod
    def of(cls, nodes: int, seed: int) -> _PaperOverheadScheduler:
        queue_length = nodes * QUEUE_LENGTH
        limits = StepLimits(0.0, 2048, 256, queue_length, 2048, 5_000, 16, FixedSpeed(0.04, 5e-5, 1e-4))
        pool = PaperPromptWorld(seed).draw(PREDICTIONS, np.random.default_rng([queue_length, 61]))
        # A copy: requests that end in a stream change the history.
        scheduler = cls(
            SageSched(copy.deepcopy(_full_paper_history(seed))),
            JobTable(capacity=queue_length + 200),
            pool,
            limits,
        )
        for number in range(queue_length):
            job = scheduler.add()
            if number < PREDICTIONS:
                scheduler.discipline.arrived(job, 0.0)
            else:
                scheduler.table.rank[job.row] = scheduler.table.rank[number % PREDICTIONS]
        return scheduler

    def add(self) -> Job:
        request = self.pool[self.count % len(self.pool)]
        spec = JobSpec(
            self.count, 0.0, prompt_tokens=request.prompt_tokens, max_tokens=MAX_TOKENS, text=request.text
        )
        self.count += 1
        return self.table.add(spec)

    def end(self, number: int) -> None:
        """A request is over."""
        job = self.table[number]
        self.table.output_tokens[job.row] = OUTPUT_TOKENS
        job.outcome = "complete"
        self.discipline.finished(job, 0.0)
        self.table.remove(number)


def _paper_stream_ms(nodes: int, seed: int) -> list[float]:
    """Mean added latency of a request in a Poisson stream, milliseconds, and how many requests share a decision.

    Each request is embedded, predicted and queued, then a decision is taken over the whole queue.
    Requests that arrive during a decision share the next one.
    As many requests end as arrive, so the queue keeps its length, and each teaches the predictor.
    """
    scheduler = _PaperOverheadScheduler.of(nodes, seed)
    rng = np.random.default_rng([seed, 83])
    arrivals_s = np.cumsum(rng.exponential(1.0 / (RATE * nodes), int(RATE * nodes * STREAM_S)))
    scheduler.pool = PaperPromptWorld(seed).draw(len(arrivals_s), rng)
    numbers = deque(range(PREDICTIONS))
    first, now_s, decisions, waits = 0, 0.0, 0, [0.0]
    while first < len(arrivals_s):
        now_s = max(now_s, float(arrivals_s[first]))
        until = int(np.searchsorted(arrivals_s, now_s, side="right"))
        begin_s = time.process_time()
        for _ in range(first, until):
            numbers.append(scheduler.count)
            scheduler.discipline.arrived(scheduler.add(), now_s)
        scheduler.discipline.compose(scheduler.table, scheduler.limits)
        for _ in range(first, until):
            scheduler.end(numbers.popleft())
        now_s += time.process_time() - begin_s
        decisions += 1
        waits += [now_s - float(when) for when in arrivals_s[first:until]]
        first = until
    return [1000.0 * paper_mean(waits[1:]), first / decisions]


def _paper_scheduling_ms(nodes: int, seed: int) -> list[float]:
    """Milliseconds of an arrival and of a scheduling point with ``QUEUE_LENGTH`` requests queued for each engine."""
    scheduler = _PaperOverheadScheduler.of(nodes, seed)
    decisions_ms = [
        _paper_processor_ms(
            lambda table: scheduler.discipline.compose(table, scheduler.limits), scheduler.table
        )
        for _ in range(15)
    ]
    arrivals_ms = [
        _paper_processor_ms(lambda job: scheduler.discipline.arrived(job, 0.0), scheduler.add())
        for _ in range(100)
    ]
    return [float(np.median(arrivals_ms)), float(np.median(decisions_ms))]
