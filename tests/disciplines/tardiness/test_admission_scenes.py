"""Scenes of admission and eviction under ``timely``: free work is not skipped, precious memory is not taken."""

from __future__ import annotations

import math

from test_tardiness_steps import PROMPT_S, STEP_S, Scene

from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.disciplines.tardiness.step import MAX_PROMPT_REFUSALS, MIN_CHUNK_TOKENS

FLAT = TimeUtility(1.0, 0.0, 1.0)


def full_of_parked(due_s: float, utility: TimeUtility) -> Scene:
    """Twenty parked plans hold the KV cache but for ten blocks."""
    scene = Scene()
    for number in range(20):
        scene.parked(f"parked {number}", due_s=due_s, resume_s=due_s - 0.3, utility=utility)
    scene.free_blocks = 10
    return scene


def test_a_request_of_flat_utility_evicts_no_urgent_plan_that_is_due_soon() -> None:
    scene = full_of_parked(0.8, URGENT)
    scene.job("flat", FLAT, prompt=600)
    plan = scene.compose(0.0)
    assert (plan.tokens, plan.evict, plan.limited_by) == ({}, [], "memory")
    assert plan.wake_s == 0.5


def test_an_urgent_request_evicts_plans_whose_robots_are_busy_for_long() -> None:
    scene = full_of_parked(30.0, NORMAL)
    scene.job("urgent", URGENT, prompt=600)
    plan = scene.compose(0.0)
    assert "urgent" in plan.tokens
    assert plan.evict


def test_memory_that_no_job_gives_back_is_taken() -> None:
    """All wait for values that may never come: the flat request does not starve."""
    scene = full_of_parked(30.0, URGENT)
    scene.table.resume_s[:] = math.inf
    scene.job("flat", FLAT, prompt=600)
    plan = scene.compose(0.0)
    assert "flat" in plan.tokens
    assert plan.evict


def test_refused_prompts_hide_no_decoding() -> None:
    """One late urgent decode, nine refused prompts of 6,000 tokens, sixty that decode with slack: a step of 61."""
    scene = Scene()
    scene.job("late", URGENT, arrival_s=-2.0, running=True)
    for number in range(MAX_PROMPT_REFUSALS + 1):
        scene.job(f"prompt {number}", NORMAL, arrival_s=-1.5, prompt=6000)
    for number in range(60):
        scene.job(f"decode {number}", TimeUtility(30.0, -2.0, 1.0), running=True)
    plan = scene.compose(0.0, max_batch=64)
    assert len(plan.tokens) == 61
    assert not any(str(name).startswith("prompt") for name in plan.tokens)


def test_a_background_prompt_leaves_room_for_a_job_that_is_about_to_resume() -> None:
    scene = Scene()
    scene.parked("soon", due_s=0.2, resume_s=0.02, utility=URGENT)
    scene.job("background", TimeUtility(10.0, -2.0, 1.0), prompt=4000)
    # The parked job has four tokens to generate and a step of caution before its robot runs dry, or less.
    tokens = scene.compose(0.0).tokens["background"]
    assert MIN_CHUNK_TOKENS <= tokens <= (0.2 - 2 * STEP_S) / PROMPT_S


def test_equals_do_not_take_turns_in_the_cache() -> None:
    """A late newcomer waits for a place; evicting a running equal would only swap the two, and compute one again."""
    scene = Scene()
    for number in range(8):
        scene.job(f"running {number}", NORMAL, running=True, bound=40)
    scene.job("late", NORMAL, arrival_s=-5.0, prompt=100, bound=40)
    plan = scene.compose(0.0, max_resident=8)
    assert plan.evict == []
    assert "late" not in plan.tokens
    scene.job("urgent", URGENT, arrival_s=-0.1, prompt=100)
    assert len(scene.compose(0.0, max_resident=8).evict) == 1
