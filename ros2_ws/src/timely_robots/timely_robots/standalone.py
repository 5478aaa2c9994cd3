"""One robot alone in this process, for measuring it: plan texts in, outcomes and times out. No ROS 2 is needed.

The robot's own code and the executor of the drivers run here. The clock may run faster than real time, if the robot
is an emulator or a simulation that does so, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any

from lrtrace.errors import LRTraceError
from lrtrace.profiles import load_robot_profile
from lrtrace.record.recorder import RecordedExecution
from lrtrace.robot_profile import RobotProfile
from timely.core.clock import SystemClock
from timely.core.errors import InvalidInput, TimelyError, Unsupported
from timely_robots import language
from timely_robots.clock import RobotClock, SteppedRobotClock
from timely_robots.driver_parameters import (
    DRIVER_PARAMETERS,
    MANAGED_PARAMETERS,
    PROXIMITY_PARAMETERS,
    check_ros_parameter_names,
)
from timely_robots.execution import SegmentExecutor
from timely_robots.registry import robot_class
from timely_robots.robot import Robot
from timely_robots.segments import MotionError, SegmentOrder, SegmentResult, SilentListener

GRACE_S = 10.0
KEYS = ("driver", "profile", "skill_set", "parameters")


def open_standalone_robot(name: str, entry: Mapping[str, Any], speed: float = 1.0) -> StandaloneRobot:
    """Connect to a robot as a fleet file describes it.

    Args:
        speed: how many times faster than real time robot and clock run.

    Raises:
        ValueError: the description is wrong. RuntimeError: the robot cannot be used.
    """
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}; known: {', '.join(KEYS)}")
    try:
        kind = robot_class(str(entry.get("driver", "sim")))
        is_stepped = kind.drives_clock and speed != 1.0
        clock: RobotClock = SteppedRobotClock(speed) if is_stepped else SystemClock(speed)
        settings, driver = _check_standalone_robot_parameters(kind, entry.get("parameters") or {})
        robot = kind(settings, clock)
    except TimelyError as error:
        raise ValueError(str(error)) from error
    try:
        robot.profile = load_robot_profile(str(entry.get("profile", "")))
        skill_set = str(entry.get("skill_set", ""))
        if skill_set:
            language.robot_executor_skill_set(skill_set)
        robot.connect(driver["connect_timeout_s"])
    except (LRTraceError, MotionError) as error:
        raise RuntimeError(str(error)) from error
    return StandaloneRobot(robot, skill_set, speed, name)


def _check_standalone_robot_parameters(
    kind: type[Robot], parameters: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of a driver that are settings of its robot, and the values of all others.

    Raises:
        InvalidInput: no driver has such a parameter, or its value is wrong.
        Unsupported: the robot would move without its proximity gate.
    """
    if not isinstance(parameters, Mapping):
        raise InvalidInput("must be a mapping", where="parameters")
    settings = {setting.name for setting in kind.SETTINGS}
    driver_names = {setting.name for setting in DRIVER_PARAMETERS}
    check_ros_parameter_names(parameters, {*MANAGED_PARAMETERS, *driver_names, *settings}, "parameters")
    driver = {one.name: one.check(parameters.get(one.name, one.default)) for one in DRIVER_PARAMETERS}
    for gate in PROXIMITY_PARAMETERS:
        if driver[gate.name] > 0.0:
            raise Unsupported("only a driver's node has a proximity gate: leave it out", where=gate.name)
    return {name: value for name, value in parameters.items() if name in settings}, driver


class StandaloneRobot:
    """A connected robot; see ``lrtrace.record.recorder.Robot``."""

    def __init__(self, robot: Robot, skill_set: str, speed: float, name: str) -> None:
        self.robot = robot
        self._skill_set, self._speed = skill_set, speed
        self._executor = SegmentExecutor(robot, name=name)
        self._task, self._index = "", 0

    @property
    def profile(self) -> RobotProfile:
        return self.robot.profile

    def execute(self, text: str, timeout_s: float) -> RecordedExecution:
        """Execute one text and wait for its end. A failure ends the plan; the next text begins another."""
        if not self._task:
            self._task, self._index = uuid.uuid4().hex, 0
        segment = text if text.endswith((";", "}")) else f"{text};"
        end = _StandaloneRobotEnd()
        self._executor.submit(SegmentOrder(self._task, self._index, segment, self._skill_set), end)
        self._index += 1
        result = end.wait(timeout_s / self._speed + GRACE_S)
        if result is None:
            self._executor.cancel(self._task, self._index - 1)
            self._task = ""
            return RecordedExecution("failed", 0.0, f"not at rest within {timeout_s:g} s")
        if result.outcome != "done":
            self._task = ""
        return RecordedExecution(result.outcome, result.elapsed_s, result.message)

    def close(self) -> None:
        self._executor.close(GRACE_S)
        self.robot.disconnect()


class _StandaloneRobotEnd(SilentListener):
    def __init__(self) -> None:
        self._results: SimpleQueue[SegmentResult] = SimpleQueue()

    def on_end(self, result: SegmentResult) -> None:
        self._results.put(result)

    def wait(self, timeout_s: float) -> SegmentResult | None:
        """The result; None if the segment has not ended in time."""
        try:
            return self._results.get(timeout=timeout_s)
        except Empty:
            return None
