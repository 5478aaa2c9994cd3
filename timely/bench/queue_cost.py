"""The cost of composing a step while very many plain requests wait: it must not grow with the queue."""

import itertools
import random
import statistics
import time

from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.registry import create_discipline
from timely.engines.step_time.learned import FixedSpeed

RUNNING = 256
BLOCK_TOKENS = 16
STEP_S = 0.02


def bench_compose_us(name: str, waiting: int, *, points: int = 50, repetitions: int = 1) -> float:
    """Median time of composing a step of 256 decoding chats while others wait for a place, microseconds.

    Args:
        waiting: chats that wait; the oldest for two seconds.
        points: measured compositions, after a tenth as many for warming up.
        repetitions: of the measurement with the same queue; the quickest counts.

    Raises:
        UnknownName: no such discipline.
    """
    discipline, table, rng = create_discipline(name), JobTable(), random.Random(0)
    for number in range(RUNNING + waiting):
        age_s = 2.0 * (RUNNING + waiting - number) / (RUNNING + waiting)
        spec = JobSpec(number, -age_s, prompt_tokens=rng.randint(50, 600), segmented=False, plain=True)
        job = table.add(spec)
        discipline.arrived(job, -age_s)
        if number < RUNNING:
            row = job.row
            table.resident[row] = table.active[row] = True
            table.prefill_left[row] = 0
            table.output_tokens[row] = rng.randint(1, 200)
            table.context_tokens[row] = table.prompt_tokens[row] + table.output_tokens[row]
            table.blocks[row] = table.context_tokens[row] // BLOCK_TOKENS + 1
    speed = FixedSpeed(STEP_S, 0.00005, 0.00003)
    medians_s: list[float] = []
    ticks = itertools.count()
    for _ in range(repetitions):
        times: list[float] = []
        for _ in range(points + max(2, points // 10)):
            now = next(ticks) * STEP_S
            table.due_s[:RUNNING] = now
            limits = StepLimits(now, 2048, RUNNING, RUNNING, 2048, 100_000, BLOCK_TOKENS, speed)
            begin_s = time.process_time()
            discipline.compose(table, limits)
            times.append(time.process_time() - begin_s)
        medians_s.append(statistics.median(times[-points:]))
    return min(medians_s) * 1e6
