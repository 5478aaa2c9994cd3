"""Steps between ``schedule`` and ``update_from_output``: what each holds, and how long it took.

What vLLM scheduled is entered into the table for all requests at once, since a step has hundreds of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import Rows
from timely.engines.scheduler_core import Controller, rows_of
from timely.engines.vllm.request_state import RequestState

_computed_of = attrgetter("num_computed_tokens")


@dataclass(slots=True)
class StepInFlight:
    """What a step holds; see ``TimedStep`` for the counts."""

    started_s: float
    sequences: int = 0
    prefill_tokens: int = 0
    prefills: int = 0
    prefill_squares: int = 0
    context_tokens: int = 0
    jobs: Sequence[Job] = ()
    reach_tokens: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Context of each job with the token that the step samples, even if vLLM rejects all its drafts."""

    def add(self, tokens: Rows, computed_tokens: Rows, prefill: np.ndarray) -> None:
        """Count requests of the step; arrays with an entry for each.

        Args:
            tokens: computed in this step.
            computed_tokens: the contexts after the step.
            prefill: whether these are tokens of a prompt.
        """
        self.sequences += len(tokens)
        self.prefills += int(np.count_nonzero(prefill))
        self.context_tokens += int(computed_tokens[~prefill].sum())
        if self.prefills:
            tokens, ends = tokens[prefill], computed_tokens[prefill]
            self.prefill_tokens += int(tokens.sum())
            self.prefill_squares += int((ends**2 - (ends - tokens) ** 2).sum())


class StepTiming:
    """The steps in flight, oldest first, and the time of the last one that ended."""

    def __init__(self) -> None:
        self.in_flight: deque[StepInFlight] = deque()
        self.step_s = 0.0
        self._last_end_s = -math.inf

    def ending_rows(self, table: JobTable) -> frozenset[int]:
        """Rows whose last token a step in flight computes: vLLM leaves them out of the next one."""
        ending: set[int] = set()
        for step in self.in_flight:
            rows = rows_of(step.jobs)
            live = rows >= 0
            rows = rows[live]
            ends = table.resident[rows] & (step.reach_tokens[live] >= table.end_tokens[rows])
            ending.update(rows[ends].tolist())
        return frozenset(ending)

    def end(self, controller: Controller, now: float) -> None:
        """The oldest step in flight ended: learn from its time and note it in the journal."""
        step = self.in_flight.popleft()
        self.step_s = now - max(step.started_s, self._last_end_s)
        self._last_end_s = now
        prompts_follow = bool(self.in_flight) and self.in_flight[0].prefills > 0
        controller.ran(
            step.sequences,
            step.prefill_tokens,
            self.step_s,
            step.context_tokens,
            prompts_follow=prompts_follow,
        )
        if controller.journal:
            controller.journal(
                {
                    "event": "timed", "t_s": step.started_s, "end_s": now,
                    "decodes": step.sequences - step.prefills, "prefills": step.prefills,
                    "prefill_tokens": step.prefill_tokens, "prefill_squares": step.prefill_squares,
                    "context_tokens": step.context_tokens,
                }
            )  # fmt: skip


def record_scheduled(
    controller: Controller,
    states: Sequence[RequestState],
    scheduled: Mapping[str, int],
    step: StepInFlight,
    block_tokens: int,
) -> None:
    """Bring the table in line with what vLLM scheduled, and count it.

    Args:
        states: of the scheduled requests that are in the table, in the order of ``scheduled``.
        scheduled: request id -> tokens.
    """
    table, number = controller.table, len(states)
    jobs, requests = [state.job for state in states], [state.request for state in states]
    rows = rows_of(jobs)
    computed = np.fromiter(map(_computed_of, requests), dtype=np.int64, count=number)
    if number == len(scheduled):
        counts = list(scheduled.values())
    else:
        counts = [scheduled[request.request_id] for request in requests]
    tokens = np.array(counts, dtype=np.int64)
    for place in np.flatnonzero(~table.active[rows]).tolist():
        state = states[place]
        if state.evicted_context_tokens:
            again = state.evicted_context_tokens - (int(computed[place]) - counts[place])
            controller.recomputed(state.job, max(0, again))
            state.evicted_context_tokens = 0
    controller.started_together(jobs, rows)
    prefill = table.prefill_left[rows] > 0
    chunks = [place for place in np.flatnonzero(prefill | (tokens > 1)) if requests[place].is_prefill_chunk]
    prefill[chunks] = True
    step.add(tokens, computed, prefill)
    step.jobs, step.reach_tokens = jobs, computed + 1 - np.where(prefill, 0, tokens - 1)
    table.context_tokens[rows] = computed
    table.blocks[rows] = -(-computed // block_tokens)
    table.prefill_left[rows] = 0
    for place in chunks:
        table.prefill_left[rows[place]] = requests[place].num_tokens - int(computed[place])
