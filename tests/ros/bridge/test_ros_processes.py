"""The programs as users start them: the fleet in one process, a driver in its own, the example, the set-up script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from bridge_doubles import FakeSegment, FakeServer
from ros_harness import LIMIT_S, Program, eventually
from std_srvs.srv import Trigger
from timely_bridge.node import BridgeNode
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode
from timely_robots.ros.spinner import EXECUTOR_VARIABLE, RosSpinner, isolated_ros_context

from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import ScriptedSegment
from timely.server.app import create_app
from timely.server.server_thread import ServerThread

pytestmark = [pytest.mark.ros]

ROOT = Path(__file__).parents[3]
START_S = 60.0

Start = Callable[..., "Child"]


class Child:
    """A program under test; killed at the end whatever happens."""

    def __init__(self, arguments: list[str], domain_id: int, log: IO[bytes]) -> None:
        environment = {**os.environ, "ROS_DOMAIN_ID": str(domain_id), "PYTHONUNBUFFERED": "1"}
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )

    def said(self) -> str:
        # The program writes at the position of this file, which must not be moved.
        number = self._log.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def wait_for(self, text: str) -> None:
        def there() -> bool:
            assert self.process.poll() is None, f"it ended: {self.said()}"
            return text in self.said()

        eventually(there, f"it never said {text!r}", START_S)

    def end(self, timeout_s: float = LIMIT_S) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._log.close()


@pytest.fixture
def children(tmp_path: Path, domain_id: int) -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for child in made:
        child.close()


@pytest.fixture
def start(children: list[Child], tmp_path: Path, domain_id: int) -> Start:
    def begin(*arguments: str) -> Child:
        log = (tmp_path / f"child{len(children)}.log").open("w+b")
        children.append(Child(list(arguments), domain_id, log))
        return children[-1]

    return begin


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    robot = {"profile": "sim-drone", "skill_set": "drone", "parameters": {"speed": 10.0, "times": "expected"}}
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump({"robots": {"drone1": robot, "drone2": robot}}))
    return file


PLANS = {
    "Go round": [
        ScriptedSegment("mf(100);", 0.25),
        ScriptedSegment("tc(90);", 0.23),
        ScriptedSegment("mu(40);", 0.25),
    ],
    "Stay": [ScriptedSegment("d(60);", 6.0), ScriptedSegment("mf(100);", 0.25)],
}


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(create_app(ScriptedEngine(PLANS, token_s=0.002))) as running:
        yield running


def test_the_example_flies_a_plan_of_the_real_server(
    start: Start, server: ServerThread, fleet_file: Path
) -> None:
    fleet = start("-m", "timely_bridge.run_fleet", "--fleet", str(fleet_file), "--server-url", server.url)
    fleet.wait_for("fleet ready: drone1, drone2")
    assert "stop and goals are kept in" in fleet.said()
    example = start("examples/ros/send_task.py", "drone1", "Go round")
    assert example.end() == 0, example.said()
    lines = example.said().splitlines()
    assert lines[:4] == [
        "segment: mf(100);",
        "segment: tc(90);",
        "segment: mu(40);",
        "complete: mf(100);tc(90);mu(40);",
    ]
    assert lines[4].startswith("response ")
    refused = start("examples/ros/send_task.py", "drone2", "")
    assert refused.end() == 1
    assert "refused: no plan\n" in refused.said()
    assert "error 1000, INVALID_INPUT: task: is empty" in refused.said()
    assert "nan" not in refused.said()
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.end() == 0, fleet.said()


@pytest.mark.parametrize("arguments", [(), ("drone1",), ("drone-1", "Go round"), ("drone1", "Go", "round")])
def test_the_example_says_how_it_is_called(start: Start, arguments: tuple[str, ...]) -> None:
    example = start("examples/ros/send_task.py", *arguments)
    assert example.end(START_S) == 1
    (line,) = example.said().splitlines()
    assert line.startswith("usage: send_task.py ROBOT")


def test_a_fleet_ends_cleanly_in_mid_flight(
    start: Start, server: ServerThread, fleet_file: Path, domain_id: int
) -> None:
    fleet = start("-m", "timely_bridge.run_fleet", "--fleet", str(fleet_file), "--server-url", server.url)
    fleet.wait_for("fleet ready")
    program = Program(domain_id)
    try:
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="Stay")
        eventually(lambda: goal.feedback, "it never began")
        begin = time.monotonic()
        fleet.process.send_signal(signal.SIGTERM)
        assert fleet.end() == 0, fleet.said()
        assert time.monotonic() - begin < 10.0
        assert goal.result().error_code == ErrorCode.BRIDGE_INACTIVE
    finally:
        program.close()


@pytest.mark.parametrize("arguments", [(), ("--one-process",)])
def test_lines_of_a_fleet_in_json_name_robot_task_and_stop(
    start: Start, server: ServerThread, fleet_file: Path, domain_id: int, arguments: tuple[str, ...]
) -> None:
    """Bridge and drivers, also those with a process of their own, write to the same standard error."""
    # The first segment takes a minute, so that it still runs when the stop comes.
    fleet_file.write_text(fleet_file.read_text().replace("speed: 10.0", "speed: 1.0"))
    command = ["-m", "timely_bridge.run_fleet", "--fleet", str(fleet_file), "--server-url", server.url]
    fleet = start(*command, "--log-format", "json", *arguments)
    fleet.wait_for("fleet ready")

    def lines_with(**fields: object) -> list[dict[str, Any]]:
        # The last line may not be whole.
        lines = [json.loads(text) for text in fleet.said().rpartition("\n")[0].splitlines()]
        return [line for line in lines if fields.items() <= line.items()]

    def stops_of(robot: str) -> list[dict[str, Any]]:
        return [line for line in lines_with(robot=robot) if line["message"].startswith("stop: ")]

    program = Program(domain_id)
    try:
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="Stay")
        task_id = eventually(lambda: goal.feedback, "it never began")[0].segment.task_id
        assert program.call(Trigger, "/timely_bridge/stop").success
        assert goal.result().error_code == ErrorCode.FLEET_STOPPED
        ids = {"task_id": task_id, "trace_id": task_id.removeprefix("ros-"), "robot": "drone1"}
        (end,) = eventually(lambda: lines_with(**ids, logger="timely_bridge"), "the bridge never wrote it")
        assert "FLEET_STOPPED" in end["message"]
        of_segment = {**ids, "segment": 0, "logger": "drone1.driver", "level": "INFO"}
        (segment,) = eventually(partial(lines_with, **of_segment), "the driver never wrote it")
        assert "segment 0 cancelled: " in segment["message"]
        (stop,) = eventually(
            lambda: lines_with(message="the fleet was stopped"), "the stop was never written"
        )
        assert stop["stop_id"]
        for robot in ("drone1", "drone2"):
            stops = eventually(partial(stops_of, robot), "a driver never wrote its stop")
            own = {"robot": robot, "driver_stop_id": stops[0]["stop_id"]}
            eventually(
                partial(lines_with, stop_id=stop["stop_id"], **own), "the driver's stop is not the fleet's"
            )
        assert all(line.keys() >= {"time", "level", "logger", "pid", "message"} for line in lines_with())
    finally:
        program.close()
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.end() == 0, fleet.said()


def test_a_fleet_ends_with_the_program_that_started_it(start: Start, fleet_file: Path) -> None:
    fleet = start("-m", "timely_bridge.run_fleet", "--fleet", str(fleet_file), "--until-stdin-closes")
    fleet.wait_for("fleet ready")
    assert fleet.process.stdin is not None
    fleet.process.stdin.close()
    assert fleet.end() == 0, fleet.said()


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("robots: {}", 2, "has no robots"),
        ("{server_url: nope, robots: {drone1: {profile: sim-drone, skill_set: drone}}}", 2, "server_url"),
        (
            "robots: {drone1: {profile: sim-drone, skill_set: drone, driver: submarine}}",
            2,
            "robots.drone1: driver: unknown robot driver",
        ),
        ("robots: {drone1: {profile: sim-drone, skill_set: drone, parameters: {speed: fast}}}", 2, "speed"),
        (
            "robots: {drone1: {profile: no-such, skill_set: drone}}",
            2,
            "robots.drone1: unknown robot profile",
        ),
        (
            "robots: {drone1: {profile: sim-drone, skill_set: dron}}",
            2,
            "robots.drone1: skill_set: unknown skill set",
        ),
        (
            "{bridge: {on_busy: preemt}, robots: {drone1: {profile: sim-drone, skill_set: drone}}}",
            1,
            "on_busy: must be one of",
        ),
        (
            "{bridge: {otlp_endpoint: here}, robots: {drone1: {profile: sim-drone, skill_set: drone}}}",
            1,
            "otlp_endpoint: must be like http://127.0.0.1:4318/v1/traces, not 'here'",
        ),
    ],
)
def test_a_fleet_that_cannot_start_says_why_in_one_line(
    start: Start, tmp_path: Path, text: str, status: int, message: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    fleet = start("-m", "timely_bridge.run_fleet", "--fleet", str(file))
    assert fleet.end(START_S) == status
    (line,) = [line for line in fleet.said().splitlines() if line.startswith("timely_fleet:")]
    assert message in line
    assert "Traceback" not in fleet.said()


@pytest.mark.parametrize(
    ("module", "name", "parameter"),
    [
        ("timely_bridge.main", "timely_bridge", "heartbeat_period_s:=fast"),
        ("timely_bridge.main", "timely_bridge", "heartbeat_period_s:=0.0"),
        ("timely_robots.main", "timely_driver", "speed:=fast"),
    ],
)
def test_a_node_with_a_wrong_parameter_says_so_in_one_line(
    start: Start, module: str, name: str, parameter: str
) -> None:
    node = start("-m", module, "--ros-args", "-p", parameter)
    assert node.end(START_S) == 2
    (line,) = [line for line in node.said().splitlines() if line.startswith(f"{name}:")]
    assert parameter.partition(":")[0] in line
    assert "Traceback" not in node.said()


@pytest.mark.parametrize("module", ["timely_bridge.main", "timely_robots.main"])
def test_an_unknown_executor_is_one_line(start: Start, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv(EXECUTOR_VARIABLE, "several")
    node = start("-m", module)
    assert node.end(START_S) == 2
    assert f"{EXECUTOR_VARIABLE}: must be events or single, got 'several'" in node.said()
    assert "Traceback" not in node.said()


def test_each_program_explains_itself(start: Start) -> None:
    for module, name in (
        ("timely_bridge.main", "timely_bridge"),
        ("timely_bridge.run_fleet", "timely_fleet"),
    ):
        program = start("-m", module, "--help")
        assert program.end(START_S) == 0
        assert program.said().startswith(f"usage: {name} ")


def test_a_fleet_without_a_folder_for_its_logs_says_so(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_LOG_DIR", "/proc/none")
    file = tmp_path / "fleet.yaml"
    file.write_text("robots: {drone1: {profile: sim-drone, skill_set: drone}}")
    fleet = start("-m", "timely_bridge.run_fleet", "--fleet", str(file))
    assert fleet.end(START_S) == 1
    assert "timely_fleet: ROS 2: failed to initialize logging" in fleet.said()
    assert "Traceback" not in fleet.said()


def test_a_driver_that_is_killed_loses_its_task_and_a_new_one_takes_the_next(
    start: Start, domain_id: int
) -> None:
    plans = {"stay": [FakeSegment("d(60);", 60.0)], "go": [FakeSegment("mf(100);", 2.5)]}
    server = FakeServer(plans)
    context = isolated_ros_context(domain_id)
    settings = {"robots": ["drone1"], "drone1.profile": "sim-drone", "drone1.skill_set": "drone"}
    bridge = BridgeNode(
        context=context,
        overrides={**settings, "driver_silence_s": 2.5, "driver_timeout_s": 2.0},
        client_factory=server,
    )
    bridge.trigger_configure()
    bridge.trigger_activate()
    spinner = RosSpinner(context, [bridge], name="bridge").start()
    program = Program(domain_id)
    command = ["-m", "timely_robots.main", "--kind", "sim", "--ros-args", "-r", "__ns:=/drone1"]
    command += [
        "-p",
        "profile:=sim-drone",
        "-p",
        "skill_set:=drone",
        "-p",
        "autostart:=true",
        "-p",
        "speed:=20.0",
    ]

    def served() -> bool:
        result = program.send(ExecuteTask, "/drone1/execute_task", task="go").result()
        return bool(result.outcome == "complete")

    try:
        driver = start(*command)
        eventually(served, "the driver was never found", START_S)
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="stay")
        task_id = eventually(lambda: goal.feedback, "no segment came")[0].segment.task_id
        eventually(lambda: ("started", 0) in server.kinds(task_id), "it never began")
        driver.process.kill()
        begin = time.monotonic()
        result = goal.result()
        assert (result.outcome, result.error_code) == ("failed", ErrorCode.DRIVER_LOST)
        assert time.monotonic() - begin < 5.0
        result = program.send(ExecuteTask, "/drone1/execute_task", task="go").result()
        assert result.error_code == ErrorCode.DRIVER_UNAVAILABLE
        again = start(*command)
        eventually(served, "the new driver was never found", START_S)
        again.process.send_signal(signal.SIGINT)
        assert again.end() == 0, again.said()
    finally:
        program.close()
        bridge.settle(5.0)
        assert spinner.close()
