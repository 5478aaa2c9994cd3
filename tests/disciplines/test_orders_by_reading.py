"""Every decision of small replays against a plain reading of each discipline, with lists, sorting and fractions.

Steps take a second each, memory is ample, and each request gives a token in every step that it is in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from sim_cases import profile

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import TimeUtility
from timely.disciplines.base import Discipline, StepLimits, StepPlan
from timely.disciplines.justitia.app_groups import DisciplineAppAccounts
from timely.disciplines.justitia.baselines import Parrot, Srjf
from timely.disciplines.justitia.discipline import Justitia
from timely.disciplines.laps_sd.baselines import Las
from timely.disciplines.predictors.history import LengthPrediction
from timely.disciplines.registry import create_discipline
from timely.disciplines.sagesched.discipline import SageSched
from timely.disciplines.sagesched.fastserve import FastServe
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator

SCENES = 20
Steps = list[tuple[float, list[int]]]
"""Begin of each step, seconds, and its members."""


@dataclass
class Request:
    job: int
    arrival_s: float
    prompt: int
    tokens: int
    guess: int
    """Predicted tokens, rarely right."""
    level: int
    ert_s: float
    app: str
    done: int = 0
    active: bool = False
    """In the step before."""
    queue: int = 0
    used: int = 0
    """FastServe: its queue, and the tokens used of the quantum there."""

    @property
    def begun(self) -> bool:
        return self.done > 0


def requests(rng: random.Random) -> list[Request]:
    made: list[Request] = []
    now = 0.0
    for job in range(rng.randint(3, 8)):
        if job == 0 or rng.random() < 0.6:
            now = round(now + rng.choice([0, 0, 1, 2, 4]) + rng.uniform(0.001, 0.999), 6)
        made.append(
            Request(
                job, now, rng.choice([10, 600, 1200, 3000]), rng.randint(1, 15), rng.randint(1, 15),
                rng.randint(0, 4), rng.choice([0.2, 1.0, 3.0, 8.0]), f"kind/{rng.randint(0, 5)}",
            )
        )  # fmt: skip
    return made


def hints(request: Request, all_requests: list[Request]) -> RequestHints:
    urgent = request.ert_s < 0.5
    return RequestHints(
        utility=TimeUtility(request.ert_s, -6.67 if urgent else -2.0, 2.0 if urgent else 1.0),
        urgency=request.level,
        priority=float(request.level),
        expected_tokens=float(request.guess),
        app=request.app,
        app_requests=sum(other.app == request.app for other in all_requests),
    )


def replayed(discipline: Discipline, made: list[Request], places: int, *, plain: bool) -> Steps:
    tasks = [
        PlannedTask(
            request.job, request.arrival_s, (PlannedSegment("", request.tokens, 0.0),), request.prompt,
            hints=hints(request, made), plain=plain, max_tokens=4096,
        )
        for request in made
    ]  # fmt: skip
    steps: Steps = []
    compose = discipline.compose

    def noted(table: JobTable, limits: StepLimits) -> StepPlan:
        plan = compose(table, limits)
        if plan.tokens:
            steps.append((round(limits.now, 4), sorted(int(str(name)) for name in plan.tokens)))
        return plan

    discipline.compose = noted  # type: ignore[method-assign]
    machine = profile(base=1.0, max_batch=places, blocks=100_000)
    options = ReplayOptions(learned_speed=False)
    Simulator(options, machine, repeat_steps=False, discipline=discipline).run(tasks)
    return steps


class Reading:
    """A discipline as its paper says it: ``key`` orders requests, the smallest first."""

    preemptive = False
    plain = True

    def __init__(self, made: list[Request]) -> None:
        self.made = made

    def discipline(self) -> Discipline:
        raise NotImplementedError

    def key(self, request: Request, now: float) -> object:
        raise NotImplementedError

    def arrived(self, request: Request, live: list[Request]) -> None:
        """It has come; ``live`` are the others."""

    def progressed(self, request: Request) -> None:
        """A token more."""

    def finished(self, request: Request) -> None:
        """It has ended."""

    def chosen(self, live: list[Request], places: int, now: float) -> list[Request]:
        def order(request: Request) -> tuple[object, ...]:
            return not (self.preemptive or request.active), self.key(request, now), request.job

        return sorted(live, key=order)[:places]


def read(reading: Reading, made: list[Request], places: int) -> Steps:
    steps: Steps = []
    live: list[Request] = []
    pending, now = list(made), made[0].arrival_s

    def arrive() -> None:
        while pending and pending[0].arrival_s <= now + 1e-9:
            reading.arrived(pending[0], live)
            live.append(pending.pop(0))

    while live or pending:
        if not live:
            now = max(now, pending[0].arrival_s)
        arrive()
        members = reading.chosen(live, places, now)
        steps.append((round(now, 4), sorted(request.job for request in members)))
        for request in live:
            request.active = request in members
        now += 1.0 - 2e-9
        arrive()
        now += 2e-9
        for request in members:
            request.done += 1
            reading.progressed(request)
        for request in [one for one in members if one.done == one.tokens]:
            live.remove(request)
            reading.finished(request)
    return steps


class Named(Reading):
    """One that a single number orders."""

    def __init__(
        self, made: list[Request], name: str, key: Callable[[Request], float], preemptive: bool
    ) -> None:
        super().__init__(made)
        self.name, self.by, self.preemptive = name, key, preemptive

    def discipline(self) -> Discipline:
        return create_discipline(self.name)

    def key(self, request: Request, now: float) -> float:
        return self.by(request)


def remaining_guess(request: Request) -> float:
    """TRAIL: a request that has 0.8 of its first guess is not interrupted."""
    if request.done and request.done >= 0.8 * request.guess:
        return -1.0
    return float(request.guess - request.done)


def named(
    name: str, key: Callable[[Request], float], preemptive: bool
) -> Callable[[list[Request], int], Reading]:
    return lambda made, seed: Named(made, name, key, preemptive)


class LasReading(Reading):
    preemptive = True

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)

    def discipline(self) -> Discipline:
        return Las(2.0)

    def key(self, request: Request, now: float) -> int:
        return request.done // 2


class FastServeReading(Reading):
    preemptive = True
    quanta = (2, 4, 8)

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)

    def discipline(self) -> Discipline:
        return FastServe(levels=4, quantum_tokens=2.0)

    def key(self, request: Request, now: float) -> int:
        return request.queue

    def arrived(self, request: Request, live: list[Request]) -> None:
        request.queue = sum(quantum < request.prompt / 256 for quantum in self.quanta)

    def progressed(self, request: Request) -> None:
        request.used += 1
        if request.queue < len(self.quanta) and request.used >= self.quanta[request.queue]:
            request.queue, request.used = request.queue + 1, 0


class GittinsReading(Reading):
    """The least expected cost per completion over all budgets, by its definition, refreshed every second token."""

    preemptive = True

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)
        rng = random.Random(seed)
        self.lengths = {
            request.job: [(rng.randint(1, 20), rng.randint(1, 5)) for _ in range(rng.randint(1, 5))]
            for request in made
        }
        for request in made:
            request.prompt = 100 + request.job  # tells the requests apart

    def discipline(self) -> Discipline:
        reading = self

        class Told:
            def predict(self, spec: JobSpec) -> LengthPrediction:
                pairs = np.array(reading.lengths[spec.prompt_tokens - 100], dtype=np.float64)
                return LengthPrediction(pairs[:, 0], pairs[:, 1])

            def learn(self, spec: JobSpec, prediction: LengthPrediction, output_tokens: int) -> None:
                """It knows all."""

        return SageSched(Told(), bucket_tokens=2)

    def key(self, request: Request, now: float) -> Fraction:
        def cost(tokens: Fraction) -> Fraction:
            return tokens * tokens / 2 + tokens * request.prompt

        seen = Fraction(request.done - request.done % 2)
        age = cost(seen)
        left = [(cost(Fraction(n)) - age, weight) for n, weight in self.lengths[request.job] if n > seen]
        if not left:
            left = [(cost(seen * Fraction(factor)) - age, 1) for factor in (1.25, 1.5, 2, 3)]
        return min(
            Fraction(sum(weight * min(rest, budget) for rest, weight in left))
            / sum(weight for rest, weight in left if rest <= budget)
            for budget, _ in left
        )


class AppReading(Reading):
    """Applications with known costs."""

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)
        rng = random.Random(seed)
        self.first: dict[str, Request] = {}
        for request in made:
            self.first.setdefault(request.app, request)
        self.costs = {app: rng.randint(50, 1_500) for app in self.first}

    @property
    def accounts(self) -> DisciplineAppAccounts:
        reading = self

        class Told:
            def predict(self, kind: str, spec: JobSpec) -> float:
                return float(reading.costs[spec.hints.app or ""])

            def learn(self, kind: str, spec: JobSpec, cost: float) -> None:
                """It knows all."""

        return DisciplineAppAccounts(Told())


class ParrotReading(AppReading):
    def discipline(self) -> Discipline:
        return Parrot(self.accounts)

    def key(self, request: Request, now: float) -> int:
        return self.first[request.app].job


class SrjfReading(AppReading):
    def discipline(self) -> Discipline:
        return Srjf(self.accounts)

    def key(self, request: Request, now: float) -> tuple[float, int]:
        return max(0.0, self.costs[request.app]), self.first[request.app].job

    def finished(self, request: Request) -> None:
        self.costs[request.app] -= request.prompt * request.tokens + request.tokens**2 / 2  # type: ignore[assignment]


class JustitiaReading(AppReading):
    """By the time at which an exact fluid server would end each application (Fig. 7)."""

    capacity = 100

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made, seed)
        self.ends: dict[str, Fraction] = {}
        left: dict[str, Fraction] = {}
        pending = list(self.first.values())
        now = Fraction(0)
        while pending or left:
            share = Fraction(self.capacity, max(1, len(left)))
            end = now + min(left.values()) / share if left else None
            arrival = Fraction(str(pending[0].arrival_s)) if pending else None
            then = min(time for time in (end, arrival) if time is not None)
            for app in list(left):
                left[app] -= share * (then - now)
                if left[app] == 0:
                    self.ends[app] = then
                    del left[app]
            now = then
            while pending and Fraction(str(pending[0].arrival_s)) == now:
                app = pending.pop(0).app
                left[app] = Fraction(self.costs[app])

    def discipline(self) -> Discipline:
        return Justitia(self.accounts, capacity_tokens=float(self.capacity))

    def key(self, request: Request, now: float) -> tuple[Fraction, int]:
        return self.ends[request.app], self.first[request.app].job


class SemanticReading(Reading):
    """Urgency, then tokens left; while the most important request decodes, no prompt joins (Alg. 2)."""

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)
        for request in made:
            request.prompt = 20

    def discipline(self) -> Discipline:
        return create_discipline("semantic")

    def chosen(self, live: list[Request], places: int, now: float) -> list[Request]:
        order = sorted(live, key=lambda one: (one.level, max(1, one.guess - one.done), one.job))
        if order[0].begun:
            order = [one for one in order if one.begun]
        return order[:places]


class PudReading(Reading):
    """Eq. 4; while the most urgent member would be late at its longest, no other joins (section 4.4)."""

    plain = False

    def __init__(self, made: list[Request], seed: int) -> None:
        super().__init__(made)

    def discipline(self) -> Discipline:
        return create_discipline("pud")

    def key(self, request: Request, now: float) -> float:
        alpha, beta = (-6.67, 2.0) if request.ert_s < 0.5 else (-2.0, 1.0)
        ready_s = now + 0.09
        utility = min(beta, alpha * (max(0.0, ready_s - request.arrival_s) - request.ert_s) + beta)
        if utility <= 0.0:
            return 0.09 / -alpha
        return round(-utility / (0.09 * max(1.0, request.arrival_s + request.ert_s - ready_s)), 6)

    def chosen(self, live: list[Request], places: int, now: float) -> list[Request]:
        members: list[Request] = []
        for request in super().chosen(live, len(live), now):
            if members and not request.active:
                first = members[0]
                if first.arrival_s + first.ert_s - now < max(1, 10 - first.done):
                    break
            members.append(request)
        return members[:places]


READINGS: dict[str, Callable[[list[Request], int], Reading]] = {
    "fcfs": named("fcfs", lambda one: one.arrival_s, False),
    "edf": named("edf", lambda one: round(one.arrival_s + one.ert_s, 6), False),
    "priority": named("priority", lambda one: one.level, True),
    "vllm-priority": named("vllm-priority", lambda one: one.level, False),
    "hpjf": named("hpjf", lambda one: one.level, False),
    "lp-sjf": named("lp-sjf", lambda one: one.guess, False),
    "ssjf": named("ssjf", lambda one: one.guess, False),
    "vllm-sjf": named("vllm-sjf", lambda one: one.guess, False),
    "ltr": named("ltr", lambda one: one.guess, True),
    "trail": named("trail", remaining_guess, True),
    "las": LasReading,
    "fastserve": FastServeReading,
    "sagesched": GittinsReading,
    "parrot": ParrotReading,
    "srjf": SrjfReading,
    "justitia": JustitiaReading,
    "semantic": SemanticReading,
    "pud": PudReading,
}


@pytest.mark.parametrize("name", READINGS)
def test_every_decision_is_that_of_a_plain_reading(name: str) -> None:
    for seed in range(SCENES):
        rng = random.Random(seed)
        made, places = requests(rng), rng.randint(1, 3)
        reading = READINGS[name](made, seed)
        steps = replayed(reading.discipline(), made, places, plain=reading.plain)
        assert steps == read(reading, made, places), f"scene {seed}"
