"""The fingerprint of a skill set: equal where plans mean and may do the same, different where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from later_release import LaterSkillSet

from timely.core.errors import EngineFailed
from timely.plans.skill_library import PATH_VARIABLE, find_skill_set, find_skill_set_copy, load_skill_set
from timely.plans.skill_set import SkillSet

ROVER = """\
name: rover
language: calls
description: A rover
profile: rover
role: You drive.
guidance: Never drive at people.
max_statements: 8
skills:
  - name: drive
    abbr: dr
    description: drive ahead
    example: dr(50)
    arguments: [{name: distance, type: int, unit: cm, min: 10, max: 300}]
  - name: turn
    arguments: [{name: angle, type: float, unit: deg, min: 1}, {name: side, type: str, choices: [left, right]}]
  - {name: look, returns: str, blocks: true}
  - {name: say, in_a_row: 2, arguments: [{name: message, type: str, max_chars: 120}]}
"""


def fingerprint(folder: Path, text: str) -> str:
    # A new file each time: a file that was read is read again only when its time or size has changed.
    (own := folder / str(len(list(folder.iterdir())))).mkdir()
    file = own / "rover.yaml"
    file.write_text(text, encoding="utf-8")
    return load_skill_set(file).fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: rover\n", "# a comment\nname: rover\n"),
        ("description: A rover", "description: Another rover"),
        ("profile: rover", "profile: tello"),
        ("You drive.", "You drive well."),
        ("guidance: Never drive at people.\n", ""),
        ("max_statements: 8", "max_statements: 9"),
        ("description: drive ahead", "description: ahead"),
        ("example: dr(50)", "example: dr(60)"),
        ("in_a_row: 2", "in_a_row: 3"),
        ("min: 1}", "min: 1.0}"),
        ("max_chars: 120", "max_chars: 120, description: words"),
        (", max_chars: 120", ""),
        ("[left, right]", "[right, left]"),
        ("name: look,", "name: look, abbr: look,"),
    ],
)
def test_a_change_of_words_or_of_the_form_keeps_it(tmp_path: Path, old: str, new: str) -> None:
    assert old in ROVER
    assert fingerprint(tmp_path, ROVER) == fingerprint(tmp_path, ROVER.replace(old, new, 1))


def test_the_order_of_the_skills_keeps_it(tmp_path: Path) -> None:
    *head, look, say = ROVER.splitlines(keepends=True)
    assert fingerprint(tmp_path, ROVER) == fingerprint(tmp_path, "".join([*head, say, look]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("language: calls", "language: minispec"),
        ("language: calls", "version: 2\nlanguage: calls"),
        ("max: 300", "max: 3000"),
        ("min: 10, ", ""),
        ("unit: cm", "unit: m"),
        ("abbr: dr", "abbr: d"),
        ("type: int", "type: float"),
        ("name: distance", "name: way"),
        ("name: turn", "name: spin"),
        ("[left, right]", "[left]"),
        (", blocks: true", ""),
        ("returns: str, blocks", "returns: bool, blocks"),
        ("returns: str, blocks: true", "returns: str, blocks: true, confirm: true"),
        ("in_a_row: 2, ", "in_a_row: 2, pattern: 'say.*', "),
        ("max_chars: 120", "max_chars: 119"),
        (
            "{name: angle, type: float, unit: deg, min: 1}, {name: side, type: str, choices: [left, right]}",
            "{name: side, type: str, choices: [left, right]}, {name: angle, type: float, unit: deg, min: 1}",
        ),
        ("  - {name: look, returns: str, blocks: true}\n", ""),
    ],
)
def test_a_change_of_meaning_changes_it(tmp_path: Path, old: str, new: str) -> None:
    changed = ROVER.replace(old, new, 1).replace("example: dr(50)", "example: drive(50)")
    assert changed != ROVER.replace("example: dr(50)", "example: drive(50)")
    assert fingerprint(tmp_path, ROVER) != fingerprint(tmp_path, changed)


def test_a_program_may_ask_for_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rover.yaml").write_text(ROVER, encoding="utf-8")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    rover = find_skill_set("rover")
    assert find_skill_set_copy("rover", "") is find_skill_set_copy("rover", rover.fingerprint) is rover
    with pytest.raises(EngineFailed, match=f"rover is {rover.fingerprint} here, 0123456789abcdef where"):
        find_skill_set_copy("rover", "0123456789abcdef")


def test_prose_counts_by_its_boundaries(tmp_path: Path) -> None:
    def prose(rest: str = "") -> str:
        return fingerprint(tmp_path, f"name: rover\nlanguage: text\n{rest}")

    assert prose() == prose("text: {min_words: 3}\n")
    assert prose() != prose("text: {min_words: 4}\n")
    assert prose() != prose("text: {unit: paragraph}\n")


def rover_data(skill: dict[str, Any] | None = None, argument: dict[str, Any] | None = None) -> dict[str, Any]:
    arguments = [{"name": "distance", "type": "int", **(argument or {})}]
    return {
        "name": "rover",
        "language": "calls",
        "skills": [{"name": "drive", "arguments": arguments, **(skill or {})}],
    }


PROSE = {"name": "rover", "language": "text", "text": {"min_words": 4}}


@pytest.mark.parametrize("data", [rover_data(), PROSE, {**PROSE, "text": None}])
def test_a_field_that_a_later_release_adds_keeps_it(data: dict[str, Any]) -> None:
    """Server and drivers of two releases compare fingerprints of one file."""
    assert LaterSkillSet.model_validate(data).fingerprint == SkillSet.model_validate(data).fingerprint


@pytest.mark.parametrize(
    ("data", "changed"),
    [
        (rover_data(), {**rover_data(), "dialect": "x"}),
        (rover_data(), rover_data(skill={"cooldown_s": 1.0})),
        (rover_data(), rover_data(argument={"hint": "x"})),
        (PROSE, {**PROSE, "text": {"min_words": 4, "max_chars": 9}}),
    ],
)
def test_a_later_field_with_a_value_changes_it(data: dict[str, Any], changed: dict[str, Any]) -> None:
    own = LaterSkillSet.model_validate(data).fingerprint
    assert own != LaterSkillSet.model_validate(changed).fingerprint


def test_it_stays_what_it_was_in_earlier_releases(tmp_path: Path) -> None:
    assert fingerprint(tmp_path, ROVER) == "d4e58bd593b08f37"
    assert fingerprint(tmp_path, "name: rover\nlanguage: text\n") == "79c45c57c10c4f12"
