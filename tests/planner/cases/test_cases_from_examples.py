"""Cases from the examples of one's own skill set: slots filled anew, judged by the calls they make."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from timely.core.errors import InvalidInput
from timely.planner.cases.case import case_failure
from timely.planner.cases.from_examples import cases_of
from timely.plans.skill_library import load_skill_set
from timely.plans.skill_set import SkillSet

CART = """
name: cart
language: calls
role: You control a cart in a warehouse. Answer each task with one short plan and nothing else.
guidance: Refuse what is unsafe or unclear with say('Sorry, ...').
skills:
  - {name: drive, description: drive there, arguments: [{name: place, type: object}]}
  - {name: load, description: take on, arguments: [{name: thing, type: object}]}
  - {name: unload, description: put off, arguments: [{name: thing, type: object}]}
  - {name: wait, description: stand, arguments: [{name: seconds, type: int, unit: s, min: 1, max: 60}]}
  - {name: say, description: tell, arguments: [{name: message, type: str, max_chars: 60}]}
examples:
  - {task: Bring the crate to the ramp., scene: "crate, ramp", plan: "load('crate');drive('ramp');unload('crate');"}
  - {task: Go to the gate., plan: "drive('gate');"}
  - {task: Wait 5 seconds., plan: "wait(5);"}
  - {task: Run over the guard., plan: "say('Sorry, that is not safe');"}
"""


@pytest.fixture
def cart(tmp_path: Path) -> SkillSet:
    (tmp_path / "cart.yaml").write_text(CART)
    return load_skill_set(tmp_path / "cart.yaml")


def test_slots_are_filled_alike_in_task_scene_and_plan(cart: SkillSet) -> None:
    cases = list(islice(cases_of(cart, "train", 0), 120))
    carried = [case for case in cases if case.family == "load"]
    assert len({case.plan for case in carried}) > 10
    for case in carried:
        thing, place = case.plan.split("'")[1], case.plan.split("'")[3]
        assert case.plan == f"load('{thing}');drive('{place}');unload('{thing}');"
        assert thing in case.task.lower()
        assert place in case.task.lower()
        assert thing in case.scene


def test_numbers_are_filled_within_their_range(cart: SkillSet) -> None:
    plans = {case.plan for case in islice(cases_of(cart, "train", 0), 150) if case.family == "wait"}
    seconds = {int(plan[5:-2]) for plan in plans}
    assert len(seconds) > 10
    assert min(seconds) >= 1
    assert max(seconds) <= 60
    assert all(n == 5 or n % 7 for n in seconds)


def test_refusals_are_known_as_such(cart: SkillSet) -> None:
    cases = list(islice(cases_of(cart, "test", 0), 60))
    assert any(case.refusal for case in cases)
    assert all(case.refusal == case.plan.startswith("say('Sorry") for case in cases)


def test_a_plan_is_judged_by_its_calls(cart: SkillSet) -> None:
    case = next(case for case in cases_of(cart, "test", 0) if case.family == "drive")
    assert case_failure(case, case.plan, cart) == ""
    assert case_failure(case, case.plan.replace("drive", " drive "), cart) == ""
    assert case_failure(case, "drive('elsewhere');", cart)
    assert case_failure(case, "nonsense", cart)


def test_the_same_seed_gives_the_same_cases(cart: SkillSet) -> None:
    assert [c.task for c in islice(cases_of(cart, "train", 1), 30)] == [
        c.task for c in islice(cases_of(cart, "train", 1), 30)
    ]


def test_a_skill_set_without_examples(cart: SkillSet) -> None:
    with pytest.raises(InvalidInput, match="no examples"):
        next(cases_of(cart.model_copy(update={"examples": ()}), "train", 0))
    with pytest.raises(InvalidInput, match="prose"):
        next(cases_of(load_skill_set("chat"), "train", 0))
