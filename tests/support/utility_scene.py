"""Jobs of `timely` in a table: ordinary requests and dated ones, resident or not."""

from __future__ import annotations

from typing import Any

from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.core.utility import TimeUtility
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.timely.discipline import Timely
from timely.engines.step_time.learned import FixedSpeed

STEP_S, PROMPT_S = 0.02, 0.0001
SPEED = FixedSpeed(STEP_S, 0.0, PROMPT_S)


def limits(now: float = 0.0, **changes: int) -> StepLimits:
    sizes: dict[str, Any] = {"token_budget": 4096, "max_batch": 4, "max_resident": 64, "prefill_chunk": 4096}
    return StepLimits(now=now, free_blocks=10_000, block_tokens=16, speed=SPEED, **(sizes | changes))


def ordinary(
    name: str, *, expected: float | None = 20.0, prompt: int = 100, urgency: int | None = None
) -> JobSpec:
    hints = RequestHints(expected_tokens=expected, urgency=urgency)
    return JobSpec(name, 0.0, hints, prompt_tokens=prompt, segmented=False, plain=True)


def dated(name: str, utility: TimeUtility, *, prompt: int = 100, arrival_s: float = 0.0) -> JobSpec:
    return JobSpec(name, arrival_s, RequestHints(utility=utility), prompt_tokens=prompt, segment_tokens=4)


def join(table: JobTable, discipline: Discipline, *specs: JobSpec) -> list[Job]:
    jobs = [table.add(spec) for spec in specs]
    for job in jobs:
        discipline.arrived(job, 0.0)
    return jobs


def make_resident(job: Job, output_tokens: int = 0) -> None:
    table, row = job.table, job.row
    context = job.spec.prompt_tokens + output_tokens
    table.active[row] = table.resident[row] = True
    table.prefill_left[row] = 0
    table.output_tokens[row] = output_tokens
    table.context_tokens[row], table.blocks[row] = context, -(-context // 16)


def complete(table: JobTable, discipline: Discipline, job: Job, now: float) -> None:
    """The request ends by itself and leaves."""
    job.outcome = "complete"
    discipline.finished(job, now)
    table.remove(job.job_id)


def keys(discipline: Timely, table: JobTable, now: float = 0.0, **changes: int) -> dict[object, float]:
    values = discipline.keys(table, limits(now, **changes))
    return {job.job_id: float(values[job.row]) for job in table}
