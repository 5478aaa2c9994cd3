"""The prompt: one fixed part per skill set, then the task."""

from __future__ import annotations

import pytest

from timely.core.errors import InvalidInput
from timely.plans.prompt import build_prompt, fixed_prompt_part
from timely.plans.skill_library import find_skill_set, skill_set_names


@pytest.mark.parametrize("name", skill_set_names())
def test_the_fixed_part_is_the_same_for_every_task(name: str) -> None:
    skill_set = find_skill_set(name)
    prompts = [
        build_prompt(skill_set, "Look for the cat."),
        build_prompt(skill_set, "Stop!", "chair, table", history="mf(50) failed: wall"),
    ]
    assert {prompt.system for prompt in prompts} == {fixed_prompt_part(skill_set)}


def test_it_holds_every_skill_and_example() -> None:
    drone = find_skill_set("drone")
    fixed = fixed_prompt_part(drone)
    for skill in drone.skills:
        assert f"{skill.word}(" in fixed
    for example in drone.examples:
        assert example.plan in fixed
    assert "mf(cm) forward" in fixed
    bare = fixed_prompt_part(drone, examples=False)
    assert fixed.startswith(bare)
    assert not any(example.plan in bare for example in drone.examples)


def test_scene_history_and_task_in_this_order() -> None:
    prompt = build_prompt(
        find_skill_set("arm"), " Stack them. ", " red box, blue box\n", history="pick failed"
    )
    assert prompt.user == "Scene: red box, blue box\nHistory: pick failed\nTask: Stack them.\nPlan:"
    assert build_prompt(find_skill_set("chat"), "Hello?").user == "Hello?"


def test_a_task_is_needed() -> None:
    with pytest.raises(InvalidInput, match="task"):
        build_prompt(find_skill_set("drone"), " \n")
