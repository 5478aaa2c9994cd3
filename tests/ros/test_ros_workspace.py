"""The workspace as ROS users expect it: package files, launch files that compile, parameters that exist."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from timely_bridge.settings import declare_bridge_parameters

from timely.core import cpu_latency

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "ros2_ws" / "src"
PACKAGES = sorted(path.parent.name for path in SOURCES.glob("*/package.xml"))
PYTHON = ("timely_bridge", "timely_robots", "timely_ros_bench")
LAUNCH_FILES = sorted(SOURCES.glob("*/launch/*.launch.py"))


def test_the_packages_are_there() -> None:
    assert PACKAGES == [
        "timely_bridge",
        "timely_bringup",
        "timely_interfaces",
        "timely_robots",
        "timely_ros_bench",
    ]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_what_ros_users_look_for(name: str) -> None:
    folder = SOURCES / name
    root = ElementTree.parse(folder / "package.xml").getroot()
    assert root.get("format") == "3"
    assert root.findtext("name") == name
    assert root.findtext("license") == "Apache-2.0"
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert root.findtext("version") == version[1]
    kind = root.findtext("export/build_type")
    assert kind == ("ament_python" if name in PYTHON else "ament_cmake")
    assert (folder / ("setup.py" if name in PYTHON else "CMakeLists.txt")).is_file()
    for document in ("README.md", "QUALITY_DECLARATION.md"):
        assert len((folder / document).read_text()) > 300, document


@pytest.mark.parametrize("name", PYTHON)
def test_a_python_package_is_registered_and_its_programs_exist(name: str) -> None:
    assert (SOURCES / name / "resource" / name).is_file()
    setup = (SOURCES / name / "setup.py").read_text()
    programs = re.findall(r'"(\w+) = ([\w.]+):(\w+)"', setup)
    assert programs
    for _, module, function in programs:
        assert callable(getattr(importlib.import_module(module), function))
    declared = {
        dependency.text
        for dependency in ElementTree.parse(SOURCES / name / "package.xml").iter("exec_depend")
    }
    imported = set()
    for file in (SOURCES / name / name).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                imported.update(part.name.split(".")[0] for part in node.names)
    ros = {
        module
        for module in imported
        if module.endswith(("_msgs", "_srvs", "_interfaces")) or module == "rclpy"
    }
    others = (imported & set(PACKAGES)) - {name}
    # builtin and action messages come with every action package.
    assert (ros | others) - {"builtin_interfaces", "action_msgs"} <= declared


@pytest.mark.parametrize("file", LAUNCH_FILES, ids=lambda file: file.name)
def test_a_launch_file_compiles_and_offers_its_description(file: Path) -> None:
    tree = ast.parse(file.read_text())
    compile(tree, str(file), "exec")
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert "generate_launch_description" in functions
    # What it starts exists.
    programs = {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "executable" and isinstance(node.value, ast.Constant)
    }
    offered = {
        program
        for name in PYTHON
        for program in re.findall(r'"(\w+) = ', (SOURCES / name / "setup.py").read_text())
    }
    assert programs
    assert programs <= offered


class LaunchPart:
    """Stands for any class of ``launch``, which the environment has not; keeps its arguments."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.args, self.options = args, options

    def perform(self, context: dict[str, str]) -> str:
        return context[self.args[0]]


def launched(monkeypatch: pytest.MonkeyPatch, file: str, function: str, **values: str) -> list[LaunchPart]:
    """What a launch file starts with these arguments."""
    names = ["LaunchContext", "LaunchDescription", "DeclareLaunchArgument", "OpaqueFunction"]
    names += ["LaunchConfiguration", "PathJoinSubstitution", "FindPackageShare", "LifecycleNode", "Node"]
    stub = SimpleNamespace(**dict.fromkeys(names, LaunchPart))
    for module in ("launch", "launch_ros"):
        for name in (module, f"{module}.actions", f"{module}.substitutions"):
            monkeypatch.setitem(sys.modules, name, stub)
    code = runpy.run_path(str(SOURCES / "timely_bringup/launch" / file))
    parts: list[LaunchPart] = code[function](values)
    return parts


@pytest.mark.parametrize("one_process", ["false", "true"])
def test_a_launched_fleet_has_a_process_for_each_driver_and_is_started_again(
    one_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"fleet": "/f.yaml", "server_url": "http://localhost:1", "one_process": one_process}
    (part,) = launched(monkeypatch, "fleet.launch.py", "fleet_launch_nodes", **values)
    assert (
        part.options["executable"] == "timely_fleet"
    )  # it keeps stop and goals in a folder of the fleet file
    expected = ["--fleet", "/f.yaml", "--server-url", "http://localhost:1"]
    assert part.options["arguments"] == expected + ["--one-process"] * (one_process == "true")
    assert part.options["respawn"]


def test_a_launch_argument_that_is_neither_true_nor_false_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"fleet": "/f.yaml", "server_url": "", "one_process": "maybe"}
    with pytest.raises(ValueError, match="one_process must be true or false, got 'maybe'"):
        launched(monkeypatch, "fleet.launch.py", "fleet_launch_nodes", **values)


ONE_ROBOT = {
    "name": "drone1",
    "driver": "sim",
    "profile": "sim-drone",
    "skill_set": "drone",
    "server_url": "",
}
"""The arguments of robot.launch.py."""


def test_a_launched_robot_keeps_its_stop_when_its_bridge_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIMELY_STATE_DIR", str(tmp_path))
    parts = launched(monkeypatch, "robot.launch.py", "robot_launch_nodes", **ONE_ROBOT, params_file="")
    assert [part.options["respawn"] for part in parts] == [True, True]
    folders = [
        Path(parameters["state_folder"])
        for part in parts
        for parameters in part.options["parameters"]
        if isinstance(parameters, dict) and "state_folder" in parameters
    ]
    assert [folder.is_relative_to(tmp_path) for folder in folders] == [True]


def test_a_launched_robot_gets_the_parameters_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The robot's address, for one. What the launch arguments say comes later and counts."""
    parts = launched(monkeypatch, "robot.launch.py", "robot_launch_nodes", **ONE_ROBOT, params_file="/p.yaml")
    for part in parts:
        parameters = part.options["parameters"]
        file_at = parameters.index("/p.yaml")
        assert all(isinstance(item, dict) for item in parameters[file_at + 1 :])
        assert not any(isinstance(item, dict) for item in parameters[:file_at])


def test_every_parameter_of_the_shipped_file_is_one_of_the_bridge() -> None:
    data = yaml.safe_load((SOURCES / "timely_bringup/config/bridge.yaml").read_text())
    shipped = data["/**"]["ros__parameters"]
    declared: set[str] = set()
    declare_bridge_parameters(SimpleNamespace(declare_parameter=lambda name, *_: declared.add(name)))
    assert len(declared) > 15
    assert set(shipped) <= declared | {"autostart", cpu_latency.PARAMETER}  # ManagedRosNode's


@pytest.mark.process
def test_the_benchmarks_of_the_ros_package_can_be_imported_first() -> None:
    """``timely bench`` loads them by their entry points, and they import its options."""
    command = [sys.executable, "-c", "import timely_ros_bench.commands"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_every_interface_is_built() -> None:
    made = (SOURCES / "timely_interfaces/CMakeLists.txt").read_text()
    files = [
        file
        for kind in ("msg", "srv", "action")
        for file in SOURCES.glob(f"timely_interfaces/{kind}/*.{kind}")
    ]
    assert len(files) > 10
    for file in files:
        assert f'"{file.parent.name}/{file.name}"' in made


@pytest.mark.process
def test_the_stubs_and_the_error_codes_follow_the_interface_files() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate_ros_stubs.py"), "--check"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_the_stubs_name_the_fields_of_the_built_interfaces() -> None:
    """The environment's interface package is the one that the sources describe."""
    for kind in ("msg", "srv", "action"):
        module = importlib.import_module(f"timely_interfaces.{kind}")
        stub = ast.parse((ROOT / f"ros2_ws/stubs/timely_interfaces/{kind}.pyi").read_text())
        for outer in (node for node in stub.body if isinstance(node, ast.ClassDef)):
            inner = [node for node in outer.body if isinstance(node, ast.ClassDef)]
            for declared in inner or [outer]:
                built = getattr(module, outer.name)
                built = getattr(built, declared.name) if inner else built
                fields = {
                    node.target.id
                    for node in declared.body
                    if isinstance(node, ast.AnnAssign)
                    and isinstance(node.target, ast.Name)
                    and node.value is None
                }
                assert fields - {"Impl"} == set(built.get_fields_and_field_types()), declared.name


def test_the_example_is_short() -> None:
    lines = (ROOT / "examples/ros/send_task.py").read_text().splitlines()
    assert len(lines) < 40
