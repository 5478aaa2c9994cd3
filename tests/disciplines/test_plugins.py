"""Disciplines of other installed packages: found by their entry points, and checked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timely.core.errors import InvalidInput, UnknownName
from timely.disciplines import registry
from timely.disciplines.basic import Fcfs

Install = Callable[..., None]
MODULE = """
from dataclasses import replace
from timely.disciplines.basic import Fcfs

class Mine(Fcfs):
    info = replace(Fcfs.info, name="mine")

class Nameless(Fcfs):
    pass

class Unmade(Fcfs):
    info = replace(Fcfs.info, name="unmade")

    def __init__(self, table):
        pass

number = 3
"""


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    """The registry reads the installed packages once in a process."""
    registry._discipline_plugins.cache_clear()
    yield
    registry._discipline_plugins.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A function that installs a package whose entry points are the lines it gets."""
    (tmp_path / "timely_test_plugin.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def install(*lines: str) -> None:
        folder = tmp_path / "timely_test_plugin-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: timely-test-plugin\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join(["[timely.disciplines]", *lines, ""]))

    return install


def test_a_plugin_is_a_discipline_like_any_other(install: Install) -> None:
    install("mine = timely_test_plugin:Mine")
    assert "mine" in registry.discipline_names()
    assert "mine" in [info.name for info in registry.discipline_infos()]
    assert isinstance(registry.create_discipline("mine"), Fcfs)
    with pytest.raises(UnknownName, match=r"known: .*\bmine\b"):
        registry.load_discipline("yours")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("mine = timely_test_plugin:Yours", "cannot load 'timely_test_plugin:Yours'"),
        ("mine = timely_no_such_module:Mine", "cannot load 'timely_no_such_module:Mine'"),
        ("mine = timely_test_plugin:number", "is no Discipline"),
        ("mine = timely_test_plugin:Nameless", "needs a DisciplineInfo with the same name"),
    ],
)
def test_a_plugin_without_such_a_discipline_is_one_clear_error(
    line: str, complaint: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install(line)
    with pytest.raises(InvalidInput, match=complaint) as failure:
        registry.load_discipline("mine")
    assert failure.value.where == "discipline 'mine' of timely-test-plugin"
    with caplog.at_level(logging.WARNING):  # the others are listed
        assert "mine" not in [info.name for info in registry.discipline_infos()]
    assert complaint in caplog.text


def test_a_plugin_that_cannot_be_made_is_one_clear_error(install: Install) -> None:
    install("unmade = timely_test_plugin:Unmade")
    with pytest.raises(
        InvalidInput, match=r"cannot make 'timely_test_plugin:Unmade'.*missing 1 required"
    ) as failure:
        registry.create_discipline("unmade")
    assert failure.value.where == "discipline 'unmade' of timely-test-plugin"


@pytest.mark.parametrize("name", ["fcfs", "timely-slots"])
def test_a_plugin_cannot_take_the_name_of_another_discipline(name: str, install: Install) -> None:
    install(f"{name} = timely_test_plugin:Mine")
    with pytest.raises(InvalidInput, match="there is another discipline of that name"):
        registry.discipline_names()
    assert registry.load_discipline(name).__module__.startswith("timely.")


def test_the_installed_packages_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.discipline_names()
    monkeypatch.setattr(registry, "entry_points", None)
    registry.discipline_names()
