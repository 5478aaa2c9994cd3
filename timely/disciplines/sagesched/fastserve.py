"""FastServe: a multi-level feedback queue that new requests enter by the length of their prefill (skip-join).

Wu et al., "Fast Distributed Inference Serving for Large Language Models". Nothing is predicted.
A request that has used up the quantum of its level sinks to the next, whose quantum is ``RATIO`` times as long.
Within a level it is first come, first served; a request that waits too long is lifted to the top.
Time is counted in tokens generated, so that the order does not depend on the machine.
The published artefact begins with a quantum of 10 ms, doubles it from level to level, and lifts requests after 3 s.
The first quantum and the time to a lift are longer here, which is kinder to completion times.
"""

import math
from dataclasses import dataclass

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import DisciplineInfo
from timely.disciplines.step_builder import RankedDiscipline

LEVELS = 6
QUANTUM_TOKENS = 32
RATIO = 2.0
PREFILL_TOKENS = 256
"""Prompt tokens that take as long as generating one token, since a step computes them in parallel."""
STARVE_S = 300.0
CHECK_S = 0.5
"""Time between two checks for starving requests, seconds."""


@dataclass(slots=True)
class Standing:
    """A request's level, tokens used of the level's quantum, and when it was last served."""

    level: int
    used_tokens: float
    served_s: float


class FastServe(RankedDiscipline):
    """Skip-join multi-level feedback queue.

    Args:
        levels, quantum_tokens, ratio: number of levels, quantum of the first, factor from one to the next.
        starve_s: a request not served for so long goes to the top level, seconds.
    """

    pool_first = False
    info = DisciplineInfo(
        name="fastserve",
        summary="skip-join multi-level feedback queue; nothing predicted",
        source="FastServe, as in SageSched section 4.1",
        good_at="time to first token of requests nothing is known about",
        starves="no request for ever: a long request may wait starve_s (300 s) before each quantum",
    )

    def __init__(
        self,
        *,
        levels: int = LEVELS,
        quantum_tokens: float = QUANTUM_TOKENS,
        ratio: float = RATIO,
        starve_s: float = STARVE_S,
    ) -> None:
        self._quanta = [quantum_tokens * ratio**level for level in range(levels)]
        # A request at the bottom stays there until it ends or starves.
        self._quanta[-1] = math.inf
        self._starve_s = starve_s
        self._standing: dict[JobId, Standing] = {}
        self._looked_s = -math.inf

    def arrived(self, job: Job, now: float) -> None:
        first = job.spec.prompt_tokens / PREFILL_TOKENS
        level = next(i for i, quantum in enumerate(self._quanta) if quantum >= first)
        standing = self._standing[job.job_id] = Standing(level, 0.0, now)
        self._use(job, standing, float(job.table.output_tokens[job.row]))

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        standing = self._standing[job.job_id]
        standing.served_s = now
        self._use(job, standing, tokens)
        if now - self._looked_s >= CHECK_S:
            self._looked_s = now
            self._lift(job.table, now)

    def parked(self, job: Job, now: float) -> None:
        """What a robot executes is no waiting."""
        self._standing[job.job_id].served_s = now

    def finished(self, job: Job, now: float) -> None:
        del self._standing[job.job_id]

    def _use(self, job: Job, standing: Standing, tokens: float) -> None:
        standing.used_tokens += tokens
        while standing.used_tokens >= self._quanta[standing.level]:
            standing.used_tokens -= self._quanta[standing.level]
            standing.level += 1
        job.table.rank[job.row] = standing.level

    def _lift(self, table: JobTable, now: float) -> None:
        for job in table:
            standing = self._standing[job.job_id]
            since = max(standing.served_s, float(table.resume_s[job.row]))
            if standing.level and now - since >= self._starve_s:
                standing.level, standing.used_tokens, standing.served_s = 0, 0.0, now
                table.rank[job.row] = 0.0
