"""VTC's counters against a plain reading of its algorithm, and the service bound that they give."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import StepLimits
from timely.disciplines.justitia.vtc import MAX_ABSENT_CLIENTS, Vtc
from timely.engines.step_time.learned import FixedSpeed

PROMPT = 4


@dataclass
class Reference:
    """Algorithm 2 of the paper, with lists and linear searches."""

    slots: int
    counters: dict[str, float] = field(default_factory=dict)
    queue: list[tuple[str, str]] = field(default_factory=list)
    running: list[tuple[str, str]] = field(default_factory=list)
    last: str | None = None

    def arrive(self, request: str, client: str) -> None:
        waiting = {c for _, c in self.queue}
        if client not in waiting:
            mine = self.counters.get(client, 0.0)
            if waiting:
                mine = max(mine, min(self.counters[c] for c in waiting))
            elif self.last is not None:
                mine = max(mine, self.counters[self.last])
            self.counters[client] = mine
        self.queue.append((request, client))

    def admit(self, came: dict[str, float]) -> list[str]:
        admitted = []
        while self.queue and len(self.running) < self.slots:
            client = min({c for _, c in self.queue}, key=lambda c: (self.counters[c], came[c]))
            request = next(r for r, c in self.queue if c == client)
            self.queue.remove((request, client))
            self.counters[client] += PROMPT
            if client not in {c for _, c in self.queue}:
                self.last = client
            self.running.append((request, client))
            admitted.append(request)
        return admitted

    def step(self) -> None:
        for _, client in self.running:
            self.counters[client] += 2.0


arrivals = st.lists(
    st.tuples(st.sampled_from([half / 2 for half in range(25)]), st.sampled_from("abcd"), st.integers(1, 6)),
    min_size=1,
    max_size=25,
)


@given(arrivals, st.integers(1, 3))
@settings(max_examples=examples(120))
def test_counters_and_order_follow_the_algorithm(requests: list[tuple[float, str, int]], slots: int) -> None:
    """Requests come before a step, or while it runs: then what it admitted counts already."""
    discipline, reference, table = Vtc(), Reference(slots), JobTable()
    pending = sorted(enumerate(requests), key=lambda item: item[1][0])
    left: dict[str, int] = {}
    came: dict[str, float] = {}
    now = 0

    def arrive_until(time_s: float) -> None:
        while pending and pending[0][1][0] <= time_s:
            number, (_, client, tokens) = pending.pop(0)
            # A client without live requests that comes again counts as having come now.
            if all(job.spec.hints.app != client for job in table):
                came[client] = number + 1000 * time_s
            name = f"r{number}"
            left[name] = tokens
            spec = JobSpec(
                name, time_s, prompt_tokens=PROMPT, hints=RequestHints(app=client), segmented=False
            )
            discipline.arrived(table.add(spec), time_s)
            reference.arrive(name, client)

    while pending or len(table):
        arrive_until(now)
        limits = StepLimits(
            float(now), 1000, slots, slots, 1000, 1000 - int(table.blocks.sum()), 16, FixedSpeed(1.0)
        )
        plan = discipline.compose(table, limits)
        expected = {request for request, _ in reference.running} | set(reference.admit(came))
        assert set(plan.tokens) == expected
        for job_id in plan.tokens:
            row = table[job_id].row
            table.resident[row] = table.active[row] = True
            table.prefill_left[row], table.blocks[row] = 0, 1
        arrive_until(now + 0.5)
        now += 1
        reference.step()
        for job_id in plan.tokens:
            job = table[job_id]
            table.output_tokens[job.row] += 1
            discipline.progressed(job, 1, float(now))
        for client, value in reference.counters.items():
            assert discipline.counters[client] == value
        for job_id in list(plan.tokens):
            left[str(job_id)] -= 1
            if not left[str(job_id)]:
                job = table[job_id]
                job.outcome = "complete"
                discipline.finished(job, float(now))
                table.remove(job_id)
                reference.running = [pair for pair in reference.running if pair[0] != job_id]


@pytest.mark.process
@given(st.lists(st.integers(1, 12), min_size=20, max_size=60), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_two_backlogged_clients_never_drift_apart(lengths: list[int], slots: int) -> None:
    """Theorem 4.4: while both always have work waiting, their service differs by at most ``2 max(w_p L, w_q M)``."""
    discipline, table = Vtc(), JobTable()
    left: dict[str, int] = {}
    for number, tokens in enumerate(lengths):
        name, client = f"r{number}", "greedy" if number % 3 else "modest"
        left[name] = tokens
        spec = JobSpec(name, 0.0, prompt_tokens=PROMPT, hints=RequestHints(app=client), segmented=False)
        discipline.arrived(table.add(spec), 0.0)
    service = {"greedy": 0.0, "modest": 0.0}
    now = 0
    admitted: set[str] = set()
    bound = 2 * max(1.0 * PROMPT, 2.0 * slots * max(lengths))
    while True:
        waiting = {job.spec.hints.app for job in table if not table.resident[job.row]}
        if waiting != {"greedy", "modest"}:
            return
        limits = StepLimits(
            float(now), 1000, slots, slots, 1000, 1000 - int(table.blocks.sum()), 16, FixedSpeed(1.0)
        )
        plan = discipline.compose(table, limits)
        now += 1
        for name in map(str, plan.tokens):
            job = table[name]
            table.resident[job.row] = table.active[job.row] = True
            table.prefill_left[job.row], table.blocks[job.row] = 0, 1
            app = job.spec.hints.app or ""
            service[app] += 2.0 + (PROMPT if name not in admitted else 0.0)
            admitted.add(name)
            table.output_tokens[job.row] += 1
            discipline.progressed(job, 1, float(now))
            left[name] -= 1
            if not left[name]:
                discipline.finished(job, float(now))
                table.remove(name)
        assert abs(service["greedy"] - service["modest"]) <= bound


def test_idling_earns_no_credit() -> None:
    discipline, table = Vtc(), JobTable()
    discipline.counters["busy"] = 500.0
    for number in range(2):
        discipline.arrived(table.add(JobSpec(f"b{number}", 0.0, hints=RequestHints(app="busy"))), 0.0)
    discipline.arrived(table.add(JobSpec("n", 0.0, hints=RequestHints(app="newcomer"))), 0.0)
    assert discipline.counters["newcomer"] == 500.0


def test_a_plan_is_not_yet_an_admission() -> None:
    discipline, table = Vtc(), JobTable()
    for number in range(3):
        discipline.arrived(
            table.add(JobSpec(f"a{number}", 0.0, prompt_tokens=64, hints=RequestHints(app="a"))), 0.0
        )
    discipline.arrived(table.add(JobSpec("b0", 0.0, prompt_tokens=64, hints=RequestHints(app="b"))), 0.0)
    limits = StepLimits(0.0, 1000, 3, 3, 1000, 1000, 16, FixedSpeed(1.0))
    plan = discipline.compose(table, limits)
    assert list(plan.tokens) == ["a0", "b0", "a1"]
    assert discipline.counters == {"a": 0.0, "b": 0.0}
    assert list(discipline.compose(table, limits).tokens) == ["a0", "b0", "a1"]


@pytest.mark.process
@pytest.mark.parametrize("clients", [3 * MAX_ABSENT_CLIENTS])
def test_memory_is_bounded_by_the_clients_that_are_there(clients: int) -> None:
    discipline, table = Vtc(), JobTable()
    for number in range(clients):
        job = table.add(JobSpec(number, 0.0, hints=RequestHints(app=f"client{number}")))
        discipline.arrived(job, 0.0)
        discipline.finished(job, 0.0)
        table.remove(number)
    assert len(discipline.counters) <= 2 * MAX_ABSENT_CLIENTS + 2
