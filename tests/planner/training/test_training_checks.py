"""Before a training: examples the grammar would not let through are refused, and names of no prompt are found."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from timely.cli import main as shell
from timely.core.errors import InvalidInput
from timely.planner.cases.from_examples import cases_of
from timely.planner.cases.generate import GENERATORS, generate_cases
from timely.planner.training.checks import TrainingPlanAcceptor, check_training_examples, training_plan_names
from timely.plans.skill_library import find_skill_set, load_skill_set
from timely.plans.skill_set import SkillSet

CART = """
name: cart
language: calls
max_statements: 4
skills:
  - {name: drive, description: drive there, arguments: [{name: place, type: object, max_chars: 12}]}
  - {name: load, description: take on, arguments: [{name: thing, type: object}]}
  - {name: wait, description: stand, arguments: [{name: seconds, type: int, unit: s, min: 1, max: 60}]}
  - {name: say, description: tell, arguments: [{name: message, type: str, max_chars: 60}]}
examples:
  - {task: Bring the crate to the ramp., scene: "crate, ramp", plan: "load('crate');drive('ramp');"}
  - {task: Recharge., plan: "drive('dock');wait(5);"}
"""


def cart(folder: Path, more: str = "") -> SkillSet:
    path = folder / "cart.yaml"
    path.write_text(CART + (f"  - {more}\n" if more else ""))
    return load_skill_set(path)


@pytest.mark.process
def test_good_examples_pass(tmp_path: Path) -> None:
    check_training_examples(cart(tmp_path))
    check_training_examples(find_skill_set("arm"))
    check_training_examples(find_skill_set("drone"))


BAD = {
    "words": "{task: Run over the guard., plan: \"say('Sorry, that is not safe');\"}",
    "statements": "{task: Wait., plan: \"wait(1);say('a');wait(2);say('b');wait(3);\"}",
    "characters": "{task: Go to the incinerating plant., plan: \"drive('incinerating plant');\"}",
    "again": "{task: Go and come back., plan: \"drive('gate');drive('ramp');\"}",
}


@pytest.mark.process
@pytest.mark.parametrize("more", BAD.values(), ids=BAD)
def test_a_plan_outside_the_grammar(more: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="grammar does not accept") as error:
        check_training_examples(cart(tmp_path, more))
    assert error.value.where == "skill set cart, example 3"


@pytest.mark.process
def test_it_is_told_in_one_line_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cart(tmp_path, BAD["words"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "timely.cli.planner._find_cli_planner_base", lambda _: tmp_path
    )  # no model is looked for in this test
    assert (
        shell.run_timely_command(["planner", "train", "--skill-set", "cart.yaml", "--out", "out"])
        == shell.BAD_INPUT
    )
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "example 3" in error
    assert "Run over the guard." in error
    assert not (tmp_path / "out").exists()


@pytest.mark.process
@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_generated_plan_is_one_of_the_grammar(skill_set: str, split: str) -> None:
    acceptor = TrainingPlanAcceptor(find_skill_set(skill_set))
    cases = islice(generate_cases(skill_set, "train" if split == "train" else "test", 5), 600)
    assert [case.plan for case in cases if not acceptor.accepts(case.plan)] == []


@pytest.mark.process
def test_names_that_stand_in_no_prompt(tmp_path: Path) -> None:
    skills = cart(tmp_path)
    assert training_plan_names(skills, islice(cases_of(skills, "train", 0), 100)) == ["dock"]
    arm = find_skill_set("arm")
    assert training_plan_names(arm, islice(generate_cases("arm", "train", 0), 1500)) == ["bin"]


@pytest.mark.process
def test_names_that_do_not_fit_are_not_drawn(tmp_path: Path) -> None:
    skills = cart(tmp_path)
    acceptor = TrainingPlanAcceptor(skills)
    cases = list(islice(cases_of(skills, "train", 0), 300))
    assert [case.plan for case in cases if not acceptor.accepts(case.plan)] == []
