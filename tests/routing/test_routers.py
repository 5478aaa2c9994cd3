"""Which engine a task gets, and what a router predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from timely.core.errors import UnknownName
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.engines.step_time.learned import FixedSpeed
from timely.routing import routers
from timely.routing.forecast import RoutingEngineLoad, forecast_routing
from timely.routing.routers import ROUTERS, create_router

SPEED = FixedSpeed(0.02, 0.001, 0.0005)


def job(name: str, utility: TimeUtility = NORMAL, prompt_tokens: int = 100, agent: str = "") -> JobSpec:
    """A task that arrives at 0."""
    return JobSpec(
        name, 0.0, RequestHints(utility=utility, agent=agent), prompt_tokens=prompt_tokens, segment_tokens=10
    )


def load(
    *jobs: JobSpec, speed: FixedSpeed = SPEED, cached_tokens: int = 0, free_blocks: int = 1000
) -> RoutingEngineLoad:
    """An engine with these jobs."""
    table = JobTable()
    for spec in jobs:
        table.add(spec)
    return RoutingEngineLoad(table, speed, cached_tokens, free_blocks, 1000, 16, 64)


def test_an_idle_engine_takes_the_time_of_the_prompt_and_the_segment() -> None:
    expected = forecast_routing(job("new"), load(), 0.0)
    assert expected.response_s == pytest.approx(100 * 0.0005 + 5 * 0.021)
    assert expected.harm == 0.0


def decoding(*jobs: JobSpec, **options: Any) -> RoutingEngineLoad:
    """An engine that computes the second segments of these jobs, which are due at 0."""
    engine = load(*jobs, **options)
    assert isinstance(engine.table, JobTable)
    engine.table.prefill_left[:], engine.table.segment[:], engine.table.due_s[:] = 0, 1, 0.0
    return engine


def test_a_newcomer_waits_for_half_a_step_and_for_the_network() -> None:
    task = replace(job("new"), hints=RequestHints(utility=NORMAL, network_s=0.3))
    expected = forecast_routing(task, decoding(job("old")), 0.0)
    assert expected.response_s == pytest.approx(0.5 * 0.022 + 100 * 0.0005 + 5 * 0.022 + 0.3)


@pytest.mark.parametrize(("old", "ends"), [(1, 0), (2, 1), (9, 8)])
def test_a_newcomer_waits_for_a_place_in_the_batch(old: int, ends: int) -> None:
    """Each step has two sequences, so each end of a segment of five tokens takes half of their steps."""
    engine = replace(decoding(*(job(f"old {number}") for number in range(old))), max_batch=2)
    expected_s = 5.5 * 0.022 + 100 * 0.0005 + ends * 5 * 0.022 / 2
    assert forecast_routing(job("new"), engine, 0.0).response_s == pytest.approx(expected_s)


def test_a_newcomer_waits_for_no_place_behind_those_that_it_precedes() -> None:
    expected_s = 5.5 * 0.022 + 100 * 0.0005
    prompts = load(*(job(f"old {number}", prompt_tokens=1000) for number in range(9)))
    for engine, utility in (
        (prompts, NORMAL),
        (decoding(*(job(f"old {number}") for number in range(9))), URGENT),
    ):
        expected = forecast_routing(job("new", utility), replace(engine, max_batch=2), 0.0)
        assert expected.response_s == pytest.approx(expected_s)


@pytest.mark.parametrize(("free_blocks", "evicted_tokens"), [(7, 0), (3, 4 * 16), (0, 7 * 16)])
def test_memory_that_others_hold_is_computed_again(free_blocks: int, evicted_tokens: int) -> None:
    """Prompt and segment take 105 tokens, 7 blocks."""
    expected = forecast_routing(job("new"), load(free_blocks=free_blocks), 0.0)
    assert expected.response_s == pytest.approx((100 + evicted_tokens) * 0.0005 + 5 * 0.021)


@pytest.mark.parametrize(("slack_s", "share"), [(1.0, 0.1), (0.0, 1.0), (-1.0, 1.0)])
def test_a_prompt_delays_what_decodes_and_the_segment_shares_its_steps(slack_s: float, share: float) -> None:
    """Before the deadline a delay costs a tenth of the slope."""
    old = replace(job("old"), hints=RequestHints(utility=NORMAL, network_s=0.2))
    engine = decoding(old)
    assert isinstance(engine.table, JobTable)
    engine.table.due_s[:] = 5 * 0.021 + 0.2 + slack_s
    assert forecast_routing(job("new"), engine, 0.0).harm == pytest.approx(
        share * 2.0 * (100 * 0.0005 + 5 * 0.001)
    )


def test_an_urgent_task_precedes_the_prompts_of_normal_ones_and_harms_them() -> None:
    busy = load(*(job(f"old {number}", prompt_tokens=1000) for number in range(4)))
    urgent, normal = (
        forecast_routing(job("new", URGENT), busy, 0.0),
        forecast_routing(job("new", prompt_tokens=1100), busy, 0.0),
    )
    assert urgent.response_s < 0.3
    assert normal.response_s > 2.0
    assert urgent.harm > 0.0


def test_chats_count_a_tenth_of_a_robots_task() -> None:
    robots = [job(f"old {number}") for number in range(8)]
    chats = [replace(spec, plain=True, segmented=False) for spec in robots]
    among_robots, among_chats = (
        forecast_routing(job("new", URGENT), load(*others), 0.0) for others in (robots, chats)
    )
    assert among_chats.harm == pytest.approx(0.1 * among_robots.harm)
    own = replace(chats[0], hints=RequestHints(utility=TimeUtility(0.5, -2.0, 1.0)))
    assert forecast_routing(own, load(), 0.0).loss > 5.0 * forecast_routing(chats[0], load(), 0.0).loss


def test_parked_jobs_are_idle_until_they_resume() -> None:
    parked = load(*(job(f"old {number}") for number in range(8)))
    busy = forecast_routing(job("new"), parked, 0.0)
    parked.table.resume_s[:] = 5.0
    idle, later = forecast_routing(job("new"), load(), 0.0), forecast_routing(job("new"), parked, 0.0)
    assert idle.response_s == later.response_s < busy.response_s
    assert idle.loss < later.loss < busy.loss
    assert later.harm == 0.0
    parked.table.resume_s[:] = 50.0
    assert idle.loss < forecast_routing(job("new"), parked, 0.0).loss < later.loss


def test_least_loss_prefers_the_fast_engine_and_leaves_it_when_it_is_full() -> None:
    router, slow = create_router("least-loss"), FixedSpeed(0.04, 0.002, 0.001)
    assert router.choose(job("new"), [load(speed=slow), load()], 0.0) == 1
    crowd = load(*(job(f"old {number}", prompt_tokens=800) for number in range(6)))
    assert router.choose(job("new"), [load(speed=slow), crowd], 0.0) == 0


def test_plans_that_resume_later_count_less_than_prompts_that_wait() -> None:
    """The urgent task is done in 0.15 s. On one engine three equals come first, on the other 60 plans resume in 1 s."""
    crowd = load(*(job(f"old {number}", URGENT) for number in range(3)))
    parked = load(*(job(f"old {number}") for number in range(60)))
    parked.table.prefill_left[:], parked.table.resume_s[:] = 0, 1.0
    assert create_router("least-loss").choose(job("new", URGENT), [crowd, parked], 0.0) == 1


def test_a_robot_stays_where_its_prefix_is_until_the_lateness_exceeds_the_prefill() -> None:
    router = create_router("least-loss")
    task = job("new", prompt_tokens=1000, agent="robot")
    assert router.choose(task, [load(), load(cached_tokens=900)], 0.0) == 1
    assert router.choose(task, [load(), load()], 0.0) == 1
    few = load(job("old"), cached_tokens=900)
    assert router.choose(task, [load(), few], 0.0) == 1
    many = load(*(job(f"old {number}", prompt_tokens=900) for number in range(4)), cached_tokens=900)
    assert router.choose(task, [load(), many], 0.0) == 0


def test_the_robots_that_have_been_away_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "MAX_ROBOTS", 2)
    router = create_router("least-loss")
    for robot in ("a", "b", "a", "c"):
        router.choose(job("new", agent=robot), [load()], 0.0)
    free = [load(), load(job("old"))]
    assert isinstance(router, routers.LeastLoss)
    assert list(router._engines) == ["a", "c"]
    assert router.choose(job("new", agent="a"), free, 0.0) == 0


def test_the_rules_of_others() -> None:
    engines = [load(job("a"), job("b")), load(job("c")), load(job("d"), cached_tokens=90)]
    turns = create_router("round-robin")
    assert [turns.choose(job("new"), engines, 0.0) for _ in range(4)] == [0, 1, 2, 0]
    assert create_router("least-loaded").choose(job("new"), engines, 0.0) == 1
    assert create_router("prefix-aware").choose(job("new"), engines, 0.0) == 2
    assert create_router("prefix-aware").choose(job("new"), engines[:2], 0.0) == 1, "the shorter queue"
    with pytest.raises(UnknownName, match=", ".join(sorted(ROUTERS))):
        create_router("random")
