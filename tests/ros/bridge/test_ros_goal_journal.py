"""Goals survive the end of the bridge's process: the next bridge takes them up, and no motion is repeated."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bridge_doubles import FakeServer
from fleet_world import SCRIPTS, World, a_fleet
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.serialization import serialize_message
from ros_harness import LIMIT_S, Program, eventually
from test_ros_processes import Child
from timely_bridge import goal_journal, robot_server
from timely_bridge.goal_journal import FILE, IDENTITY, LOCK, MAX_BYTES, BridgeGoalEntry, BridgeGoalJournal
from timely_bridge.goal_run import BridgeGoalRun
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.node import BridgeNode
from timely_bridge.outcome import BridgeTimeline
from timely_bridge.run_fleet import _bridge_state_text, bridge_state_folder
from timely_interfaces.action import ExecuteTask
from timely_interfaces.msg import ErrorCode, Task
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import TASKS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.segments import Motion, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot

from timely.core.errors import InvalidInput
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import ScriptedSegment
from timely.server.app import create_app
from timely.server.server_thread import ServerThread

pytestmark = [pytest.mark.ros]

TIMEOUT_S = 120.0
"""Driver and bridge wait so long for a bridge, however long its start takes here."""
PLANS = {
    "Go": [
        ScriptedSegment("mf(41);", 0.3),
        ScriptedSegment("d(20);", 2.0),
        ScriptedSegment("mb(42);", 0.3),
    ],
    "Wait": [ScriptedSegment("d(60);", 6.0)],
}


def test_a_bridge_has_one_identity_over_its_restarts_and_no_other_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(folder: Path | None) -> str:
        with closing(BridgeGoalJournal(folder)) as journal:
            return journal.identity

    first = identity(tmp_path / "a")
    assert (identity(tmp_path / "a"), len(first)) == (first, 32)
    assert identity(tmp_path / "not" / "there" / "yet") not in ("", first)
    assert identity(None) == ""
    (tmp_path / "a" / "identity").write_bytes(b"\xff")
    assert identity(tmp_path / "a") not in ("", first)

    def refuse(file: Path, content: str) -> None:
        raise InvalidInput("no room", where=str(file))

    monkeypatch.setattr(goal_journal, "core_write_file", refuse)
    assert identity(tmp_path / "c") == "", "the next start would have another"


def unfinished_goals(folder: Path) -> dict[str, BridgeGoalEntry]:
    with closing(BridgeGoalJournal(folder)) as journal:
        return journal.unfinished_goals


def test_a_journal_knows_the_goals_that_did_not_end(tmp_path: Path) -> None:
    journal = BridgeGoalJournal(tmp_path)
    assert journal.unfinished_goals == {}
    timeline = BridgeTimeline(5.0, math.nan, [(6.0, 7.0)], ["a;"], ["a;"])
    journal.put("one", "drone1", "one", "secret", request=b"1")
    journal.put("two", "drone2", "two", "", request=b"2", before=BridgeTimeline(5.0))
    journal.begin("two", "two", 7)
    journal.finish("two", "two", 0, SegmentExecution("done", elapsed_s=1.0, end_s=7.0, value="cat"))
    journal.put("two", "drone2", "two-r1", "other", replaces={"task_id": "two"}, before=timeline)
    journal.end("one")
    journal.finish("one", "one", 0, SegmentExecution("done"))
    with pytest.raises(InvalidInput, match="another bridge"):
        BridgeGoalJournal(tmp_path)
    journal.close()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"goal": "thr')
    for lives in (1, 2):
        again = BridgeGoalJournal(tmp_path)
        ((name, goal),) = again.unfinished_goals.items()
        assert (name, goal.robot, goal.request, goal.began, goal.lives) == (
            "two",
            "drone2",
            b"2",
            True,
            lives,
        )
        first, second = goal.plans.values()
        assert list(goal.plans) == ["two", "two-r1"]
        assert (first.token, first.replaces, first.began, first.session) == ("", None, True, 7)
        assert first.executions == {0: SegmentExecution("done", elapsed_s=1.0, end_s=7.0, value="cat")}
        assert (second.token, second.replaces, second.began) == ("other", {"task_id": "two"}, False)
        assert (second.before.arrival_s, second.before.spans, second.before.executed) == (
            5.0,
            [(6.0, 7.0)],
            ["a;"],
        )
        assert goal.cancelled == (lives == 2)
        again.cancel("two")
        if lives == 2:
            again.end("two")
        again.close()
    assert unfinished_goals(tmp_path) == {}


def test_a_journal_knows_when_its_bridge_was_last_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = BridgeGoalJournal(tmp_path, 10.0)
    assert (journal.owner, journal.silence_s) == ("", math.inf)
    journal.live("the first bridge", 12.0)
    journal.live("bridge", 20.0)
    journal.close()
    again = BridgeGoalJournal(tmp_path, 23.5)
    assert (again.owner, again.silence_s) == ("bridge", 3.5)
    again.close()
    # Of an earlier start of the machine, whose clock began anew.
    with closing(BridgeGoalJournal(tmp_path, 1.0)) as past:
        assert (past.owner, past.silence_s) == ("", math.inf)
    monkeypatch.setattr(goal_journal, "machine_boot_id", lambda: "another start")
    with closing(BridgeGoalJournal(tmp_path, 23.5)) as past:
        assert (past.owner, past.silence_s) == ("", math.inf)


def test_a_journal_stays_short(tmp_path: Path) -> None:
    journal = BridgeGoalJournal(tmp_path)
    for number in range(40):
        journal.put(f"goal {number}", "drone1", "x" * 40_000, "token")
        journal.end(f"goal {number}")
    assert (tmp_path / FILE).stat().st_size < MAX_BYTES
    journal.close()
    assert BridgeGoalJournal().unfinished_goals == {}


def test_a_journal_of_long_goals_is_not_written_anew_at_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goal_journal, "MAX_BYTES", 1000)
    with closing(BridgeGoalJournal(tmp_path)) as journal:
        for number in range(3):
            journal.put(f"goal {number}", "drone1", "x" * 1000, "token")
        monkeypatch.setattr(
            journal, "_rewrite", lambda: pytest.fail("a line takes as long as the whole file")
        )
        journal.cancel("goal 0")
    assert unfinished_goals(tmp_path)["goal 0"].cancelled


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow; the process gets an error instead of a signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("next_call", ["live", "put"])
def test_what_a_full_disk_refused_is_written_when_there_is_room(tmp_path: Path, next_call: str) -> None:
    journal = BridgeGoalJournal(tmp_path, 0.0)
    for name in ("ended", "goes on"):
        journal.put(name, "drone1", name, "token")
    with full_disk():
        journal.end("ended")
        journal.cancel("goes on")
        journal.live("bridge", 1.0)
        assert journal.problem
    if next_call == "live":
        journal.live("bridge", 2.0)
    else:
        journal.put("new", "drone2", "new", "token")
    assert not journal.problem
    journal.live("bridge", 2.0)
    journal.close()
    again = BridgeGoalJournal(tmp_path, 3.0)
    again.close()
    assert list(again.unfinished_goals) == ["goes on", "new"][: 1 + (next_call == "put")]
    assert again.unfinished_goals["goes on"].cancelled
    assert again.silence_s == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, IDENTITY, LOCK]


def test_a_note_of_life_that_the_disk_refused_is_no_problem_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle bridge writes nothing else, and its diagnostics would warn for ever."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with closing(BridgeGoalJournal(tmp_path, 0.0)) as journal:
        with monkeypatch.context() as disk:
            disk.setattr(os, "pwrite", full)
            journal.live("bridge-1", 1.0)
        assert journal.problem
        journal.live("bridge-1", 2.0)
        assert not journal.problem


def test_a_bridge_killed_while_the_disk_was_full_leaves_no_goal_to_take_up(tmp_path: Path) -> None:
    journal = BridgeGoalJournal(tmp_path, 0.0)
    journal.put("ended", "drone1", "ended", "token")
    journal.live("bridge", 0.5)
    with full_disk():
        journal.end("ended")
        journal.close()
    again = BridgeGoalJournal(tmp_path, 1.0)
    again.live("bridge", 1.5)
    again.close()
    assert list(again.unfinished_goals) == ["ended"], "those who follow it are told that it is over"
    assert again.silence_s == math.inf, "it could be taken up"
    assert BridgeGoalJournal(tmp_path, 2.0).silence_s == 0.5


def test_a_disk_with_room_for_a_line_alone_loses_no_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line in a file of its own would hide the lines before it."""

    def full(*_: object) -> None:
        raise InvalidInput("No space left on device", where=FILE)

    monkeypatch.setattr(goal_journal, "core_write_file", full)
    with closing(BridgeGoalJournal(tmp_path)) as journal:
        journal.put("new", "drone1", "new", "token")
    assert not (tmp_path / FILE).exists()


def test_a_bridge_that_starts_on_a_full_disk_writes_its_goals_when_there_is_room(tmp_path: Path) -> None:
    journal = BridgeGoalJournal(tmp_path, 0.0)
    journal.put("goes on", "drone1", "goes on", "token")
    journal.live("bridge", 0.5)
    journal.close()
    with full_disk():
        journal = BridgeGoalJournal(tmp_path, 1.0)
        assert journal.problem
        assert (list(journal.unfinished_goals), journal.owner, journal.silence_s) == (
            ["goes on"],
            "bridge",
            0.5,
        )
        journal.put("new", "drone2", "new", "token")
    journal.live("bridge", 2.0)
    assert not journal.problem
    journal.close()
    assert list(unfinished_goals(tmp_path)) == ["goes on", "new"]


def test_a_queued_goal_that_ends_takes_no_lease_from_the_one_in_motion(
    domain_id: int, tmp_path: Path
) -> None:
    """A lease of another name would end the motion that the driver goes on with."""
    moves, queued = (f"ros-{number:032x}" for number in (1, 2))
    journal = BridgeGoalJournal(tmp_path, time.monotonic())
    for name in (moves, queued):
        request = bytes(serialize_message(ExecuteTask.Goal(task="Go")))
        journal.put(name, "drone1", name, "token", request=request)
    journal.begin(moves, moves, 1)
    journal.cancel(queued)
    journal.live("the bridge before", time.monotonic())
    journal.close()
    context = isolated_ros_context(domain_id)
    parameters = {"robots": ["drone1"], "drone1.skill_set": "drone", "state_folder": str(tmp_path)}
    bridge = BridgeNode(context=context, overrides=parameters, client_factory=FakeServer({"Go": []}))
    spinner = RosSpinner(context, [bridge], name="bridge").start()
    try:
        assert spinner.call_and_wait(bridge.trigger_configure, 20.0) == TransitionCallbackReturn.SUCCESS
        assert bridge._robots["drone1"].port.lease.owner == "the bridge before"
    finally:
        assert spinner.close()


def test_a_cancellation_is_on_the_disk_before_it_is_answered(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that is killed after the answer goes on with nothing; before it the driver has been told."""
    goes_on, cancel = threading.Event(), BridgeGoalJournal.cancel

    def slow(journal: BridgeGoalJournal, goal: str) -> None:
        assert goes_on.wait(LIMIT_S)
        cancel(journal, goal)

    monkeypatch.setattr(BridgeGoalJournal, "cancel", slow)
    monkeypatch.setattr(robot_server, "CANCEL_SAVE_S", LIMIT_S, raising=False)
    world = World(domain_id, a_fleet(state_folder=str(tmp_path)), FakeServer(SCRIPTS, ahead=0))
    lines_at_answer: list[str] = []

    def send_cancel() -> None:
        assert goal._call.handle is not None
        answer = goal._call.handle.cancel_goal_async()
        answer.add_done_callback(lambda _: lines_at_answer.append((tmp_path / FILE).read_text()))

    try:
        goal = world.task("drone1", "wait")
        eventually(lambda: goal.feedback, "it never began")
        segments = world.fleet.bridge._robots["drone1"].port._goals
        world.program.spinner.call(send_cancel)
        eventually(lambda: [mine.cancelled for mine in segments.values()] == [True], "the driver waits")
        goes_on.set()
        eventually(lambda: lines_at_answer, "it is not answered")
        assert '"cancelled": true' in lines_at_answer[0]
        assert goal.result().outcome == "cancelled"
    finally:
        goes_on.set()
        world.close()


def test_a_goal_that_is_cancelled_before_its_plan_begins_is_in_no_journal(
    domain_id: int, tmp_path: Path
) -> None:
    """The line of its cancellation would come before that of the goal, and count for nothing."""
    world = World(domain_id, a_fleet(state_folder=str(tmp_path)), FakeServer(SCRIPTS, ahead=0))
    try:
        robot = world.fleet.bridge._robots["drone1"]
        start, begun = robot._start, threading.Event()

        def start_and_cancel(handle: Any, run: BridgeGoalRun) -> None:
            start(handle, run)
            run.cancel(ErrorCode.CANCELLED, "cancelled by the client")
            begun.set()

        robot._start = start_and_cancel  # type: ignore[method-assign]
        goal = world.task("drone1", "wait")
        assert begun.wait(LIMIT_S)
        goal.result()
        assert '"robot"' not in (tmp_path / FILE).read_text()
    finally:
        world.close()


def test_a_stop_while_goals_are_taken_up_ends_them(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ros-{1:032x}"
    journal = BridgeGoalJournal(tmp_path, time.monotonic())
    journal.put(name, "drone1", name, "token", request=bytes(serialize_message(ExecuteTask.Goal(task="Go"))))
    journal.live("the bridge before", time.monotonic())
    journal.close()
    context = isolated_ros_context(domain_id)
    parameters = {"robots": ["drone1"], "drone1.skill_set": "drone", "state_folder": str(tmp_path)}
    bridge = BridgeNode(context=context, overrides=parameters, client_factory=FakeServer({"Go": []}))
    take_up = bridge._take_up_goals

    def stop_first(*goals: Any) -> list[str]:
        bridge.fleet_stop.stop(0.0)
        return take_up(*goals)

    monkeypatch.setattr(bridge, "_take_up_goals", stop_first)
    spinner = RosSpinner(context, [bridge], name="bridge").start()
    try:
        assert spinner.call_and_wait(bridge.trigger_configure, 20.0) == TransitionCallbackReturn.SUCCESS
        robot = bridge._robots["drone1"]
        eventually(lambda: robot.outcomes["cancelled"] and not robot.runs, "it goes on after the stop")
        assert robot.last_error.startswith("FLEET_STOPPED")
    finally:
        assert spinner.close()


def test_goals_that_cannot_be_taken_up_end_without_a_server(domain_id: int, tmp_path: Path) -> None:
    names = [f"ros-{number:032x}" for number in (1, 2)]
    journal = BridgeGoalJournal(tmp_path, time.monotonic())
    for name in names:
        journal.put(name, "drone1", name, "token")
    journal.close()
    server = FakeServer()
    server.down = True
    context = isolated_ros_context(domain_id)
    parameters = {"robots": ["drone1"], "drone1.skill_set": "drone", "state_folder": str(tmp_path)}
    bridge = BridgeNode(context=context, overrides=parameters, client_factory=server)
    spinner = RosSpinner(context, [bridge], name="bridge").start()
    program = Program(domain_id)
    try:
        ends = program.listen(Task, "/drone1/task", qos=TASKS)
        assert spinner.call_and_wait(bridge.trigger_configure, 20.0) == TransitionCallbackReturn.SUCCESS
        eventually(lambda: {end.task_id for end in ends} == set(names), "a goal waits for the server")
        assert {end.error_code for end in ends} == {ErrorCode.BRIDGE_INACTIVE}
    finally:
        program.close()
        assert spinner.close()
    assert list(unfinished_goals(tmp_path)) == names, "the server does not know it yet"


def test_each_fleet_file_has_a_folder_of_its_own(own_state_dir: Path, tmp_path: Path) -> None:
    one, other = (
        bridge_state_folder(str(tmp_path / "fleet.yaml")),
        bridge_state_folder(str(tmp_path / "a" / "fleet.yaml")),
    )
    assert one != other
    assert one.is_relative_to(own_state_dir)


def test_a_fleet_says_where_its_stop_and_goals_are_and_that_a_renamed_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert _bridge_state_text(str(tmp_path / "kept")) == f"stop and goals are kept in {tmp_path}/kept"
    assert "which is new" in _bridge_state_text(str(tmp_path / "other"))
    assert _bridge_state_text("") == "stop and goals are not kept"


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
    settings = {
        "profile": "sim-drone",
        "skill_set": "drone",
        "speed": 10.0,
        "times": "expected",
        "lease_lapse_s": TIMEOUT_S,
        "task_silence_s": TIMEOUT_S,
        "autostart": True,
    }
    driver = DriverNode(robot, namespace="drone1", context=context, overrides=settings)
    spinner = RosSpinner(context, [driver], name="driver").start()
    yield robot
    assert spinner.close()


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread(create_app(ScriptedEngine(PLANS, token_s=0.002))) as running:
        yield running


@pytest.mark.process
def test_a_killed_bridge_takes_its_goals_up_when_it_is_back(
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
        "take_up_s": TIMEOUT_S,
    }
    file = tmp_path / "bridge.yaml"
    file.write_text(json.dumps({"/**": {"ros__parameters": parameters}}))
    command = ["-m", "timely_bridge.main", "--ros-args", "--params-file", str(file)]
    program = Program(domain_id)
    children = [Child(command, domain_id, (tmp_path / "first.log").open("w+b"))]
    try:
        goal = program.send(ExecuteTask, "/drone1/execute_task", task="Go")
        eventually(lambda: goal.feedback, "it never began")
        waiting = program.send(ExecuteTask, "/drone1/execute_task", task="Wait")
        name = bytes(waiting.goal_id.uuid).hex()
        eventually(lambda: drone.flown[-1:] == ["d(20)"], "the second segment never began")
        eventually(lambda: name in (folder / FILE).read_text(), "the second goal was not taken")
        children[0].process.send_signal(signal.SIGKILL)
        children[0].end()
        program.close()
        children.append(Child(command, domain_id, (tmp_path / "second.log").open("w+b")))
        program = Program(domain_id)
        result = program.ask(ExecuteTask, "/drone1/execute_task", goal.goal_id)
        assert (result.outcome, result.plan) == ("complete", "mf(41);d(20);mb(42);"), result.error_msg
        cancelled = program.ask(ExecuteTask, "/drone1/execute_task", waiting.goal_id, cancel=True)
        assert cancelled.outcome == "cancelled", cancelled.error_msg
        assert drone.flown[:3] == ["mf(41)", "d(20)", "mb(42)"]
        assert len(drone.flown) == len(set(drone.flown))
        children[1].process.send_signal(signal.SIGINT)
        assert children[1].end() == 0, children[1].said()
        assert unfinished_goals(folder) == {}
    finally:
        program.close()
        for child in children:
            child.close()
