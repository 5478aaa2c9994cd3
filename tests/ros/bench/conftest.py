"""The commands of ``timely_ros_bench`` in ``timely bench``, as its entry points declare them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "ros2_ws/src/timely_ros_bench/setup.py"


@pytest.fixture(autouse=True)
def ros_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = import_module("timely.cli.bench")
    commands = import_module("timely_ros_bench.commands")
    declared = re.findall(r'"(\w+) = timely_ros_bench\.commands:(\w+)"', SETUP.read_text())
    added = {name: getattr(commands, function) for name, function in declared}
    assert set(added) == set(bench.ROS_BENCHMARKS)
    monkeypatch.setattr(bench, "app", bench.make_app(added))
