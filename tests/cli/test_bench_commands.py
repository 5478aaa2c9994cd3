"""``timely bench`` takes commands from installed packages, and names the package of those that are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import get_type_hints

import pytest

from timely.cli import bench
from timely.cli.main import run_timely_command


def test_a_command_of_a_package_that_is_not_installed_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "app", bench.make_app({}))
    for name in bench.ROS_BENCHMARKS:
        assert run_timely_command(["bench", name, "--json"]) == 2
        complaint = capsys.readouterr().err
        assert "timely_ros_bench" in complaint
        assert "make setup" in complaint
        assert complaint.count("\n") == 1


def test_an_entry_point_is_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def ros(segments: int = 20) -> None:
        calls.append(segments)

    monkeypatch.setattr(bench, "app", bench.make_app({"ros": ros}))
    assert run_timely_command(["bench", "ros", "--segments", "3"]) == 0
    assert calls == [3]
    assert run_timely_command(["bench", "--help"]) == 0
    assert "ros" in capsys.readouterr().out


@pytest.mark.parametrize("group", [[], ["bench"], ["planner"], ["predictor"]])
def test_a_list_of_commands_shows_whole_sentences(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command([*group, "--help"]) == 0
    summaries = capsys.readouterr().out.partition("Commands:")[2]
    assert summaries
    assert "..." not in summaries


@pytest.mark.parametrize("module", ["bench", "planner", "predictor"])
def test_a_negative_seed_is_refused_by_every_command(module: str) -> None:
    """Generators of numbers refuse it, some with an error of their own."""
    lows = {}
    for command in import_module(f"timely.cli.{module}").app.registered_commands:
        hint = get_type_hints(command.callback, include_extras=True).get("seed")
        if hint is not None:
            lows[command.name] = hint.__metadata__[0].min
    assert lows
    assert lows == dict.fromkeys(lows, 0)
