"""When a task that comes now could have its first segment without making one late that was promised.

A quantile of predicted responses says how sure one response is, not whether all that are promised fit together. For
that the promised first segments are laid behind each other by their deadlines, by the rules of the discipline's steps.
The new one comes behind them all: if that is in time, so is the order by deadlines.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from timely.core.arrays import Floats, Ints
from timely.core.job import JobId, JobSpec, JobTable
from timely.disciplines.base import StepLimits, StepPlan
from timely.disciplines.tardiness.promises import PREDICTION_ERROR
from timely.disciplines.tardiness.segment_lengths import TardinessSegmentLengths


@dataclass(slots=True)
class PromisedStepInFlight:
    """The step that was composed last.

    Attributes:
        end_s: when it is over, by its predicted time.
        tokens: job id -> tokens that it computes.
        prompts: job id -> prompt tokens left after it, of those whose prompt it computes.
    """

    end_s: float
    tokens: Mapping[JobId, int]
    prompts: Mapping[JobId, int]

    @classmethod
    def of(cls, plan: StepPlan, table: JobTable, limits: StepLimits, begin_s: float) -> Self:
        """A step that was just composed; the table has not changed since."""
        tokens = plan.tokens
        chunks = {job_id: count for job_id, count in tokens.items() if count > 1}
        step_s = limits.speed.step_s(len(tokens), sum(chunks.values()))
        prompts = {job_id: int(table.prefill_left[table[job_id].row]) - chunks[job_id] for job_id in chunks}
        return cls(begin_s + step_s, tokens, prompts)


def engine_response_behind_promises_s(
    spec: JobSpec,
    table: JobTable,
    lengths: TardinessSegmentLengths,
    limits: StepLimits,
    in_flight: PromisedStepInFlight | None,
    now: float,
) -> float:
    """The time until the first segment of a new task that makes no promised one late, seconds; 0 if none is promised.

    Those count whose utility falls as fast or faster, since others wait for the new task in any case. Those whose
    grammar is being compiled count, too. So do later segments that robots need before the new task's deadline, unless
    they are late anyway. A prompt waits for those before it that cannot bear it. Predicted steps may be too short, as
    when a step is composed.

    Args:
        in_flight: that step, if it is not over. The table may count its prompts when it begins or when it ends.
    """
    if not table.promised.any():
        return 0.0
    utility = spec.hints.utility
    is_first = table.segment == 0
    latest_s = table.due_s + table.ert_s * is_first - table.network_s
    is_due = table.segmented & (table.resume_s < math.inf) & (latest_s < now + utility.ert_s)
    rows = (np.where(is_first, table.promised, is_due) & (table.alpha <= utility.alpha)).nonzero()[0]
    jobs = [(table.jobs[row].spec, int(table.segment[row])) for row in rows.tolist()]
    expected_tokens = np.array([lengths.expect(*job) for job in jobs])
    tokens: Floats = np.maximum(1.0, expected_tokens - table.segment_tokens[rows])
    least_s = limits.speed.step_s(1, 0) * tokens + limits.speed.prefill_token_s * table.prefill_left[rows]
    can_count = is_first[rows] | (latest_s[rows] - now >= least_s)
    rows, tokens, latest_s = rows[can_count], tokens[can_count], latest_s[rows[can_count]]
    if not rows.size:
        return 0.0
    order = np.argsort(latest_s, kind="stable")
    rows, tokens, latest_s = rows[order], tokens[order], latest_s[order]
    prompts = table.prefill_left[rows].copy()
    begin_s = now
    if in_flight is not None:
        begin_s = max(now, in_flight.end_s)
        for place, job_id in enumerate(table.ids(rows)):
            prompts[place] = min(prompts[place], in_flight.prompts.get(job_id, prompts[place]))
            tokens[place] -= job_id in in_flight.tokens and prompts[place] == 0
    # The new task is the last one; its deadline is the caller's affair.
    prompts = np.append(prompts, spec.prompt_tokens)
    tokens = np.append(tokens, lengths.expect(spec, 0))
    latest_s = np.append(latest_s, now)
    end_s = _engine_response_behind_prompts_s(
        prompts, tokens, latest_s - begin_s, PREDICTION_ERROR * (latest_s - now), limits
    )
    return (begin_s + end_s - now) / (1.0 - PREDICTION_ERROR)


def _engine_response_behind_prompts_s(
    prompts: Ints, tokens: Floats, latest_s: Floats, errors_s: Floats, limits: StepLimits
) -> float:
    """When the last of some segments ends; times from the begin of the next step, seconds.

    Args:
        prompts, tokens, latest_s: prompt and output tokens left and the deadline of each, the earliest first.
        errors_s: by how much each may end later than predicted.
    """
    speed, others, batch = limits.speed, prompts.size - 1, limits.max_batch
    token_s, alone_s = speed.prefill_token_s, speed.step_s(1, 0)
    step_s = alone_s + max(0.0, speed.step_s(2, 0) - alone_s) * min(others, batch - 1)
    work_s = step_s * tokens + token_s * prompts
    # Those are heeded that are not lost in any case.
    is_heeded = work_s <= latest_s
    end_s = np.where(prompts > 0, -math.inf, work_s)
    begin_s, used_tokens, budget = 0.0, 0, max(1, limits.token_budget - others)
    # Those that a step has no place for begin when an earlier one ends.
    first = prompts > 0
    first[batch:] = True
    for place in np.flatnonzero(first).tolist():
        free_s = -math.inf if place < batch else float(np.partition(end_s[:place], -batch)[-batch])
        prompt = int(prompts[place])
        if not prompt:
            end_s[place] = free_s + work_s[place]
            continue
        prompt_s = token_s * prompt
        steps, used_tokens = divmod(used_tokens + prompt - 1, budget)
        begin_s, used_tokens = begin_s + step_s * steps, used_tokens + 1
        unable = is_heeded & (np.maximum(latest_s - end_s, 0.0) - errors_s < prompt_s)
        free_s = max(free_s, float(np.minimum(end_s, latest_s)[unable].max(initial=begin_s)))
        if free_s > begin_s:
            begin_s, used_tokens = free_s, prompt
        end_s[end_s > begin_s] += prompt_s
        end_s[place] = begin_s + work_s[place]
        begin_s += prompt_s
    return float(end_s[-1])
