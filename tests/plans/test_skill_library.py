"""Finding and loading skill sets; every mistake in a file is told with file, line and field."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from timely.core.errors import InvalidInput, UnknownName
from timely.plans.skill_library import (
    PATH_VARIABLE,
    find_skill_set,
    load_skill_set,
    skill_folders,
    skill_set_names,
)

GOOD = """\
name: mine
language: calls
skills:
  - {name: wave, description: wave the hand, arguments: [{name: times, type: int, min: 1, max: 5}]}
  - {name: stop}
examples:
  - {task: Greet., plan: wave(3);}
"""


def write(folder: Path, text: str = GOOD, name: str = "mine") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_shipped_ones_are_there() -> None:
    assert {"arm", "chat", "drone", "story"} <= set(skill_set_names())
    drone = find_skill_set("drone")
    assert drone is find_skill_set("drone")
    assert drone.find("mf") is drone.find("move_forward")
    assert drone.find("fly") is None


def test_own_folders_come_first_and_names_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    write(first)
    write(second, GOOD.replace("wave the hand", "other"))
    write(second, GOOD.replace("name: mine", "name: drone"), "drone")
    monkeypatch.setenv(
        PATH_VARIABLE, os.pathsep.join(["", str(first), str(tmp_path / "missing"), str(second)])
    )
    assert skill_folders()[:2] == [first, second]
    assert {"mine", "arm"} <= set(skill_set_names())
    mine = find_skill_set("mine")
    assert mine.skills[0].description == "wave the hand"
    assert [skill.name for skill in find_skill_set("drone").skills] == ["wave", "stop"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert load_skill_set(file).skills[1].name == "stop"
    write(tmp_path, GOOD.replace("{name: stop}", "{name: halt}") + "# longer\n")
    assert load_skill_set(str(file)).skills[1].name == "halt"


@pytest.mark.parametrize(
    "name", ["drones", "", "..", "../skills/drone", "skills/drone", "drone.yaml", "/etc/passwd", "a" * 65]
)
def test_names_are_never_paths(name: str) -> None:
    with pytest.raises(UnknownName, match=r"known: .*arm, chat, drone"):
        find_skill_set(name)


def test_a_name_that_is_no_text_is_unknown() -> None:
    with pytest.raises(UnknownName):
        find_skill_set(None)  # type: ignore[arg-type]


def test_the_command_line_may_give_paths(tmp_path: Path) -> None:
    assert load_skill_set(write(tmp_path)).name == "mine"
    assert load_skill_set("drone").name == "drone"
    with pytest.raises(InvalidInput, match="No such file"):
        load_skill_set(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="cannot read"):
        load_skill_set(f"{tmp_path}/none.yml")


def test_a_file_found_by_name_must_carry_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD, "other")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    with pytest.raises(InvalidInput, match=r"name is 'mine', the file is other\.yaml"):
        find_skill_set("other")


WRONG = [
    ("name: mine", "name: 'my set'", 1, "name"),
    ("language: calls", "language: basic", 2, "language"),
    ("min: 1", "min: 9", 4, "min 9 is over max 5"),
    ("min: 1", "min: 0.5", 4, "whole number"),
    ("min: 1", "min: two", 4, "skills.0.arguments.0.min"),
    ("max: 5", "max: 20000000000000", 4, "a plan's numbers have few digits"),
    ("max: 5", "max: 5, choices: [1, 7]", 4, "choice 7 is outside min and max"),
    ("type: int,", "type: number,", 4, "skills.0.arguments.0.type"),
    ("{name: stop}", "{name: stop, abbr: no}", 5, "quote it"),
    ("{name: stop}", "{name: stop, abbr: wave}", 3, "'wave' names both"),
    ("{name: stop}", "{name: 'True'}", 3, "'True' names both"),
    ("{name: stop}", "{name: wave}", 3, "two skills have the name 'wave'"),
    ("{name: stop}", "{name: stop, blocks: true}", 5, "return something"),
    ("{name: stop}", "{name: stop, pattern: '(stop'}", 5, "missing )"),
    ("{name: stop}", "{name: stop, pattern: '(a)\\1'}", 5, "not an RE2 pattern"),
    *(
        (
            "{name: stop}",
            f"{{name: stop, arguments: [{{name: a, {argument}}}]}}",
            5,
            "no value that a plan may have",
        )
        for argument in (
            "type: float, choices: [0.00001, 2.0]",
            "type: int, choices: [1, 100000000000000000000]",
            'type: str, choices: ["a\\rb"]',
            'type: str, choices: ["a\\u3164b"]',
            "type: str, choices: [too long], max_chars: 2",
            "type: object, choices: ['!?']",
        )
    ),
    ("{name: stop}", "{name: stop, speed: 3}", 5, "skills.1.speed"),
    ("{name: stop}", "{name: stop, example: stop(1}", 5, "skills.1.example"),
    ("wave(3);", "jump(3);", 7, "examples.0.plan"),
    ("wave(3);", "''", 7, "examples.0.plan"),
    ("examples:", "max_statements: 0\nexamples:", 6, "max_statements"),
    ("examples:", "name: again\nexamples:", 6, "given twice"),
    ("examples:", "text: {unit: sentence}\nexamples:", 6, "text rules are for language text"),
    ("language: calls", "language: text", 3, "has no skills"),
    ("- {name: stop}", "- {name: stop", 6, "not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "line", "why"), WRONG, ids=[f"{new}" for _, new, _, _ in WRONG])
def test_mistakes_are_told_with_file_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, why: str
) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InvalidInput) as caught:
        load_skill_set(file)
    message = str(caught.value)
    assert message.startswith(str(file)), message
    assert f":{line}" in message, message
    assert why in message, message
    assert "\n" not in message


def test_patterns_follow_from_arguments_or_override_them() -> None:
    drone = find_skill_set("drone")
    forward, scan, wait = (drone.by_word[word] for word in ("mf", "s", "d"))
    assert forward.matches("mf(50)")
    assert forward.matches("move_forward( 50 )")
    assert not forward.matches("mf('far')")
    assert not forward.matches("mf(50);")
    assert scan.matches("s('a \\' b')")
    assert scan.matches("s(_1)")
    assert wait.matches("d(.5)")
