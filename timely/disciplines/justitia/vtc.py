"""VTC, the virtual token counter: of the clients that wait, the one served least so far goes next.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), Algorithm 2.
A client is an application here, as in Justitia's evaluation.
Counters grow by the prompt's tokens on admission and by ``OUTPUT_WEIGHT`` for every token generated.
A client that comes back is lifted to the least counter of the waiting clients, so idling earns no credit.
"""

import numpy as np

from timely.core.job import Job, JobId, JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows
from timely.disciplines.heap_queue import Group, QueueDiscipline

INPUT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
"""The paper's weights of an input and of an output token (its section 5.1)."""

MAX_ABSENT_CLIENTS = 10_000
"""Counters of departed clients kept at most; the least are dropped first, which the lift would raise most."""


class Vtc(QueueDiscipline):
    """Virtual token counters."""

    info = DisciplineInfo(
        name="vtc",
        summary="the waiting client (application) that has been served least goes next",
        source="VTC (OSDI 2024), Algorithm 2; Justitia section V-A",
        needs=("requests grouped by app",),
        good_at="equal shares at every moment between clients that always have work",
    )

    def __init__(self) -> None:
        super().__init__()
        self.counters: dict[Group, float] = {}
        self._live: dict[Group, int] = {}
        self._numbers: dict[Group, int] = {}
        """Clients with live requests in the order in which they came."""
        self._came = 0
        self._client: dict[JobId, Group] = {}
        self._charged_jobs: set[JobId] = set()
        self._plan_tokens: dict[Group, float] = {}
        """Admissions of the plan being made, which count only once the engine starts them."""
        self._last_left: Group | None = None
        """The client whose last waiting request was admitted most recently."""

    def group(self, job: Job) -> Group:
        return job.spec.hints.app or ("request", job.job_id)

    def rank(self, group: Group) -> float:
        return self.counters[group] + self._plan_tokens.get(group, 0.0)

    def age(self, group: Group) -> int:
        return self._numbers[group]

    def ranks(self, table: JobTable, rows: Rows) -> Floats:
        jobs = table.jobs
        return np.fromiter(
            (self.counters[self.group(jobs[row])] for row in rows.tolist()), np.float64, rows.size
        )

    # ------------------------------------------------------------------ hooks

    def arrived(self, job: Job, now: float) -> None:
        """Lift the counter of a client that had nothing waiting (lines 6 to 12 of the algorithm)."""
        # What the engine has started of the last plan is charged first: an admission counts at once.
        self._settle(job.table, now)
        client = self.group(job)
        self._client[job.job_id] = client
        if client not in self._live:
            self._came += 1
            self._numbers[client] = self._came
        self._live[client] = self._live.get(client, 0) + 1
        mine = self.counters.get(client, 0.0)
        if not self._fresh.has(client):
            waiting = self._fresh.peek()
            if waiting is not None:
                mine = max(mine, self.counters[self._client[waiting]])
            elif self._last_left is not None:
                mine = max(mine, self.counters.get(self._last_left, 0.0))
        self.counters[client] = mine
        super().arrived(job, now)

    def begun(self, job: Job) -> None:
        self._charge(job)

    def progressed(self, job: Job, tokens: int, now: float) -> None:
        self._charge(job)
        self.counters[self._client[job.job_id]] += OUTPUT_WEIGHT * tokens

    def finished(self, job: Job, now: float) -> None:
        """The counter stays: a client that comes back is not new."""
        super().finished(job, now)
        client = self._client.pop(job.job_id)
        self._charged_jobs.discard(job.job_id)
        self._live[client] -= 1
        if not self._live[client]:
            del self._live[client], self._numbers[client]
            if len(self.counters) - len(self._live) > 2 * MAX_ABSENT_CLIENTS:
                self._drop()

    def _charge(self, job: Job) -> None:
        """Its prompt counts once, when it is first served."""
        if job.job_id not in self._charged_jobs:
            self._charged_jobs.add(job.job_id)
            client = self._client[job.job_id]
            self.counters[client] += INPUT_WEIGHT * int(job.table.prompt_tokens[job.row])
            if not self._fresh.has(client):
                self._last_left = client

    def _drop(self) -> None:
        absent_clients = sorted(
            (c for c in self.counters if c not in self._live), key=lambda c: self.counters[c]
        )
        for client in absent_clients[:-MAX_ABSENT_CLIENTS]:
            if client != self._last_left:
                del self.counters[client]

    # ------------------------------------------------------------------ composing

    def picked(self, job: Job) -> None:
        """Within one plan each admission counts at once, so that one client does not take all places."""
        if job.job_id not in self._charged_jobs:
            client = self._client[job.job_id]
            tokens = INPUT_WEIGHT * int(job.table.prompt_tokens[job.row])
            self._plan_tokens[client] = self._plan_tokens.get(client, 0.0) + tokens

    def planned(self) -> None:
        """A plan is not yet an admission: the counters are as before."""
        clients = list(self._plan_tokens)
        self._plan_tokens.clear()
        for client in clients:
            self._fresh.lowered(client)
