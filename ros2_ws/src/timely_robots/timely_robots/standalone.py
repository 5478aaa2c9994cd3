"""One robot's driver alone in this process, for measuring it: plan texts in, outcomes and times out.

The very driver that serves plans, spoken to over the very ROS 2 action; only its clock may run faster, where the robot
is an emulator or a simulation that does so too.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.lifecycle import TransitionCallbackReturn
from timely_interfaces.action import ExecuteSegment

from lrtrace.record.recorder import Execution
from lrtrace.robot_profile import RobotProfile
from timely.core.errors import TimelyError
from timely_robots.clock import Pacer, ScaledPacer, SteppedPacer, SystemPacer
from timely_robots.registry import driver_class
from timely_robots.ros.rclpy_utils import Spinner, isolated_context, send_goal

START_S = 30.0
GRACE_S = 10.0
KEYS = ("driver", "profile", "skill_set", "parameters")


def open_robot(
    name: str, given: Mapping[str, Any], speed: float = 1.0, domain_id: int | None = None
) -> LoneRobot:
    """Start the driver of a robot as a fleet file describes it.

    Raises:
        ValueError: the description is wrong. RuntimeError: the driver does not start.
    """
    for key in given:
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}; known: {', '.join(KEYS)}")
    try:
        kind = driver_class(str(given.get("driver", "sim")))
    except TimelyError as error:
        raise ValueError(str(error)) from error
    overrides = {
        **(given.get("parameters") or {}),
        "profile": str(given.get("profile", "")),
        "skill_set": str(given.get("skill_set", "")),
    }
    context = isolated_context(domain_id)
    pacer: Pacer = SystemPacer()
    if speed != 1.0:
        pacer = SteppedPacer(speed) if getattr(kind, "own_time", False) else ScaledPacer(speed)
    driver = kind(namespace=name, context=context, overrides=overrides, pacer=pacer)
    node = rclpy.create_node("measuring", namespace=name, context=context)
    client = ActionClient(node, ExecuteSegment, "execute_segment")
    robot = LoneRobot(driver, client, Spinner(context, [driver, node], name=f"{name} alone").start(), speed)
    try:
        robot.start()
    except BaseException:
        robot.close()
        raise
    return robot


class LoneRobot:
    """A driver at work; see ``lrtrace.record.recorder.Robot``."""

    def __init__(self, driver: Any, client: ActionClient, spinner: Spinner, speed: float) -> None:
        self._driver, self._client, self._spinner, self._speed = driver, client, spinner, speed
        self._task, self._index = "", 0

    @property
    def profile(self) -> RobotProfile:
        """Of the robot."""
        found: RobotProfile = self._driver.profile
        return found

    def start(self) -> None:
        """Configure and activate; raises RuntimeError if the driver refuses, which its log explains."""
        for step in ("configure", "activate"):
            done = self._spinner.call_and_wait(getattr(self._driver, f"trigger_{step}"), START_S)
            if done != TransitionCallbackReturn.SUCCESS:
                raise RuntimeError(f"the driver did not {step}; its log says why")
        self._spinner.executor.wake()
        if not self._client.wait_for_server(START_S):
            raise RuntimeError("the driver's action did not appear")

    def execute(self, text: str, timeout_s: float) -> Execution:
        """Execute one text and wait for its end."""
        if not self._task:
            self._task, self._index = f"measuring-{uuid.uuid4().hex}", 0
        goal = ExecuteSegment.Goal(task_id=self._task, index=self._index, text=_closed(text))
        self._index += 1
        ended, answer = threading.Event(), list[Any]()

        def follow(future: Any) -> None:
            future.result().get_result_async().add_done_callback(settle)

        def settle(future: Any) -> None:
            answer.append(future.result().result)
            ended.set()

        self._spinner.call(lambda: send_goal(self._client, goal).add_done_callback(follow))
        if not ended.wait(timeout_s / self._speed + GRACE_S):
            self._driver.halt()
            self._task = ""
            return Execution("failed", 0.0, f"not at rest within {timeout_s:g} s")
        result = answer[0]
        if result.outcome != result.DONE:
            self._task = ""  # what comes next is a new plan
        return Execution(result.outcome, float(result.elapsed_s), result.error_msg)

    def close(self) -> None:
        """End the driver."""
        self._spinner.close(GRACE_S)


def _closed(text: str) -> str:
    """A segment ends with a semicolon or a brace."""
    return text if text.endswith((";", "}")) else f"{text};"
