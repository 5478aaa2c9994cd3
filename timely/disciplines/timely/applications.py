"""Applications of requests without a deadline: what they cost, and when fair sharing would finish them.

A trained model predicts what an application costs, or the mean cost of a request of its type does. Every request that
ends teaches that mean, so a type is known long before the first application of it is over.

When an application ends, its finish time under fair sharing moves to what it really cost. So the clock of fair sharing
does not drift with wrong predictions.
"""

from timely.core.job import Job, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.justitia.app_groups import App, DisciplineAppAccounts
from timely.disciplines.justitia.fair_clock import FairClock
from timely.disciplines.output_length import COMPLETE_OUTCOMES
from timely.disciplines.predictors.app_cost import MAX_KINDS, AppCosts

MEMORY = 200
"""Requests of a type that its mean cost remembers."""

PRIOR_REQUESTS = 4
"""Requests of a type that weigh as much as the prediction from an application's first request."""


class TimelyApplications:
    """Open applications with their finish times under fair sharing.

    Args:
        costs: what applications cost; learned while serving when left out.
    """

    def __init__(self, costs: AppCosts | None = None) -> None:
        self.accounts = DisciplineAppAccounts(costs)
        self.clock = FairClock()
        self._is_trained = costs is not None
        self._request_costs: dict[str, tuple[float, int]] = {}
        """Mean cost of a request by type of application, and how many it rests on."""

    def __len__(self) -> int:
        return len(self.accounts)

    def advance(self, table: JobTable, limits: StepLimits) -> None:
        """Let fair sharing go on until ``limits.now``."""
        if self.accounts or self.clock.time.active:
            self.clock.advance(table, limits)

    def join(self, job: Job, now: float) -> App:
        """A request arrived; an application's first one opens it."""
        app, fresh, previous = self.accounts.join(job, now)
        if fresh:
            mean, count = self._request_costs.get(app.kind, (0.0, 0))
            if count and app.promised and not self._is_trained:
                share = count / (count + PRIOR_REQUESTS)
                app.cost = share * mean * app.allowance + (1.0 - share) * app.cost
            after = previous.tag if previous is not None else 0.0
            app.tag = self.clock.time.arrive(app.cost, now, after=after)
        return app

    def leave(self, job: Job, now: float) -> None:
        """A request is over."""
        before = self.accounts.of(job.job_id).served_cost
        app = self.accounts.leave(job, now)
        if job.outcome in COMPLETE_OUTCOMES:
            self._learn(app.kind, app.served_cost - before)
        if not app.live and app.promised and app.requests >= app.allowance:
            self.clock.time.move(app.tag, app.tag + app.served_cost - app.cost)

    def _learn(self, kind: str, cost: float) -> None:
        # Taken out and put in again: the first is the type without a request for longest.
        mean, count = self._request_costs.pop(kind, (0.0, 0))
        if len(self._request_costs) >= MAX_KINDS:
            del self._request_costs[next(iter(self._request_costs))]
        count = min(count + 1, MEMORY)
        self._request_costs[kind] = (mean + (cost - mean) / count, count)
