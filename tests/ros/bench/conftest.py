"""The commands of ``timely_ros_bench`` in ``timely bench``, as its entry points declare them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
import typer

SETUP = Path(__file__).parents[3] / "ros2_ws/src/timely_ros_bench/setup.py"


@pytest.fixture(scope="session")
def ros_bench() -> typer.Typer:
    """The benchmarks with those that the package adds."""
    bench = import_module("timely.cli.bench")
    commands = import_module("timely_ros_bench.commands")
    declared = re.findall(r'"(\w+) = timely_ros_bench\.commands:(\w+)"', SETUP.read_text())
    added = {name: getattr(commands, function) for name, function in declared}
    assert set(added) == set(bench.ROS_BENCHMARKS)
    app: typer.Typer = bench.make_app(added)
    return app


@pytest.fixture(autouse=True)
def ros_commands(ros_bench: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timely.cli.bench.app", ros_bench, raising=False)
