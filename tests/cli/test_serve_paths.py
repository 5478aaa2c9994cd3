"""Paths of ``timely serve`` that cannot be used: one line, before an engine starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.cli.main import run_timely_command
from timely.core.files import STATE_DIR_VARIABLE

SERVE = ["serve", "--engine", "scripted", "--port", "0"]


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file and a folder; a server that would start is a failure."""

    def start(*arguments: object, **options: object) -> int:
        raise AssertionError("it starts")

    monkeypatch.setattr("timely.server.run.run_server", start)
    (tmp_path / "file").write_bytes(b"\x00\xff")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["file", "file/below"])
@pytest.mark.parametrize("by_variable", [False, True], ids=["option", "variable"])
def test_a_state_folder_that_cannot_be_used_is_refused(
    paths: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    by_variable: bool,
) -> None:
    arguments = ["--state-dir", str(paths / name)]
    folder = str(paths / name)
    if by_variable:
        monkeypatch.setenv(STATE_DIR_VARIABLE, str(paths / name))
        arguments, folder = ["--port", "8000"], f"{folder}/server-8000"
    assert run_timely_command([*SERVE, *arguments]) == 2
    assert capsys.readouterr().err == f"timely: {folder}: cannot be used: Not a directory\n"


def test_a_state_folder_is_made(paths: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    async def stop_at_once(*arguments: object, **options: object) -> None:
        """The end without a signal."""

    monkeypatch.setattr("timely.server.run.run_server", stop_at_once)
    assert run_timely_command([*SERVE, "--state-dir", str(paths / "folder" / "new")]) == 0
    assert list((paths / "folder" / "new").iterdir()) == []
