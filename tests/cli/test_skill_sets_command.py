"""``timely skill-sets``: the list, one with its calls, and what is wrong with a broken one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timely.cli.main import run_timely_command
from timely.plans.skill_library import PATH_VARIABLE, find_skill_set, skill_set_names

ROVER = Path(__file__).parents[2] / "examples" / "robots" / "skills" / "rover.yaml"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the skill folders whose profile does not exist."""
    file = tmp_path / "rover.yaml"
    file.write_bytes(ROVER.read_bytes())
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    return file


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command(["skill-sets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == skill_set_names()


def test_one_is_shown_with_its_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command(["skill-sets", "drone"]) == 0
    out = capsys.readouterr().out
    assert f"fingerprint {find_skill_set('drone').fingerprint}" in out
    assert "skills/drone.yaml" in out
    assert "  mf(distance: 20..500 cm) move_forward\n" in out
    assert "  rp() re_plan [returns str, blocks]\n" in out


def test_a_file_is_shown_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LRTRACE_PROFILES_PATH", str(ROVER.parents[1] / "robot_profiles"))
    assert run_timely_command(["skill-sets", str(ROVER), "--json", str(tmp_path / "s.json")]) == 0
    assert "drive(distance: 0.1..5 m)" in capsys.readouterr().out
    written = json.loads((tmp_path / "s.json").read_text())
    assert written["problems"] == []
    (rover,) = written["skill_sets"]
    assert (rover["name"], rover["file"], len(rover["skills"])) == ("rover", str(ROVER), 3)
    assert len(rover["fingerprint"]) == 16


def test_a_broken_one_is_one_line_beside_the_others(
    broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command(["skill-sets", "--json", str(tmp_path / "s.json")]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"timely: {broken}:6, profile: unknown robot profile 'rover'; known: ")
    assert captured.err.count("\n") == 1
    assert captured.out.count("\n") == len(skill_set_names()) - 1
    assert json.loads((tmp_path / "s.json").read_text())["problems"] == [captured.err[8:-1]]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch", "timely: skill_set: unknown skill set 'nosuch'; known: arm, chat, drone, story\n"),
        ("nosuch.yaml", "timely: nosuch.yaml: cannot read it: No such file or directory\n"),
    ],
)
def test_one_that_is_not_there(name: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command(["skill-sets", name]) == 2
    assert capsys.readouterr().err == says


def test_a_server_refuses_a_broken_one_before_its_engine_starts(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*arguments: object, **options: object) -> int:
        raise AssertionError("it starts")

    monkeypatch.setattr("timely.server.run.run_server", start)
    assert run_timely_command(["serve", "--engine", "scripted", "--port", "0"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"timely: {broken}:6, profile: unknown robot profile 'rover'; known: ")
    assert err.count("\n") == 1
