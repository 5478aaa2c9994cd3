"""A fleet's recording: everything is in it, whatever reads MCAP can read it, it stays bounded, and it replays."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridge_doubles import FakeSegment, FakeServer
from ros_harness import AT_ONCE_S, Program, eventually
from timely_bridge.fleet import parse_bridge_fleet
from timely_bridge.recorder import (
    BridgeMcapFiles,
    BridgeRecordingBounds,
    bridge_mcap_definition,
    bridge_recording_bounds,
)
from timely_bridge.recorder import main as record_command
from timely_bridge.run_fleet import start_bridge_fleet
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import RobotState, Segment, SegmentReport, Task
from timely_robots.main import main as driver_command

from lrtrace.cli import run_lrtrace_command
from lrtrace.importers.mcap_file import import_mcap
from timely.cli.main import run_timely_command as timely
from timely.core.errors import InvalidInput

pytest.importorskip("mcap_ros2")
pytestmark = [pytest.mark.ros]

SCRIPTS = {
    "up and look": [
        FakeSegment("mu(40);", 2.5),
        FakeSegment("iv('cat');", 0.001),
        FakeSegment("md(40);", 2.6),
    ],
    "tidy": [FakeSegment("pick('cup');", 3.5), FakeSegment("place('plate');", 3.5)],
    "far": [FakeSegment("mf(9999);", 1.0)],
}
ROBOTS = {
    "drone1": {"profile": "sim-drone", "skill_set": "drone", "parameters": {"speed": 20.0}},
    "arm1": {"profile": "sim-arm", "skill_set": "arm", "parameters": {"speed": 20.0}},
}


def record(
    folder: Path, domain_id: int, tasks: list[tuple[str, str]], bounds: BridgeRecordingBounds
) -> BridgeMcapFiles:
    files = BridgeMcapFiles(folder / "day.mcap", bounds)
    fleet = start_bridge_fleet(
        parse_bridge_fleet({"server_url": "http://fake", "robots": ROBOTS}),
        domain_id=domain_id,
        client_factory=FakeServer(SCRIPTS, ahead=0),
        recording=files,
    )
    program = Program(domain_id)
    try:
        for robot, task in tasks:
            program.send(ExecuteTask, f"/{robot}/execute_task", task=task, scene="a room").result()
        eventually(lambda: files.message_count > 8 * len(tasks))
    finally:
        program.close()
        assert fleet.close()
    assert (files.failure, files.dropped_count) == ("", 0)
    return files


def test_a_recorded_day_replays(tmp_path: Path, domain_id: int, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [("drone1", "up and look"), ("arm1", "tidy"), ("drone1", "far"), ("drone1", "up and look")]
    files = record(tmp_path, domain_id, tasks, BridgeRecordingBounds())
    (path,) = files.files
    recorded = import_mcap(path)
    assert [(task.agent, task.task, task.robot, task.outcome) for task in recorded] == [
        ("drone1", "up and look", "sim-drone", "complete"),
        ("arm1", "tidy", "sim-arm", "complete"),
        ("drone1", "far", "sim-drone", "failed"),
        ("drone1", "up and look", "sim-drone", "complete"),
    ]
    for task, (_, name) in zip(recorded, tasks, strict=True):
        assert task.scene == "a room"
        assert [segment.text for segment in task.segments.values()] == [part.text for part in SCRIPTS[name]]
    first = recorded[0].segments
    # A twentieth of the time of the profile, as the simulated robot took it.
    assert 0.05 < first[0].elapsed_s < AT_ONCE_S
    trace, result = tmp_path / "day.lrtrace.jsonl", tmp_path / "result.json"
    assert run_lrtrace_command(["record", str(path), "-o", str(trace)]) == 0
    assert timely(["replay", str(trace), "--json", str(result)]) == 0
    jobs = json.loads(result.read_text())["jobs"]
    assert [job["outcome"] for job in jobs] == ["complete"] * 4
    assert [len(job["segments"]) for job in jobs] == [3, 2, 1, 3]


def test_every_message_is_there_with_its_definition(tmp_path: Path, domain_id: int) -> None:
    """As a reader sees it that knows MCAP and ROS 2 messages, and nothing of ours: Foxglove's way."""
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    files = record(tmp_path, domain_id, [("drone1", "up and look")], BridgeRecordingBounds())
    counts: dict[str, int] = {}
    with files.files[0].open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        assert reader.get_header().profile == "ros2"
        for schema, channel, _, message in reader.iter_decoded_messages():
            assert schema.encoding == "ros2msg"
            assert schema.name == f"timely_interfaces/msg/{schema.name.rpartition('/')[2]}"
            counts[channel.topic] = counts.get(channel.topic, 0) + 1
            if channel.topic == "/drone1/state":
                assert message.driver == "sim"
                assert message.pose.orientation.w == pytest.approx(1.0)
    assert counts["/drone1/segments"] == 3
    assert counts["/drone1/segment_reports"] >= 6
    assert counts["/drone1/task"] >= 2
    assert counts["/arm1/state"] >= 1
    assert sum(counts.values()) == files.message_count
    with files.files[0].open("rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        topics = {channel.id: channel.topic for channel in summary.channels.values()}
        counted = {
            topics[number]: count for number, count in summary.statistics.channel_message_counts.items()
        }
        assert counted == counts
        # A player that jumps to a time needs these, and that time goes forward.
        assert len(summary.chunk_indexes) == summary.statistics.chunk_count >= 1
        assert all(chunk.message_index_offsets for chunk in summary.chunk_indexes)
        times = [
            (kept.log_time, kept.publish_time) for _, _, kept in reader.iter_messages(log_time_order=False)
        ]
        assert times == sorted(times)
        assert all(log == published for log, published in times)


def message(text: str) -> bytes:
    from rclpy.serialization import serialize_message

    return bytes(serialize_message(Segment(task_id="a", index=0, text=text)))


def test_a_full_recording_goes_on_in_the_next_file_and_forgets_the_oldest(tmp_path: Path) -> None:
    files = BridgeMcapFiles(tmp_path / "day.mcap", BridgeRecordingBounds(file_bytes=200_000, files=3))
    rng = random.Random(1)
    for index in range(3000):
        noise = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=400))
        eventually(lambda: files._queue.qsize() < 5000)
        files.write(
            "/drone1/segments",
            "timely_interfaces/msg/Segment",
            bridge_mcap_definition(Segment),
            index,
            message(noise),
        )
    assert files.close()
    assert files.message_count == 3000
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 3
    assert "day_0.mcap" not in left
    assert all(path.stat().st_size < 400_000 for path in tmp_path.iterdir())


def test_a_recording_that_is_started_again_keeps_what_was_recorded(tmp_path: Path) -> None:
    """The program may have crashed, and its last messages say why."""
    (tmp_path / "day_old.mcap").write_text("another's")
    for number in range(9, 12):
        (tmp_path / f"day_{number}.mcap").write_text("before")
    files = BridgeMcapFiles(tmp_path / "day.mcap", BridgeRecordingBounds(files=3))
    assert files.close()
    assert [path.name for path in files.files] == ["day_12.mcap"]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["day_10.mcap", "day_11.mcap", "day_12.mcap", "day_old.mcap"]
    assert (tmp_path / "day_11.mcap").read_text() == "before"


def test_the_files_of_one_recording_are_one_day(tmp_path: Path) -> None:
    """A task that began in one file and ended in the next is one task."""
    from rclpy.serialization import serialize_message

    files = BridgeMcapFiles(tmp_path / "day.mcap", BridgeRecordingBounds(file_bytes=1, files=100))

    def write(topic: str, value: Any, at_s: float) -> None:
        kind = type(value)
        data = bytes(serialize_message(value))
        files.write(
            f"/drone1/{topic}",
            f"timely_interfaces/msg/{kind.__name__}",
            bridge_mcap_definition(kind),
            int(at_s * 1e9),
            data,
        )

    def task(phase: int, **more: Any) -> Task:
        return Task(task_id="t", robot="drone1", task="go", skill_set="drone", phase=phase, **more)

    write("task", task(Task.PLANNING), 100.0)
    write("state", RobotState(robot="tello", driver="tello"), 100.1)
    write("segments", Segment(task_id="t", index=0, text="mu(40);", tokens=4, execution_s=2.5), 100.2)
    write("task", task(Task.PLANNING), 101.0)
    report = SegmentReport(task_id="t", segment=0, kind=SegmentReport.DONE, elapsed_s=2.75)
    write("segment_reports", report, 103.0)
    write("task", task(Task.ENDED, outcome="complete"), 103.1)
    assert files.close()
    assert len(files.files) > 3
    (recorded,) = import_mcap(*files.files)
    assert (recorded.arrival_s, recorded.outcome, recorded.robot) == (100.0, "complete", "tello")
    assert recorded.segments[0].elapsed_s == 2.75
    trace = tmp_path / "day.lrtrace.jsonl"
    assert run_lrtrace_command(["record", *map(str, reversed(files.files)), "-o", str(trace)]) == 0
    assert len(trace.read_text().splitlines()) == 2


def test_a_recording_whose_next_file_cannot_be_written_ends_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "unplugged"
    folder.mkdir()
    files = BridgeMcapFiles(folder / "day.mcap", BridgeRecordingBounds(file_bytes=1, files=100))
    shutil.rmtree(folder)
    for index in range(3):
        files.write(
            "/drone1/segments",
            "timely_interfaces/msg/Segment",
            bridge_mcap_definition(Segment),
            index,
            message("x" * 100_000),
        )
    eventually(lambda: files.failure, "it records nothing and says nothing")
    assert not files.close()


@pytest.fixture
def own_signal_handlers() -> Iterator[None]:
    """The handlers that a program sets are gone after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signal_handlers")
def test_drivers_of_several_robots_in_one_namespace_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert driver_command(["--robots", "one", "two", "--ros-args", "-r", "__ns:=/hall"]) == 2
    assert "one namespace" in capsys.readouterr().err


@pytest.mark.usefixtures("own_signal_handlers")
@pytest.mark.parametrize("names", [["a b"], ["a/../b"], [""], ["ä"], ["drone1", "drone1"]])
@pytest.mark.parametrize("command", [record_command, driver_command])
def test_names_that_cannot_be_namespaces_are_refused(
    command: Callable[[list[str]], int], names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--output", str(tmp_path / "day.mcap")] if command is record_command else []
    assert command(["--robots", *names, *files]) == 2
    line = capsys.readouterr().err
    assert "--robots" in line
    assert line.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        BridgeMcapFiles(tmp_path / "no" / "such" / "folder" / "day.mcap")
    with pytest.raises(InvalidInput, match="at least"):
        bridge_recording_bounds(0.0, 4)
