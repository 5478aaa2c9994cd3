"""Applications as groups of requests: membership, cost of the whole, and end.

An application is named by its requests' ``app``: ``type/instance``, for example ``summarise/42``. Applications of one
type cost alike and share a cost model. A request without ``app`` is an application of its own.

An application that never ends cannot keep an early place for ever. What one tag pays for is an *instance*:
``app_requests`` requests if the application says how many it will send, ``ALLOWANCE`` if it does not. The next request
opens a new instance, which is charged again and begins, in fair-sharing time, where the last one ended. An
instance also ends after ``IDLE_S`` seconds without a live request, so that one that promised more requests than it
sends is forgotten. Absurd numbers are refused at arrival.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import cast

from timely.core.errors import InvalidInput
from timely.core.job import Job, JobId, JobSpec
from timely.disciplines.heap_queue import Group, QueueDiscipline
from timely.disciplines.output_length import COMPLETE_OUTCOMES
from timely.disciplines.predictors.app_cost import (
    AppCosts,
    CostModel,
    OnlineAppCosts,
    predictor_kv_token_time,
)

ALLOWANCE = 64
"""Requests of one instance of an application that does not say how many it will send."""

MOST_REQUESTS = 10_000
"""More requests than this in one application are refused."""

MOST_NAME_CHARS = 200

IDLE_S = 120.0
"""An instance without a live request is over after this long, seconds."""


def discipline_app_type(app: str) -> str:
    """The type of an application: its name up to the first ``/``."""
    return app.partition("/")[0]


@dataclass(slots=True, eq=False)
class App:
    """One instance of an application.

    Attributes:
        name: as in its requests; empty for a request of its own.
        kind: its type, empty likewise.
        first: its first request: what its cost was predicted from.
        tag: its place in the order; what it means is the discipline's.
        allowance: most requests; requests, live: those so far, and those not over.
        promised: whether it said how many requests it would send.
        spoilt: a request did not run to its end, so the instance's cost teaches nothing.
    """

    name: str
    kind: str
    number: int
    first: JobSpec
    allowance: int
    promised: bool
    cost: float = 0.0
    tag: float = 0.0
    requests: int = 0
    live: int = 0
    served_cost: float = 0.0
    spoilt: bool = False
    idle_s: float = math.inf


class DisciplineAppAccounts:
    """All open instances, and what they cost: predicted as they open, added up as requests end, learned in the end.

    Memory is bounded by the live requests and what ended in the last ``idle_s`` seconds.

    Args:
        costs: predicts what an application will cost in all; learned while serving when left out.
        cost: what one request costs, from its prompt and output tokens.
    """

    def __init__(
        self,
        costs: AppCosts | None = None,
        *,
        cost: CostModel = predictor_kv_token_time,
        idle_s: float = IDLE_S,
    ) -> None:
        self.cost = cost
        self.costs: AppCosts = costs if costs is not None else OnlineAppCosts(cost)
        self._idle_s = idle_s
        self._instances = 0
        self._open: dict[str, App] = {}
        self._idle: OrderedDict[str, App] = OrderedDict()
        """Without a live request, longest first."""
        self._of: dict[JobId, App] = {}

    def __len__(self) -> int:
        return len(self._open)

    def of(self, job_id: JobId) -> App:
        """The instance a live request belongs to."""
        return self._of[job_id]

    def join(self, job: Job, now: float) -> tuple[App, bool, App | None]:
        """A request arrived: its instance, whether that is new, and the used-up instance it follows, if any."""
        self._forget_idle(now)
        name = job.spec.hints.app or ""
        app = previous = self._open.get(name)
        fresh = app is None or app.requests >= app.allowance
        if app is None or fresh:
            app = self._new_instance(name, job.spec)
        self._idle.pop(name, None)
        app.requests += 1
        app.live += 1
        self._of[job.job_id] = app
        return app, fresh, previous if fresh else None

    def _new_instance(self, name: str, spec: JobSpec) -> App:
        self._instances += 1
        requests = spec.hints.app_requests if name else 1
        allowance = ALLOWANCE if requests is None else requests
        app = App(name, discipline_app_type(name), self._instances, spec, allowance, requests is not None)
        app.cost = self.costs.predict(app.kind, spec)
        if name:
            self._open[name] = app
        return app

    def leave(self, job: Job, now: float) -> App:
        """A request is over: its instance, whose ``served_cost`` has grown."""
        table, row = job.table, job.row
        app = self._of.pop(job.job_id)
        app.live -= 1
        app.served_cost += self.cost(float(table.prompt_tokens[row]), float(table.output_tokens[row]))
        app.spoilt = app.spoilt or job.outcome not in COMPLETE_OUTCOMES
        is_last = self._open.get(app.name) is app
        if not app.live and app.requests >= app.allowance:
            if is_last:
                del self._open[app.name]
            self._learn(app)
        elif not app.live and is_last:
            app.idle_s = now
            self._idle[app.name] = app
        self._forget_idle(now)
        return app

    def _forget_idle(self, now: float) -> None:
        """Forget instances that have been idle for too long."""
        while self._idle and now - next(iter(self._idle.values())).idle_s >= self._idle_s:
            name, app = self._idle.popitem(last=False)
            if self._open.get(name) is app:
                del self._open[name]
            # One that kept its promise has been learned from when it ended.
            if not app.promised:
                self._learn(app)

    def _learn(self, app: App) -> None:
        if not app.spoilt and app.requests:
            self.costs.learn(app.kind, app.first, app.served_cost)


def check_discipline_application(spec: JobSpec) -> None:
    """Refuse applications that cannot be meant.

    Raises:
        InvalidInput: ``app_requests`` is not within 1..MOST_REQUESTS, or the name is overlong.
    """
    if spec.hints.app is not None and len(spec.hints.app) > MOST_NAME_CHARS:
        raise InvalidInput(
            f"the name of an application has at most {MOST_NAME_CHARS} characters", where="app"
        )
    if spec.hints.app_requests is not None and not 1 <= spec.hints.app_requests <= MOST_REQUESTS:
        raise InvalidInput(
            f"an application has 1 to {MOST_REQUESTS} requests, got {spec.hints.app_requests};"
            " leave it out where the number is not known",
            where="app_requests",
        )


class AppDiscipline(QueueDiscipline):
    """Requests queue by the rank of their application; within one, first come first served."""

    def __init__(self, accounts: DisciplineAppAccounts | None = None) -> None:
        super().__init__()
        self.accounts = DisciplineAppAccounts() if accounts is None else accounts

    @property
    def costs(self) -> AppCosts:
        """Predicts what an application costs."""
        return self.accounts.costs

    # ------------------------------------------------------------------ what a subclass decides

    def opened(self, app: App, previous: App | None, now: float) -> None:
        """A new instance: set its ``tag``. ``previous`` is the used-up one it follows, if any."""

    def served(self, app: App, now: float) -> None:
        """A request of the instance is over; ``app.served_cost`` has grown."""

    def knowledge(self) -> AppCosts:
        return self.costs

    def recall(self, knowledge: object) -> None:
        self.accounts.costs = cast(AppCosts, knowledge)

    # ------------------------------------------------------------------ the queue

    def group(self, job: Job) -> Group:
        return self.accounts.of(job.job_id)

    def rank(self, group: Group) -> float:
        assert isinstance(group, App)
        return group.tag

    def age(self, group: Group) -> int:
        assert isinstance(group, App)
        return group.number

    # ------------------------------------------------------------------ hooks

    def check(self, spec: JobSpec) -> None:
        check_discipline_application(spec)

    def arrived(self, job: Job, now: float) -> None:
        app, fresh, previous = self.accounts.join(job, now)
        if fresh:
            self.opened(app, previous, now)
        super().arrived(job, now)

    def finished(self, job: Job, now: float) -> None:
        super().finished(job, now)
        self.served(self.accounts.leave(job, now), now)
