"""What killed programs left in shared memory is removed, and nothing that anybody uses."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from timely_robots.ros import shared_memory
from timely_robots.ros.shared_memory import clean_ros_shared_memory

SEGMENT, PORT = "fastdds_0b40781c01e238b7", "fastdds_port7411"


@pytest.fixture(autouse=True)
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "YOUNG_S", -1.0)


def left_behind(folder: Path) -> set[str]:
    names = {SEGMENT, f"{SEGMENT}_el", PORT, f"{PORT}_sl", f"sem.{PORT}_mutex"}
    for name in names:
        (folder / name).write_bytes(b"x")
    return names


def test_what_nobody_has_locked_goes_and_nothing_else(tmp_path: Path) -> None:
    others = {"psm_cc073561", "sem.loky-1", "fastdds_notes.txt", "fastdds_port7412x", "lttng-ust-wait-6"}
    for name in others:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "fastdds_1b40781c01e238b7").mkdir()
    names = left_behind(tmp_path)
    assert set(clean_ros_shared_memory(tmp_path)) == names
    assert {path.name for path in tmp_path.iterdir()} == others | {"fastdds_1b40781c01e238b7"}
    assert clean_ros_shared_memory(tmp_path) == []


@pytest.mark.parametrize("lock", [f"{SEGMENT}_el", f"{PORT}_sl"])
@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_what_is_locked_stays_whole(tmp_path: Path, lock: str, kind: int) -> None:
    names = left_behind(tmp_path)
    with (tmp_path / lock).open("rb") as used:
        fcntl.flock(used, kind)
        owner = lock.removesuffix("_el").removesuffix("_sl")
        assert {name for name in names if owner in name}.isdisjoint(clean_ros_shared_memory(tmp_path))
        assert (tmp_path / owner).exists()
    clean_ros_shared_memory(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_was_only_just_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "YOUNG_S", 30.0)
    left_behind(tmp_path)
    assert clean_ros_shared_memory(tmp_path) == []


def test_where_there_is_no_shared_memory_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert clean_ros_shared_memory(tmp_path / "none") == []


def test_a_port_whose_reader_ended_in_good_order_stays(tmp_path: Path) -> None:
    """Its lock file is gone, and others may write to it."""
    files = {PORT, f"sem.{PORT}_mutex"}
    for name in files:
        (tmp_path / name).write_bytes(b"x")
    assert clean_ros_shared_memory(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == files


PROGRAM = """
import sys, time
import rclpy
from std_msgs.msg import Empty
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context

context = isolated_ros_context()
node = rclpy.create_node("x", context=context)
node.create_subscription(Empty, "a", print, 1)
publisher = node.create_publisher(Empty, "a", 1)
spinner = RosSpinner(context, [node]).start()
while publisher.get_subscription_count() < 2:
    time.sleep(0.001)
print("up", flush=True)
sys.stdin.read()
spinner.close()
"""


@pytest.mark.ros
@pytest.mark.timeout(60)
def test_what_a_killed_program_locked_goes_and_a_living_one_keeps_all(domain_id: int) -> None:
    """With the real middleware: its files, its locks. The living one keeps also ports of one that has ended."""
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(domain_id),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    del environment["FASTDDS_DEFAULT_PROFILES_FILE"]  # the other tests do without shared memory
    before = names_there()
    command, pipe = [sys.executable, "-c", PROGRAM], subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as program,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as other,
    ):
        try:
            for each in (program, other):
                assert each.stdout is not None
                assert each.stdout.readline() == b"up\n"
            others = {name for name in names_there() - before if held_by(other.pid, name)}
            other.communicate(timeout=10.0)
            mine = {name for name in names_there() - before if held_by(program.pid, name)}
            assert mine, "it uses no shared memory: then all this is not needed"
            assert any("port" in name for name in mine & others), "it writes to no port of the other"
            assert mine.isdisjoint(clean_ros_shared_memory())
            assert mine <= names_there()
        finally:
            other.kill()
            program.send_signal(signal.SIGKILL)
            program.wait(10.0)
    locked = {name for name in mine if mine & {f"{name}_el", f"{name}_sl"}}
    clean_ros_shared_memory()
    assert locked
    assert locked.isdisjoint(names_there())


def names_there() -> set[str]:
    return {path.name for path in shared_memory.FOLDER.iterdir()}


def held_by(pid: int, name: str) -> bool:
    """The program has this file open or mapped: others make files there, too."""
    path = str(shared_memory.FOLDER / name)
    if path in Path(f"/proc/{pid}/maps").read_text():
        return True
    return any(os.readlink(link) == path for link in Path(f"/proc/{pid}/fd").iterdir())
