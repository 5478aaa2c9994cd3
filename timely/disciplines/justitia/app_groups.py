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
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class AppBook:
    """All open instances; memory is bounded by the live requests and what ended in the last ``idle_s`` seconds."""

    idle_s: float = IDLE_S
    instances: int = 0
    _open: dict[str, App] = field(default_factory=dict)
    _idle: OrderedDict[str, App] = field(default_factory=OrderedDict)
    """Without a live request, longest first."""
    _of: dict[JobId, App] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def of(self, job_id: JobId) -> App:
        """The instance a live request belongs to."""
        return self._of[job_id]

    def join(self, job: Job) -> tuple[App, bool, App | None]:
        """A request arrived: its instance, whether that is new, and the used-up instance it follows, if any."""
        spec = job.spec
        if not spec.hints.app:
            app = App("", "", self._number(), spec, 1, True)
            return self._take(app, job), True, None
        current = self._open.get(spec.hints.app)
        fresh = current is None or current.requests >= current.allowance
        previous = current if fresh else None
        if current is None or fresh:
            is_promised = spec.hints.app_requests is not None
            allowance = ALLOWANCE if spec.hints.app_requests is None else spec.hints.app_requests
            kind = discipline_app_type(spec.hints.app)
            current = App(spec.hints.app, kind, self._number(), spec, allowance, is_promised)
            self._open[spec.hints.app] = current
        self._idle.pop(spec.hints.app, None)
        return self._take(current, job), fresh, previous

    def leave(self, job_id: JobId, now: float) -> tuple[App, bool]:
        """A request is over: its instance, and whether that has ended with it."""
        app = self._of.pop(job_id)
        app.live -= 1
        if app.live:
            return app, False
        over = app.requests >= app.allowance
        if self._open.get(app.name) is app:
            if over:
                del self._open[app.name]
            else:
                app.idle_s = now
                self._idle[app.name] = app
        return app, over or not app.name

    def expire(self, now: float) -> list[App]:
        """Instances that have been idle for too long, now forgotten."""
        expiries: list[App] = []
        while self._idle:
            name, app = next(iter(self._idle.items()))
            if now - app.idle_s < self.idle_s:
                break
            del self._idle[name]
            if self._open.get(name) is app:
                del self._open[name]
            expiries.append(app)
        return expiries

    def _take(self, app: App, job: Job) -> App:
        app.requests += 1
        app.live += 1
        self._of[job.job_id] = app
        return app

    def _number(self) -> int:
        self.instances += 1
        return self.instances


class AppAccounts:
    """What applications cost: predicted as they open, added up as their requests end, learned when they are over.

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
        self.book = AppBook(idle_s)

    def join(self, job: Job, now: float) -> tuple[App, bool, App | None]:
        """A request arrived: its instance, whether that is new, and the used-up instance it follows, if any."""
        self._forget(now)
        app, fresh, previous = self.book.join(job)
        if fresh:
            app.cost = self.costs.predict(app.kind, app.first)
        return app, fresh, previous

    def leave(self, job: Job, now: float) -> App:
        """A request is over: its instance, whose ``served_cost`` has grown."""
        table, row = job.table, job.row
        app, over = self.book.leave(job.job_id, now)
        app.served_cost += self.cost(float(table.prompt_tokens[row]), float(table.output_tokens[row]))
        app.spoilt = app.spoilt or job.outcome not in COMPLETE_OUTCOMES
        if over:
            self._learn(app)
        self._forget(now)
        return app

    def _forget(self, now: float) -> None:
        for app in self.book.expire(now):
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
    """Requests queue by the rank of their application; within one, first come first served.

    Args:
        accounts: what applications cost; learned while serving when left out.
    """

    def __init__(self, accounts: AppAccounts | None = None) -> None:
        super().__init__()
        self.accounts = accounts or AppAccounts()

    @property
    def costs(self) -> AppCosts:
        """Predicts what an application costs."""
        return self.accounts.costs

    @property
    def book(self) -> AppBook:
        """All open instances."""
        return self.accounts.book

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
        return self.book.of(job.job_id)

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

    def state(self) -> dict[str, float | int | str]:
        return {**super().state(), "apps": len(self.book)}
