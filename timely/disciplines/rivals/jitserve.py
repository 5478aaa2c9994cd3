"""JITServe (NSDI 2026, arXiv 2504.20068): grouped margin goodput maximisation, GMAX.

* **Margin.** A request's priority is the goodput it still brings over the service time that it still needs. Goodput is
  counted in tokens, an output token as ``OUTPUT_WEIGHT`` prompt tokens. It is scaled down by how far the predicted end
  lies beyond the deadline.
* **Groups.** Where more requests wait than a batch of ``B`` holds, all are candidates whose priority is at least
  ``CUTOFF`` times that of the ``B``-th. They are sorted by length. The batch is the run of neighbours with the highest
  sum of priorities: equal lengths make even steps.

Our reading, and where it is kinder than the paper:

* A robot's goodput before its first action is its prompt and first segment, with the deadline of the first action.
  Later tokens count without a deadline.
* The just enough service of a request that names a pace is a token by each time that the pace gives. So it goes first
  where its next token would be late after a full step. Where the token is late already its goodput is lost.
* Such requests have a place in the batch before the groups are formed.
* Length is that of prompt and output so far, as in the published artefact. Its candidates fill some batches instead.
* The paper decides anew every 50 steps, which is longer than an urgent task has. Here every step decides.
* Lengths are predicted by a running mean instead of quantile regression forests, unless the request brings one.
* The service time counts the prompt as well, since prompts are most of a robot's work.
"""

import numpy as np

from timely.core.job import Job, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits
from timely.disciplines.output_length import LengthEstimates
from timely.disciplines.rivals.deadlines import (
    RivalFirstSegmentLearner,
    rival_first_tokens_left,
    rival_next_token_due_s,
)
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder

OUTPUT_WEIGHT = 8.0
"""Worth of an output token in prompt tokens."""

CUTOFF = 0.95
"""Share of the priority of a batch's last request from which on requests compete for the batch."""

LEAST_RATIO = 1e-6
"""Smallest factor of a goodput that comes too late."""

PRESSED_PRIORITY = 1e9
"""Larger than any density of goodput: such requests cannot wait for the next step."""


class JitServe(RivalFirstSegmentLearner, KeyedDiscipline):
    pool_first = False
    info = DisciplineInfo(
        name="jitserve",
        summary="most goodput for the service still needed, in batches of similar length",
        source="JITServe (NSDI 2026, arXiv 2504.20068), GMAX",
        needs=("expected_tokens, or lengths learned while serving",),
        good_at="tokens in time over chats, deadlines and applications together",
        starves="requests far beyond their deadline under a steady stream of others",
    )

    def __init__(self) -> None:
        super().__init__()
        self._lengths = LengthEstimates()

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self._lengths.finished(job)

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        token_s = limits.speed.token_s
        expected_tokens = np.where(
            np.isnan(table.expected_tokens), self._lengths.mean_tokens, table.expected_tokens
        )
        tokens_left = np.maximum(1.0, expected_tokens - table.output_tokens)
        first = np.where(table.plain, table.output_tokens, table.segment) == 0
        aim = np.where(first & ~table.plain, rival_first_tokens_left(table), tokens_left)
        prompt_s = table.prefill_left * limits.speed.prefill_token_s
        need_s = prompt_s + aim * token_s
        ready_s = prompt_s + np.where(table.plain, token_s, need_s - prompt_s)
        budget_s = np.maximum(LEAST_RATIO, table.ert_s - table.network_s)
        ratio = np.clip(
            budget_s / np.maximum(LEAST_RATIO, limits.now - table.arrival_s + ready_s), LEAST_RATIO, 1.0
        )
        is_paced = ~first & (table.pace_s > 0.0)
        gain = OUTPUT_WEIGHT * aim + np.where(first | is_paced, table.prompt_tokens, 0.0)
        result: Floats = gain * np.where(first, ratio, 1.0) / need_s
        if is_paced.any():
            step_s = limits.speed.step_s(int(np.count_nonzero(table.active)), limits.token_budget)
            slack_s = rival_next_token_due_s(table, token_s) - limits.now
            result[is_paced & (slack_s > 0.0) & (slack_s < token_s + step_s)] += PRESSED_PRIORITY
        return result

    def _fill(self, builder: StepBuilder, order: Rows) -> str:
        table, limits = builder.table, builder.limits
        keys = self.keys(table, limits)
        # Where no job that holds memory can run, none would ever give it back.
        stuck = not (table.resident & (table.resume_s <= limits.now)).any()
        builder.worth = lambda row, victims: stuck or bool(keys[row] >= keys[victims].sum())
        return super()._fill(builder, self._put_batch_first(builder, order, keys))

    @staticmethod
    def _put_batch_first(builder: StepBuilder, order: Rows, keys: Floats) -> Rows:
        """The order with the chosen batch in front; ``order`` begins with the highest priority."""
        table, priority = builder.table, keys[order]
        pressed = int(np.count_nonzero(priority >= PRESSED_PRIORITY))
        places = builder.limits.max_batch - pressed
        if places <= 0 or order.size <= builder.limits.max_batch:
            return order
        rest, priority = order[pressed:], priority[pressed:]
        candidates = int(np.count_nonzero(priority >= CUTOFF * priority[places - 1]))
        lengths = table.prompt_tokens[rest[:candidates]] + table.output_tokens[rest[:candidates]]
        by_length = np.lexsort((np.arange(candidates), lengths))
        sums = np.convolve(priority[by_length], np.ones(places), "valid")
        begin = int(np.argmax(sums))
        is_chosen = np.zeros(rest.size, dtype=np.bool_)
        is_chosen[by_length[begin : begin + places]] = True
        return np.concatenate((order[:pressed], rest[is_chosen], rest[~is_chosen]))
