"""Steps between ``schedule`` and ``update_from_output``: what each holds, and how long it took.

What vLLM scheduled is entered into the table for all requests at once, since a step has hundreds of them.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from vllm.v1.request import Request

from timely.core.job import JobTable
from timely.disciplines.base import Rows, StepPlan
from timely.engines.scheduler_core import EngineController
from timely.engines.vllm.request_state import VllmLiveRequests

COMPUTED_TOKENS = attrgetter("num_computed_tokens")


@dataclass(slots=True)
class VllmStepInFlight:
    """What a step holds; see ``TimedStep`` for the counts.

    Attributes:
        job_ids: of the members that are in the table; the arrays have an entry for each.
        tokens: computed in this step.
        computed_tokens: the contexts after the step.
        prefill: whether these are tokens of a prompt.
        schedule_s: what composing and scheduling it took the engine's loop, seconds.
    """

    started_s: float
    sequences: int
    job_ids: list[str]
    tokens: Rows
    computed_tokens: Rows
    prefill: np.ndarray
    prefill_tokens: int = 0
    prefills: int = 0
    prefill_squares: int = 0
    context_tokens: int = 0
    schedule_s: float = 0.0

    def __post_init__(self) -> None:
        prefill = self.prefill
        self.prefills = int(np.count_nonzero(prefill))
        self.context_tokens = int(self.computed_tokens[~prefill].sum())
        if self.prefills:
            tokens, ends = self.tokens[prefill], self.computed_tokens[prefill]
            self.prefill_tokens = int(tokens.sum())
            self.prefill_squares = int((ends**2 - (ends - tokens) ** 2).sum())

    def awaited_rows(self, table: JobTable) -> list[int]:
        """Rows of which it computes the token that their next step reads."""
        rows = table.rows(self.job_ids)
        rows = rows[rows >= 0]
        decoding_rows: list[int] = rows[table.resident[rows] & (table.prefill_left[rows] == 0)].tolist()
        return decoding_rows

    def ending_rows(self, table: JobTable) -> list[int]:
        """Rows whose last token it computes, even if vLLM rejects all drafts."""
        rows = table.rows(self.job_ids)
        live = rows >= 0
        rows = rows[live]
        # A decoding sequence computes its drafts beside one token.
        drafts = np.where(self.prefill, 0, self.tokens - 1)
        reach_tokens = (self.computed_tokens + 1 - drafts)[live]
        ending: list[int] = rows[table.resident[rows] & (reach_tokens >= table.end_tokens[rows])].tolist()
        return ending


class VllmStepTiming:
    """The steps in flight, oldest first, and the time of the last one that ended.

    Args:
        ahead: a step is composed while another computes the tokens that it reads.
    """

    def __init__(self, *, ahead: bool) -> None:
        self._ahead = ahead
        self.in_flight: deque[VllmStepInFlight] = deque()
        self.step_s = 0.0
        self._last_end_s = -math.inf

    def ending_rows(self, table: JobTable) -> frozenset[int]:
        """Rows that vLLM leaves out of the next step, for one in flight computes their last token, or the next."""
        rows = VllmStepInFlight.ending_rows if self._ahead else VllmStepInFlight.awaited_rows
        return frozenset(row for step in self.in_flight for row in rows(step, table))

    def end(self, controller: EngineController, now: float, update_s: float) -> None:
        """The oldest step in flight ended: learn from its time and note it in the journal.

        ``update_s`` is what taking in its tokens took the engine's loop until ``now``, seconds.
        """
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
                    "context_tokens": step.context_tokens, "loop_s": step.schedule_s + update_s,
                }
            )  # fmt: skip


def record_vllm_scheduled(
    controller: EngineController,
    live: VllmLiveRequests,
    plan: StepPlan,
    request_tokens: Mapping[str, int],
    running: Sequence[Request],
    now: float,
    block_tokens: int,
) -> VllmStepInFlight:
    """Bring the table in line with what vLLM scheduled, and count it.

    Args:
        running: vLLM's running requests; scheduled ones are among them, in the same order.
        request_tokens: request id -> tokens; requests that are not in the table only add to the sequences of the step.
    """
    table = controller.table
    ids = list(request_tokens)
    tokens = np.fromiter(request_tokens.values(), dtype=np.int64, count=len(ids))
    if len(plan.rows) == len(plan.tokens):
        # Mostly vLLM does just what was planned.
        table.note_rows(list(plan.tokens), np.fromiter(plan.rows, np.int64, len(plan.rows)))
    rows = table.rows(ids)
    in_table = rows >= 0
    if not in_table.all():
        ids = [request_id for request_id in ids if request_id in live]
        rows, tokens = rows[in_table], tokens[in_table]
    requests = running if len(running) == len(ids) == len(request_tokens) else live.requests(ids)
    computed_tokens = np.fromiter(map(COMPUTED_TOKENS, requests), np.int64, len(requests))
    for place in controller.started_together(ids, rows):
        state = live[ids[place]]
        if state.evicted_context_tokens:
            again = state.evicted_context_tokens - int(computed_tokens[place] - tokens[place])
            controller.recomputed(state.job, max(0, again))
            state.evicted_context_tokens = 0
    prefill = table.prefill_left[rows] > 0
    chunks = [place for place in np.flatnonzero(prefill | (tokens > 1)) if requests[place].is_prefill_chunk]
    prefill[chunks] = True
    table.context_tokens[rows] = computed_tokens
    table.blocks[rows] = -(-computed_tokens // block_tokens)
    table.prefill_left[rows] = 0
    for place in chunks:
        table.prefill_left[rows[place]] = requests[place].num_tokens - int(computed_tokens[place])
    return VllmStepInFlight(now, len(request_tokens), ids, tokens, computed_tokens, prefill)
