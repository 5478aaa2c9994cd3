"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from timely.core.errors import InvalidInput
from timely.core.files import STDOUT, append_file_line, core_read_json, core_write_file, replaced_file


def test_text_and_bytes_replace_a_file_and_leave_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    core_write_file(path, "grün\n")
    assert path.read_text(encoding="utf-8") == "grün\n"
    core_write_file(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_the_disk_before_the_name_and_the_name_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flushed = tmp_path / "stop.json", list[tuple[bool, bool]]()

    def flush(handle: int) -> None:
        flushed.append((os.path.samestat(os.fstat(handle), tmp_path.stat()), path.exists()))

    monkeypatch.setattr(os, "fsync", flush)
    core_write_file(path, "{}")
    assert flushed == [(False, False), (True, True)]


def test_a_json_object_is_read_and_all_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"seed": 1}')
    assert core_read_json(path) == {"seed": 1}
    for content, said in ((b"[1]", "no JSON object"), (b"{", "not valid JSON"), (b"\xff", "not valid JSON"),
                          (b"[" * 100_000, "not valid JSON"), (b'{"seed": NaN}', "NaN is no JSON number"),
                          (b'{"a": [{"seed": 1, "seed": 2}]}', "the key 'seed' is given twice")):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=f"{path}: .*{said}"):
            core_read_json(path)
    with pytest.raises(InvalidInput, match="cannot read it: Is a directory"):
        core_read_json(tmp_path)


def test_a_new_file_is_as_readable_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # To read the umask is to change it for a moment, for all threads and for children that are started then.
    monkeypatch.delattr(os, "umask")
    core_write_file(tmp_path / "ours", "x")
    (tmp_path / "theirs").write_text("x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_an_error_in_between_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    core_write_file(path, "old")

    def fail() -> None:
        with replaced_file(path) as temporary:
            assert temporary.suffix == ".png"
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot write it") as caught:
        core_write_file(tmp_path / "nowhere" / "file", "x")
    assert "nowhere" in caught.value.where


@pytest.mark.parametrize("room", [0, 3])
def test_a_line_that_a_full_disk_takes_in_part_does_not_spoil_the_next(tmp_path: Path, room: int) -> None:
    path = tmp_path / "journal"
    assert append_file_line(path, b"first", flush=True) == 6
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 + room, hard))
    try:
        with pytest.raises(OSError, match=r"space|large"):
            append_file_line(path, b"second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    append_file_line(path, b"third")
    assert path.read_bytes() == b"first\nthird\n"


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        core_write_file(path, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    core_write_file(STDOUT, "shown\n")
    assert capsys.readouterr().out == "shown\n"


@pytest.mark.parametrize("reason", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_flush_folders_takes_files(
    reason: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def flush_files(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(reason, os.strerror(reason))
        flush(handle)

    monkeypatch.setattr(os, "fsync", flush_files)
    with nullcontext() if reason == errno.EINVAL else pytest.raises(InvalidInput, match="Input/output error"):
        core_write_file(tmp_path / "result.json", "done")
    assert (tmp_path / "result.json").read_text() == "done"


def test_a_folder_that_takes_files_and_cannot_be_read_takes_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_open = os.open

    def refuse_folders(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError
        return system_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse_folders)
    core_write_file(tmp_path / "result.json", "done")
    assert (tmp_path / "result.json").read_text() == "done"
