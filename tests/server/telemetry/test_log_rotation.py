"""Event log and audit log under a program that renames, removes, copies or empties their files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import WAIT_S, body, fleet
from manual_clock import ManualClock

from lrtrace.importers.event_log import import_event_log
from timely.core.errors import InvalidInput
from timely.server.telemetry.event_log import TelemetryEventLog

ROOT = Path(__file__).resolve().parents[3]


def until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def names(path: Path) -> list[str]:
    return [event["event"] for event in events(path)]


class Written:
    """An event log whose lines are in the file when ``write`` returns."""

    def __init__(self, path: Path, *, header: bool = True) -> None:
        self.path, self.log, self.clock = path, TelemetryEventLog(path, ManualClock(5.0)), ManualClock(5.0)
        if header:
            self.log.write_header("scripted", "timely", "segmented")
            until(lambda: names(path) == ["opened"])

    def write(self, event: str) -> None:
        self.log.write(event)
        until(lambda: event in names(self.path))

    def write_until_there(self) -> None:
        def is_there() -> bool:
            self.log.write("probe")
            return self.path.exists()

        until(is_there)


def rename(path: Path) -> None:
    path.rename(path.with_suffix(".1"))


def rename_and_create(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.touch()


def copy_and_empty(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".1"))
    os.truncate(path, 0)


@pytest.mark.parametrize("rotate", [rename, rename_and_create, copy_and_empty])
def test_a_log_goes_on_under_its_name(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    written = Written(tmp_path / "events.jsonl")
    written.write("first")
    rotate(written.path)
    written.write("second")
    written.write("third")
    written.log.close()
    assert names(tmp_path / "events.1") == ["opened", "first"]
    assert names(written.path) == ["opened", "second", "third", "closed"]
    first, later = events(tmp_path / "events.1")[0], events(written.path)[0]
    assert "continues" not in first
    own = ("timely_events", "engine", "discipline", "mode")
    assert [later[name] for name in own] == [first[name] for name in own]
    assert later["continues"] is True


def test_a_log_without_a_header_gets_none(tmp_path: Path) -> None:
    written = Written(tmp_path / "audit.jsonl", header=False)
    written.write("first")
    rename(written.path)
    written.write("second")
    written.log.close()
    assert names(written.path) == ["second", "closed"]


def test_a_folder_that_vanishes_costs_lines_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    written = Written(folder / "events.jsonl")
    shutil.rmtree(folder)
    for _ in range(3):
        written.log.write("lost")
        until(written.log._waiting.empty)
    until(lambda: f"{written.path}: lines are lost from here on: No such file or directory" in caplog.text)
    folder.mkdir()
    written.write_until_there()
    written.log.close()
    opened, lost, *others = events(written.path)
    assert (opened["event"], opened["continues"], lost["event"]) == ("opened", True, "lost")
    assert lost["lines"] >= 3
    assert {event["event"] for event in others} == {"probe", "closed"}
    assert caplog.text.count("lines are lost") == 1


def test_a_file_that_it_may_not_open_is_an_error_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written(tmp_path / "events.jsonl")
    rename(written.path)
    written.path.mkdir()
    written.log.write("lost")
    until(lambda: "lines are lost" in caplog.text)
    written.path.rmdir()
    written.write_until_there()
    written.log.close()
    assert names(written.path)[:2] == ["opened", "lost"]


def test_lrtrace_reads_each_file_alone_and_all_together(tmp_path: Path) -> None:
    path, old = tmp_path / "events.jsonl", tmp_path / "events.1"

    def run(served: Any, task_id: str) -> None:
        with served.http.stream("POST", "/v1/tasks", json=body("short", id=task_id)) as stream:
            served.run_for(60.0)
            stream.read()

    with fleet(event_log=path) as served:
        run(served, "one")
        until(lambda: names(path).count("settled") == 1)
        rename(path)
        run(served, "two")
    assert [task.task_id for task in import_event_log(old)] == ["one"]
    assert [task.task_id for task in import_event_log(path)] == ["two"]
    both = tmp_path / "both.jsonl"
    both.write_bytes(old.read_bytes() + path.read_bytes())
    one, two = import_event_log(both)
    assert two.arrival_s - one.arrival_s == pytest.approx(60.0, abs=1.0)


def test_a_pipe_that_nothing_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="pipe: cannot be appended to: No such device"):
        TelemetryEventLog(tmp_path / "pipe", ManualClock())
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    log = TelemetryEventLog(tmp_path / "pipe", ManualClock())
    log.write("first")
    log.close()
    assert [json.loads(line)["event"] for line in os.read(reader, 1000).splitlines()] == ["first", "closed"]
    os.close(reader)


def test_a_file_has_one_server(tmp_path: Path) -> None:
    """Runs of two servers could not be told apart."""
    first = Written(tmp_path / "events.jsonl")
    with pytest.raises(InvalidInput, match=r"events\.jsonl: .*: another server writes it"):
        TelemetryEventLog(first.path, ManualClock())
    rename(first.path)
    first.write("rotated")
    with pytest.raises(InvalidInput, match="another server"):
        TelemetryEventLog(first.path, ManualClock())
    first.log.close()
    TelemetryEventLog(first.path, ManualClock()).close()


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="needs logrotate")
def test_logrotate_takes_the_file_that_ships(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "logrotate" / "timely").read_text()
    path, configuration = tmp_path / "events.jsonl", tmp_path / "timely"
    configuration.write_text(text.replace("/var/log/timely/", f"{tmp_path}/").replace("su timely timely", ""))
    configuration.chmod(0o644)
    written = Written(path)
    written.write("first")
    command = ["logrotate", "--force", "--state", str(tmp_path / "state"), str(configuration)]
    subprocess.run(command, check=True, timeout=30, capture_output=True)
    written.write("second")
    written.log.close()
    assert names(tmp_path / "events.jsonl.1") == ["opened", "first"]
    assert names(path) == ["opened", "second", "closed"]
