"""Justitia's laws: virtual time is fair sharing, tags never change, the delay bound, selection in O(log n)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.heap_queue import DisciplineGroupQueue
from timely.disciplines.justitia.app_groups import App, DisciplineAppAccounts
from timely.disciplines.justitia.discipline import Justitia
from timely.disciplines.justitia.virtual_time import FairVirtualTime
from timely.engines.step_time.learned import FixedSpeed

Arrivals = Sequence[tuple[Fraction, Fraction]]


def fair_sharing(arrivals: Arrivals, capacity: Fraction) -> list[Fraction]:
    """Completion times under generalised processor sharing, from its definition, in exact arithmetic.

    Every moment the capacity is divided equally among the applications with work left.
    """
    left: dict[int, Fraction] = {}
    done: dict[int, Fraction] = {}
    now = Fraction(0)
    pending = sorted(range(len(arrivals)), key=lambda i: arrivals[i][0])
    while pending or left:
        if not left:
            now = max(now, arrivals[pending[0]][0])
        while pending and arrivals[pending[0]][0] <= now:
            index = pending.pop(0)
            left[index] = arrivals[index][1]
        share = capacity / len(left)
        until = min(left.values()) / share
        if pending:
            until = min(until, arrivals[pending[0]][0] - now)
        now += until
        for index in list(left):
            left[index] -= until * share
            if left[index] == 0:
                done[index] = now
                del left[index]
    return [done[index] for index in range(len(arrivals))]


applications = st.lists(
    st.tuples(st.integers(0, 40).map(lambda n: Fraction(n, 2)), st.integers(1, 30).map(Fraction)),
    min_size=1,
    max_size=12,
).map(lambda apps: sorted(apps, key=lambda app: app[0]))


@given(applications, st.integers(1, 5))
def test_virtual_time_gives_the_order_of_fair_sharing(apps: Arrivals, capacity: int) -> None:
    ends = fair_sharing(apps, Fraction(capacity))
    clock = FairVirtualTime(rate=float(capacity))
    tags = [clock.arrive(float(cost), float(arrival)) for arrival, cost in apps]
    for i in range(len(apps)):
        for j in range(len(apps)):
            if ends[i] < ends[j]:
                assert tags[i] <= tags[j] + 1e-9
            if tags[i] < tags[j] - 1e-9:
                assert ends[i] <= ends[j]


@given(applications, st.integers(1, 5))
def test_an_application_leaves_fair_sharing_when_virtual_time_reaches_its_tag(
    apps: Arrivals, capacity: int
) -> None:
    ends = fair_sharing(apps, Fraction(capacity))
    clock = FairVirtualTime(rate=float(capacity))
    events = sorted([(a, 0, i) for i, (a, _) in enumerate(apps)] + [(e, 1, i) for i, e in enumerate(ends)])
    tags: dict[int, float] = {}
    for when, kind, index in events:
        if kind == 0:
            tags[index] = clock.arrive(float(apps[index][1]), float(when))
        else:
            assert clock.advance(float(when)) == pytest.approx(tags[index], rel=1e-9, abs=1e-7)


def test_virtual_time_stands_still_while_nothing_is_served() -> None:
    clock = FairVirtualTime(rate=10.0)
    assert clock.arrive(5.0, 1.0) == 5.0
    assert clock.advance(1.25) == 2.5
    assert clock.advance(100.0) == 5.0
    assert clock.active == 0
    assert clock.arrive(1.0, 200.0) == 6.0
    assert clock.advance(150.0) == 5.0, "time does not go back"


# --------------------------------------------------------------------------- the delay bound


def serve(
    apps: Sequence[tuple[int, Sequence[int]]], units: int, discipline: Justitia
) -> tuple[list[int], list[tuple[int, str]]]:
    """Serve applications on ``units`` units of KV cache with the real discipline; a request holds one unit.

    Args:
        apps: (arrival step, durations of its requests in steps), in order of arrival.

    Returns: the step in which each application ended, and (step, request) of every start.
    """
    table = JobTable()
    ends = [0] * len(apps)
    left: dict[str, int] = {}
    starts: list[tuple[int, str]] = []
    pending = list(enumerate(apps))
    now = 0
    while pending or len(table):
        while pending and pending[0][1][0] <= now:
            index, (_, durations) = pending.pop(0)
            for request, duration in enumerate(durations):
                spec = JobSpec(
                    f"{index}.{request}",
                    float(now),
                    prompt_tokens=1,
                    hints=RequestHints(
                        app=f"a/{index}", app_requests=len(durations), expected_tokens=float(duration)
                    ),
                    max_tokens=10_000,
                    segmented=False,
                )
                left[f"{index}.{request}"] = duration
                discipline.check(spec)
                discipline.arrived(table.add(spec), float(now))
        limits = StepLimits(
            now=float(now), token_budget=10_000, max_batch=units, max_resident=units, prefill_chunk=10_000,
            free_blocks=units - int(table.blocks.sum()), block_tokens=1_000_000, speed=FixedSpeed(1.0, 0.0, 1e-7),
        )  # fmt: skip
        plan = discipline.compose(table, limits)
        assert not plan.evict
        running = {job.job_id for job in table if table.active[job.row]}
        assert running <= set(plan.tokens), "a running request was interrupted"
        waiting = len(table) - len(plan.tokens)
        assert len(plan.tokens) == units or waiting == 0, "units idle while requests wait"
        for job_id in plan.tokens:
            row = table[job_id].row
            if not table.resident[row]:
                starts.append((now, str(job_id)))
            table.resident[row] = table.active[row] = True
            table.blocks[row] = 1
            table.context_tokens[row] = 1
            table.prefill_left[row] = 0
        now += 1
        for job_id in list(plan.tokens):
            job = table[job_id]
            table.output_tokens[job.row] += 1
            discipline.progressed(job, 1, float(now))
            left[str(job_id)] -= 1
            if not left[str(job_id)]:
                job.outcome = "complete"
                discipline.finished(job, float(now))
                table.remove(job_id)
                index = int(str(job_id).split(".")[0])
                ends[index] = max(ends[index], now)
    return ends, starts


def test_fair_sharing_goes_on_with_a_corrected_cost() -> None:
    time = FairVirtualTime(rate=1.0)
    first, second = time.arrive(10.0, 0.0), time.arrive(10.0, 0.0)
    assert time.advance(4.0) == 2.0
    assert time.move(first, first - 6.0) == 4.0
    assert time.advance(8.0) == 4.0
    assert time.advance(14.0) == second
    assert time.active == 0
    assert time.move(second, 12.0) == 12.0
    assert time.advance(16.0) == 12.0, "it goes on alone"


class Known:
    """Costs known exactly, per application."""

    def __init__(self, costs: dict[str, float]) -> None:
        self.costs = costs

    def predict(self, kind: str, spec: JobSpec) -> float:
        assert spec.hints.app is not None
        return self.costs[spec.hints.app]

    def learn(self, kind: str, spec: JobSpec, cost: float) -> None:
        assert spec.hints.app is not None
        assert cost == self.costs[spec.hints.app], "the cost served is not the cost known"


def accounts_of(costs: dict[str, float]) -> DisciplineAppAccounts:
    """Of requests that cost their output."""
    return DisciplineAppAccounts(Known(costs), cost=lambda prompt, output: output)


instances = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(1, 12), min_size=1, max_size=6)),
    min_size=1,
    max_size=12,
).map(lambda apps: sorted(apps, key=lambda app: app[0]))


@pytest.mark.paper
@given(instances, st.integers(1, 4))
@settings(max_examples=examples(150))
def test_no_application_ends_later_than_theorem_1_allows(
    apps: list[tuple[int, list[int]]], units: int
) -> None:
    """``f_j - f_GPS <= 2 c_max + C_max / M`` with costs known.

    Requests hold one unit each and last their cost, which is what the paper's proof assumes of them.
    """
    costs = {f"a/{i}": float(sum(durations)) for i, (_, durations) in enumerate(apps)}
    discipline = Justitia(accounts_of(costs), capacity_tokens=float(units))
    ends, _ = serve(apps, units, discipline)
    fluid = fair_sharing([(Fraction(a), Fraction(sum(d))) for a, d in apps], Fraction(units))
    longest = max(max(durations) for _, durations in apps)
    largest = max(sum(durations) for _, durations in apps)
    bound = 2 * longest + Fraction(largest, units)
    for end, fair in zip(ends, fluid, strict=True):
        assert end - fair <= bound
        # Measured from the last start out of order, the proof does not need the term C_max / M at all.
        assert end - fair <= 2 * longest


def test_the_bound_test_can_fail() -> None:
    """First come, first served breaks the bound on an instance of that test."""
    elephants = [(0, [12] * 6), (0, [12] * 6), (1, [1])]
    units = 1
    fluid = fair_sharing([(Fraction(a), Fraction(sum(d))) for a, d in elephants], Fraction(units))
    first_come_end = 12 * 12 + 1
    assert first_come_end - fluid[2] > 2 * 12 + Fraction(72, units)
    costs = {f"a/{i}": float(sum(durations)) for i, (_, durations) in enumerate(elephants)}
    discipline = Justitia(accounts_of(costs), capacity_tokens=float(units))
    ends, _ = serve(elephants, units, discipline)
    assert ends[2] <= 13, "the small one waits for one running request at most"


@given(instances, st.integers(1, 4))
@settings(max_examples=examples(60))
def test_requests_start_in_the_order_of_tags(apps: list[tuple[int, list[int]]], units: int) -> None:
    """Whenever a request starts, none that arrived before waits with a smaller tag."""
    costs = {f"a/{i}": float(sum(durations)) for i, (_, durations) in enumerate(apps)}
    discipline = Justitia(accounts_of(costs), capacity_tokens=float(units))
    tags: dict[int, tuple[float, int]] = {}
    opened = discipline.opened

    def note(app: App, previous: App | None, now: float) -> None:
        opened(app, previous, now)
        assert previous is None
        tags[int(app.name.split("/")[1])] = (app.tag, app.number)

    discipline.opened = note  # type: ignore[method-assign]
    _, starts = serve(apps, units, discipline)
    assert sorted(tags) == list(range(len(apps))), "each application is tagged once"
    waiting = {(i, r) for i, (_, durations) in enumerate(apps) for r in range(len(durations))}
    for now, request in starts:
        index, number = map(int, request.split("."))
        here = [key for key in waiting if apps[key[0]][0] <= now]
        assert min((*tags[i], r) for i, r in here) == (*tags[index], number)
        waiting.remove((index, number))


# --------------------------------------------------------------------------- selection


class Counted(float):
    """A rank that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: float) -> bool:
        Counted.comparisons += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return isinstance(other, float) and float(self) == float(other)

    def __hash__(self) -> int:
        return hash(float(self))


@pytest.mark.parametrize("size", [16, 256, 4096, 32768])
def test_choosing_the_next_takes_logarithmically_many_comparisons(size: int) -> None:
    rng = np.random.default_rng(size)
    ranks = {group: Counted(value) for group, value in enumerate(rng.random(2 * size))}
    queue = DisciplineGroupQueue(lambda group: ranks[group])  # type: ignore[index]
    for group in range(size):
        queue.push(f"j{group}", group, group, group)
    Counted.comparisons = 0
    rounds = 512
    for turn in range(rounds):
        assert queue.pop() is not None
        group = size + turn % size
        queue.push(f"n{turn}", turn, group, group)
    per_round = Counted.comparisons / rounds
    # A heap of n: at most 2 log2(n) comparisons to take one out and log2(n) to put one in, twice each for (rank, tie).
    assert per_round <= 6.0 * math.log2(size) + 8.0


def test_the_queue_is_sorting() -> None:
    rng = np.random.default_rng(0)
    ranks = {group: float(value) for group, value in enumerate(rng.integers(0, 5, 60))}
    queue = DisciplineGroupQueue(lambda group: ranks[group])  # type: ignore[index]
    jobs = [(f"{group}.{k}", int(rng.integers(1000)) * 100 + i, group)
            for i, (group, k) in enumerate((g, k) for g in ranks for k in range(3))]  # fmt: skip
    for name, order, group in jobs:
        queue.push(name, order, group, group)
    gone = {name for name, _, _ in jobs if rng.random() < 0.3}
    for name in gone:
        queue.remove(name)
    expected = [n for n, _, _ in sorted(jobs, key=lambda j: (ranks[j[2]], j[2], j[1])) if n not in gone]
    assert len(queue) == len(expected)
    assert [queue.pop() for _ in expected] == expected
    assert queue.pop() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=120))
def test_the_queue_follows_changing_ranks(actions: list[tuple[int, int, bool]]) -> None:
    """Ranks rise unannounced and fall with notice; the queue always gives what sorting would."""
    ranks = dict.fromkeys(range(6), 0.0)
    queue = DisciplineGroupQueue(lambda group: ranks[group])  # type: ignore[index]
    waiting: dict[str, tuple[int, int]] = {}
    for number, (group, amount, push) in enumerate(actions):
        if push:
            queue.push(f"j{number}", number, group, group)
            waiting[f"j{number}"] = (group, number)
        elif amount < 5:
            ranks[group] += amount
        else:
            ranks[group] -= amount
            queue.lowered(group)
        best = min(waiting, key=lambda j: (ranks[waiting[j][0]], *waiting[j]), default=None)
        assert queue.peek() == best
        if best is not None and number % 3 == 0:
            assert queue.pop() == best
            del waiting[best]


def test_a_queue_that_is_never_empty_does_not_hoard_what_is_gone() -> None:
    ranks = {group: float(-group) for group in range(5000)}
    queue = DisciplineGroupQueue(lambda group: ranks[group])  # type: ignore[index]
    queue.push("first", 0, 0, 0)
    for group in range(1, 5000):
        queue.push(f"j{group}", group, group, group)
        queue.remove(f"j{group}")
    assert len(queue) == 1
    assert len(queue._heap) + queue._entries < 200
    assert queue.peek() == "first"
