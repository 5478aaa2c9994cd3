"""When a new task would get its first segment on an engine, and what the other tasks there would lose by it.

The prediction follows the rules of the discipline ``timely``. Prompts are computed in the order of weight over work,
and decoding sequences share their steps. A parked generation is idle until it resumes, and its memory can be taken.
Its next segment is work to come, which slows the engine down. Urgent tasks go before it and share its steps.
"""

from dataclasses import dataclass, fields
from typing import Self, TypeAlias

import numpy as np

from timely.core.arrays import Bools, Floats, Ints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT_ERT_S
from timely.disciplines.base import Speed

SEGMENT_SHARE = 0.5
"""Share of the skill set's longest segment that a segment is expected to have."""

EARLY_SHARE = 0.1
"""Share of the slope that a delay costs before the deadline, as in the discipline ``timely``."""

HORIZON_S = 1.0
"""A parked generation that resumes within this time counts as if it resumed at its end, seconds."""

FLAT_WEIGHT = 0.02
"""Utility per second of a task whose utility does not fall."""

ORDINARY_SHARE = 0.1
"""Share of its slope with which a request counts that brings no utility of its own, as in the discipline ``timely``."""


UNBOUNDED = 1 << 30
"""Blocks and sequences of an engine that has not said how many it has."""


@dataclass(slots=True)
class ReportedRoutingQueue:
    """The columns of a job table that a router reads, of shape ``(jobs,)``, as an engine reported them."""

    alpha: Floats
    ert_s: Floats
    due_s: Floats
    network_s: Floats
    resume_s: Floats
    segment: Ints
    segment_tokens: Ints
    segment_bound: Ints
    prefill_left: Ints
    resident: Bools
    plain: Bools

    def add(self, spec: JobSpec) -> None:
        """Add a task that was sent to the engine after the engine's report."""
        table = JobTable(1)
        table.add(spec)
        for name in ROUTED_COLUMNS:
            setattr(self, name, np.concatenate((getattr(self, name), getattr(table, name))))


ROUTED_COLUMNS = tuple(field.name for field in fields(ReportedRoutingQueue))
QueueColumns: TypeAlias = JobTable | ReportedRoutingQueue


@dataclass(frozen=True, slots=True)
class RoutingEngineLoad:
    """An engine as a router sees it when a task arrives.

    Attributes:
        cached_tokens: of the task's prompt, in its prefix cache.
        free_blocks: KV blocks that can be taken without an eviction; ``blocks`` of all.
    """

    table: QueueColumns
    speed: Speed
    cached_tokens: int
    free_blocks: int
    blocks: int
    block_tokens: int
    max_batch: int


@dataclass(frozen=True, slots=True)
class RoutingForecast:
    """What would become of a task on an engine.

    Attributes:
        response_s: until the robot begins its first segment if no parked plan resumes before, seconds.
        loss: utility that the task loses, with the work that parked plans bring.
        harm: utility that the other tasks lose by the task.
    """

    response_s: float
    loss: float
    harm: float


def forecast_routing(spec: JobSpec, load: RoutingEngineLoad, now: float) -> RoutingForecast:
    """Predict the response to a task that arrives now."""
    speed, table, utility = load.speed, load.table, spec.hints.utility
    task = _RoutedTask.of(spec, load, now)
    response_s = task.own_s + spec.hints.network_s
    alone_s, sequence_s, token_s = task.alone_s, task.sequence_s, speed.prefill_token_s
    # Each second of the engine brings so many seconds of parked plans' work. They resume with time to spare, so an
    # urgent task waits for none of their tokens, but shares its steps with them.
    share_s = sequence_s if utility.urgent else _routing_step_share_s(alone_s, sequence_s)
    later_s = response_s + task.own_s * _routing_parked_work_s(table, now, token_s, share_s)
    late_s = max(0.0, later_s - utility.ert_s)
    loss = task.weight * ((1.0 - EARLY_SHARE) * late_s + EARLY_SHARE * later_s)
    others = _RoutedEngineJobs.of(table, now, token_s, alone_s, sequence_s)
    is_behind = others.index < task.index
    return RoutingForecast(
        response_s, loss, others.harm(is_behind, task.prompt_s, sequence_s, task.segment_tokens)
    )


def routing_response_s(spec: JobSpec, load: RoutingEngineLoad, now: float) -> float:
    """``RoutingForecast.response_s`` alone, which takes a part of the time."""
    return _RoutedTask.of(spec, load, now).own_s + spec.hints.network_s


def routing_backlog_s(table: JobTable, speed: Speed, now: float) -> dict[str, float]:
    """Predicted time that the runnable jobs' prompts and open segments take, seconds, by class.

    Plain requests are the class ``chat``.
    """
    rows = np.flatnonzero(table.resume_s <= now)
    alone_s = speed.step_s(1, 0, 0)
    token_s = _routing_step_share_s(alone_s, max(0.0, speed.step_s(2, 0, 0) - alone_s))
    left_tokens = np.maximum(1.0, SEGMENT_SHARE * table.segment_bound[rows] - table.segment_tokens[rows])
    work_s = speed.prefill_token_s * table.prefill_left[rows] + token_s * left_tokens
    plain, urgent = table.plain[rows], table.ert_s[rows] < URGENT_ERT_S
    classes = {"urgent": urgent & ~plain, "normal": ~urgent & ~plain, "chat": plain}
    return {name: float(work_s[members].sum()) for name, members in classes.items()}


def routing_evictable_blocks(table: JobTable, now: float) -> int:
    """KV blocks that evicting all parked jobs would free."""
    is_parked = table.resident & (table.resume_s > now)
    return int((table.blocks[is_parked] - table.shared_blocks[is_parked]).sum())


def _routing_step_share_s(alone_s: float, sequence_s: float) -> float:
    """What a token of a decoding sequence is charged of the steps that it shares with others, seconds."""
    return sequence_s + 0.2 * alone_s


def _routing_parked_work_s(table: QueueColumns, now: float, token_s: float, share_s: float) -> float:
    """Work of the next segments of parked generations, in seconds of work per second until they resume."""
    wait_s = table.resume_s - now
    rows = np.flatnonzero((wait_s > 0.0) & (wait_s < np.inf))
    work_s = token_s * table.prefill_left[rows] + share_s * SEGMENT_SHARE * table.segment_bound[rows]
    return float((work_s / np.maximum(wait_s[rows], HORIZON_S)).sum())


def _routing_evicted_tokens(load: RoutingEngineLoad, tokens: float) -> float:
    """Tokens that other jobs compute again because the task takes their memory."""
    blocks = -(-int(tokens) // load.block_tokens)
    return float(max(0, blocks - load.free_blocks) * load.block_tokens)


def _routing_indices(
    table: QueueColumns, rows: Ints, token_s: float, share_s: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights, times of the prompts, tokens left of the open segments, and indices of these rows."""
    alpha = table.alpha[rows]
    ordinary = table.plain[rows] & (alpha == NORMAL.alpha) & (table.ert_s[rows] == NORMAL.ert_s)
    weight = np.maximum(-alpha * np.where(ordinary, ORDINARY_SHARE, 1.0), FLAT_WEIGHT)
    prompt_s = token_s * table.prefill_left[rows].astype(np.float64)
    tokens_left = np.maximum(1.0, SEGMENT_SHARE * table.segment_bound[rows] - table.segment_tokens[rows])
    return weight, prompt_s, tokens_left, weight / (prompt_s + share_s * tokens_left)


@dataclass(slots=True)
class _RoutedTask:
    """The task that arrives: its numbers as ``_RoutedEngineJobs`` has them, and its time until the first segment.

    Attributes:
        alone_s, sequence_s: a step with one sequence, and what one more adds to it, seconds.
    """

    alone_s: float
    sequence_s: float
    weight: float
    prompt_s: float
    segment_tokens: float
    index: float
    own_s: float

    @classmethod
    def of(cls, spec: JobSpec, load: RoutingEngineLoad, now: float) -> Self:
        speed, table, utility = load.speed, load.table, spec.hints.utility
        ordinary = spec.plain and (utility.alpha, utility.ert_s) == (NORMAL.alpha, NORMAL.ert_s)
        weight = max(-utility.alpha * (ORDINARY_SHARE if ordinary else 1.0), FLAT_WEIGHT)
        prompt_tokens = max(1, spec.prompt_tokens - load.cached_tokens)
        segment_tokens = max(1.0, SEGMENT_SHARE * spec.segment_tokens)
        alone_s = speed.step_s(1, 0)
        sequence_s = max(0.0, speed.step_s(2, 0) - alone_s)
        token_s, share_s = speed.prefill_token_s, _routing_step_share_s(alone_s, sequence_s)
        prompt_s = token_s * (prompt_tokens + _routing_evicted_tokens(load, prompt_tokens + segment_tokens))
        index = weight / (prompt_s + share_s * segment_tokens)
        rows = np.flatnonzero(table.resume_s <= now)
        running = min(rows.size, load.max_batch - 1)
        step_s = alone_s + sequence_s * running
        # A newcomer finds a step in flight: it waits for half of one.
        own_s = (0.5 * step_s if running else 0.0) + prompt_s + step_s * segment_tokens
        if rows.size:
            _, prompts_s, tokens_left, indices = _routing_indices(table, rows, token_s, share_s)
            is_before = indices >= index
            own_s += float(prompts_s[is_before].sum())
            # So many of those before it have to end until the batch has a place for it.
            # An urgent one takes the place of a job that can wait.
            ends = int(np.count_nonzero(is_before)) + 1 - load.max_batch
            if ends > 0 and not utility.urgent:
                own_s += step_s * float(tokens_left[is_before].mean()) * ends / load.max_batch
        return cls(alone_s, sequence_s, weight, prompt_s, segment_tokens, index, own_s)


@dataclass(frozen=True, slots=True)
class _RoutedEngineJobs:
    """Runnable jobs of an engine in the order of their index; arrays of one shape ``(jobs,)``."""

    weight: Floats
    prompt_s: Floats
    left_tokens: Floats
    slack_s: Floats
    index: Floats

    @classmethod
    def of(cls, table: QueueColumns, now: float, token_s: float, alone_s: float, sequence_s: float) -> Self:
        rows = np.flatnonzero(table.resume_s <= now)
        share_s = _routing_step_share_s(alone_s, sequence_s)
        weight, prompt_s, tokens_left, index = _routing_indices(table, rows, token_s, share_s)
        order = np.argsort(-index, kind="stable")
        rows, weight, prompt_s, tokens_left = rows[order], weight[order], prompt_s[order], tokens_left[order]
        step_s = alone_s + sequence_s * max(0, len(rows) - 1)
        due_s = table.due_s[rows] + table.ert_s[rows] * (table.segment[rows] == 0)
        slack_s = due_s - table.network_s[rows] - now - np.cumsum(prompt_s) - step_s * tokens_left
        return cls(weight, prompt_s, tokens_left, slack_s, index[order])

    def harm(self, behind: np.ndarray, prompt_s: float, sequence_s: float, segment_tokens: float) -> float:
        """Utility that the jobs lose by a task with that prompt and segment, which precedes those ``behind``."""
        shared_s = sequence_s * np.minimum(self.left_tokens, segment_tokens)
        # The prompt delays the prompts behind it and the jobs that decode.
        delays_s = shared_s + np.where(behind | (self.prompt_s == 0.0), prompt_s, 0.0)
        lates_s = np.maximum(0.0, delays_s - np.maximum(0.0, self.slack_s))
        return float((self.weight * ((1.0 - EARLY_SHARE) * lates_s + EARLY_SHARE * delays_s)).sum())
