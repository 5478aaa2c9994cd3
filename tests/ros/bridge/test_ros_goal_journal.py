"""Goals survive the end of the bridge's process: the next bridge ends them, and no motion is repeated."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ros_harness import LIMIT_S, Program, eventually
from test_ros_processes import Child
from timely_bridge.goal_journal import FILE, MAX_BYTES, GoalEntry, GoalJournal
from timely_bridge.run_fleet import bridge_state_folder
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, RobotState, Task
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import TASKS
from timely_robots.ros.spinner import Spinner, isolated_ros_context
from timely_robots.segments import Motion, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot

from timely.client import TimelyClient
from timely.core.errors import InvalidInput
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import ScriptedSegment
from timely.server.app import create_app
from timely.server.server_thread import ServerThread

pytestmark = [pytest.mark.ros, pytest.mark.timeout(180)]

PLANS = {
    "Stay": [
        ScriptedSegment("mf(41);", 0.3),
        ScriptedSegment("d(60);", 6.0),
        ScriptedSegment("mb(42);", 0.3),
    ],
    "Go": [ScriptedSegment("mf(43);", 0.3)],
}


def unfinished(folder: Path) -> dict[str, GoalEntry]:
    with closing(GoalJournal(folder)) as journal:
        return journal.unfinished


def test_a_journal_knows_the_goals_that_did_not_end(tmp_path: Path) -> None:
    journal = GoalJournal(tmp_path)
    assert journal.unfinished == {}
    journal.put("one", "drone1", "one", "secret")
    journal.put("two", "drone2", "two", "")
    journal.put("two", "drone2", "two-r1", "other")
    journal.end("one")
    with pytest.raises(InvalidInput, match="another bridge"):
        GoalJournal(tmp_path)
    journal.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"goal": "thr')
    again = GoalJournal(tmp_path)
    assert {name: (goal.robot, goal.tokens) for name, goal in again.unfinished.items()} == {
        "two": ("drone2", {"two": "", "two-r1": "other"})
    }
    again.end("two")
    again.close()
    assert unfinished(tmp_path) == {}


def test_a_journal_stays_short_and_a_full_disk_ends_no_goal(tmp_path: Path) -> None:
    journal = GoalJournal(tmp_path)
    for number in range(40):
        journal.put(f"goal {number}", "drone1", "x" * 40_000, "token")
        journal.end(f"goal {number}")
    assert (tmp_path / FILE).stat().st_size < MAX_BYTES
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    journal.put("last", "drone1", "last", "token")
    assert journal.problem
    journal.close()
    assert GoalJournal().unfinished == {}


def test_each_fleet_file_has_a_folder_of_its_own(own_state_dir: Path, tmp_path: Path) -> None:
    one, other = (
        bridge_state_folder(str(tmp_path / "fleet.yaml")),
        bridge_state_folder(str(tmp_path / "a" / "fleet.yaml")),
    )
    assert one != other
    assert one.is_relative_to(own_state_dir)


class Flown(SimRobot):
    """A simulated drone that keeps what it was commanded."""

    def __init__(self) -> None:
        super().__init__()
        self.flown: list[str] = []

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        self.flown.append(call.text)
        return super().perform(call, motion)


@pytest.fixture
def drone(domain_id: int) -> Iterator[Flown]:
    robot = Flown()
    context = isolated_ros_context(domain_id)
    settings = {"profile": "sim-drone", "skill_set": "drone", "speed": 10.0, "times": "expected"}
    driver = DriverNode(robot, namespace="drone1", context=context, overrides={**settings, "autostart": True})
    spinner = Spinner(context, [driver], name="driver").start()
    yield robot
    assert spinner.close()


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(create_app(ScriptedEngine(PLANS, token_s=0.002))) as running:
        yield running


@pytest.mark.process
def test_a_killed_bridge_ends_its_goals_when_it_is_back(
    domain_id: int, tmp_path: Path, drone: Flown, server: ServerThread
) -> None:
    folder = tmp_path / "bridge"
    parameters = {
        "server_url": server.url,
        "robots": ["drone1"],
        "drone1.profile": "sim-drone",
        "drone1.skill_set": "drone",
        "autostart": True,
        "state_folder": str(folder),
    }
    file = tmp_path / "bridge.yaml"
    file.write_text(json.dumps({"/**": {"ros__parameters": parameters}}))
    command = ["-m", "timely_bridge.main", "--ros-args", "--params-file", str(file)]
    program = Program(domain_id)
    tasks: list[Any] = []
    program.spinner.call_and_wait(
        lambda: program.node.create_subscription(Task, "/drone1/task", tasks.append, TASKS), LIMIT_S
    )
    states = program.listen(RobotState, "/drone1/state", latched=True)
    children = [Child(command, domain_id, (tmp_path / "first.log").open("w+b"))]
    try:
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="Stay")
        task_id = eventually(lambda: goal.feedback, "it never began")[0].segment.task_id
        eventually(lambda: drone.flown[-1:] == ["d(60)"], "the second segment never began")
        children[0].process.send_signal(signal.SIGKILL)
        children[0].end()
        children.append(Child(command, domain_id, (tmp_path / "second.log").open("w+b")))
        ended = eventually(
            lambda: next((t for t in tasks if t.task_id == task_id and t.phase == Task.ENDED), None),
            "the end of the task was not published",
        )
        assert (ended.outcome, ended.error_code) == ("failed", ErrorCode.BRIDGE_INACTIVE)
        with TimelyClient(server.url) as client:
            eventually(lambda: client.task(task_id)["outcome"] == "cancelled", "the server plans on")
        eventually(lambda: states[-1].mode == RobotState.READY, "the robot does not come to rest")
        program.close()
        program = Program(domain_id)
        result = program.send(ExecuteTask, "/drone1/execute_task", task="Go").result()
        assert result.outcome == "complete", result.error_msg
        assert drone.flown == ["mf(41)", "d(60)", "mf(43)"]
        children[1].process.send_signal(signal.SIGINT)
        assert children[1].end() == 0, children[1].said()
        assert unfinished(folder) == {}
    finally:
        program.close()
        for child in children:
            child.close()
