"""What disciplines may know of a recorded plan: no length, the same estimates on every engine, the same every run."""

from __future__ import annotations

import hashlib

import pytest

from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import (
    PLAIN_MAX_TOKENS,
    JobRecord,
    PlannedSegment,
    PlannedTask,
    ReplayOptions,
)
from timely.engines.sim.simulator import Simulator
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import PLAN_MAX_TOKENS, SkillSet


def planned(*tokens: int, job: int | str = 0, skill_set: str = "", **fields: object) -> PlannedTask:
    plan = tuple(PlannedSegment("x", count, 1.0 + place) for place, count in enumerate(tokens))
    return PlannedTask(job, 0.0, plan, 32, skill_set=skill_set, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("skill_set", ["drone", "arm", "story"])
def test_a_plan_has_the_limit_of_its_skill_set_as_on_a_server(skill_set: str) -> None:
    limit = find_skill_set(skill_set).max_tokens
    assert {planned(n, skill_set=skill_set).limit_tokens for n in (1, 20, limit)} == {limit}
    assert planned(limit + 1, skill_set=skill_set).limit_tokens == 2 * limit


def test_a_plan_of_an_unknown_skill_set_has_the_limit_of_a_skill_set_that_names_none() -> None:
    assert SkillSet.model_fields["max_tokens"].default == PLAN_MAX_TOKENS
    assert planned(7, skill_set="policy").limit_tokens == PLAN_MAX_TOKENS
    assert planned(1000, skill_set="policy").limit_tokens == 1024


def test_a_request_that_names_a_limit_has_that() -> None:
    assert planned(7, max_tokens=90).limit_tokens == 90
    assert planned(7, plain=True).limit_tokens == PLAIN_MAX_TOKENS
    assert planned(PLAIN_MAX_TOKENS + 1, plain=True).limit_tokens == 2 * PLAIN_MAX_TOKENS


def test_disciplines_read_the_same_of_a_short_and_of_a_long_plan() -> None:
    simulator = Simulator(ReplayOptions(discipline="sagesched"))
    for job, tokens in enumerate((2, 9)):
        task = planned(tokens, job=job, skill_set="drone")
        simulator.submit(0.0, JobRecord(task))
    table = simulator.controller.table
    assert table.end_tokens[0] == table.end_tokens[1]
    assert table.segment_bound[0] == table.segment_bound[1]


def test_one_seed_gives_the_same_estimates_for_ever() -> None:
    """The hash is written down: a change of the random stream changes published results."""
    tasks = [planned(2, 3, 4, job=job) for job in (0, 1, 7, "chat-7")]

    def estimates(seed: int) -> list[float]:
        robots = ReplayEstimates(ReplayOptions(seed=seed, estimate_noise=0.3, estimate_factor=1.5))
        return [robots.estimate_s(task, index) for task in tasks for index in range(3)]

    def digest(seed: int) -> str:
        return hashlib.sha256(repr([round(value, 9) for value in estimates(seed)]).encode()).hexdigest()

    assert digest(7) == "cfd8dbf52c692861834d489aa8edc55e78a838595290645872f456691b237451"
    assert estimates(7) != estimates(8)


def test_the_longest_segment_of_a_skill_set_is_the_longest_so_far() -> None:
    estimates = ReplayEstimates(ReplayOptions(segment_bound=5))
    bounds = [
        estimates.segment_bound(task)
        for task in (
            planned(3, skill_set="drone"),
            planned(3, 9, skill_set="drone"),
            planned(2, skill_set="drone"),
            planned(2, skill_set="arm"),
            planned(2, skill_set="drone", segment_bound=12),
            planned(20, plain=True),
        )
    ]
    assert bounds == [5, 9, 9, 5, 12, None]
