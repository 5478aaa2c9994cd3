"""What every registered robot driver must do; a driver that is registered cannot skip it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from action_msgs.msg import GoalStatus
from emulated_robots import emulated_indy7, emulated_tello, own_host
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import TransitionCallbackReturn
from ros_harness import AT_ONCE_S, LIMIT_S, Goal, Program, eventually
from std_srvs.srv import Trigger
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import ErrorCode, RobotState
from timely_interfaces.srv import ResetStop
from timely_robots import halter
from timely_robots.language import check_robot_segment
from timely_robots.registry import ROBOTS, robot_class
from timely_robots.robot import Robot
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.segments import MotionError, SegmentOrder

from lrtrace.profiles import load_robot_profile
from timely.core.errors import UnknownName
from timely.plans.skill_library import find_skill_set

pytestmark = [pytest.mark.ros]

SUCCESS = TransitionCallbackReturn.SUCCESS


@dataclass(frozen=True)
class Subject:
    """A kind of driver and plans for it: a short motion, a long one (seconds), a query, and what it must refuse.

    The kind of a robot of your own is ``module:class``; without skills that return a value its query is empty.
    """

    kind: str
    parameters: dict[str, Any]
    skill_set: str
    short: str
    long: str
    query: str
    out_of_limits: str
    nonsense: str
    robot: Callable[[], AbstractContextManager[object]] = nullcontext
    """What the driver connects to, for as long as a test takes."""


DRONE: dict[str, Any] = {
    "skill_set": "drone",
    "short": "mf(20);",
    "long": "d(60);",
    "query": "iv('cat');",
    "out_of_limits": "mf(9999);",
    "nonsense": "zz(1);",
}
ARM: dict[str, Any] = {
    "skill_set": "arm",
    "short": "home();",
    "long": "move_to('table');" * 30,
    "query": "look('table');",
    "out_of_limits": f"say('{'x' * 600}');",
    "nonsense": "fly();",
}
SIM = {"seed": 1, "times": "expected"}
TELLO: dict[str, Any] = {
    "host": own_host(71),
    "command_port": 18889,
    "profile": "tello",
    "things": ["cat:0:200"],
}
INDY7: dict[str, Any] = {"host": own_host(72), "profile": "indy7", "things": ["table:0.45,-0.1,0.1"]}
QUADROTOR = {"body": "quadrotor", "speed": 8.0, "profile": "mujoco-quadrotor", "things": ["cat:0:200"]}
DESK = {
    "body": "arm",
    "speed": 4.0,
    "profile": "mujoco-arm",
    "things": ["cup:0.45,-0.1"],
    "places": ["table:0.4,0.2"],
}
SUBJECTS = {
    "sim drone": Subject("sim", {**SIM, "profile": "sim-drone", "speed": 20.0}, **DRONE),
    "sim arm": Subject("sim", {**SIM, "profile": "sim-arm", "speed": 20.0}, **ARM),
    "tello": Subject("tello", TELLO, **DRONE, robot=lambda: emulated_tello(TELLO["host"])),
    "mujoco quadrotor": Subject("mujoco", QUADROTOR, **{**DRONE, "long": "mf(500);mb(500);" * 4}),
    "mujoco arm": Subject("mujoco", DESK, **ARM),
    "indy7": Subject("indy7", INDY7, **ARM, robot=lambda: emulated_indy7(INDY7["host"])),
}
"""Every registered kind is here at least once: see the first test."""
EXAMPLES = Path(__file__).parents[3] / "examples/robots"


def read_subjects(path: Path) -> dict[str, Subject]:
    """The subjects of a file for ``--robots``, by name."""
    return {name: Subject(**fields) for name, fields in yaml.safe_load(path.read_text()).items()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "idle" in metafunc.fixturenames:
        path = metafunc.config.getoption("robots")
        subjects = SUBJECTS | (read_subjects(path) if path else {})
        metafunc.parametrize("idle", subjects.values(), ids=list(subjects), indirect=True)


class Bench:
    """A driver in a process with a program that talks to it over ROS 2."""

    def __init__(self, subject: Subject, domain_id: int) -> None:
        self.subject = subject
        self.driver = DriverNode(
            robot_class(subject.kind)(),
            namespace="robot1",
            context=(context := isolated_ros_context(domain_id)),
            overrides={**subject.parameters, "skill_set": subject.skill_set},
        )
        self.spinner = RosSpinner(context, [self.driver], name="driver").start()
        self.program = Program(domain_id)
        self.tasks = 0

    def step(self, name: str) -> TransitionCallbackReturn:
        """A transition of the life cycle, on the driver's own thread."""
        return self.spinner.call_and_wait(getattr(self.driver, f"trigger_{name}"), LIMIT_S)

    def start(self) -> None:
        assert self.step("configure") == SUCCESS
        assert self.step("activate") == SUCCESS
        self.spinner.executor.wake()

    def task(self) -> str:
        self.tasks += 1
        return f"task{self.tasks}"

    def send(self, index: int, text: str, task: str, **fields: Any) -> Goal:
        return self.program.send(
            ExecuteSegment, "/robot1/execute_segment", task_id=task, index=index, text=text, **fields
        )

    def one(self, text: str) -> Any:
        return self.send(0, text, self.task()).result()

    def do(self, text: str) -> None:
        result = self.one(text)
        assert result.outcome == "done", result.error_msg

    def stop(self) -> Any:
        return self.program.call(Trigger, "/robot1/driver/stop")

    def reset(self) -> Any:
        return self.program.call(ResetStop, "/robot1/driver/reset")

    def close(self) -> None:
        self.program.close()
        assert self.spinner.close(), "the driver's executor did not end"
        assert self.spinner.errors == 0, "a callback raised"


@pytest.fixture
def idle(request: pytest.FixtureRequest, domain_id: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A driver that nobody has configured."""
    monkeypatch.setattr(halter, "HALT_S", AT_ONCE_S)
    with request.param.robot():
        bench = Bench(request.param, domain_id)
        yield bench
        bench.close()


@pytest.fixture
def bench(idle: Bench) -> Bench:
    """A driver at work."""
    idle.start()
    return idle


def test_every_registered_kind_is_tested() -> None:
    assert {subject.kind for subject in SUBJECTS.values()} >= set(ROBOTS)


def test_the_plans_of_the_examples_are_what_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELY_SKILLS_PATH", str(EXAMPLES / "skills"))
    monkeypatch.setenv("LRTRACE_PROFILES_PATH", str(EXAMPLES / "robot_profiles"))
    (rover,) = read_subjects(EXAMPLES / "conformance.yaml").values()
    profile = load_robot_profile(rover.parameters["profile"])

    def check(text: str) -> None:
        check_robot_segment(SegmentOrder("task", 0, text, rover.skill_set), profile)

    check(rover.short)
    check(rover.long)
    for text, code in [
        (rover.out_of_limits, ErrorCode.OUT_OF_LIMITS),
        (rover.nonsense, ErrorCode.SEGMENT_INVALID),
    ]:
        with pytest.raises(MotionError) as caught:
            check(text)
        assert caught.value.code == code


def test_unknown_kinds_list_the_known() -> None:
    with pytest.raises(UnknownName, match="known: indy7, module:class, mujoco, sim, tello"):
        robot_class("submarine")


@pytest.mark.parametrize("kind", ROBOTS)
def test_the_class_says_the_kind_it_is_registered_as(kind: str) -> None:
    assert issubclass(robot_class(kind), Robot)
    assert robot_class(kind).kind == kind


def test_a_segment_is_executed_and_reported(bench: Bench) -> None:
    begin = time.time()
    goal = bench.send(0, bench.subject.short, bench.task(), execution_s=1.0)
    result = goal.result()
    assert (result.outcome, result.error_code) == ("done", ErrorCode.NONE), result.error_msg
    assert goal.status == GoalStatus.STATUS_SUCCEEDED
    assert result.executed == bench.subject.short.rstrip(";")
    start, end = (stamp.sec + 1e-9 * stamp.nanosec for stamp in (result.start, result.end))
    assert begin - 0.1 <= start <= end <= time.time() + 0.1
    assert end - start == pytest.approx(result.elapsed_s, abs=0.02)
    first = eventually(lambda: goal.feedback)[0]
    assert (first.progress, first.elapsed_s) == (0.0, 0.0)


def test_a_segment_of_another_copy_of_the_skill_set_never_runs(bench: Bench) -> None:
    task = bench.task()
    goals = [
        bench.send(0, bench.subject.short, task, skill_set_fingerprint="0123456789abcdef"),
        bench.send(1, bench.subject.short, task),
    ]
    refusal, rest = (goal.result() for goal in goals)
    assert (refusal.outcome, refusal.error_code) == ("refused", ErrorCode.SKILL_SET_MISMATCH)
    own = find_skill_set(bench.subject.skill_set).fingerprint
    assert "0123456789abcdef" in refusal.error_msg
    assert own in refusal.error_msg
    assert (rest.outcome, rest.executed) == ("refused", "")
    same = bench.send(0, bench.subject.short, bench.task(), skill_set_fingerprint=own)
    assert same.result().outcome == "done"


def test_segments_sent_ahead_follow_each_other_at_once(bench: Bench) -> None:
    task = bench.task()
    goals = [bench.send(index, bench.subject.short, task) for index in range(4)]
    results = [goal.result() for goal in goals]
    assert [result.outcome for result in results] == ["done"] * 4
    times = [
        (result.start.sec + 1e-9 * result.start.nanosec, result.end.sec + 1e-9 * result.end.nanosec)
        for result in results
    ]
    gaps = [start - end for (_, end), (start, _) in itertools.pairwise(times)]
    assert min(gaps) >= -0.002
    assert min(gaps) < 0.1
    assert max(gaps) < AT_ONCE_S


def test_a_query_returns_a_value(bench: Bench) -> None:
    if not bench.subject.query:
        pytest.skip("no skill of this robot returns a value")
    result = bench.one(bench.subject.query)
    assert result.outcome == "done", result.error_msg
    assert result.has_value
    assert result.value


def test_a_motion_returns_none(bench: Bench) -> None:
    assert not bench.one(bench.subject.short).has_value


def test_what_must_not_run_is_refused_with_a_code(bench: Bench) -> None:
    subject = bench.subject
    for text, code in [
        (subject.out_of_limits, ErrorCode.OUT_OF_LIMITS),
        (subject.nonsense, ErrorCode.SEGMENT_INVALID),
    ]:
        goal = bench.send(0, text, bench.task())
        result = goal.result()
        assert (result.outcome, result.error_code, result.executed) == ("refused", code, ""), result.error_msg
        assert goal.status == GoalStatus.STATUS_ABORTED
        assert result.error_msg
    bench.do(subject.short)


def test_a_segment_is_executed_at_most_once(bench: Bench) -> None:
    task = bench.task()
    assert bench.send(0, bench.subject.short, task).result().outcome == "done"
    assert bench.send(0, bench.subject.short, task).result().error_code == ErrorCode.DUPLICATE
    assert bench.send(2, bench.subject.short, task).result().error_code == ErrorCode.OUT_OF_ORDER
    assert bench.send(1, bench.subject.short, task).result().outcome == "done"


def test_cancel_ends_the_motion_at_once(bench: Bench) -> None:
    task = bench.task()
    moving, waiting = bench.send(0, bench.subject.long, task), bench.send(1, bench.subject.short, task)
    eventually(lambda: moving.feedback, "it never began")
    asked_s = moving.cancel()
    result = moving.result()
    assert (result.outcome, result.error_code) == ("cancelled", ErrorCode.SEGMENT_CANCELLED)
    assert moving.status == GoalStatus.STATUS_CANCELED
    assert moving.ended_s - asked_s < AT_ONCE_S
    assert result.executed
    assert waiting.result().outcome == "cancelled"
    bench.do(bench.subject.short)


def test_stop_works_while_it_moves_and_needs_a_reset(bench: Bench) -> None:
    moving = bench.send(0, bench.subject.long, bench.task())
    eventually(lambda: moving.feedback, "it never began")
    asked_s = time.monotonic()
    assert bench.stop().success
    result = moving.result()
    assert (result.outcome, result.error_code) == ("cancelled", ErrorCode.DRIVER_STOPPED)
    assert moving.ended_s - asked_s < AT_ONCE_S
    assert bench.one(bench.subject.short).error_code == ErrorCode.DRIVER_STOPPED
    assert bench.stop().success, "twice is fine"
    assert bench.reset().success
    bench.do(bench.subject.short)


def test_state_is_published_and_follows_what_happens(bench: Bench) -> None:
    heard = bench.program.listen(RobotState, "/robot1/state", latched=True)
    eventually(lambda: heard and heard[-1].mode == RobotState.READY)
    task = bench.task()
    moving = bench.send(0, bench.subject.long, task)
    now = eventually(lambda: next((state for state in heard if state.mode == RobotState.EXECUTING), None))
    assert (now.task_id, now.segment) == (task, 0)
    assert now.robot == bench.driver.robot.profile.name
    assert now.driver == bench.driver.robot.kind
    moving.cancel()
    eventually(lambda: heard[-1].mode == RobotState.READY)
    bench.stop()
    eventually(lambda: heard[-1].mode == RobotState.STOPPED)
    before = len(heard)
    eventually(lambda: len(heard) >= before + 2, "the state is no heartbeat")
    assert len({state.session for state in heard}) == 1


def test_a_driver_that_is_not_active_refuses(idle: Bench) -> None:
    assert idle.step("configure") == SUCCESS
    idle.spinner.executor.wake()
    assert idle.one(idle.subject.short).error_code == ErrorCode.DRIVER_INACTIVE
    assert idle.step("activate") == SUCCESS
    idle.do(idle.subject.short)
    moving = idle.send(0, idle.subject.long, idle.task())
    eventually(lambda: moving.feedback, "it never began")
    assert idle.step("deactivate") == SUCCESS
    assert moving.result().outcome == "cancelled"
    assert idle.one(idle.subject.short).error_code == ErrorCode.DRIVER_INACTIVE
    assert idle.step("cleanup") == SUCCESS
    idle.start()
    idle.do(idle.subject.short)


def test_the_life_cycle_is_there_for_other_nodes(idle: Bench) -> None:
    for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
        request = ChangeState.Request()
        request.transition.id = transition
        assert idle.program.call(ChangeState, "/robot1/driver/change_state", request).success
    idle.do(idle.subject.short)


def test_a_profile_that_does_not_exist_is_a_failed_configuration(idle: Bench, domain_id: int) -> None:
    heard = idle.program.listen(RobotState, "/robot2/state", latched=True)
    broken = DriverNode(
        robot_class(idle.subject.kind)(),
        namespace="robot2",
        context=idle.spinner.context,
        overrides={**idle.subject.parameters, "profile": "no-such-robot"},
    )
    idle.spinner.add(broken)
    assert idle.spinner.call_and_wait(broken.trigger_configure, LIMIT_S) == TransitionCallbackReturn.FAILURE
    fault = eventually(lambda: next((state for state in heard if state.mode == RobotState.FAULT), None))
    assert "no-such-robot" in fault.detail


def test_many_segments_leave_nothing_behind(bench: Bench) -> None:
    task = bench.task()
    for index in range(40):
        assert bench.send(index, bench.subject.query or bench.subject.short, task).result().outcome == "done"
    client = next(iter(bench.program._clients.values()))
    eventually(lambda: len(client._futures) == 0, "rclpy keeps futures of goals that are long over")
