"""A process for each driver: one that ends takes one robot with it, and is started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bridge_doubles import FakeSegment, FakeServer
from emulated_robots import emulated_tello, own_host
from fleet_world import World, a_fleet
from ros_harness import eventually
from timely_bridge import driver_processes, run_fleet
from timely_bridge.driver_processes import BridgeDriverProcesses
from timely_bridge.fleet import parse_bridge_fleet
from timely_interfaces.msg import ErrorCode, RobotState

from timely.core.child_process import core_module_command
from timely.core.errors import EngineFailed

pytestmark = [pytest.mark.ros, pytest.mark.process]

START_S = 60.0
BATTERIES = {"drone1": 90.0, "drone2": 50.0}
SCRIPTS = {
    "far": [FakeSegment("mf(200);", 2.0), FakeSegment("mb(200);", 2.0)],
    "near": [FakeSegment("tc(30);", 1.0)],
}


def test_a_driver_that_is_killed_is_started_again_and_the_others_fly_on(
    domain_id: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        drones = {
            name: stack.enter_context(emulated_tello(own_host(110 + n), battery=battery))
            for n, (name, battery) in enumerate(BATTERIES.items())
        }
        robots = {
            name: {
                "driver": "tello",
                "profile": "tello",
                "skill_set": "drone",
                "parameters": {"host": drone.address[0], "command_port": drone.address[1]},
            }
            for name, drone in drones.items()
        }
        bridge = {"driver_silence_s": 2.5}
        fleet = parse_bridge_fleet({"server_url": "http://fake", "robots": robots, "bridge": bridge})
        processes = BridgeDriverProcesses(fleet, tmp_path, domain_id=domain_id)
        here = World(domain_id, fleet, FakeServer(SCRIPTS, ahead=0), processes=processes)
        try:
            states = {
                name: here.program.listen(RobotState, f"/{name}/state", latched=True) for name in drones
            }
            goals = [here.task(robot, "far") for robot in drones]
            eventually(lambda: all(goal.feedback for goal in goals), "they never began")
            killed = processes.pid("drone1")
            os.kill(killed, signal.SIGKILL)
            assert goals[0].result().error_code == ErrorCode.DRIVER_LOST
            assert goals[1].result().outcome == "complete"
            flown = [record["command"] for record in drones["drone2"].journal.records("motion")]
            assert flown == ["takeoff", "forward 200", "back 200"]
            eventually(lambda: processes.restarts["drone1"] == 1, "it was not started again", START_S)
            eventually(
                lambda: here.task("drone1", "near").result().outcome == "complete",
                "it takes nothing",
                START_S,
            )
            assert processes.pid("drone1") not in (0, killed)
            assert processes.restarts["drone2"] == 0
            assert "ended with signal SIGKILL; it starts again in 0.5 s" in caplog.text
            for name, battery in BATTERIES.items():
                assert states[name][-1].battery == pytest.approx(0.01 * battery, abs=0.2)
        finally:
            here.close()
    assert processes.pid("drone2") == 0


def test_a_driver_that_does_not_start_is_started_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processes = BridgeDriverProcesses(a_fleet(1, 0), tmp_path)
    process = processes._processes["drone1"]

    def refuse(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(driver_processes, "ChildProcess", refuse)
    process.due_s = 0.0
    processes._check(process)
    assert "did not start: [Errno 11] no more processes; it starts again in 0.5 s" in caplog.text
    assert process.due_s > 0.0
    assert process.restart_s == 1.0


def test_a_driver_that_does_not_end_is_killed_and_the_log_says_where_it_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_processes, "STOP_S", 0.1)
    monkeypatch.setattr(driver_processes, "STACKS_S", START_S)
    file = tmp_path / "hanging.py"
    file.write_text(
        "import signal, time\n\ndef hang():\n    print('ready', flush=True)\n    time.sleep(600)\n\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nhang()\n"
    )
    processes = BridgeDriverProcesses(a_fleet(1, 0), tmp_path)
    process = processes._processes["drone1"]
    process.command = core_module_command(str(file))
    processes._start(process)
    assert process.child is not None
    process.child.wait_for_line("ready", START_S)
    assert not processes.close()
    assert "the driver of drone1 did not end within 0.1 s and is killed; its threads:" in caplog.text
    assert "in hang" in caplog.text


def test_an_interrupted_start_waits_for_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may take a minute until it is ready, or a fault."""
    monkeypatch.setattr(run_fleet, "START_S", 5.0)
    bridge: Any = SimpleNamespace(
        drivers_ready=lambda: {"drone1": False}, driver_faults=lambda: {"drone1": ""}
    )
    processes: Any = SimpleNamespace(failure=lambda name: "")
    stop = threading.Event()
    stop.set()
    run_fleet._wait_for_bridge_drivers(bridge, processes, stop)


@pytest.mark.parametrize("count", [30, 31])
def test_a_fleet_of_many_processes_that_does_not_start_hears_of_the_option_for_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_fleet, "START_S", -1.0)
    names = {f"drone{number}": number > 0 for number in range(count)}
    bridge: Any = SimpleNamespace(drivers_ready=lambda: names, driver_faults=lambda: dict.fromkeys(names, ""))
    processes: Any = SimpleNamespace(failure=lambda name: "")
    with pytest.raises(EngineFailed, match="no state of the driver of drone0 within") as failure:
        run_fleet._wait_for_bridge_drivers(bridge, processes, threading.Event())
    assert ("--one-process" in str(failure.value)) == (count > 30)


@pytest.mark.parametrize("line", ["3", "null", "{}", '"text"', "[]", "no JSON"])
def test_the_last_line_of_a_driver_may_be_any_json(tmp_path: Path, line: str) -> None:
    processes = BridgeDriverProcesses(a_fleet(1, 0), tmp_path)
    process = processes._processes["drone1"]
    process.due_s = 0.0
    process.log.write_text(f"{line}\n")
    assert processes.failure("drone1") == line


SPEAKING_DRIVER = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
print("first" * 500, flush=True)
signal.sigwait([signal.SIGUSR2])
print("second", flush=True)
signal.sigwait([signal.SIGUSR2])
print("third" * 500, flush=True)
"""


@pytest.mark.parametrize("with_json_log", [False, True])
def test_the_log_of_a_driver_that_runs_for_months_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_json_log: bool
) -> None:
    monkeypatch.setattr(driver_processes, "LOG_BYTES", 1000)
    lines: list[str] = []
    json_log: Any = SimpleNamespace(write_printed=lines.append) if with_json_log else None
    processes = BridgeDriverProcesses(a_fleet(1, 0), tmp_path, json_log=json_log)
    process = processes._processes["drone1"]
    process.command = [sys.executable, "-c", SPEAKING_DRIVER]
    processes._start(process)
    assert process.child is not None
    try:
        process.child.wait_for_line("first", START_S)
        processes._check_logs()
        assert process.log.read_text() == ""
        process.child.signal(signal.SIGUSR2)
        process.child.wait_for_line("second", START_S)
        processes._check_logs()
        assert process.log.read_text() == "second\n", "it is written behind what was removed"
        process.child.signal(signal.SIGUSR2)
        process.child.wait_for_line("third", START_S)
    finally:
        processes.close()
    assert lines == (["first" * 500, "second", "third" * 500] if with_json_log else [])
    assert "third" in process.log.read_text(), "the last words of a driver that has ended are gone"


def json_lines(script: str, **environment: str) -> list[dict[str, Any]]:
    """The lines that a program writes."""
    paths = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=START_S,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=True,
    )
    return [json.loads(line) for line in result.stderr.splitlines()]


CRASH = """
import json, os, sys
print(json.dumps({"logger": "timely_driver", "message": "stopped"}))
print("timely_driver: no profile")
print(json.dumps({"logger": "drone1.driver", "message": "stopped"}))
print("[WARN] [1.5] [drone1.driver]: stopped")
print("[ERROR] [1.5] [rmw_fastrtps_cpp]: no memory", flush=True)
os.write(2, b"terminate called")
os.abort()
"""


def test_in_json_the_last_words_of_a_driver_that_crashes_name_its_robot(tmp_path: Path) -> None:
    """A vendor's library prints past all loggers before it ends the process."""
    script = f"""
import json, sys, time
from pathlib import Path
from fleet_world import a_fleet
from timely.core.child_process import core_module_command
from timely_bridge.driver_processes import BridgeDriverProcesses
from timely_robots.ros.json_log import start_ros_json_log
processes = BridgeDriverProcesses(a_fleet(1, 0), Path({str(tmp_path)!r}), json_log=start_ros_json_log())
process = processes._processes["drone1"]
process.command = [sys.executable, "-c", {CRASH!r}]
processes._start(process)
process.child._process.wait()
processes.close()
"""
    entries = [(line["logger"], line["message"], line.get("robot")) for line in json_lines(script)]
    assert entries == [
        ("timely_driver", "stopped", "drone1"),
        ("timely_driver", "no profile", "drone1"),
        ("drone1.driver", "stopped", "drone1"),
        ("rmw_fastrtps_cpp", "no memory", "drone1"),
        ("output", "terminate called", "drone1"),
    ]


NODE_LINE = """
import rclpy.logging
from timely_robots.ros.json_log import start_ros_json_log
start_ros_json_log()
rclpy.logging.get_logger("drone1.driver").warning("stopped")
"""


@pytest.mark.parametrize(
    "environment", [{"RCUTILS_COLORIZED_OUTPUT": "1"}, {"RCUTILS_CONSOLE_OUTPUT_FORMAT": "{name}: {message}"}]
)
def test_in_json_a_format_of_the_user_makes_no_second_line(environment: dict[str, str]) -> None:
    lines = json_lines(NODE_LINE, **environment)
    assert [(line["logger"], line["message"]) for line in lines] == [("drone1.driver", "stopped")]
