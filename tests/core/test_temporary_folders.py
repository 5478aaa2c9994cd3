"""Temporary folders of processes that were killed are removed, and no others."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from timely.core import temporary_folders
from timely.core.child_process import ChildProcesses
from timely.core.temporary_folders import LOCK, temporary_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's folder for temporary files. What is in it is old enough."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporary_folders, "YOUNG_S", 0.0)
    return tmp_path


def left_by_a_killed_process(folder: Path) -> Path:
    left = folder / "fleet-1"
    left.mkdir()
    (left / LOCK).touch()
    (left / "drone1.log").write_text("ready")
    return left


def test_a_folder_goes_with_its_block(folder: Path) -> None:
    with temporary_folder("fleet-") as own:
        (own / "drone1.log").touch()
        assert [own] == list(folder.iterdir())
    assert not own.exists()


def test_what_a_killed_process_left_goes_at_the_next_start(folder: Path) -> None:
    left, other = left_by_a_killed_process(folder), folder / "bench-1"
    other.mkdir()
    (other / LOCK).touch()
    with temporary_folder("fleet-"):
        assert not left.exists()
        assert other.exists()


def test_children_remove_what_killed_ones_left(folder: Path) -> None:
    left = left_by_a_killed_process(folder)
    with ChildProcesses("fleet-"):
        assert not left.exists()


def test_a_folder_in_use_stays(folder: Path) -> None:
    with temporary_folder("fleet-") as first, temporary_folder("fleet-"):
        assert (first / LOCK).exists()


def test_a_folder_of_another_user_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_a_killed_process(folder)
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    with temporary_folder("fleet-"):
        assert left.exists()


def test_a_link_to_a_folder_stays(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = left_by_a_killed_process(tmp_path_factory.mktemp("elsewhere"))
    (folder / "fleet-2").symlink_to(target)
    with temporary_folder("fleet-"):
        assert (target / "drone1.log").exists()


def test_a_folder_without_a_lock_file_stays(folder: Path) -> None:
    """It may be of an earlier release that runs."""
    left = left_by_a_killed_process(folder)
    (left / LOCK).unlink()
    with temporary_folder("fleet-"):
        assert left.exists()


def test_a_folder_that_is_not_locked_yet_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_folders, "YOUNG_S", 30.0)
    left = left_by_a_killed_process(folder)
    with temporary_folder("fleet-"):
        assert left.exists()


def test_a_folder_is_removed_under_its_lock(folder: Path) -> None:
    """Of two processes that start together one removes it."""
    left = left_by_a_killed_process(folder)
    with (left / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with temporary_folder("fleet-"):
            assert left.exists()
