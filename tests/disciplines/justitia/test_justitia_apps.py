"""Applications at arrival and in the book: limits, endless ones, parked robots; Justitia's baselines."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hints import with_hints

from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines import registry
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.justitia.app_groups import (
    ALLOWANCE,
    MOST_REQUESTS,
    AppDiscipline,
    DisciplineAppAccounts,
    discipline_app_type,
)
from timely.disciplines.justitia.baselines import Parrot, Srjf, VllmSjf
from timely.disciplines.justitia.discipline import Justitia, JustitiaC
from timely.disciplines.predictors import app_cost
from timely.disciplines.predictors.app_cost import (
    OnlineAppCosts,
    predictor_kv_token_time,
    predictor_weighted_tokens,
)
from timely.engines.scheduler_core import EngineController
from timely.engines.step_time.learned import FixedSpeed

APP_DISCIPLINES = [
    name for name in registry.discipline_names() if issubclass(registry.load_discipline(name), AppDiscipline)
]


class Hall:
    """A discipline, its table, and a machine with ``units`` places."""

    def __init__(self, discipline: Discipline, units: int = 1, blocks: int = 1000) -> None:
        self.discipline, self.units, self.blocks = discipline, units, blocks
        self.table = JobTable()
        self.now = 0.0

    def arrive(self, name: str, app: str | None = None, **fields: Any) -> Job:
        defaults = {"prompt_tokens": 16, "expected_tokens": 10.0, "segmented": False, "max_tokens": 4096}
        spec = JobSpec(name, self.now, **with_hints({**defaults, "app": app, **fields}))
        self.discipline.check(spec)
        job = self.table.add(spec)
        self.discipline.arrived(job, self.now)
        return job

    def compose(self) -> list[Any]:
        limits = StepLimits(
            self.now, 4096, self.units, 1000, 4096, self.blocks - int(self.table.blocks.sum()), 16,
            FixedSpeed(1.0, 0.0, 1e-6),
        )  # fmt: skip
        self.plan = self.discipline.compose(self.table, limits)
        return list(self.plan.tokens)

    def step(self) -> list[Any]:
        """One step: everybody in the plan gets a token."""
        chosen = self.compose()
        for job_id in self.plan.evict:
            job = self.table[job_id]
            job.preemptions += 1
            self.table.resident[job.row] = self.table.active[job.row] = False
            self.table.blocks[job.row] = 0
            self.discipline.evicted(job, self.now)
        self.now += 1.0
        for job_id in chosen:
            job = self.table[job_id]
            row = job.row
            self.table.resident[row] = self.table.active[row] = True
            self.table.prefill_left[row] = 0
            self.table.output_tokens[row] += 1
            self.table.context_tokens[row] = self.table.prompt_tokens[row] + self.table.output_tokens[row]
            self.table.blocks[row] = -(-int(self.table.context_tokens[row]) // 16)
            self.discipline.progressed(job, 1, self.now)
        return chosen

    def finish(self, name: str, outcome: str = "complete") -> None:
        job = self.table[name]
        job.outcome = outcome
        self.discipline.finished(job, self.now)
        self.table.remove(name)


def test_cost_models() -> None:
    assert predictor_kv_token_time(100.0, 10.0) == 1050.0
    assert predictor_weighted_tokens(100.0, 10.0) == 120.0
    assert discipline_app_type("MRS/17/2") == "MRS"
    assert discipline_app_type("chat") == "chat"


@pytest.mark.parametrize("name", APP_DISCIPLINES)
@pytest.mark.parametrize("requests", [0, -3, MOST_REQUESTS + 1, 10**12])
def test_numbers_no_application_can_mean_are_refused_at_the_door(name: str, requests: int) -> None:
    controller = EngineController(registry.create_discipline(name))
    with pytest.raises(InvalidInput, match="app_requests"):
        controller.arrive(JobSpec("a", 0.0, hints=RequestHints(app="x", app_requests=requests)))
    assert len(controller.table) == 0
    controller.arrive(JobSpec("a", 0.0, hints=RequestHints(app="x", app_requests=1)))


@pytest.mark.parametrize("name", APP_DISCIPLINES)
def test_an_overlong_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"app: "):
        registry.create_discipline(name).check(JobSpec("a", 0.0, hints=RequestHints(app="x" * 1000)))


def test_an_application_is_charged_once_and_served_whole() -> None:
    hall = Hall(Justitia(capacity_tokens=100.0))
    hall.arrive("big.0", "big", app_requests=3, expected_tokens=100.0)
    hall.arrive("small.0", "small", app_requests=2, expected_tokens=10.0)
    hall.arrive("small.1", "small")
    hall.arrive("big.1", "big")
    order = []
    while len(hall.table):
        (chosen,) = hall.step()
        order.append(chosen)
        hall.finish(chosen)
    assert order == ["small.0", "small.1", "big.0", "big.1"]


def test_an_endless_application_cannot_keep_its_early_place() -> None:
    """Without saying how many requests it sends, each ALLOWANCE of them is paid for anew."""
    discipline = Justitia(capacity_tokens=100.0)
    hall = Hall(discipline)
    tags = []
    for number in range(3 * ALLOWANCE):
        job = hall.arrive(f"e{number}", "endless")
        tags.append(discipline.accounts.of(job.job_id).tag)
        hall.step()
        hall.finish(f"e{number}")
    assert sorted(tags) == tags
    assert len(set(tags)) == 3
    assert (
        tags[ALLOWANCE] >= tags[0] + discipline.accounts.of(hall.arrive("last", "endless").job_id).cost * 0.9
    )


def test_more_requests_than_promised_are_a_new_instance() -> None:
    discipline = Justitia(capacity_tokens=100.0)
    hall = Hall(discipline)
    first = discipline.accounts.of(hall.arrive("a", "x", app_requests=2).job_id)
    assert discipline.accounts.of(hall.arrive("b", "x", app_requests=2).job_id) is first
    second = discipline.accounts.of(hall.arrive("c", "x", app_requests=2).job_id)
    assert second is not first
    assert second.tag == first.tag + second.cost, "it begins where the first would have ended"


def test_an_application_that_sends_fewer_than_promised_is_forgotten() -> None:
    discipline = Justitia(DisciplineAppAccounts(idle_s=10.0))
    hall = Hall(discipline)
    hall.arrive("a", "x", app_requests=100)
    hall.finish("a")
    assert len(discipline.accounts) == 1
    hall.now = 11.0
    hall.arrive("b", "y", app_requests=1)
    assert len(discipline.accounts) == 1, "x is gone, y is there"
    hall.finish("b")
    assert len(discipline.accounts) == 0


def test_a_pause_within_the_idle_time_keeps_the_instance() -> None:
    discipline = Justitia(DisciplineAppAccounts(idle_s=10.0))
    hall = Hall(discipline)
    app = discipline.accounts.of(hall.arrive("a", "x").job_id)
    hall.finish("a")
    hall.now = 9.0
    assert discipline.accounts.of(hall.arrive("b", "x").job_id) is app


def test_costs_are_learned_by_type_from_instances_that_ran_to_their_end() -> None:
    discipline = Justitia()
    hall = Hall(discipline)
    hall.arrive("a", "chat/1", app_requests=1, prompt_tokens=100)
    for _ in range(10):
        hall.step()
    hall.finish("a", "stop")  # as vLLM calls it
    assert discipline.accounts.of(hall.arrive("b", "chat/2", app_requests=1).job_id).cost == 1050.0
    hall.finish("b", "cancelled")
    assert discipline.accounts.of(hall.arrive("c", "chat/3", app_requests=1).job_id).cost == 1050.0


def test_requests_of_their_own_share_what_is_learned_of_their_length() -> None:
    discipline = Justitia()
    hall = Hall(discipline)
    for number in range(80):
        hall.arrive(f"a{number}", prompt_tokens=50 + number, expected_tokens=None)
        for _ in range(20):
            hall.step()
        hall.finish(f"a{number}")
    cost = discipline.accounts.of(hall.arrive("b", prompt_tokens=500, expected_tokens=None).job_id).cost
    assert cost == pytest.approx(500 * 20 + 200, rel=0.05)


def test_running_requests_are_never_interrupted() -> None:
    hall = Hall(Justitia(capacity_tokens=100.0), units=2, blocks=100)
    hall.arrive("long.0", "long", expected_tokens=1000.0, prompt_tokens=700)
    hall.arrive("long.1", "long", prompt_tokens=700)
    assert hall.step() == ["long.0", "long.1"]
    for number in range(5):
        hall.arrive(f"tiny.{number}", f"tiny{number}", expected_tokens=1.0)
        assert hall.step() == ["long.0", "long.1"]
        assert not hall.plan.evict
    hall.finish("long.1")
    assert hall.step() == ["long.0", "tiny.0"]


def test_a_request_that_lost_its_blocks_comes_before_all_that_have_not_begun() -> None:
    hall = Hall(Justitia(capacity_tokens=100.0), units=3, blocks=10)
    hall.arrive("a", "a", prompt_tokens=79, expected_tokens=5.0)
    hall.arrive("b", "b", prompt_tokens=79, expected_tokens=6.0)
    assert hall.step() == ["a", "b"]
    hall.arrive("c", "c", prompt_tokens=8, expected_tokens=1.0)
    assert hall.step() == ["a"], "a grows into a sixth block, b ranks below a"
    assert hall.plan.evict == ["b"]
    assert hall.step() == ["a"], "c would fit, but b was running and comes first"
    hall.finish("a")
    assert hall.step() == ["b", "c"]


@pytest.mark.parametrize("name", [*APP_DISCIPLINES, "vtc", "vllm-sjf", "ssjf"])
def test_a_robot_that_needs_its_next_segment_comes_before_all_that_have_not_begun(name: str) -> None:
    hall = Hall(registry.create_discipline(name))
    robot = hall.arrive("robot", segmented=True, expected_tokens=500.0)
    assert hall.step() == ["robot"]
    row = robot.row
    hall.table.active[row] = False
    hall.table.segment[row] = 1
    hall.table.resume_s[row] = 5.0
    robot.parked = True
    hall.discipline.parked(robot, hall.now)
    hall.arrive("plain.0", expected_tokens=1.0)
    hall.arrive("plain.1", expected_tokens=1.0)
    assert hall.step() == ["plain.0"]
    hall.finish("plain.0")
    hall.now = 5.0
    assert hall.step() == ["robot"]


def test_parked_robots_give_up_their_blocks_only_when_that_helps() -> None:
    hall = Hall(Justitia(capacity_tokens=100.0), blocks=10)
    robot = hall.arrive("robot", prompt_tokens=63, segmented=True)
    hall.step()
    row = robot.row
    hall.table.active[row] = False
    hall.table.segment[row] = 1
    hall.table.resume_s[row] = math.inf
    hall.discipline.parked(robot, hall.now)
    hall.arrive("huge", prompt_tokens=400)
    assert hall.compose() == []
    assert hall.plan.evict == [], "even all blocks were too few"
    hall.finish("huge")
    hall.arrive("large", prompt_tokens=150)
    assert hall.compose() == ["large"]
    assert hall.plan.evict == ["robot"]


# --------------------------------------------------------------------------- the baselines


def drain(hall: Hall) -> list[str]:
    order = []
    while len(hall.table):
        (chosen,) = hall.step()
        order.append(chosen)
        hall.finish(chosen)
    return order


def test_parrot_serves_applications_by_arrival() -> None:
    hall = Hall(Parrot())
    hall.arrive("a.0", "a", expected_tokens=100.0)
    hall.now = 1.0
    hall.arrive("b.0", "b", expected_tokens=1.0)
    hall.now = 2.0
    hall.arrive("a.1", "a", expected_tokens=100.0)
    assert drain(hall) == ["a.0", "a.1", "b.0"]


def test_srjf_serves_the_least_remaining_application() -> None:
    hall = Hall(Srjf())
    # x costs 4 x 50 tokens in all, y 1 x 120: y first, until x has so little left that it overtakes.
    for number in range(4):
        hall.arrive(f"x.{number}", "x", app_requests=4, expected_tokens=50.0)
    hall.arrive("y.0", "y", app_requests=2, expected_tokens=60.0)
    hall.arrive("y.1", "y", expected_tokens=60.0)
    tag = hall.discipline.accounts.of("y.0").tag  # type: ignore[attr-defined]
    assert tag < hall.discipline.accounts.of("x.0").tag  # type: ignore[attr-defined]
    assert hall.step() == ["y.0"]
    for _ in range(200):
        hall.step()
    hall.finish("y.0")
    assert hall.discipline.accounts.of("y.1").tag == 0.0, "more served than predicted: about to end"  # type: ignore[attr-defined]
    assert drain(hall)[0] == "y.1"


def test_vllm_sjf_ignores_applications() -> None:
    hall = Hall(VllmSjf())
    hall.arrive("a.0", "a", expected_tokens=30.0)
    hall.arrive("b.0", "b", expected_tokens=20.0)
    hall.arrive("a.1", "a", expected_tokens=10.0)
    assert drain(hall) == ["a.1", "b.0", "a.0"]


def test_justitia_c_counts_tokens_not_memory() -> None:
    """Many short prompts cost more tokens, one long generation more memory over time."""

    def first(discipline: Discipline) -> str:
        hall = Hall(discipline)
        hall.arrive("wide.0", "wide", app_requests=8, prompt_tokens=200, expected_tokens=20.0)
        hall.arrive("deep.0", "deep", app_requests=1, prompt_tokens=200, expected_tokens=300.0)
        return str(hall.step()[0])

    assert first(Justitia(capacity_tokens=100.0)) == "wide.0"
    assert first(JustitiaC(capacity_tokens=100.0)) == "deep.0"


def test_an_endless_application_and_endless_names_keep_a_bounded_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One application that never ends, and others that never come twice, each of a type of its own."""
    discipline = Justitia()
    hall = Hall(discipline)
    for number in range(500):
        hall.arrive(f"e{number}", "endless/1")
        hall.arrive(f"o{number}", f"type{number}/1", app_requests=50)
        hall.step()
        hall.finish(f"e{number}")
        hall.finish(f"o{number}")
    # One second a round: what has been idle for less than two minutes, and the endless one.
    assert 100 < len(discipline.accounts) <= 122
    assert len(discipline.accounts._idle) <= 122
    assert not discipline.accounts._of
    monkeypatch.setattr(app_cost, "MAX_KINDS", 300)
    costs = OnlineAppCosts(predictor_kv_token_time)
    for number in range(300 + 50):
        costs.learn(f"t{number}", JobSpec(number, 0.0), 5.0)
        costs.learn("kept", JobSpec(number, 0.0), 7.0)
    assert len(costs._means) == 300
    assert costs.predict("kept", JobSpec("x", 0.0)) == 7.0
