"""Robot profiles: shipped ones hold the published facts, broken ones are refused with file, line and field."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from lrtrace.errors import BadInput, LRTraceError, UnknownName
from lrtrace.profiles import PATH_VARIABLE, find_robot_profile, load_robot_profile, robot_profile_names
from lrtrace.robot_profile import RobotProfile

SMALL = """\
name: unit
robot: made up
source: made up for tests
skills:
  go:
    abbr: g
    args: {distance: {unit: cm, min: 10, max: 100}}
    execution:
      model: linear
      argument: distance
      unit: cm
      intercept_s: 1.0
      per_unit_s: 0.1
"""


def write(folder: Path, text: str, name: str = "unit") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_profiles_load_and_every_skill_has_times() -> None:
    assert {"tello", "indy7", "sim-drone", "sim-arm", "chat-reader"} <= set(robot_profile_names())
    rng = np.random.default_rng(0)
    for name in robot_profile_names():
        profile = find_robot_profile(name)
        for skill, entry in profile.skills.items():
            args = {arg: (limit.max if limit.numeric else "scissors") for arg, limit in entry.args.items()}
            assert not profile.violations(skill, args)
            low, high = profile.execution_s(skill, args, "minimum"), entry.execution.quantile_s(1.0, args)
            assert 0 <= low <= profile.execution_s(skill, args, "mean") < math.inf
            assert low <= profile.execution_s(skill, args, "sample", rng) <= high


def test_tello_has_the_published_times() -> None:
    tello = find_robot_profile("tello")
    assert tello.execution_s("mf", [100]) == pytest.approx(0.0072 * 100 + 1.8144)
    assert tello.execution_s("turn_ccw", {"degrees": 90}) == pytest.approx(0.0165 * 90 + 0.784)
    assert tello.execution_s("mu", ["40"], "mean") == pytest.approx(2.5)
    assert tello.execution_s("md", [40], "mean") == pytest.approx(2.6)
    assert tello.execution_s("g", ["cat"], "mean") == pytest.approx(2.5, abs=0.01)
    assert tello.execution_s("s", ["cat"]) == 1.53  # the minimum: its time depends on the scene
    assert tello.execution_s("d", [3]) == 3.0
    assert tello.network_s == 0.008


def test_reader_reads_300_words_a_minute() -> None:
    assert find_robot_profile("chat-reader").execution_s(
        "sentence", ["one two three four five"]
    ) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("limit", "line", "unit"),
    [
        ("cm", "cm", "cm"),
        ("", "cm", "cm"),
        ("cm", "", "cm"),
        ("", "", ""),
        ("m", "cm", None),
        ("cm", "deg", None),
    ],
)
def test_a_line_is_in_the_unit_of_its_argument(
    tmp_path: Path, limit: str, line: str, unit: str | None
) -> None:
    text = SMALL.replace("{unit: cm,", f"{{unit: '{limit}',").replace(
        "      unit: cm\n", f"      unit: '{line}'\n"
    )
    path = write(tmp_path, text)
    if unit is not None:
        assert load_robot_profile(path).skills["go"].unit("distance") == unit
        return
    with pytest.raises(
        BadInput, match=f"{path}:5: skills.go.*the line is per {line}, distance is in {limit}"
    ):
        load_robot_profile(path)


@pytest.mark.parametrize(
    ("skill", "args", "reason"),
    [
        ("mf", [10], "distance of move_forward must be 20 to 500 cm, got 10"),
        ("mf", [501], "must be 20 to 500 cm"),
        ("tc", ["x"], "must be a number"),
        ("tc", [math.nan], "must be 1 to 360 deg"),
        ("tc", [True], "must be a number"),
        ("mf", [], "needs distance"),
        ("mf", [20, 30], "takes 1 arguments, got 2"),
        ("mf", {"distance": 20, "speed": 1}, "no argument 'speed'"),
        ("s", ["x" * 121], "at most 120 characters"),
    ],
)
def test_violations(skill: str, args: list[object], reason: str) -> None:
    (profile,) = find_robot_profile("tello").violations(skill, args)
    assert reason in profile


def test_allow_and_deny(tmp_path: Path) -> None:
    text = SMALL + "  stop: {execution: {model: constant, seconds: 1}}\n"
    assert load_robot_profile(write(tmp_path, text)).allows("g")
    only = load_robot_profile(write(tmp_path, text + "allow: [stop]\n"))
    assert only.allows("stop")
    assert not only.allows("g")
    assert only.violations("go", [50]) == ["go is not allowed on unit"]
    denied = load_robot_profile(write(tmp_path, text + "deny: [g]\n"))
    assert not denied.allows("go")
    assert denied.allows("stop")
    assert not denied.allows("fly")


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"robot profile tello: unknown skill 'zz'; known: approach"):
        find_robot_profile("tello").execution_s("zz")
    with pytest.raises(UnknownName, match=r"unknown robot profile 'nope'; known: .*tello"):
        find_robot_profile("nope")


@pytest.mark.parametrize(
    "name", ["../tello", "robot_profiles/tello", "tello.yaml", "", "a" * 65, "te\x00llo"]
)
def test_find_profile_never_takes_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, SMALL)
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "sub"))
    (tmp_path / "sub").mkdir()
    with pytest.raises(UnknownName):
        find_robot_profile(name)


def test_search_order_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SMALL.replace("name: unit", "name: tello")
    write(tmp_path, mine, "tello")
    monkeypatch.setenv(PATH_VARIABLE, f"{tmp_path / 'missing'}:{tmp_path}")
    assert find_robot_profile("tello").robot == "made up"
    assert load_robot_profile(str(tmp_path / "tello.yaml")).robot == "made up"
    assert load_robot_profile("tello").robot == "made up"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL)
    assert load_robot_profile(path).execution_s("go", [10]) == 2.0
    path.write_text(SMALL.replace("intercept_s: 1.0", "intercept_s: 10.0"), encoding="utf-8")
    assert load_robot_profile(path).execution_s("go", [10]) == 11.0


def test_extends_overrides_skill_by_skill(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    child = (
        "name: kid\nextends: unit\nrobot: other\nskills:\n  go: {execution: {model: constant, seconds: 7}}\n"
    )
    kid = load_robot_profile(write(tmp_path, child, "kid"))
    assert (kid.robot, kid.source, kid.execution_s("g", [50])) == ("other", "made up for tests", 7.0)
    assert kid.limits("go")["distance"].max == 100


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (SMALL.replace("      per_unit_s: 0.1\n", ""), 8, "skills.go.execution.per_unit_s: is missing"),
        (SMALL.replace("per_unit_s: 0.1", "per_unit_s: .nan"), 13, "finite number"),
        (
            SMALL.replace("per_unit_s: 0.1", "per_unit_s: fast"),
            13,
            "per_unit_s: Input should be a valid number",
        ),
        (SMALL.replace("model: linear", "model: cubic"), 8, "cubic"),
        (SMALL.replace("argument: distance", "argument: angle"), 5, "linear in 'angle'"),
        (SMALL.replace("min: 10", "min: -20"), 5, "distance -20 gives -1 s; with 'measure: magnitude'"),
        (SMALL.replace("per_unit_s: 0.1", "per_unit_s: -0.1"), 5, "distance 100 gives -9 s"),
        (SMALL.replace("intercept_s: 1.0", "intercept_s: -11.0"), 5, "distance 100 gives -1 s"),
        (SMALL.replace("min: 10", "min: 1000"), 7, "over max"),
        (SMALL + "  go: 1\n", 14, "'go' is given twice"),
        (SMALL + "deny: [fly]\n", 1, "'fly', which is no skill"),
        (
            SMALL + "  back: {execution: {model: sampled, quantiles_s: [2.0, 1.0]}}\n",
            14,
            "skills.back.execution.quantiles_s: must not decrease",
        ),
        (SMALL + "colour: red\n", 14, "colour: Extra inputs"),
        (SMALL + "extends: nope\n", 14, "unknown robot profile 'nope'"),
        (SMALL + "extends: unit\n", 14, "in a circle"),
        (SMALL.replace("abbr: g", "abbr: g]: x"), 6, "not valid YAML"),
        (SMALL.replace("name: unit", "name: other"), 1, "but the file is called unit.yaml"),
        ("- 1\n", 1, "expected a mapping"),
        ("", 1, "expected a mapping"),
        ("a: &a [*a]\n", 1, "nest"),
        ("a:\n  " + 100_000 * "[", 2, "nest"),
        (50_000 * "- " + "a\n", 1, "nest"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "not plain data"),
        ("a: 2023-99-99\n", 1, "not a value"),
        ("a: !!bool maybe\n", 1, "not a value"),
        ('a: !!int ""\n', 1, "not a value"),
        ("a: !!timestamp soon\n", 1, "not a value"),
    ],
)
def test_broken_profiles_name_file_line_and_reason(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        load_robot_profile(path)
    message = str(caught.value)
    assert "\n" not in message
    assert reason in message
    assert message.startswith(f"{path}:{line}: ")


def test_aliases_cannot_multiply_without_end(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(BadInput, match="more than"):
        load_robot_profile(write(tmp_path, "\n".join(rows)))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml: cannot read it: No such file"):
        load_robot_profile(tmp_path / "none.yaml")


def test_profiles_are_read_only() -> None:
    profile = find_robot_profile("tello")
    with pytest.raises(Exception, match="frozen"):
        profile.name = "x"
    assert isinstance(profile, RobotProfile)


def test_errors_survive_pickling() -> None:
    import pickle

    error: LRTraceError = UnknownName("skill", "x", ["a"], where="here")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert str(again) == str(error)
    assert type(again) is UnknownName


def test_dates_mean_the_same_whatever_else_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-format-enforcer, which vLLM imports, has PyYAML read dates as text in the whole process."""
    as_text = yaml.SafeLoader.yaml_constructors["tag:yaml.org,2002:str"]
    monkeypatch.setitem(yaml.SafeLoader.yaml_constructors, "tag:yaml.org,2002:timestamp", as_text)
    with pytest.raises(BadInput, match="not a value"):
        load_robot_profile(write(tmp_path, "measured: 2024-77-77\n"))
