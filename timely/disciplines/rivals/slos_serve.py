"""SLOs-Serve (arXiv 2504.08784): a dynamic programme accepts what meets its deadlines; the rest is best effort.

* **Stages.** A prompt has a deadline, and decoding a pace. Steps last as long as the pace. What decoding leaves of
  such a step is the prompt budget, which accumulates until the next deadline.
* **Acceptance.** The requests whose prompts are not done stand in the order of their prompts' deadlines. The programme
  finds how many new ones can be accepted, such that every accepted prompt is done in time, in the KV cache there is.
  Its state is the number accepted and, for each number, the largest prompt budget. Accepted requests stay accepted.
* **Steps.** Decoding of accepted requests comes first, then their prompts by deadline. The rest gets what is left.

Our reading: all requests are in one tier. Its pace is the tightest that a request names, or else ``PACE`` times the
time of a decoding step. A robot's prompt is due earlier by its first segment at that pace. Each request counts the
same. Speculative decoding, several replicas and further stages are left out. A request is judged once, when it has
arrived.
"""

import math

import numpy as np
from numpy.typing import NDArray

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits, StepPlan
from timely.disciplines.rivals.deadlines import RivalFirstSegmentLearner, rival_prompt_due_s
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder

PACE = 2.0
"""Time between tokens of an accepted request over that of a decoding step: the best of 1.25 to 3 on WID 2."""

MOST_CANDIDATES = 256
"""Requests that the programme looks at; later deadlines are best effort."""

CLASS_GAP_S = 1e9
"""Larger than any difference of deadlines: sets the classes of the order apart."""


class SlosServe(RivalFirstSegmentLearner, KeyedDiscipline):
    pool_first = False
    info = DisciplineInfo(
        name="slos-serve",
        summary="accepts the most requests whose deadlines all hold, by a dynamic programme; others are best effort",
        source="SLOs-Serve (arXiv 2504.08784)",
        good_at="requests with several deadlines each, in bursts",
        starves="requests that were not accepted, under a steady stream of accepted ones",
    )

    def __init__(self) -> None:
        super().__init__()
        self._verdicts: dict[JobId, bool] = {}
        """The verdict on each live job that has one."""
        self._named_pace_s = math.nan
        """The tightest pace that a live job names, seconds; nan: none does."""

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self._verdicts.pop(job.job_id, None)

    def compose(self, table: JobTable, limits: StepLimits) -> StepPlan:
        self._named_pace_s = float(np.fmin.reduce(table.pace_s, initial=math.nan))
        self._judge(table, limits)
        return super().compose(table, limits)

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        is_accepted = self._is_accepted(table)
        due_s = np.where(is_accepted, rival_prompt_due_s(table, self._pace_s(limits)), table.arrival_s)
        decoding = table.prefill_left == 0
        result: Floats = -(due_s + CLASS_GAP_S * (~decoding + 2.0 * ~is_accepted))
        return result

    def _fill(self, builder: StepBuilder, order: Rows) -> str:
        table, limits = builder.table, builder.limits
        decoding = order[(table.prefill_left[order] == 0) & self._is_accepted(table)[order]]
        if 0 < decoding.size < order.size:
            own = builder.decode_tokens(decoding)
            builder.budget = min(
                builder.budget, own + max(1, int(self._prompt_tokens(decoding.size, limits)))
            )
        return super()._fill(builder, order)

    def _pace_s(self, limits: StepLimits) -> float:
        return PACE * limits.speed.token_s if math.isnan(self._named_pace_s) else self._named_pace_s

    def _prompt_tokens(self, decoding: float, limits: StepLimits) -> float:
        """Prompt tokens of a step at the pace beside so many decoding requests."""
        left_s = self._pace_s(limits) - limits.speed.step_s(max(1.0, decoding), 0)
        return max(0.0, left_s / limits.speed.prefill_token_s)

    def _is_accepted(self, table: JobTable) -> NDArray[np.bool_]:
        verdicts = self._verdicts
        return np.array([verdicts.get(job.spec.job_id, False) for job in table.jobs], dtype=np.bool_)

    # ------------------------------------------------------------------ the programme

    def _judge(self, table: JobTable, limits: StepLimits) -> None:
        """Decide on the jobs that have no verdict; one that has begun, as after a switch, is accepted."""
        fresh = [job for job in table.jobs if job.spec.job_id not in self._verdicts]
        for job in fresh:
            self._verdicts[job.spec.job_id] = bool(table.resident[job.row])
        new = np.array([job.row for job in fresh if not table.resident[job.row]], dtype=np.int64)
        if not new.size:
            return
        due_s = rival_prompt_due_s(table, self._pace_s(limits))
        is_accepted = self._is_accepted(table)
        accepted_rows = np.flatnonzero(is_accepted & (table.prefill_left > 0))
        rows = np.concatenate((accepted_rows, new))
        rows = rows[np.lexsort((table.sequence[rows], due_s[rows]))][:MOST_CANDIDATES]
        decoding = int(np.count_nonzero(is_accepted & (table.prefill_left == 0)))
        is_chosen = self._programme(table, limits, rows, is_accepted[rows], due_s[rows], decoding)
        for row in rows[is_chosen].tolist():
            self._verdicts[table.jobs[row].spec.job_id] = True

    def _programme(
        self,
        table: JobTable,
        limits: StepLimits,
        rows: Rows,
        is_bound: NDArray[np.bool_],
        due_s: Floats,
        decoding: int,
    ) -> NDArray[np.bool_]:
        """Which rows are accepted, by deadline: the most of them; those with ``is_bound`` count as accepted anyway."""
        count = rows.size
        pace_s = self._pace_s(limits)
        rates = np.array([self._prompt_tokens(decoding + n, limits) for n in range(count + 1)]) / pace_s
        whole = table.prompt_tokens[rows] + table.output_tokens[rows] + 1
        blocks = np.where(
            table.resident[rows], 0, -(-whole // limits.block_tokens) - table.shared_blocks[rows]
        )
        budget = np.full(count + 1, -np.inf)
        budget[0] = 0.0
        free = np.full(count + 1, float(limits.free_blocks))
        takes = np.zeros((count, count + 1), dtype=np.bool_)
        last_s = limits.now
        for place in range(count):
            budget += max(0.0, float(due_s[place]) - last_s) * rates
            last_s = max(last_s, float(due_s[place]))
            tokens_left = np.concatenate(([-np.inf], budget[:-1])) - table.prefill_left[rows[place]]
            room = np.concatenate(([0.0], free[:-1])) - blocks[place]
            if is_bound[place]:
                # A promise that can no longer be kept takes what there is.
                takes[place] = True
                budget, free = (
                    np.where(np.isfinite(tokens_left), np.maximum(0.0, tokens_left), tokens_left),
                    np.maximum(0.0, room),
                )
                continue
            better = (tokens_left >= 0.0) & (room >= 0.0) & (tokens_left >= budget)
            takes[place] = better
            budget, free = np.where(better, tokens_left, budget), np.where(better, room, free)
        number = int(np.flatnonzero(np.isfinite(budget)).max(initial=0))
        is_chosen = np.zeros(count, dtype=np.bool_)
        for place in range(count - 1, -1, -1):
            if takes[place, number]:
                is_chosen[place] = True
                number -= 1
        return is_chosen
