"""The demonstration as its user runs it: to its end, and stopped while it loads, while robots fly and by impatience."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ros_harness import LIMIT_S, eventually

pytestmark = [pytest.mark.ros]

START_S = 60.0
END_S = 60.0


class Demo:
    """``timely demo`` in a terminal of its own; all that it starts carries a mark."""

    def __init__(self, folder: Path, domain_id: int, *arguments: str) -> None:
        self.out = folder / "out"
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self._said = folder / "said.txt"
        self._mark = f"TIMELY_TEST_MARK={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        command = [
            sys.executable,
            "-m",
            "timely.cli.main",
            "demo",
            "--engine",
            "scripted",
            "--out",
            str(self.out),
        ]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*command, *arguments],
                env={
                    **os.environ,
                    "ROS_DOMAIN_ID": str(domain_id),
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": str(self.scratch),
                    name: value,
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def processes(self) -> list[int]:
        """The ids of all that runs on its behalf."""
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue  # it has ended, or is not ours
                if self._mark.encode() in environment:
                    pids.append(int(entry.name))
        return pids

    def leaves_nothing(self) -> None:
        """Wait until all that it started has ended."""
        deadline = time.monotonic() + LIMIT_S
        while left := self.processes():
            commands = [_command(pid) for pid in left]
            assert time.monotonic() < deadline, f"it left behind: {commands}"
            time.sleep(0.05)

    def wait_until(self, true: Any, message: str) -> None:
        def there() -> bool:
            assert self.process.poll() is None, f"it ended: {self.said()}"
            return bool(true())

        eventually(there, message, START_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "ended"


@pytest.fixture
def demo(tmp_path: Path, domain_id: int) -> Iterator[Any]:
    made: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        made.append(Demo(tmp_path, domain_id, *arguments))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_every_robot_is_served_and_the_picture_is_drawn(demo: Any, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    run = demo("--seconds", "17.5", "--seed", "3", "--json", str(whole))
    assert run.process.wait(17.5 + START_S + END_S) == 0, run.said()
    result = json.loads((run.out / "result.json").read_text())
    assert result == json.loads(whole.read_text())
    assert {task["agent"] for task in result["tasks"]} == {"drone1", "drone2", "arm1"}
    assert {task["outcome"] for task in result["tasks"]} == {"complete"}
    assert len(result["ros_results"]) == len(result["tasks"]) >= 3
    for task in result["tasks"]:
        # Each segment went to its robot once, was executed, and in order.
        starts = [segment["start_s"] for segment in task["segments"]]
        assert starts
        assert starts == sorted(starts)
        assert all(segment["done"] for segment in task["segments"])
    assert (run.out / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert "What the robots saw" in run.said()
    run.leaves_nothing()
    assert not list(run.scratch.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["while it loads", "while robots fly"])
def test_it_can_be_stopped_at_any_time(demo: Any, when: str, number: signal.Signals) -> None:
    run = demo("--seconds", "600")
    if when == "while it loads":
        run.wait_until(lambda: len(run.processes()) > 1, "it started nothing")
    else:
        run.wait_until(lambda: "arm1" in run.said() and len(run.processes()) > 3, "the robots never came")
    run.process.send_signal(number)
    assert run.process.wait(END_S) == 130, run.said()
    assert "Traceback" not in run.said()
    run.leaves_nothing()
    assert not list(run.scratch.iterdir())
    assert not list(run.out.iterdir())


def test_impatience_leaves_nothing_behind(demo: Any) -> None:
    """Ctrl-C again and again, while it ends what it started."""
    run = demo("--seconds", "600")
    run.wait_until(lambda: "arm1" in run.said() and len(run.processes()) > 3, "the robots never came")

    def ended() -> bool:
        run.process.send_signal(signal.SIGINT)
        return run.process.poll() is not None

    eventually(ended, "it never ended", END_S)
    # Once everything has ended, Python itself may still be told while it closes down.
    assert run.process.returncode in (130, -signal.SIGINT)
    run.leaves_nothing()
    assert not list(run.scratch.iterdir())
    assert not list(run.out.iterdir())


def test_an_engine_that_does_not_exist_is_one_line(demo: Any) -> None:
    run = demo("--engine", "abacus")
    assert run.process.wait(START_S) == 2
    assert run.said().strip().splitlines()[-1].count("abacus") == 1
    assert "Traceback" not in run.said()
    assert not run.processes()
