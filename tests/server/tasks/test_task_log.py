"""The log of tasks on the disk: its files, and a disk that is full, stalls or loses them.

A killed server is one whose state folder is copied while it runs: the copy is what a kill leaves.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fleet import (
    PLANS,
    TOKEN,
    WAIT_S,
    Reader,
    body,
    catalogue,
    events_of,
)
from killed_server import cut, kill, report, rest, server, texts, whole
from manual_clock import ManualClock

from timely.core import record_log
from timely.core.errors import EngineFailed
from timely.core.json_log import JsonLogFormatter, log_fields
from timely.core.record_log import RecordFile, parse_record_lines, read_record_log, record_log_line
from timely.engines.base import PastReport
from timely.engines.scripted import ScriptedEngine
from timely.principals import LOCAL
from timely.server.settings import ServerSettings
from timely.server.tasks import task_log
from timely.server.tasks.request import ReportBody, TaskRequest
from timely.server.tasks.service import TaskService
from timely.server.tasks.task_log import TaskLog


def test_a_torn_record_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, _ = cut(tmp_path, "long", seconds=3.0)
    file = state / "tasks" / "00000001.log"
    file.write_bytes(file.read_bytes()[:-20])
    with server(state, now=105.0) as served:
        events = rest(served, 0)
    assert texts(events) == whole(tmp_path, "long")
    assert "torn" in caplog.text


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (1, "task", "task one of an earlier start cannot be restored: .*its first record is lost"),
        (2, "segment", "task one of an earlier start cannot be restored: .*segment 1 after 0 segments"),
        (3, "report", ""),
        (4, "segment", "task one of an earlier start cannot be restored: .*a record of its segments is lost"),
    ],
)
@pytest.mark.parametrize("damage", ["a flipped bit", "an absent line"])
def test_a_record_that_the_disk_lost_in_the_middle_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, kind: str, message: str, damage: str
) -> None:
    """No plan goes on, or counts as complete, without a segment that a robot may have."""
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body("ask", id="one")),
    ):
        served.run_for(2.0)
        report(served, 0, "value", value="True")
        served.run_for(3.0)
        state = shutil.copytree(tmp_path / "first", tmp_path / "killed")
    file = state / "tasks" / "00000001.log"
    lines = file.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[number][9:])["kind"] == kind
    assert json.loads(lines[5][9:])["kind"] == "generated"
    flipped = lines[number][:40] + bytes([lines[number][40] ^ 1]) + lines[number][41:]
    lines[number] = flipped if damage == "a flipped bit" else b""
    file.write_bytes(b"".join(lines))
    with server(state, now=105.0) as served:
        assert served.http.get("/v1/tasks/one").status_code == (404 if message else 200)
        served.run_for(400.0)
        assert not [tasks for tasks in served.service.log._files.values() if tasks.live]
    errors = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert re.search(message, errors)
    assert (f"damaged lines are left out (1): {number + 1}" in errors) == (damage == "a flipped bit")


async def test_a_log_that_is_cut_at_any_byte_is_read_up_to_there(tmp_path: Path) -> None:
    log = TaskLog(tmp_path / "whole", ManualClock(100.0))
    await log.open()
    for number in range(3):
        log.write("urgency", f"t{number}", level=number)
    await log.close()
    content = (tmp_path / "whole" / "00000001.log").read_bytes()
    for length in range(len(content) + 1):
        records, damaged_lines, is_torn = parse_record_lines(content[:length])
        ends = content[:length].count(b"\n")
        whole_lines = ends + (content[length : length + 1] == b"\n")
        assert (len(records), damaged_lines) == (whole_lines, [])
        assert is_torn == (whole_lines == ends and content[:length][-1:] not in (b"", b"\n"))


@pytest.mark.parametrize("line", [b"00000000", b"00000000 ", b"\0" * 4096, b"\xff"])
def test_a_line_without_a_record_is_damaged(line: bytes) -> None:
    whole_line = record_log_line({"kind": "urgency"})
    assert parse_record_lines(whole_line + line + b"\n" + whole_line) == (
        [{"kind": "urgency"}] * 2,
        [2],
        False,
    )
    assert parse_record_lines(whole_line + line + b"\n") == ([{"kind": "urgency"}], [2], False)
    assert parse_record_lines(whole_line + line) == ([{"kind": "urgency"}], [], True)


def test_a_log_of_another_version_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "00000001.log").write_bytes(record_log_line({"timely_tasks": 2}))
    message = r"00000001\.log: format version 2, this server reads 1"
    with pytest.raises(EngineFailed, match=message), server(tmp_path):
        pass


def test_a_file_whose_first_line_is_damaged_keeps_no_server_from_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, _ = cut(tmp_path, "long", seconds=3.0)
    file = state / "tasks" / "00000001.log"
    content = b"x" + file.read_bytes()[1:]
    file.write_bytes(content)
    with server(state, now=105.0) as served:
        assert served.http.get("/v1/tasks/one").status_code == 404
        with served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream:
            assert Reader(stream).next()[1] == "accepted"
    assert f"{file}: its first line is damaged" in caplog.text
    assert file.read_bytes() == content


@pytest.mark.parametrize("set_back_s", [-20.0, 3600.0])
def test_after_a_start_of_the_machine_no_record_is_from_the_future(tmp_path: Path, set_back_s: float) -> None:
    """Many robots' computers have no clock that goes on without power."""
    state, before = cut(tmp_path, "long", seconds=3.0, s0="done")
    file = state / "tasks" / "00000001.log"
    header, *lines = file.read_bytes().splitlines(keepends=True)
    fields = {**json.loads(header[9:]), "boot": "an earlier one", "wall_s": time.time() + set_back_s}
    file.write_bytes(record_log_line(fields) + b"".join(lines))
    with server(state, now=7.0) as served:
        task = served.service.tasks.get("one")
        assert task.arrival_s == pytest.approx(7.0 - max(3.0, -set_back_s), abs=0.5)
        assert all(segment.ready_s <= 7.0 for segment in task.track.segments)
        after = rest(served, before[-1][0])
    assert (after[-1][1], after[-1][2]["outcome"]) == ("result", "complete")


async def test_a_record_that_is_no_json_keeps_no_other_from_the_disk(tmp_path: Path) -> None:
    log = TaskLog(tmp_path, ManualClock(100.0))
    await log.open()
    log.write("segment", "one", pace=math.nan)
    log.write("urgency", "two", level=0)
    assert log.problem == ""
    await log.close()
    records = read_record_log(tmp_path / "00000001.log").records
    assert [record.get("kind") for record in records] == [None, "urgency"]


def test_a_damaged_line_and_a_torn_end_are_told_apart() -> None:
    line = record_log_line({"kind": "urgency"})
    lines = parse_record_lines(line + b"x" + line + line + line[:-5])
    assert (len(lines.records), lines.damaged_lines, lines.is_torn) == (2, [2], True)


async def test_a_durable_record_is_on_the_disk_with_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = dict[str, int]()

    def flush(handle: int) -> None:
        on_disk[os.readlink(f"/proc/self/fd/{handle}")] = os.fstat(handle).st_size

    monkeypatch.setattr(os, "fdatasync", flush)
    monkeypatch.setattr(os, "fsync", flush)
    log = TaskLog(tmp_path, ManualClock(100.0))
    await log.open()
    for level in (0, 1):
        log.write("urgency", "one", level=level)
        await log.durable()
        file = tmp_path / "00000001.log"
        assert on_disk[str(file)] == file.stat().st_size
    assert str(tmp_path) in on_disk
    await log.close()


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    with server(tmp_path), pytest.raises(EngineFailed, match="another server uses it"), server(tmp_path):
        pass


def test_files_without_live_tasks_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "FILE_BYTES", 1000)
    with server(tmp_path) as served:
        for number in range(5):
            with served.http.stream("POST", "/v1/tasks", json=body("short", id=f"t{number}")) as stream:
                served.run_for(30.0)
                Reader(stream).rest()
        assert len(list(tmp_path.glob("tasks/*.log"))) > 3
        served.run_for(400.0)
        assert len(list(tmp_path.glob("tasks/*.log"))) <= 2


async def test_an_answer_leaves_when_its_record_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task, a report, an urgency and a cancellation; a segment too, with ``flush_segments``."""
    clock, goes_on, flush = ManualClock(100.0), threading.Event(), RecordFile.flush
    settings = ServerSettings(state_dir=tmp_path, flush_segments=True, grace_s=1000.0)
    service = TaskService(ScriptedEngine(PLANS, clock=clock), settings, clock, catalogue())
    await service.start()

    def late(file: RecordFile) -> None:
        assert goes_on.wait(WAIT_S)
        flush(file)

    monkeypatch.setattr(RecordFile, "flush", late)

    async def answer_late(request: Coroutine[Any, Any, Any], sent: int) -> Any:
        """The answer of a request during which the disk takes nothing; so many events were sent before."""
        goes_on.clear()
        answer = asyncio.create_task(request)
        try:
            await clock.run_for(5.0)
            assert not answer.done()
            assert len(service.tasks.get("one").events) == sent
        finally:
            goes_on.set()
        async with asyncio.timeout(WAIT_S):
            return await answer

    task = await answer_late(service.submit(TaskRequest.model_validate(body("ask", id="one")), LOCAL), 1)
    async with asyncio.timeout(WAIT_S):
        while len(task.events) < 2:  # noqa: ASYNC110 - a thread brings the segment to the disk
            await asyncio.sleep(0)
    await answer_late(service.report("one", [ReportBody(0, "started")], LOCAL, TOKEN), 2)
    await answer_late(service.set_urgency("one", 0, LOCAL, "Ada", "smoke"), 2)
    await answer_late(service.cancel("one", LOCAL, TOKEN), 3)
    assert len(service.log.segment_costs_s) == 1
    await service.stop()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_segment_that_a_cancellation_overtakes_on_its_way_to_the_disk_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    clock, goes_on, flush = ManualClock(100.0), threading.Event(), RecordFile.flush
    settings = ServerSettings(
        state_dir=tmp_path, flush_segments=True, engine_timeout_s=WAIT_S if waits else 0.01
    )
    service = TaskService(ScriptedEngine(PLANS, clock=clock), settings, clock, catalogue())
    await service.start()
    task = await service.submit(TaskRequest.model_validate(body("long", id="one")), LOCAL)

    def late(file: RecordFile) -> None:
        assert goes_on.wait(WAIT_S)
        flush(file)

    monkeypatch.setattr(RecordFile, "flush", late)
    await clock.run_for(0.5)
    assert (len(task.track.segments), len(task.events)) == (1, 1)
    cancelling = asyncio.create_task(service.cancel("one", LOCAL, TOKEN))
    await clock.run_for(1.0)
    async with asyncio.timeout(WAIT_S):
        await (asyncio.sleep(0) if waits else task.over.wait())
        goes_on.set()
        await cancelling
    events = events_of(b"".join(task.events._events).decode())
    assert [name for _, name, _ in events] == ["accepted", "result"]
    result = events[-1][2]
    assert (result["outcome"], result["segments"], result["plan"]) == ("cancelled", 0, "")
    assert task.history.segments == []
    await service.stop()


async def test_a_record_that_nothing_waits_for_wakes_no_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    log = TaskLog(tmp_path, ManualClock(0.0))
    await log.open()
    calls: list[Any] = []
    wake = loop.call_soon_threadsafe

    def count(callback: Any, *arguments: Any) -> asyncio.Handle:
        calls.append(callback)
        return wake(callback, *arguments)

    async with asyncio.timeout(WAIT_S):
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon_threadsafe", count)
            log.write("forgotten", "one")
            while log._on_disk < log._written_count:  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0)
            log.write("forgotten", "two")
            await log.durable()
    assert len(calls) <= 1
    await log.close()


def test_a_full_disk_is_said_once_and_admits_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with server(tmp_path) as served:
        monkeypatch.setattr(RecordFile, "append", full)
        for _ in range(2):
            refused = served.http.post("/v1/tasks", json=body("short"))
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        monkeypatch.undo()
        with served.http.stream("POST", "/v1/tasks", json=body("short")) as stream:
            assert Reader(stream).next()[1] == "accepted"
    assert caplog.text.count("tasks are not kept") == 1


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_idle_server_on_a_full_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused task leaves no record that would be tried again."""
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    attempts = itertools.count()

    def refuse(*_: object) -> None:
        next(attempts)
        full()

    with server(tmp_path) as served:
        assert served.http.get("/readyz").is_success
        with monkeypatch.context() as disk:
            disk.setattr(record_log, "append_whole", refuse)
            assert served.http.post("/v1/tasks", json=body("short")).status_code == 503
            served.until(lambda: next(attempts) > 10, "further attempts")
            assert "timely_state_unsaved 1.0" in served.http.get("/metrics").text
            ready = served.http.get("/readyz")
            assert (ready.status_code, ready.json()["where"]) == (503, "state")
        served.until(lambda: not served.service.log.problem, "there is room")
        assert served.http.get("/readyz").is_success
        assert "timely_state_unsaved 0.0" in served.http.get("/metrics").text


def test_what_a_full_disk_refused_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        reader = Reader(stream)
        events = [reader.next()]
        with monkeypatch.context() as disk:
            disk.setattr(RecordFile, "append", full)
            served.run_for(1.5)
            refused = served.http.post("/v1/tasks", json=body("short", id="refused"))
            assert refused.status_code == 503
            assert "timely_state_unsaved 1.0" in served.http.get("/metrics").text
        deadline_s = time.monotonic() + 10.0
        while served.service.log.problem and time.monotonic() < deadline_s:
            time.sleep(0.01)
        killed = kill(served, reader, events, tmp_path)
    assert [name for _, name, _ in events].count("segment") >= 1
    with server(killed, now=104.0) as served:
        assert served.http.get("/v1/tasks/refused").status_code == 404
        after = rest(served, events[-1][0])
    ids = [number for number, _, _ in events + after]
    assert ids == list(range(1, len(ids) + 1))
    assert texts(events + after) == whole(tmp_path, "long")


def test_a_task_that_was_over_is_no_loss_after_a_kill_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file of its admission made room; the record that it is forgotten was still refused."""
    monkeypatch.setattr(task_log, "FILE_BYTES", 1)
    with server(tmp_path / "first") as served:
        with served.http.stream("POST", "/v1/tasks", json=body("short", id="one")) as stream:
            assert Reader(stream).next()[1] == "accepted"
            served.run_for(30.0)
        assert served.service.tasks.get("one").state == "ended"
        files = sorted((tmp_path / "first" / "tasks").glob("*.log"))
        with monkeypatch.context() as disk:
            disk.setattr(RecordFile, "append", full)
            served.run_for(400.0)
            assert served.service.tasks.find("one") is None
            state = shutil.copytree(tmp_path / "first", tmp_path / "killed")
    left = sorted((state / "tasks").glob("*.log"))
    assert [path.name for path in left] == [files[-1].name]
    assert read_record_log(left[0]).records[1]["kind"] == "settled"
    with server(state, now=600.0) as served:
        assert served.http.get("/v1/tasks/one").status_code == 404
        assert not [tasks for tasks in served.service.log._files.values() if tasks.live]
    assert "first record is lost" not in caplog.text


def test_a_new_file_that_the_disk_refuses_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "FILE_BYTES", 100)
    with server(tmp_path) as served:
        with served.http.stream("POST", "/v1/tasks", json=body("short", id="one")) as stream:
            assert Reader(stream).next()[1] == "accepted"
            with monkeypatch.context() as disk:
                disk.setattr(RecordFile, "append", full)
                served.run_for(30.0)
                assert served.service.log.problem
        with served.http.stream("POST", "/v1/tasks", json=body("short", id="two")) as stream:
            assert Reader(stream).next()[1] == "accepted"


async def test_a_forgotten_task_does_not_come_back_from_a_file_that_another_task_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record shares a file with a task that lives on; its end stands in files without live tasks."""
    log = TaskLog(tmp_path, ManualClock(1.0))
    await log.open()
    for name in ("waits", "over"):
        log.write("task", name)
    monkeypatch.setattr(task_log, "FILE_BYTES", 1)
    for name in ("over", "later"):
        for kind in ("task", "generated", "settled", "forgotten"):
            log.write(kind, name)
    await log.close()
    for _ in range(2):
        log = TaskLog(tmp_path, ManualClock(2.0))
        records = await log.open()
        kinds = {
            name: [record["kind"] for record in records if record["task"] == name]
            for name in ("waits", "over")
        }
        assert kinds["waits"] == ["task"]
        assert kinds["over"][-1] == "forgotten"
        await log.close()
    log = TaskLog(tmp_path, ManualClock(3.0))
    await log.open()
    log.forget("waits")
    await log.close()
    assert os.listdir(tmp_path) == ["lock"]


async def test_a_disk_that_is_full_of_the_log_gets_room_when_its_tasks_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "FILE_BYTES", 1)
    log = TaskLog(tmp_path, ManualClock(1.0))
    await log.open()
    for name in ("first", "second", "waits", "third"):
        log.write("task", name)
    with monkeypatch.context() as disk:
        disk.setattr(RecordFile, "append", full)
        for name in ("second", "first", "third"):
            log.forget(name)
        assert log.problem
        files = sorted(name for name in os.listdir(tmp_path) if name != "lock")
        contents = [read_record_log(tmp_path / name)[0][1]["task"] for name in files]
        assert contents == ["waits", "third"], "the last file is still open"
    log.forget("later")
    assert not log.problem
    await log.close()
    log = TaskLog(tmp_path, ManualClock(2.0))
    records = await log.open()
    assert {record["task"] for record in records if record["kind"] == "task"} == {"waits"}
    await log.close()


async def test_progress_in_a_row_takes_the_room_of_two_reports(tmp_path: Path) -> None:
    """The first may say when the motion began, the last when it ends."""
    clock = ManualClock(100.0)
    settings = ServerSettings(state_dir=tmp_path, grace_s=1000.0)
    service = TaskService(ScriptedEngine(PLANS, clock=clock), settings, clock, catalogue())
    await service.start()
    task = await service.submit(TaskRequest.model_validate(body("ask", id="one")), LOCAL)
    await clock.run_for(2.0)
    for number in range(20):
        await service.report("one", [ReportBody(0, "progress", remaining_s=30.0 - number)], LOCAL, TOKEN)
    reports = [event.report for event in task.past if isinstance(event, PastReport)]
    assert [report.remaining_s for report in reports] == [30.0, 11.0]
    await service.stop()


def test_a_disk_that_stalls_costs_no_task_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can read only once its task is on the disk."""
    stalled, goes_on = threading.Event(), threading.Event()

    def flush(file: RecordFile) -> None:
        stalled.set()
        assert goes_on.wait(WAIT_S)

    monkeypatch.setattr(RecordFile, "flush", flush)
    with server(tmp_path) as served, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.http.post, "/v1/tasks", json=body("long", id="one"))
        try:
            assert stalled.wait(WAIT_S)
            served.until(lambda: served.service.tasks.find("one") is not None)
            served.run_for(6.0)
        finally:
            goes_on.set()
        served.until(lambda: served.service.tasks.get("one").readers == 1, "the client reads")
        served.run_for(30.0)
        events = events_of(answer.result(WAIT_S).text)
    assert (events[-1][1], events[-1][2]["outcome"]) == ("result", "complete")


def test_other_files_in_the_folder_of_the_log_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    for name in ("notes.log", "00000001.log.bak", "1.log"):
        (tmp_path / "tasks" / name).write_text("not a record")
    with server(tmp_path) as served:
        assert served.http.get("/readyz").is_success
    assert (tmp_path / "tasks" / "notes.log").read_text() == "not a record"


async def test_a_full_file_that_cannot_be_flushed_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_log, "FILE_BYTES", 1)
    monkeypatch.setattr(RecordFile, "flush", full)
    log = TaskLog(tmp_path, ManualClock(1.0))
    await log.open()
    handles = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        log.write("task", "one")
        await log.durable()
    assert len(os.listdir("/proc/self/fd")) <= handles
    assert "may be lost when this machine fails" in caplog.text
    await log.close()


def test_a_server_starts_on_a_full_disk_and_goes_on_with_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    state, before = cut(tmp_path, "long", seconds=1.5)
    with monkeypatch.context() as disk:
        disk.setattr(RecordFile, "append", full)
        with server(state, now=102.0) as served:
            refused = served.http.post("/v1/tasks", json=body("short", id="two"))
            assert (refused.status_code, refused.json()["where"]) == (503, "state")
            disk.undo()
            served.until(lambda: not served.service.log.problem, "there is room")
            after = rest(served, before[-1][0])
            shutil.copytree(state, tmp_path / "later")
    assert (after[-1][1], after[-1][2]["outcome"]) == ("result", "complete")
    assert caplog.text.count("tasks are not kept any more") == caplog.text.count("tasks are kept again") == 1
    with server(tmp_path / "later", now=170.0) as served:
        assert served.http.get("/v1/tasks/one").json()["outcome"] == "complete"


async def test_that_tasks_are_kept_again_concerns_no_single_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    caplog.handler.setFormatter(JsonLogFormatter())
    log = TaskLog(tmp_path, ManualClock(1.0))
    await log.open()
    with monkeypatch.context() as disk, log_fields({"task_id": "one"}):
        disk.setattr(RecordFile, "append", full)
        log.write("urgency", "one", level=0)
    async with asyncio.timeout(WAIT_S):
        while log.problem:  # noqa: ASYNC110 - the disk is tried again in real time
            await asyncio.sleep(0.001)
    await log.close()
    (line,) = (json.loads(text) for text in caplog.text.splitlines() if "tasks are kept again" in text)
    assert "task_id" not in line


@pytest.mark.parametrize("rename", [False, True])
def test_a_log_that_is_removed_or_renamed_is_written_anew_with_its_records(
    tmp_path: Path, rename: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        reader = Reader(stream)
        events = [reader.next()]
        served.run_for(1.5)
        (file,) = (tmp_path / "first" / "tasks").glob("*.log")
        if rename:
            file.rename(file.with_suffix(".log.1"))
        else:
            file.unlink()
        with served.http.stream("POST", "/v1/tasks", json=body("short", id="two")) as other:
            assert Reader(other).next()[1] == "accepted"
        assert "timely_state_unsaved 0.0" in served.http.get("/metrics").text
        served.run_for(1.5)
        killed = kill(served, reader, events, tmp_path)
    assert f"{file} was removed or renamed" in caplog.text
    with server(killed, now=104.0) as served:
        assert served.http.get("/v1/tasks/two").is_success
        after = rest(served, events[-1][0])
    assert texts(events + after) == whole(tmp_path, "long")


def test_a_removed_log_that_cannot_be_written_anew_admits_no_task_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    folder = tmp_path / "first" / "tasks"
    with (
        server(tmp_path / "first") as served,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        assert Reader(stream).next()[1] == "accepted"
        with monkeypatch.context() as disk:
            disk.setattr(RecordFile, "append_lines", full)
            shutil.rmtree(folder)
            assert served.http.post("/v1/tasks", json=body("short")).status_code == 503
            folder.mkdir()
            assert served.http.get("/readyz").status_code == 503
        served.until(lambda: not served.service.log.problem, "there is room")
        with pytest.raises(EngineFailed, match="another server"), server(tmp_path / "first"):
            pass
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
    with server(tmp_path / "killed", now=104.0) as served:
        assert served.http.get("/v1/tasks/one").is_success


def test_a_folder_that_another_server_has_made_anew_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_log, "CATCH_UP_S", 0.01)
    with server(tmp_path) as served:
        shutil.rmtree(tmp_path / "tasks")
        with server(tmp_path):
            refused = served.http.post("/v1/tasks", json=body("short"))
            assert (refused.status_code, "another server" in refused.json()["detail"]) == (503, True)


def test_a_folder_that_vanishes_admits_no_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The system still takes the records of a file without a name, and no later server would find them."""
    state = tmp_path / "state"
    with (
        server(state) as served,
        served.http.stream("POST", "/v1/tasks", json=body("long", id="one")) as stream,
    ):
        reader = Reader(stream)
        reader.next()
        shutil.rmtree(state)
        served.run_for(1.0)
        assert "timely_state_unsaved 1.0" in served.http.get("/metrics").text
        refused = served.http.post("/v1/tasks", json=body("short"))
        assert (refused.status_code, refused.json()["where"]) == (503, "state")
        served.run_for(60.0)
        assert reader.rest()[-1][1] == "result"
    assert caplog.text.count("tasks are not kept any more") == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_kill_while_a_file_is_begun_loses_no_task(tmp_path: Path, share: float) -> None:
    """The new file is empty, or has a part of its first line, or nothing behind it."""
    state, before = cut(tmp_path, "long", seconds=1.5)
    first = state / "tasks" / "00000001.log"
    header = first.read_bytes().splitlines(keepends=True)[0]
    (state / "tasks" / "00000002.log").write_bytes(header[: int(share * len(header))])
    with server(state, now=102.0) as served:
        with served.http.stream("POST", "/v1/tasks", json=body("long", id="two")) as stream:
            assert Reader(stream).next()[1] == "accepted"
        assert (state / "tasks" / "00000003.log").exists()
        shutil.copytree(state, tmp_path / "again")
    with server(tmp_path / "again", now=103.0) as served:
        assert served.http.get("/v1/tasks/two").json()["state"] == "generating"
        after = rest(served, before[-1][0])
    assert texts(before + after) == whole(tmp_path, "long")
