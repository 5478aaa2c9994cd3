"""A skill set is checked with the robot that it names; a mistake has file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrtrace.profiles import PATH_VARIABLE
from timely.core.errors import InvalidInput
from timely.plans.skill_library import skill_set_file, skill_set_names
from timely.plans.skill_set_check import check_skill_set_file

GOOD = """\
name: mine
language: minispec
profile: tello
skills:
  - {name: move_forward, abbr: mf, example: mf(50), arguments: [{name: distance, type: int, unit: cm}]}
  - {name: is_visible, abbr: iv, returns: bool, arguments: [{name: object, type: object}]}
examples:
  - {task: Go., plan: "mf(20);"}
  - {task: Look., plan: "?iv('cat')==True{mf(200)}->False"}
"""


def write(folder: Path, text: str, name: str = "mine") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", skill_set_names())
def test_the_shipped_ones_are_in_order(name: str) -> None:
    assert check_skill_set_file(skill_set_file(name)).name == name


def test_one_of_your_own_is_in_order(tmp_path: Path) -> None:
    assert check_skill_set_file(write(tmp_path, GOOD)).profile == "tello"
    assert check_skill_set_file(write(tmp_path, GOOD.replace("profile: tello\n", ""))).profile == ""


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("language: minispec", "language: basic", 2, "language"),
        (
            "profile: tello",
            "profile: kitchen",
            3,
            "unknown robot profile 'kitchen'; known: .*LRTRACE_PROFILES_PATH",
        ),
        ("mf(20)", "mf(5000)", 8, r"examples\.0\.plan: character 0, mf\(5000\): .*tello"),
        ("mf(200)", "mf(7000)", 9, r"examples\.1\.plan: .*mf\(7000\): .*tello"),
        ("example: mf(50)", "example: mf(5)", 5, r"skills\.0\.example: .*mf\(5\): .*tello"),
        ("unit: cm", "unit: deg", 5, r"skills\.0\.example: "),
    ],
)
def test_a_mistake_has_its_place(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    file = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=says) as raised:
        check_skill_set_file(file)
    assert raised.value.where.startswith(f"{file}:{line}, ")
    assert "\n" not in str(raised.value)


def test_the_file_has_the_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"name: name is 'mine', the file is other\.yaml"):
        check_skill_set_file(write(tmp_path, GOOD, "other"))


def test_a_broken_profile_is_named_with_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nrobot: x\nsource: y\nskills: 3\n")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    file = write(tmp_path, GOOD.replace("tello", "bad"))
    with pytest.raises(InvalidInput) as raised:
        check_skill_set_file(file)
    assert str(raised.value).startswith(f"{file}:3, profile: {tmp_path}/bad.yaml:4: skills")
