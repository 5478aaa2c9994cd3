"""A fleet of real drivers behind the bridge: three Tellos and two Indy7 at once, and the example robot."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from bridge_doubles import FakeSegment, FakeServer
from emulated_robots import emulated_indy7, emulated_tello, own_host
from ros_harness import AT_ONCE_S, LIMIT_S, Program, eventually
from timely_bridge.fleet import load_bridge_fleet, parse_bridge_fleet
from timely_bridge.run_fleet import start_bridge_fleet
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import TimeUtility as Tuf
from timely_robots.registry import robot_class
from timely_robots.robot import Robot

from timely.core.errors import InvalidInput

pytestmark = [pytest.mark.ros]

EXAMPLES = Path(__file__).parents[3] / "examples" / "robots"
FLIGHTS = {
    "look": ["mf(41);", "?s('cat')==True{", "g('cat')}", "mb(42);"],
    "square": ["mf(31);", "tc(90);", "mf(32);", "tc(91);", "mf(33);"],
    "rise": ["mu(44);", "?iv('cat')==True{tp()}", "md(43);"],
    "flee": ["mb(52);", "tc(53);"],
}
PICKS = {
    "tidy": ["pick('cup');", "place('plate');", "home();"],
    "show": ["move_to('plate');", "look('plate');"],
}
COMMANDS = {"mf": "forward", "mb": "back", "mu": "up", "md": "down", "tc": "cw", "tu": "ccw"}


def expected_commands(segments: list[str]) -> list[str]:
    """What a Tello must be told for these segments, as far as they say it themselves."""
    calls = re.findall(r"\b(mf|mb|mu|md|tc|tu)\((\d+)\)", "".join(segments))
    return [f"{COMMANDS[skill]} {amount}" for skill, amount in calls]


def test_every_action_of_five_robots_was_in_a_segment_that_was_sent_once_and_in_order(domain_id: int) -> None:
    scripts = {
        task: [FakeSegment(text, 1.0) for text in segments] for task, segments in {**FLIGHTS, **PICKS}.items()
    }
    server = FakeServer(scripts, ahead=0)
    with ExitStack() as stack:
        drones = {f"drone{n}": stack.enter_context(emulated_tello(own_host(80 + n))) for n in (1, 2, 3)}
        arms = {f"arm{n}": stack.enter_context(emulated_indy7(own_host(90 + n))) for n in (1, 2)}
        robots: dict[str, Any] = {}
        for name, drone in drones.items():
            parameters = {"host": drone.address[0], "command_port": 18889, "things": ["cat:40:150"]}
            robots[name] = {
                "driver": "tello",
                "profile": "tello",
                "skill_set": "drone",
                "parameters": parameters,
            }
        for name, arm in arms.items():
            things = ["cup:0.45,-0.1,0.1", "plate:0.4,0.2,0.1"]
            parameters = {"host": arm.host, "things": things, "speed_percent": 60.0}
            robots[name] = {
                "driver": "indy7",
                "profile": "indy7",
                "skill_set": "arm",
                "parameters": parameters,
            }
        fleet = start_bridge_fleet(
            parse_bridge_fleet(
                {"server_url": "http://fake", "robots": robots, "bridge": {"on_busy": "preempt"}}
            ),
            domain_id=domain_id,
            client_factory=server,
        )
        program = Program(domain_id)
        try:
            tasks = {"drone1": "look", "drone2": "square", "drone3": "rise", "arm1": "tidy", "arm2": "show"}
            goals = {
                robot: program.send(ExecuteTask, f"/{robot}/execute_task", task=task)
                for robot, task in tasks.items()
            }
            # One drone is called away in mid-plan.
            eventually(lambda: len(goals["drone2"].feedback) >= 3, timeout_s=40.0)
            urgent = program.send(
                ExecuteTask, "/drone2/execute_task", task="flee", tuf=Tuf(ert_s=0.2, beta=2.0, alpha=-6.67)
            )
            assert urgent.result(60.0).outcome == "complete"
            results = {robot: goal.result(60.0) for robot, goal in goals.items()}
            outcomes = {robot: result.outcome for robot, result in results.items()}
            expected = dict.fromkeys(tasks, "complete")
            # A short rest of the square may have been over before the urgent task was there.
            assert outcomes in (expected, {**expected, "drone2": "cancelled"})
        finally:
            program.close()
            assert fleet.close()
        for robot, goal in goals.items():
            sent = [part.segment for part in goal.feedback]
            assert [segment.index for segment in sent] == list(range(len(sent))), robot
        flown = {
            name: [r["command"] for r in drone.journal.records("motion")] for name, drone in drones.items()
        }
        assert [c for c in flown["drone3"] if c not in ("takeoff", "land")] == expected_commands(
            FLIGHTS["rise"]
        )
        sent = [part.segment.text for goal in (goals["drone2"], urgent) for part in goal.feedback]
        square = [command for command in flown["drone2"] if command not in ("takeoff", "land")]
        assert square == [command for command in expected_commands(sent) if command in square], (
            "twice, unsent or out of order"
        )
        assert square[-2:] == expected_commands(FLIGHTS["flee"])
        # From 41 cm ahead the cat is just out of view: one step of the scan shows it, a little to the left.
        assert flown["drone1"][1] == "forward 41"
        names = [command.split()[0] for command in flown["drone1"]]
        assert names == ["takeoff", "forward", "cw", "ccw", "forward", "back", "land"]
        for drone in drones.values():
            assert {r["outcome"] for r in drone.journal.records("motion")} <= {"done", "stopped"}
        gripped = [r["command"] for r in arms["arm1"].journal.records("command") if "SetDO" in r["command"]]
        assert gripped == ["SetDO(0=1)", "SetDO(0=0)"]
        moved = [r["command"].split("(")[0] for r in arms["arm2"].journal.records("motion")]
        assert moved == ["MoveL"]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass(eq=False)
class ExampleRover:
    """The example robot, a process that may be switched off and on."""

    port: int
    process: subprocess.Popen[bytes] | None = None

    def switch_on(self) -> None:
        command = [sys.executable, str(EXAMPLES / "rover.py"), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))

        def answers() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", self.port)) == 0

        eventually(answers, "the rover does not listen")

    def switch_off(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT_S)


@pytest.fixture
def rover(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExampleRover]:
    """The example robot; the example's files are found as the guide says."""
    monkeypatch.setenv("TIMELY_SKILLS_PATH", str(EXAMPLES / "skills"))
    monkeypatch.setenv("LRTRACE_PROFILES_PATH", str(EXAMPLES / "robot_profiles"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = ExampleRover(free_port())
    try:
        example.switch_on()
        yield example
    finally:
        example.switch_off()


def test_the_reader_of_an_ended_connection_does_not_end_the_next_one(rover: ExampleRover) -> None:
    robot: Any = robot_class("rover_driver:Rover")({"port": rover.port})
    robot.connect(LIMIT_S)
    first = robot._socket
    robot.disconnect()
    robot.connect(LIMIT_S)
    try:
        robot._read(first)  # its thread may come to its end so late
        assert not robot.status().link_lost
        robot.halt()
    finally:
        robot.disconnect()


def test_the_robot_of_the_guide_is_driven_by_under_100_lines(domain_id: int, rover: ExampleRover) -> None:
    assert len((EXAMPLES / "rover_driver.py").read_text().splitlines()) < 100
    data = yaml.safe_load((EXAMPLES / "rover.yaml").read_text())
    data["robots"]["rover1"]["parameters"]["port"] = rover.port
    server = FakeServer(
        {
            "go": [FakeSegment("drive(0.5);"), FakeSegment("turn(90);"), FakeSegment("drive(0.25);")],
            "far": [FakeSegment("drive(3.0);")],
            "too far": [FakeSegment("drive(4.0);")],
        },
        ahead=0,
        skill_sets=("rover",),
    )
    fleet = start_bridge_fleet(
        parse_bridge_fleet({"server_url": "http://fake", **data}), domain_id=domain_id, client_factory=server
    )
    program = Program(domain_id)
    try:
        assert program.send(ExecuteTask, "/rover1/execute_task", task="go").result().outcome == "complete"
        assert fleet.drivers["rover1"].robot.status().position == pytest.approx((0.5, 0.25, 0.0))
        far = program.send(ExecuteTask, "/rover1/execute_task", task="far")
        eventually(lambda: far.feedback)
        asked_s = far.cancel()
        assert far.result().outcome == "cancelled"
        assert far.ended_s - asked_s < AT_ONCE_S
        eventually(lambda: fleet.drivers["rover1"].robot.status().at_rest, "it is not seen at rest")
        refused = program.send(ExecuteTask, "/rover1/execute_task", task="too far").result()
        assert refused.outcome == "failed", refused
        rover.switch_off()
        eventually(lambda: fleet.drivers["rover1"].robot.status().link_lost, "it is not seen as lost")
        rover.switch_on()
        assert program.send(ExecuteTask, "/rover1/execute_task", task="go").result().outcome == "complete"
    finally:
        program.close()
        assert fleet.close()


@pytest.mark.parametrize("name", ["tello", "emulated", "rover"])
def test_the_example_fleets_load(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    fleet = load_bridge_fleet(EXAMPLES / f"{name}.yaml")
    assert fleet.robots
    for robot in fleet.robots:
        assert issubclass(robot_class(robot.driver), Robot)


@pytest.mark.parametrize("kind", ["no_such_module:Driver", "math:Driver", "math:pi", ":", "json:JSONDecoder"])
def test_what_is_no_driver_is_refused(kind: str) -> None:
    with pytest.raises(InvalidInput, match="driver"):
        robot_class(kind)
